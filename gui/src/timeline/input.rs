//! Pan, zoom and scroll: by drag, by wheel, and by W, A, S and D.

use egui::{CursorIcon, Key, PointerButton, Rangef, Rect, Ui};

use super::Record;
use super::scale::Scale;
use super::state::Timeline;

/// Handles the pane's input; `plot` is the area of the lanes.
pub(crate) fn take(
    ui: &Ui,
    timeline: &mut Timeline,
    record: &Record,
    plot: Rect,
    response: &egui::Response,
) {
    let duration = record.duration;
    let seconds_a_point = timeline.range.width() / f64::from(plot.width().max(1.0));
    // A drag that starts with Shift selects a range, even if Shift is released.
    if response.drag_started_by(PointerButton::Primary) {
        timeline.ranging = ui.input(|input| input.modifiers.shift);
    } else if !response.dragged() {
        timeline.ranging = false;
    }
    if let Some(at) = response.interact_pointer_pos()
        && timeline.ranging
        && response.dragged_by(PointerButton::Primary)
    {
        let scale = Scale {
            range: timeline.range,
            x: Rangef::new(plot.left(), plot.right()),
        };
        let from = ui.input(|input| input.pointer.press_origin()).unwrap_or(at);
        timeline.markers = [from, at].map(|at| Some(scale.seconds(at.x)));
        timeline.follow = false;
        return;
    }
    if response.dragged_by(PointerButton::Primary) || response.dragged_by(PointerButton::Middle) {
        let drag = response.drag_delta();
        timeline
            .range
            .pan(-f64::from(drag.x) * seconds_a_point, duration);
        timeline.scroll -= drag.y;
        if drag.x != 0.0 {
            timeline.follow = false;
        }
        ui.ctx().set_cursor_icon(CursorIcon::Grabbing);
    }
    let Some(pointer) = response.hover_pos() else {
        return;
    };
    let scale = Scale {
        range: timeline.range,
        x: Rangef::new(plot.left(), plot.right()),
    };
    let (scroll, pinch, shift) = ui.input(|input| {
        (
            input.smooth_scroll_delta(),
            input.zoom_delta(),
            input.modifiers.shift,
        )
    });
    if pointer.x < plot.left() || (shift && scroll.y != 0.0) {
        timeline.scroll -= scroll.y;
    } else {
        let factor = f64::from(pinch) * f64::from(scroll.y / 200.0).exp();
        if factor != 1.0 {
            timeline
                .range
                .zoom(scale.seconds(pointer.x), factor, duration);
        }
        if scroll.x != 0.0 {
            timeline
                .range
                .pan(-f64::from(scroll.x) * seconds_a_point, duration);
            timeline.follow = false;
        }
    }
    if ui.ctx().text_edit_focused() {
        return;
    }
    let (held, dt) = ui.input(|input| {
        let plain = input.modifiers.is_none();
        let held = |key: Key| f64::from(u8::from(plain && input.key_down(key)));
        (
            (held(Key::D) - held(Key::A), held(Key::W) - held(Key::S)),
            f64::from(input.stable_dt.min(0.05)),
        )
    });
    let at = if plot.contains(pointer) {
        scale.seconds(pointer.x)
    } else {
        (timeline.range.start + timeline.range.end) / 2.0
    };
    if held.0 != 0.0 {
        timeline
            .range
            .pan(held.0 * timeline.range.width() * dt * 0.9, duration);
        timeline.follow = false;
    }
    if held.1 != 0.0 {
        timeline.range.zoom(at, (held.1 * dt * 2.2).exp(), duration);
    }
    if held != (0.0, 0.0) {
        ui.ctx().request_repaint();
    }
}
