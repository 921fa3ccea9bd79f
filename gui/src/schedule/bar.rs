//! A bar of the schedule: drawing, dragging, and its tooltip.

use egui::accesskit::Role;
use egui::{CursorIcon, Id, PointerButton, Rect, RichText, Sense, Stroke, StrokeKind, Ui, vec2};

use super::drag::{Drag, Grip, marks};
use crate::state::State;
use crate::theme::{Tokens, code, text};
use crate::timeline::scale::Scale;
use crate::widgets;

/// Width in points of the handle at each end of a bar.
const END: f32 = 7.0;
/// Distance in points within which ends snap.
const REACH: f32 = 7.0;

/// Draws the bar of placements: its key, their indices in order, and their first launch and last splash.
pub(super) fn bar(
    ui: &Ui,
    state: &mut State,
    (key, places, extent): (u64, &[usize], Option<(f64, f64)>),
    lane: Rect,
    scale: &Scale,
    color: egui::Color32,
    label: &str,
) {
    let tokens = Tokens::of(ui);
    let Some((launch, splash)) = extent else {
        return;
    };
    let rect = Rect::from_x_y_ranges(scale.x(launch)..=scale.x(splash), lane.y_range());
    let id = Id::unique("schedule bar").with(key);
    let grab = rect.expand2(vec2(3.0, 2.0));
    let response = ui.interact(grab, id, Sense::click_and_drag());
    let response = widgets::named(response, Role::Slider, label);
    let grip_at = |x: f32| {
        let end = END.min(rect.width() / 3.0);
        if x < rect.left() + end {
            Grip::Launch
        } else if x > rect.right() - end {
            Grip::Splash
        } else {
            Grip::Whole
        }
    };
    let pointer = ui.input(|input| {
        (
            input.pointer.press_origin(),
            input.pointer.latest_pos(),
            input.modifiers.alt,
        )
    });
    let (origin, now, free) = pointer;
    if let Some(at) = response.hover_pos() {
        ui.ctx().set_cursor_icon(match grip_at(at.x) {
            Grip::Whole => CursorIcon::Grab,
            _ => CursorIcon::ResizeHorizontal,
        });
    }
    if response.drag_started_by(PointerButton::Primary)
        && let Some(origin) = origin
    {
        state.document.close_step();
        let session = state.document.session();
        let times = |&place: &usize| {
            let one = session.placements.get(place)?;
            Some((place, one.launch, one.splash))
        };
        state.schedule.drag = Some(Drag {
            key,
            grip: grip_at(origin.x),
            from: scale.seconds(origin.x),
            bars: places.iter().filter_map(times).collect(),
            marks: marks(session, places),
        });
    }
    let held = state.schedule.drag.as_ref();
    let held = held.filter(|drag| drag.key == key);
    let is_held = held.is_some();
    if let (Some(drag), Some(now)) = (held, now)
        && response.dragged_by(PointerButton::Primary)
    {
        let reach = if free {
            0.0
        } else {
            f64::from(REACH) / scale.density()
        };
        let duration = state.document.session().duration;
        let times = drag.times(scale.seconds(now.x), duration, reach);
        let grip = drag.grip;
        state.document.edit_times(&format!("bar {key}"), &times);
        let (x, words) = match grip {
            Grip::Splash => (rect.right(), format!("{splash} s")),
            Grip::Launch => (rect.left(), format!("{launch} s")),
            Grip::Whole => (rect.center().x, format!("{launch} to {splash} s")),
        };
        response.clone().on_hover_text_at_pointer(words);
        ui.painter()
            .vline(x, ui.clip_rect().y_range(), Stroke::new(1.0, tokens.accent));
    }
    if response.drag_stopped() {
        state.schedule.drag = None;
        state.document.close_step();
    }
    let lit = response.hovered() || is_held;
    ui.painter().rect_filled(
        rect,
        3.0,
        color.gamma_multiply(if lit { 0.55 } else { 0.38 }),
    );
    ui.painter().rect_stroke(
        rect,
        3.0,
        Stroke::new(if lit { 1.5 } else { 1.0 }, color),
        StrokeKind::Inside,
    );
    for x in [rect.left() + 2.5, rect.right() - 2.5] {
        ui.painter()
            .vline(x, rect.shrink(3.0).y_range(), Stroke::new(2.0, color));
    }
    if !is_held {
        response.on_hover_ui(|ui| words(ui, state, places, launch, splash));
    }
}

fn words(ui: &mut Ui, state: &State, places: &[usize], launch: f64, splash: f64) {
    let tokens = Tokens::of(ui);
    ui.label(RichText::new(format!("{launch} s to {splash} s")).color(tokens.strong));
    let ([place], Some(Ok(verified))) = (places, &state.plan.outcome) else {
        return;
    };
    let plan = verified.plan();
    if let Some(one) = plan.instruments.iter().find(|one| one.placement == *place) {
        ui.label(RichText::new(format!("{}: {}", one.id, one.tactic.name())).small());
        for line in plan.way(one).into_iter().take(8) {
            ui.label(
                RichText::new(line)
                    .font(code(text::SMALL))
                    .color(tokens.weak),
            );
        }
    }
}
