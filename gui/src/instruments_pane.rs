//! The list of instruments, the session's own and the library's: drag them to the graph or select
//! one for the inspector.

use egui::accesskit::Role;
use egui::text::LayoutJob;
use egui::{Id, RichText, ScrollArea, Sense, TextEdit, Ui, vec2};
use gilk_engine::paths::counted_function;
use gilk_instruments::{Definition, Stand};

use crate::command::Command;
use crate::desk::{Pane, filter_field};
use crate::dragged_instrument::DraggedInstrument;
use crate::icons::Icon;
use crate::instrument_group::InstrumentGroup;
use crate::state::State;
use crate::theme::{Tokens, code, prose, space, text};
use crate::widgets;

/// Height of an instrument's row, including the gap: a line with its name and two with its summary.
const CARD: f32 = 58.0;
/// Height of a group's heading.
const HEADING: f32 = 26.0;
/// Space to the left of the texts, which has the icon.
const ICON: f32 = 20.0;
/// Size of the button that shows the source.
const SOURCE: egui::Vec2 = vec2(40.0, 18.0);

/// Draws the pane's header, next to its tab.
pub(crate) fn header(ui: &mut Ui, state: &State, commands: &mut Vec<Command>) {
    widgets::button(ui, "New", Command::NewInstrument, true, commands);
    let words = widgets::grouped(state.offered().count() as u64);
    ui.label(RichText::new(words).small().color(Tokens::of(ui).weak));
}

/// Draws the pane.
pub(crate) fn show(ui: &mut Ui, state: &mut State, commands: &mut Vec<Command>) {
    widgets::inset(ui, |ui| {
        let field = TextEdit::singleline(&mut state.wanted_instrument)
            .id(filter_field(Pane::Instruments))
            .hint_text("Filter: name or summary")
            .desired_width(f32::INFINITY)
            .margin(space::margins(space::SMALL, space::SNUG));
        widgets::named(ui.add(field), Role::TextInput, "Filter instruments");
    });
    let wanted = state.wanted_instrument.trim().to_lowercase();
    let matching = |one: &&Definition| {
        one.name.contains(&wanted) || one.summary.to_lowercase().contains(&wanted)
    };
    // Instruments that count paths are made by a command, and removed by one.
    let is_made = |one: &Definition| counted_function(&one.name, &one.summary).is_some();
    // The session's own come first.
    let own = state.own_instruments.len();
    let mut found: Vec<(InstrumentGroup, &Definition)> = state
        .offered()
        .enumerate()
        .filter(|(_, one)| matching(one))
        .map(|(place, one)| (InstrumentGroup::of(one, place < own), one))
        .filter(|(group, one)| *group != InstrumentGroup::Session || !is_made(one))
        .collect();
    if found.is_empty() {
        widgets::empty(
            ui,
            "Nothing matches",
            "Type fewer letters, or click New to write an instrument.",
        );
        return;
    }
    // Stable: a group has the order of the library.
    found.sort_by_key(|(group, _)| *group);
    let mut chosen = None;
    ui.spacing_mut().item_spacing.y = 0.0;
    ScrollArea::vertical()
        .id_salt("instruments")
        .auto_shrink(false)
        .show(ui, |ui| {
            let mut last = None;
            for (group, definition) in &found {
                if last.replace(*group) != Some(*group) {
                    heading(ui, *group);
                }
                if card(ui, state, *group, definition, commands) {
                    chosen = Some(definition.name.clone());
                }
            }
        });
    if let Some(chosen) = chosen {
        state.draft.instrument = chosen;
    }
}

/// Draws the heading of a group.
fn heading(ui: &mut Ui, group: InstrumentGroup) {
    let tokens = Tokens::of(ui);
    let size = vec2(ui.available_width(), HEADING);
    let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
    widgets::named(response, Role::Heading, group.title());
    ui.painter().rect_filled(rect, 0.0, tokens.bar);
    ui.painter().text(
        egui::pos2(rect.left() + space::PANEL, rect.center().y),
        egui::Align2::LEFT_CENTER,
        group.title(),
        prose(text::SMALL),
        tokens.strong,
    );
}

/// Draws an instrument's row. Returns whether it was selected.
fn card(
    ui: &mut Ui,
    state: &State,
    group: InstrumentGroup,
    definition: &Definition,
    commands: &mut Vec<Command>,
) -> bool {
    let tokens = Tokens::of(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), CARD), Sense::hover());
    let name = definition.name.as_str();
    let id = Id::unique("instrument").with(name);
    let response = ui.interact(rect, id, Sense::click_and_drag());
    let here = state.draft.instrument == name;
    let response = widgets::chosen(
        response,
        Role::ListBoxOption,
        here,
        &format!("instrument {name}"),
    );
    if response.gained_focus() {
        // Keys move the focus to rows that are not in view.
        response.scroll_to_me(None);
    }
    response.dnd_set_drag_payload(DraggedInstrument(name.to_owned()));
    let fill = match (here, response.hovered()) {
        (true, _) => Some(tokens.accent_fill),
        (false, true) => Some(tokens.hover),
        _ => None,
    };
    if let Some(fill) = fill {
        ui.painter().rect_filled(rect, 0.0, fill);
    }
    let left = rect.left() + space::PANEL + ICON;
    let right = rect.right() - space::PANEL;
    let painter = ui.painter().with_clip_rect(ui.clip_rect().intersect(rect));
    let top = rect.top() + 14.0;
    let icon = egui::pos2(rect.left() + space::PANEL + Icon::SIZE / 2.0, top);
    let ink = tokens.instrument(name);
    group.icon().paint(&painter, icon, ink);
    let title = painter.text(
        egui::pos2(left, top),
        egui::Align2::LEFT_CENTER,
        name,
        code(text::CODE),
        tokens.strong,
    );
    let kind = if definition.native().is_some() {
        "native, unverified, "
    } else {
        ""
    };
    let color = tokens.weak;
    let stand = widgets::truncated(
        &painter,
        format!("{kind}{}", definition.stand()),
        prose(text::SMALL),
        color,
        right - SOURCE.x - title.right() - 2.0 * space::SMALL,
    );
    let at = egui::pos2(title.right() + space::SMALL, top - stand.size().y / 2.0);
    painter.galley(at, stand, color);
    let mut summary = LayoutJob::simple(
        definition.summary.clone(),
        prose(text::SMALL),
        tokens.text,
        right - left,
    );
    summary.wrap.max_rows = 2;
    let summary = painter.layout_job(summary);
    painter.galley(egui::pos2(left, rect.top() + 24.0), summary, tokens.text);
    if definition.text().is_some() {
        let at = egui::Rect::from_center_size(egui::pos2(right - 14.0, top), SOURCE);
        let edit = ui.interact(at, id.with("edit"), Sense::click());
        let edit = widgets::named(edit, Role::Button, &format!("edit {name}"));
        let color = if edit.hovered() {
            tokens.accent
        } else {
            tokens.weak
        };
        ui.painter().text(
            at.center(),
            egui::Align2::CENTER_CENTER,
            "source",
            prose(text::SMALL),
            color,
        );
        if edit.clicked() {
            commands.push(Command::EditInstrument(name.to_owned()));
        }
    }
    if response.drag_started() {
        // Gives the keyboard focus back to the window, so that the drop can be undone.
        ui.memory_mut(egui::Memory::stop_text_input);
    }
    let explained = definition.explanation();
    let words = format!(
        "{}\n{explained}{}Drag it {}.",
        definition.summary,
        if explained.is_empty() { "" } else { "\n" },
        match definition.stand() {
            Stand::Hook => "to the upper or lower half of a block, or to an edge of a branch",
            Stand::Block => "to a block",
            Stand::Branch => "to a block that ends with a branch, or to one of its edges",
            Stand::Function => "to a graph, or to a function in the list",
        }
    );
    response.on_hover_text(words).clicked()
}
