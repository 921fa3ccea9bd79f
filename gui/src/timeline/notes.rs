//! Markers and notes on the timeline; notes are part of the session's document.

use egui::accesskit::Role;
use egui::{Align2, Id, Painter, Pos2, Rect, Response, Sense, Stroke, TextEdit, Ui, pos2, vec2};

use super::scale::{Scale, length, moment};
use super::state::{NoteEdit, Timeline};
use crate::command::Command;
use crate::document::Note;
use crate::theme::{Tokens, prose, text};
use crate::widgets;

/// Draws markers and notes over the lanes.
pub(super) fn show(
    ui: &mut Ui,
    timeline: &mut Timeline,
    (notes, run): (&[Note], u64),
    painter: &Painter,
    plot: Rect,
    scale: &Scale,
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    if let Some((a, b)) = timeline.span() {
        let (left, right) = (scale.x(a).max(plot.left()), scale.x(b).min(plot.right()));
        if right > left {
            let area = Rect::from_x_y_ranges(left..=right, plot.y_range());
            painter.rect_filled(area, 0.0, tokens.accent.gamma_multiply(0.10));
            let words = length(b - a);
            painter.text(
                pos2((left + right) / 2.0, plot.bottom() - 4.0),
                Align2::CENTER_BOTTOM,
                words,
                prose(text::SMALL),
                tokens.accent,
            );
        }
    }
    for (name, marker) in ["A", "B"].into_iter().zip(timeline.markers) {
        let Some(at) = marker else { continue };
        let x = scale.x(at);
        if !plot.x_range().contains(x) {
            continue;
        }
        painter.vline(x, plot.y_range(), Stroke::new(1.5, tokens.accent));
        let flag = Rect::from_center_size(pos2(x, plot.top() - 8.0), vec2(15.0, 15.0));
        painter.rect_filled(flag, 3.0, tokens.accent);
        painter.text(
            flag.center(),
            Align2::CENTER_CENTER,
            name,
            prose(text::SMALL),
            tokens.on_accent,
        );
        let response = ui.interact(flag, Id::unique("marker").with(name), Sense::hover());
        let words = format!("marker {name} at {}", moment(at));
        widgets::named(response, Role::Label, &words).on_hover_text(words);
    }
    let written = timeline.writing.as_ref().and_then(|one| one.place);
    for (place, note) in notes.iter().enumerate() {
        let x = scale.x(note.at);
        let is_of_another = note.run.is_some_and(|of| of != run);
        if is_of_another || !plot.x_range().contains(x) || written == Some(place) {
            continue;
        }
        painter.vline(x, plot.y_range(), Stroke::new(1.0, tokens.number));
        let response = tag(ui, painter, pos2(x, plot.top() + 3.0), place, note);
        if response.hovered() {
            timeline.hovered_note = Some(place);
        }
        if response.clicked() {
            timeline.writing = Some(NoteEdit {
                place: Some(place),
                note: note.clone(),
            });
        }
    }
    if let Some(mut writing) = timeline.writing.take() {
        if write(ui, &mut writing.note, painter, plot, scale) {
            timeline.writing = Some(writing);
        } else {
            commands.push(Command::WriteNote(writing.place, writing.note));
        }
    }
}

/// Draws a note.
fn tag(ui: &Ui, painter: &Painter, at: Pos2, place: usize, note: &Note) -> Response {
    let tokens = Tokens::of(ui);
    let words = &note.text;
    let font = prose(text::SMALL);
    let galley = widgets::truncated(painter, words.clone(), font, tokens.on_accent, 160.0);
    let tag = Rect::from_min_size(at, galley.size() + vec2(10.0, 4.0));
    painter.rect_filled(tag, 3.0, tokens.number);
    painter.galley(tag.min + vec2(5.0, 2.0), galley, tokens.on_accent);
    let response = ui.interact(tag, Id::unique("note tag").with(place), Sense::click());
    let response = widgets::named(response, Role::Button, &format!("note: {words}"));
    response.on_hover_text(format!(
        "{words}\nat {}; click to edit, Delete to remove",
        moment(note.at)
    ))
}

/// Draws the field of the note being edited. Returns whether editing continues.
fn write(ui: &mut Ui, note: &mut Note, painter: &Painter, plot: Rect, scale: &Scale) -> bool {
    let x = scale.x(note.at);
    if !plot.x_range().contains(x) {
        // Out of view: editing continues when it scrolls back into view.
        return true;
    }
    painter.vline(x, plot.y_range(), Stroke::new(1.0, Tokens::of(ui).number));
    let field = Rect::from_min_size(
        pos2(x.min(plot.right() - 224.0) + 4.0, plot.top() + 4.0),
        vec2(220.0, 24.0),
    );
    let edit = TextEdit::singleline(&mut note.text)
        .hint_text("note")
        .id(Id::unique("note"));
    let response = ui.put(field, edit);
    let response = widgets::named(response, Role::TextInput, "Note");
    if response.lost_focus() {
        return false;
    }
    response.request_focus();
    true
}
