//! The open function as text: its disassembly beside its source. The selected block is marked on both
//! sides, and a click on either side selects a block.

use std::collections::BTreeSet;
use std::sync::Arc;

use egui::accesskit::Role;
use egui::text::LayoutJob;
use egui::{Rect, RichText, ScrollArea, Sense, TextFormat, Ui, UiBuilder, pos2, vec2};
use gilk_engine::cfg::BlockIndex;

use super::function_source::Listing;
use super::scene::{CodeLine, Scene};
use crate::command::Command;
use crate::state::State;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Height of a line in points.
const LINE: f32 = text::CODE + space::SNUG;
/// Width of a line's number in points.
const NUMBERS: f32 = 44.0;

/// A line of the disassembly.
enum CodeRow<'a> {
    Heading(BlockIndex, u64),
    Code(BlockIndex, &'a CodeLine),
}

/// Draws the listing.
pub(crate) fn show(
    ui: &mut Ui,
    state: &mut State,
    scene: &Arc<Scene>,
    commands: &mut Vec<Command>,
) {
    let rect = ui.available_rect_before_wrap();
    let tokens = Tokens::of(ui);
    ui.painter().rect_filled(rect, 0.0, tokens.canvas);
    let (left, right) = rect.split_left_right_at_fraction(0.5);
    ui.painter().vline(
        left.right(),
        rect.y_range(),
        egui::Stroke::new(1.0, tokens.line),
    );
    let selected = state.graph.selected;
    let listing = &mut state.lines.listing;
    let scrolls = selected.is_some() && listing.seen != selected;
    listing.seen = selected;
    let builder = |rect: Rect, name: &str| UiBuilder::new().max_rect(rect).id_salt(name);
    ui.scope_builder(builder(left.shrink(1.0), "source"), |ui| {
        source(ui, &state.lines.listing, (selected, scrolls), commands);
    });
    ui.scope_builder(builder(right.shrink(1.0), "code"), |ui| {
        disassembly(ui, scene, (selected, scrolls), commands);
    });
}

/// Draws the lines of the source, or says why there are none.
fn source(
    ui: &mut Ui,
    listing: &Listing,
    (selected, scrolls): (Option<BlockIndex>, bool),
    commands: &mut Vec<Command>,
) {
    if listing.text.is_empty() {
        let (title, words) = match &listing.file {
            Some(file) => (
                "No source here",
                format!("{file} is not on this machine at the path of its build."),
            ),
            None => (
                "No source lines",
                "Open the kernel's debug information to see them here.".to_owned(),
            ),
        };
        widgets::empty(ui, title, &words);
        if listing.file.is_none() {
            ui.vertical_centered(|ui| {
                let open = Command::OpenDebugInfo;
                widgets::button(ui, "Open debug information…", open, true, commands);
            });
        }
        return;
    }
    let tokens = Tokens::of(ui);
    let none = BTreeSet::new();
    let selected_lines = selected.and_then(|block| listing.lines.get(block.0 as usize));
    let selected_lines = selected_lines.unwrap_or(&none);
    let mut area = ScrollArea::vertical().auto_shrink(false).id_salt("source");
    // The function's first line, or the block's.
    let all = listing.lines.iter().flatten().min();
    let first = selected_lines
        .first()
        .or(all.filter(|_| selected.is_none()));
    if let Some(&first) = first.filter(|_| scrolls) {
        area = area.vertical_scroll_offset((first.saturating_sub(4)) as f32 * LINE);
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    area.show_rows(ui, LINE, listing.text.len(), |ui, rows| {
        for row in rows {
            let Some(words) = listing.text.get(row) else {
                continue;
            };
            let line = row as u32 + 1;
            let block = listing.block_at(line);
            let sense = block.map_or(Sense::hover(), |_| Sense::click());
            let size = vec2(ui.available_width(), LINE);
            let (rect, response) = ui.allocate_exact_size(size, sense);
            let is_own = selected_lines.contains(&line);
            let fill = match (is_own, response.hovered() && block.is_some()) {
                (true, _) => Some(tokens.accent_fill),
                (false, true) => Some(tokens.hover),
                (false, false) => None,
            };
            if let Some(fill) = fill {
                ui.painter().rect_filled(rect, 0.0, fill);
            }
            let ink = if block.is_some() {
                tokens.text
            } else {
                tokens.weak
            };
            let font = code(text::CODE);
            let number = ui
                .painter()
                .layout_no_wrap(line.to_string(), font.clone(), tokens.weak);
            let left = rect.left() + NUMBERS;
            ui.painter().galley(
                pos2(left - space::SMALL - number.size().x, rect.top()),
                number,
                tokens.weak,
            );
            let words_shown =
                widgets::truncated(ui.painter(), words.clone(), font, ink, rect.right() - left);
            ui.painter()
                .galley(pos2(left, rect.top()), words_shown, ink);
            let name = format!("source line {line}: {}", words.trim());
            let response = widgets::chosen(response, Role::ListBoxOption, is_own, &name);
            if let Some(block) = block.filter(|_| response.clicked()) {
                commands.push(Command::SelectBlock(block));
            }
        }
    });
}

/// Draws the instructions, with a heading per block.
fn disassembly(
    ui: &mut Ui,
    scene: &Scene,
    (selected, scrolls): (Option<BlockIndex>, bool),
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    let mut rows = Vec::new();
    let mut first = None;
    for (block, shown) in scene.cfg.blocks.iter().zip(&scene.shown) {
        if Some(block.index) == selected {
            first = Some(rows.len());
        }
        rows.push(CodeRow::Heading(block.index, shown.offset));
        rows.extend(
            shown
                .lines
                .iter()
                .map(|line| CodeRow::Code(block.index, line)),
        );
    }
    let mut area = ScrollArea::vertical().auto_shrink(false).id_salt("code");
    if let Some(first) = first.filter(|_| scrolls) {
        area = area.vertical_scroll_offset(first.saturating_sub(3) as f32 * LINE);
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    area.show_rows(ui, LINE, rows.len(), |ui, range| {
        for row in rows.get(range).unwrap_or_default() {
            let (CodeRow::Heading(block, _) | CodeRow::Code(block, _)) = row;
            let size = vec2(ui.available_width(), LINE);
            let (rect, response) = ui.allocate_exact_size(size, Sense::click());
            let is_own = Some(*block) == selected;
            let fill = match (is_own, response.hovered()) {
                (true, _) => Some(tokens.accent_fill),
                (false, true) => Some(tokens.hover),
                (false, false) => None,
            };
            if let Some(fill) = fill {
                ui.painter().rect_filled(rect, 0.0, fill);
            }
            let mut job = LayoutJob::default();
            job.wrap.max_width = f32::INFINITY;
            let format = |color| TextFormat::simple(code(text::CODE), color);
            let name = match row {
                CodeRow::Heading(block, offset) => {
                    job.append(&format!("block {}", block.0), 0.0, format(tokens.strong));
                    job.append(&format!("+{offset:x}"), space::SMALL, format(tokens.weak));
                    format!("heading of block {}", block.0)
                }
                CodeRow::Code(_, line) => {
                    let offset = format!("{:>6}  ", line.offset);
                    job.append(&offset, 0.0, format(tokens.weak));
                    for (part, piece) in &line.parts {
                        job.append(piece, 0.0, format(part.color(tokens)));
                    }
                    let pieces = line.parts.iter().map(|(_, piece)| piece.as_str());
                    format!("+{}: {}", line.offset, pieces.collect::<String>())
                }
            };
            let galley = ui.painter().layout_job(job);
            let painter = ui.painter().with_clip_rect(ui.clip_rect().intersect(rect));
            let at = pos2(rect.left() + space::SMALL, rect.top());
            painter.galley(at, galley, tokens.text);
            let response = widgets::chosen(response, Role::ListBoxOption, is_own, &name);
            if response.clicked() {
                commands.push(Command::SelectBlock(*block));
            }
        }
    });
}

/// Draws a note about the source in the pane's header.
pub(crate) fn header(ui: &mut Ui, state: &State) {
    if let Some(file) = &state.lines.listing.file {
        let weak = Tokens::of(ui).weak;
        ui.add(egui::Label::new(RichText::new(file).small().color(weak)).truncate());
    }
}
