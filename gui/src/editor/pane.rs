//! Draws the editor: the source with its errors, its cost, and the generated code.

use egui::accesskit::Role;
use egui::{Align, Frame, Label, Layout, RichText, ScrollArea, Stroke, TextEdit, Ui};
use gilk_instruments::editor::{Good, Marked};

use super::highlight;
use crate::command::Command;
use crate::patch_pane;
use crate::patch_view::PatchView;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Draws the pane's header, next to its tab.
pub(crate) fn header(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    let editor = &state.editor;
    if editor.text.is_none() {
        return;
    }
    let good = editor.name().is_some();
    widgets::button(ui, "Use", Command::UseInstrument, good, commands);
    widgets::button(ui, "Save", Command::SaveInstrument, true, commands);
    widgets::button(ui, "Format", Command::FormatInstrument, good, commands);
    let place = editor.path.as_ref().and_then(|path| path.file_name());
    if let Some(place) = place {
        let words = RichText::new(place.to_string_lossy()).small();
        ui.add(Label::new(words.color(Tokens::of(ui).weak)).truncate());
    }
}

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    if state.editor.text.is_none() {
        widgets::empty(
            ui,
            "No instrument open",
            "Click \u{201c}source\u{201d} in the list of instruments, or start a new instrument.",
        );
        ui.vertical_centered(|ui| {
            widgets::button(ui, "New instrument", Command::NewInstrument, true, commands);
            widgets::button(ui, "Open file…", Command::OpenInstrument, true, commands);
        });
        return;
    }
    ui.columns(2, |columns| {
        if let [left, right] = columns {
            source(left, state);
            ScrollArea::vertical()
                .id_salt("becomes")
                .auto_shrink(false)
                .show(right, |ui| widgets::inset(ui, |ui| becomes(ui, state)));
        }
    });
}

fn source(ui: &mut Ui, state: &mut State) {
    let tokens = Tokens::of(ui);
    let faults: Vec<Marked> = state
        .editor
        .edited
        .as_ref()
        .map(|edited| edited.faults.clone())
        .unwrap_or_default();
    let below = if faults.is_empty() { 0.0 } else { 96.0 };
    let height = (ui.available_height() - below).max(60.0);
    let (edited, checked) = (&state.editor.edited, &state.editor.checked);
    let Some(text) = &mut state.editor.text else {
        return;
    };
    ScrollArea::both()
        .id_salt("source")
        .auto_shrink(false)
        .max_height(height)
        .show(ui, |ui| {
            let mut layouter = |ui: &Ui, text: &dyn egui::TextBuffer, _width: f32| {
                // Errors of another text do not fit this one.
                let text = text.as_str();
                let known = checked.as_ref().is_some_and(|(known, _)| known == text);
                let edited = edited.as_ref().filter(|_| known);
                ui.fonts_mut(|fonts| fonts.layout_job(highlight::job(text, edited, tokens)))
            };
            let field = TextEdit::multiline(text)
                .code_editor()
                .frame(
                    Frame::NONE
                        .fill(tokens.field)
                        .inner_margin(space::margins(space::SMALL, space::SMALL)),
                )
                .desired_width(f32::INFINITY)
                .min_size(egui::vec2(0.0, height - 2.0))
                .layouter(&mut layouter);
            widgets::named(ui.add(field), Role::MultilineTextInput, "Source");
        });
    if faults.is_empty() {
        return;
    }
    ScrollArea::vertical()
        .id_salt("faults")
        .auto_shrink(false)
        .show(ui, |ui| widgets::inset(ui, |ui| wrong(ui, &faults)));
}

fn wrong(ui: &mut Ui, faults: &[Marked]) {
    let tokens = Tokens::of(ui);
    ui.spacing_mut().item_spacing.y = space::HAIR;
    for one in faults {
        let place = format!("line {}, column {}", one.line, one.column);
        ui.horizontal_wrapped(|ui| {
            ui.label(
                RichText::new(&place)
                    .font(code(text::SMALL))
                    .color(tokens.bad),
            );
            let words = RichText::new(&one.fault.message).small();
            let label = ui.label(words.color(tokens.strong));
            let name = format!("{place}: {}", one.fault.message);
            widgets::named(label, Role::Label, &name);
            if !one.fault.help.is_empty() {
                ui.label(RichText::new(&one.fault.help).small().color(tokens.weak));
            }
        });
    }
}

/// Draws the cost and the generated code.
fn becomes(ui: &mut Ui, state: &State) {
    let tokens = Tokens::of(ui);
    let good = state.editor.edited.as_ref();
    let Some(good) = good.and_then(|edited| edited.good.as_ref()) else {
        let words = "Fix all errors to see the generated code.";
        ui.label(RichText::new(words).color(tokens.weak));
        return;
    };
    costs(ui, good);
    let (Some(catalogue), Some(scene)) = (&state.catalogue, &state.graph.scene) else {
        let words = "Open a function to see the generated code.";
        ui.label(RichText::new(words).color(tokens.weak));
        return;
    };
    match &state.editor.outcome {
        None => {
            ui.label(RichText::new("Compiling…").color(tokens.weak));
        }
        Some(Err(why)) => {
            Frame::NONE
                .fill(tokens.bad_fill)
                .stroke(Stroke::new(1.0, tokens.line))
                .corner_radius(space::CORNER)
                .inner_margin(space::margins(space::SMALL, space::SNUG))
                .show(ui, |ui| {
                    ui.set_width(ui.available_width());
                    for words in why {
                        ui.label(RichText::new(words).small().color(tokens.text));
                    }
                });
        }
        Some(Ok(verified)) => {
            let place = format!("in {}", scene.name);
            widgets::caption(ui, &place);
            for section in PatchView::instruments(catalogue.image(), verified.plan()) {
                patch_pane::section(ui, &section);
            }
        }
    }
}

fn costs(ui: &mut Ui, good: &Good) {
    let tokens = Tokens::of(ui);
    ui.with_layout(Layout::top_down(Align::Min), |ui| {
        let name = RichText::new(&good.definition.name).font(code(text::BODY));
        ui.label(name.color(tokens.strong));
        let words = format!(
            "{} Placed {}.",
            good.definition.summary,
            good.definition.stand()
        );
        ui.label(RichText::new(words).small().color(tokens.text));
        for (head, cost) in &good.costs {
            let words = format!("{head}: {cost}");
            let shown = ui.label(
                RichText::new(&words)
                    .font(code(text::SMALL))
                    .color(tokens.weak),
            );
            widgets::named(shown, Role::Label, &words);
        }
        ui.add_space(space::TIGHT);
    });
}
