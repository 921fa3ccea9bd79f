//! The instruments at the selected hook in execution order: identifier, cost, drag to reorder.

use egui::accesskit::Role;
use egui::{CursorIcon, Id, Rect, RichText, Sense, Stroke, Ui, pos2, vec2};
use gilk_engine::cfg::BlockIndex;
use gilk_samples::chart::totals;
use gilk_samples::totals::HitsCost;

use crate::command::Command;
use crate::hook_facts::HookRow;
use crate::state::State;
use crate::theme::{Tokens, code, prose, space, text};
use crate::widgets;

/// Height of a row.
const ROW: f32 = 26.0;

/// Draws the list, if the hook has instruments.
pub(crate) fn show(ui: &mut Ui, state: &State, block: BlockIndex, commands: &mut Vec<Command>) {
    let rows = &state.hook_facts.rows;
    notes(ui, state);
    if rows.is_empty() {
        predicted(ui, state, block);
        return;
    }
    widgets::caption(ui, "instruments at this hook, in execution order");
    let size = vec2(ui.available_width(), ROW * rows.len() as f32);
    let (area, _) = ui.allocate_exact_size(size, Sense::hover());
    let row_at = |y: f32| {
        let row = ((y - area.top()) / ROW).floor().max(0.0) as usize;
        row.min(rows.len() - 1)
    };
    for (row, one) in rows.iter().enumerate() {
        let top = area.top() + row as f32 * ROW;
        let rect = Rect::from_min_size(pos2(area.left(), top), vec2(area.width(), ROW - 2.0));
        if !ui.is_rect_visible(rect) {
            continue;
        }
        if let Some(to) = line(ui, rect, one, &row_at)
            && let Some(other) = rows.get(to)
            && other.place != one.place
        {
            commands.push(Command::MovePlacement(one.place, other.place));
        }
    }
    let all = rows.iter().filter_map(|row| row.ns);
    overhead(ui, state, block, "these", all.sum());
    ui.add_space(space::TIGHT);
}

/// Shows the plan's notes about instruments at this hook or with points in this block: those of the
/// session, and of the instrument that would be added.
fn notes(ui: &mut Ui, state: &State) {
    let offered = match &state.offer.outcome {
        Some(Ok(plan)) if state.hook_facts.rows.is_empty() => &*plan.plan().notes,
        _ => &[],
    };
    let offered = offered.iter().map(|note| format!("{note}."));
    for words in state.hook_facts.notes.iter().cloned().chain(offered) {
        let text = RichText::new(&words).small();
        let shown = ui.label(text.color(Tokens::of(ui).warning));
        widgets::named(shown, Role::Label, &format!("note: {words}"));
    }
}

/// Shows the predicted cost of the inspector's instrument, if the run on the timeline has hit
/// counts.
fn predicted(ui: &mut Ui, state: &State, block: BlockIndex) {
    if let Some(ns) = state.preview.hit_ns {
        overhead(ui, state, block, &state.draft.instrument, ns);
    }
}

/// Shows the cost per second predicted from the hit count of the last run.
fn overhead(ui: &mut Ui, state: &State, block: BlockIndex, what: &str, ns: f64) {
    let (Some(record), Some(heat)) = (&state.timeline.record, &state.graph.heat) else {
        return;
    };
    let Some(hits) = heat.block(block) else {
        return;
    };
    let seconds = record.now.unwrap_or(record.duration).max(1e-3);
    let mut cost = HitsCost::default();
    cost.add(hits as f64 / seconds, ns);
    let words = format!(
        "A second of that run, with {what}: {}",
        totals::hits_cost(cost, 1.0)
    );
    ui.label(RichText::new(words).small().color(Tokens::of(ui).weak));
}

/// Draws an instrument's row. Returns the row it was dragged to.
fn line(
    ui: &Ui,
    rect: Rect,
    HookRow {
        place,
        instrument,
        id,
        cost,
        ..
    }: &HookRow,
    row_at: &dyn Fn(f32) -> usize,
) -> Option<usize> {
    let tokens = Tokens::of(ui);
    let response = ui.interact(rect, Id::unique("at hook").with(place), Sense::drag());
    let response = widgets::named(
        response,
        Role::ListItem,
        &format!("order of {instrument} {place}"),
    );
    let dragged = response.dragged();
    let pointer = response.interact_pointer_pos();
    let shown = match pointer.filter(|_| dragged) {
        Some(at) => rect.translate(vec2(0.0, at.y - rect.center().y)),
        None => rect,
    };
    if response.hovered() || dragged {
        ui.ctx().set_cursor_icon(if dragged {
            CursorIcon::Grabbing
        } else {
            CursorIcon::Grab
        });
    }
    let painter = ui.painter();
    let fill = if dragged || response.hovered() {
        tokens.hover
    } else {
        tokens.card
    };
    painter.rect(
        shown,
        4.0,
        fill,
        Stroke::new(1.0, tokens.line),
        egui::StrokeKind::Inside,
    );
    for (x, y) in [
        (0.0, -4.0),
        (0.0, 0.0),
        (0.0, 4.0),
        (4.0, -4.0),
        (4.0, 0.0),
        (4.0, 4.0),
    ] {
        painter.circle_filled(shown.left_center() + vec2(8.0 + x, y), 1.2, tokens.weak);
    }
    let middle = shown.center().y;
    let left = egui::Align2::LEFT_CENTER;
    let at = pos2(shown.left() + 22.0, middle);
    let name = painter.text(at, left, &**instrument, prose(text::BODY), tokens.text);
    if let Some(id) = id {
        let at = pos2(name.right() + 10.0, middle);
        painter.text(at, left, id, code(text::SMALL), tokens.weak);
    }
    if let Some(cost) = cost {
        let words = if *cost == 1 {
            "1 instruction".to_owned()
        } else {
            format!("{cost} instructions")
        };
        let right = egui::Align2::RIGHT_CENTER;
        painter.text(
            pos2(shown.right() - 8.0, middle),
            right,
            words,
            prose(text::SMALL),
            tokens.weak,
        );
    }
    let dropped = response.drag_stopped();
    let at = ui.input(|input| input.pointer.latest_pos());
    response.on_hover_text(
        "Drag up or down to change the order. The number is the instructions executed at a hit.",
    );
    at.filter(|_| dropped).map(|at| row_at(at.y))
}
