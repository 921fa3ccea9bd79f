//! Cells of a row, in the table of statistics and in the comparison.

use egui::{Rect, Ui, pos2};

use crate::theme::{code, prose, space, text};
use crate::{object_names, widgets};

/// Returns the cells of a row.
pub(super) fn cells(rect: Rect, widths: &[f32]) -> impl Iterator<Item = Rect> {
    let mut left = rect.left() + space::PANEL;
    widths.iter().map(move |&width| {
        let cell = Rect::from_min_max(pos2(left, rect.top()), pos2(left + width, rect.bottom()));
        left += width;
        cell
    })
}

/// Draws a cell: a name to the left, a number to the right.
pub(super) fn draw_cell(
    ui: &Ui,
    cell: Rect,
    name: bool,
    words: String,
    color: egui::Color32,
    numbers: bool,
) {
    let font = if numbers {
        code(text::SMALL)
    } else {
        prose(text::SMALL)
    };
    let room = cell.width() - space::SMALL;
    let galley = widgets::truncated(ui.painter(), words, font, color, room);
    let left = if name {
        cell.left()
    } else {
        cell.right() - galley.size().x - 2.0
    };
    let at = pos2(left, cell.center().y - galley.size().y / 2.0);
    ui.painter().galley(at, galley, color);
}

/// Draws a cell with the name of a function.
pub(super) fn draw_function(ui: &Ui, cell: Rect, name: &str, color: egui::Color32) {
    let room = cell.width() - space::SMALL;
    let galley = object_names::laid_out(ui.painter(), name, code(text::SMALL), color, room);
    let at = pos2(cell.left(), cell.center().y - galley.size().y / 2.0);
    ui.painter().galley(at, galley, color);
}
