//! The ruler above the bars: seconds, batches, and the start of the program.

use egui::{Id, Painter, Pos2, Rect, Sense, Stroke, Ui, accesskit::Role, pos2, vec2};
use gilk_engine::plan::{Batch, Part, Plan, PokeKind};

use crate::state::State;
use crate::theme::{Tokens, prose, text};
use crate::timeline::scale::{Scale, tick_label, ticks};
use crate::widgets;

/// Height of the ruler: seconds above, batches below.
pub(super) const HEIGHT: f32 = 40.0;

/// Draws the ruler, and its lines down through `plot`.
pub(super) fn show(
    ui: &Ui,
    state: &State,
    words: &[Vec<String>],
    bar: Rect,
    plot: Rect,
    scale: &Scale,
) {
    let tokens = Tokens::of(ui);
    let painter = ui
        .painter()
        .with_clip_rect(bar.union(plot).intersect(ui.clip_rect()));
    painter.rect_filled(bar, 0.0, tokens.panel);
    let (step, times) = ticks(scale, 90.0);
    let duration = state.document.session().duration;
    for time in times
        .into_iter()
        .filter(|&time| (0.0..=duration).contains(&time))
    {
        let x = scale.x(time);
        painter.vline(x, plot.y_range(), Stroke::new(1.0, tokens.grid));
        let label = painter.layout_no_wrap(tick_label(time, step), prose(text::SMALL), tokens.weak);
        let half = label.size().x / 2.0;
        let left = (x - half).clamp(bar.left() + 2.0, bar.right() - 2.0 * half - 2.0);
        painter.galley(pos2(left, bar.top() + 4.0), label, tokens.weak);
    }
    for edge in [0.0, duration] {
        painter.vline(
            scale.x(edge),
            plot.y_range(),
            Stroke::new(1.0, tokens.outline),
        );
    }
    painter.hline(
        bar.x_range(),
        bar.bottom() - 0.5,
        Stroke::new(1.0, tokens.line),
    );
    if let Some(workload) = &state.document.session().workload {
        let x = scale.x(workload.start);
        painter.vline(x, plot.y_range(), Stroke::new(1.0, tokens.number));
        let at = pos2(x, bar.bottom() - 6.0);
        let area = flag(&painter, at, tokens);
        let words = format!("{} starts at {} s", workload.program, workload.start);
        let response = ui.interact(area, Id::unique("schedule program"), Sense::hover());
        widgets::named(response, Role::Label, &words).on_hover_text(words);
    }
    if let Some(Ok(verified)) = &state.plan.outcome {
        let batches = verified.plan().batches.iter().zip(words);
        for (place, (batch, words)) in batches.enumerate() {
            mark(ui, &painter, (place, batch.at, words), scale, bar, plot);
        }
    }
}

fn flag(painter: &Painter, at: Pos2, tokens: &Tokens) -> Rect {
    let shape = vec![
        at + vec2(0.0, 5.0),
        at + vec2(0.0, -6.0),
        at + vec2(8.0, -2.0),
    ];
    painter.add(egui::Shape::convex_polygon(
        shape,
        tokens.number,
        Stroke::NONE,
    ));
    Rect::from_center_size(at + vec2(3.0, 0.0), vec2(12.0, 14.0))
}

/// Draws a batch: its number, its time, and its description.
fn mark(
    ui: &Ui,
    painter: &Painter,
    (place, at, words): (usize, f64, &[String]),
    scale: &Scale,
    bar: Rect,
    plot: Rect,
) {
    let tokens = Tokens::of(ui);
    let center = pos2(scale.x(at), bar.bottom() - 10.0);
    let area = Rect::from_center_size(center, vec2(14.0, 16.0));
    let id = Id::unique("schedule batch").with(place);
    let first = words.first().cloned().unwrap_or_default();
    let response = ui.interact(area, id, Sense::hover());
    let response = widgets::named(response, Role::Label, &first);
    let size = if response.hovered() { 6.0 } else { 4.5 };
    if response.hovered() {
        painter.vline(center.x, plot.y_range(), Stroke::new(1.0, tokens.accent));
    }
    let shape = [(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)];
    let shape = shape
        .iter()
        .map(|&(x, y)| center + vec2(x, y) * size)
        .collect();
    painter.add(egui::Shape::convex_polygon(
        shape,
        tokens.accent,
        Stroke::new(1.0, tokens.canvas),
    ));
    response.on_hover_ui(|ui| {
        for line in words {
            ui.label(line);
        }
    });
}

/// Describes the batches of a plan.
pub(super) fn words(plan: &Plan) -> Vec<Vec<String>> {
    let batches = plan.batches.iter().enumerate();
    batches
        .map(|(place, batch)| batch_words(plan, batch, place))
        .collect()
}

/// Describes a batch, one line per kind of effect.
fn batch_words(plan: &Plan, batch: &Batch, place: usize) -> Vec<String> {
    let count = |kind, bounce: bool| {
        let pokes = batch.pokes.iter();
        pokes
            .filter(|poke| poke.kind == kind && matches!(poke.part, Part::Bounce(_)) == bounce)
            .count()
    };
    let mut lines = vec![format!(
        "batch {place} at {} s: {}",
        batch.at,
        widgets::counted(batch.pokes.len(), "write")
    )];
    for (kind, verb) in [
        (PokeKind::Install, "installs"),
        (PokeKind::Retarget, "retargets"),
        (PokeKind::Remove, "removes"),
    ] {
        let (splices, bounces) = (count(kind, false), count(kind, true));
        let mut parts = Vec::new();
        if splices > 0 {
            parts.push(widgets::counted(splices, "splice"));
        }
        if bounces > 0 {
            parts.push(widgets::counted(bounces, "bounce"));
        }
        if !parts.is_empty() {
            lines.push(format!("{verb} {}", parts.join(" and ")));
        }
    }
    if !batch.launched.is_empty() {
        lines.push(format!(
            "launches {}",
            widgets::counted(batch.launched.len(), "instrument")
        ));
    }
    if !batch.splashed.is_empty() {
        lines.push(format!(
            "splashes {}",
            widgets::counted(batch.splashed.len(), "instrument")
        ));
    }
    let waits = batch
        .pokes
        .iter()
        .filter(|poke| poke.overwritten > 1)
        .count();
    if waits > 0 {
        lines.push(format!(
            "one wait: {waits} of them overwrite more than one instruction"
        ));
    }
    // A bounce in an exposed slot waits for the splice of its donor.
    let slots = batch.pokes.iter().filter(|poke| match poke.part {
        Part::Bounce(bounce) => plan
            .bounces
            .get(bounce.0 as usize)
            .is_some_and(|bounce| matches!(bounce.slot, gilk_engine::placement::Slot::Exposed(_))),
        Part::Site(_) => false,
    });
    let slots = slots.count();
    if slots > 0 {
        lines.push(format!(
            "{} in slots that another splice exposes",
            widgets::counted(slots, "bounce")
        ));
    }
    let deepest = batch.pokes.iter().map(|poke| poke.rank).max().unwrap_or(0);
    if deepest > 0 {
        lines.push(format!("{} ranks, in sequence", deepest + 1));
    }
    lines
}
