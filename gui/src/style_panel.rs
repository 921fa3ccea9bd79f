//! Choice of the open function's style, in place or whole, with the cost of each.

use egui::accesskit::Role;
use egui::{Align, Grid, Layout, RichText, Ui, vec2};
use gilk_engine::placement::{Comparison, Style, StyleCost};

use crate::command::Command;
use crate::graph::Scene;
use crate::graph::marks::sentence;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Draws the choice, if the session has instruments in the function.
pub(crate) fn show(ui: &mut Ui, state: &State, scene: &Scene, commands: &mut Vec<Command>) {
    let Some(compared) = state.plan.compared.get(&scene.name) else {
        return;
    };
    let tokens = Tokens::of(ui);
    let wanted = state.document.session().style(&scene.name);
    widgets::caption(ui, "style");
    // In a narrow pane what is taken now is in the next line.
    ui.horizontal_wrapped(|ui| {
        for style in Style::ALL {
            let chosen = wanted == style;
            let response = ui.selectable_label(chosen, style.name());
            let name = format!("instrument the function: {style}");
            let response = widgets::chosen(response, Role::RadioButton, chosen, &name)
                .on_hover_text(meaning(style));
            if response.clicked() && !chosen {
                commands.push(Command::Style(style));
            }
        }
        ui.label(
            RichText::new(format!("now {}", taken(state, scene)))
                .small()
                .color(tokens.weak),
        );
    });
    costs(ui, compared);
    if let Err(refusal) = &compared.whole {
        ui.label(
            RichText::new(format!("Not whole: {}", sentence(refusal)))
                .small()
                .color(tokens.warning),
        );
    }
}

const fn meaning(style: Style) -> &'static str {
    match style {
        Style::Auto => {
            "Whole if there are at least eight hooks, less time per call, and at most four times the bytes copied; otherwise in place."
        }
        Style::InPlace => "A splice at each hook.",
        Style::Whole => {
            "Splices at the function's entrances; their patches continue until control leaves the function."
        }
    }
}

/// Returns the style in the current plan.
fn taken(state: &State, scene: &Scene) -> &'static str {
    let plan = state
        .plan
        .outcome
        .as_ref()
        .and_then(|plan| plan.as_ref().ok());
    let functions = plan.map(|plan| plan.plan().functions.as_slice());
    let mut functions = functions.unwrap_or_default().iter();
    functions
        .find(|one| one.outline.function == scene.function())
        .map_or("not planned", |one| one.style.name())
}

/// Calls that patches execute, each as long as a hundred jumps; a line only where there are any.
const MOVED_CALLS: &str = "moved calls";

/// Height of a line and width of a number in points.
const HEIGHT: f32 = 15.0;
const NUMBER: f32 = 54.0;

fn costs(ui: &mut Ui, compared: &Comparison) {
    type Line = (&'static str, fn(&StyleCost) -> String);
    const LINES: [Line; 9] = [
        ("ns per call", |cost| format!("{:.1}", cost.ns)),
        ("jumps per call", |cost| format!("{:.1}", cost.jumps)),
        ("splices", |cost| cost.sites.to_string()),
        ("bounces", |cost| cost.bounces.to_string()),
        ("bytes written", |cost| widgets::grouped(cost.written)),
        ("bytes copied", |cost| widgets::grouped(cost.copied)),
        ("points", |cost| cost.points.to_string()),
        ("waits", |cost| cost.waits.to_string()),
        (MOVED_CALLS, |cost| cost.moved_calls.to_string()),
    ];
    let tokens = Tokens::of(ui);
    let right = |ui: &mut Ui, text: RichText| {
        let size = vec2(NUMBER, ui.spacing().interact_size.y.min(HEIGHT));
        let layout = Layout::right_to_left(Align::Center);
        ui.allocate_ui_with_layout(size, layout, |ui| ui.label(text))
            .inner
    };
    Grid::new("styles")
        .num_columns(3)
        .spacing([space::MEDIUM, space::HAIR])
        .min_row_height(HEIGHT)
        .show(ui, |ui| {
            ui.label("");
            for words in ["in place", "whole"] {
                right(ui, RichText::new(words).small().color(tokens.weak));
            }
            ui.end_row();
            let whole = compared.whole.as_ref();
            let moves = compared.in_place.moved_calls + whole.map_or(0, |whole| whole.moved_calls);
            let lines = LINES.into_iter();
            for (name, value) in lines.filter(|line| line.0 != MOVED_CALLS || moves > 0) {
                widgets::caption(ui, name);
                let in_place = value(&compared.in_place);
                let whole = compared
                    .whole
                    .as_ref()
                    .map_or_else(|_| "–".to_owned(), value);
                for (style, value) in [("in place", in_place), ("whole", whole)] {
                    let label = right(ui, RichText::new(&value).font(code(text::SMALL)));
                    widgets::named(label, Role::Label, &format!("{name} {style}: {value}"));
                }
                ui.end_row();
            }
        });
}
