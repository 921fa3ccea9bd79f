//! Two markers, and what a person wrote beside times; notes are kept with the session.

use egui::accesskit::Role;
use egui::{Align2, Id, Key, Painter, Rect, Sense, Stroke, TextEdit, Ui, pos2, vec2};
use serde::{Deserialize, Serialize};

use super::scale::{Scale, length, moment};
use super::view::Timeline;
use crate::theme::{Tokens, prose, text};
use crate::widgets;

/// Something written beside a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// Seconds from the start.
    pub at: f64,
    /// What was written.
    pub text: String,
}

impl Timeline {
    /// Puts marker A (0) or B (1) where the pointer is, or in the middle of what is seen.
    pub fn mark(&mut self, which: usize) {
        let at = self.pointed();
        if let Some(marker) = self.markers.get_mut(which) {
            *marker = Some(at);
        }
    }

    /// The seconds between the markers, when both are there.
    #[must_use]
    pub fn span(&self) -> Option<(f64, f64)> {
        let [Some(a), Some(b)] = self.markers else {
            return None;
        };
        Some((a.min(b), a.max(b)))
    }

    /// Begins a note where the pointer is, or in the middle of what is seen.
    pub fn annotate(&mut self) {
        let at = self.pointed();
        self.notes.push(Note {
            at,
            text: String::new(),
        });
        self.editing = Some(self.notes.len() - 1);
    }

    fn pointed(&self) -> f64 {
        let middle = (self.range.start + self.range.end) / 2.0;
        self.pointer.unwrap_or(middle)
    }
}

/// Draws markers and notes over the lanes.
pub(super) fn show(
    ui: &mut Ui,
    timeline: &mut Timeline,
    painter: &Painter,
    plot: Rect,
    scale: &Scale,
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
    let mut gone = None;
    for place in 0..timeline.notes.len() {
        let Some(note) = timeline.notes.get_mut(place) else {
            continue;
        };
        let x = scale.x(note.at);
        if !plot.x_range().contains(x) {
            continue;
        }
        painter.vline(x, plot.y_range(), Stroke::new(1.0, tokens.number));
        if timeline.editing == Some(place) {
            let field = Rect::from_min_size(
                pos2(x.min(plot.right() - 224.0) + 4.0, plot.top() + 4.0),
                vec2(220.0, 24.0),
            );
            let edit = TextEdit::singleline(&mut note.text)
                .hint_text("what happens here")
                .id(Id::unique("note"));
            let response = ui.put(field, edit);
            let response = widgets::named(response, Role::TextInput, "Note");
            if response.lost_focus() {
                timeline.editing = None;
                if note.text.trim().is_empty() {
                    gone = Some(place);
                }
            } else {
                response.request_focus();
            }
            continue;
        }
        let words = note.text.clone();
        let galley = widgets::truncated(
            painter,
            words.clone(),
            prose(text::SMALL),
            tokens.on_accent,
            160.0,
        );
        let tag = Rect::from_min_size(pos2(x, plot.top() + 3.0), galley.size() + vec2(10.0, 4.0));
        painter.rect_filled(tag, 3.0, tokens.number);
        painter.galley(tag.min + vec2(5.0, 2.0), galley, tokens.on_accent);
        let response = ui.interact(tag, Id::unique("note tag").with(place), Sense::click());
        let response = widgets::named(response, Role::Button, &format!("note: {words}"));
        if response.clicked() {
            timeline.editing = Some(place);
        }
        let delete = response.hovered()
            && ui.input_mut(|input| input.consume_key(egui::Modifiers::NONE, Key::Delete));
        if delete {
            gone = Some(place);
        }
        response.on_hover_text(format!(
            "{words}\nat {}; click to change, Delete to remove",
            moment(timeline.notes.get(place).map_or(0.0, |note| note.at))
        ));
    }
    if let Some(place) = gone {
        timeline.notes.remove(place);
        timeline.editing = None;
    }
}
