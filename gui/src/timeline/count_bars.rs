//! Counts with labels, as horizontal bars.

use egui::accesskit::Role;
use egui::{Align2, Rect, RichText, Sense, Ui, pos2, vec2};

use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Height of a bar, including the gap.
const BAR: f32 = 17.0;
/// Width of the labels of bars.
const LABELS: f32 = 150.0;

/// Draws a bar for each count.
pub(super) fn bars(ui: &mut Ui, name: &str, rows: &[(String, u64)]) {
    let tokens = Tokens::of(ui);
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let digits = most.to_string().len() as f32;
    let numbers = 16.0 + 8.5 * digits;
    let has_names = rows.iter().any(|(label, _)| label.contains('+'));
    let labels_width = if has_names { 1.4 * LABELS } else { LABELS };
    if most == 0 {
        ui.label(RichText::new("no values").small().color(tokens.weak));
    }
    for (label, count) in rows.iter().filter(|_| most > 0) {
        let size = vec2(ui.available_width(), BAR);
        let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
        let words = format!("{name}: {label}: {}", widgets::grouped(*count));
        widgets::named(response, Role::Label, &words).on_hover_text(&words);
        let painter = ui.painter().with_clip_rect(ui.clip_rect().intersect(rect));
        let middle = rect.center().y;
        let labels = pos2(rect.left() + labels_width, middle);
        let font = code(text::SMALL);
        let label = widgets::truncated(
            &painter,
            label.clone(),
            font.clone(),
            tokens.text,
            labels_width,
        );
        let at = pos2(labels.x - label.size().x, middle - label.size().y / 2.0);
        painter.galley(at, label, tokens.text);
        let left = labels.x + space::SMALL;
        let room = (rect.right() - left - numbers).max(8.0);
        let length = room * (*count as f32 / most as f32);
        let bar = Rect::from_min_max(
            pos2(left, rect.top() + 2.0),
            pos2(left + length.max(1.0), rect.bottom() - 2.0),
        );
        if *count > 0 {
            painter.rect_filled(bar, 1.0, tokens.accent);
        }
        let at = pos2(bar.right() + space::TIGHT, middle);
        let count = widgets::grouped(*count);
        painter.text(at, Align2::LEFT_CENTER, count, font, tokens.weak);
    }
}
