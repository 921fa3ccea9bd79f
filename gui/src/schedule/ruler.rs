//! The ruler above the bars: seconds, batches, and the start of the program.

use std::ops::Range;

use egui::{Id, Painter, Pos2, Rect, Sense, Stroke, Ui, accesskit::Role, pos2, vec2};
use gilk_engine::plan::{Batch, Plan};

use crate::state::State;
use crate::theme::{Tokens, prose, text};
use crate::timeline::scale::{Scale, tick_label, ticks};
use crate::widgets;

/// Height of the ruler: seconds above, batches below.
pub(super) const HEIGHT: f32 = 40.0;
/// Width of the mark of a batch in points.
const MARK: f32 = 14.0;

/// Draws the ruler, and its lines down through `plot`.
pub(super) fn show(ui: &Ui, state: &mut State, bar: Rect, plot: Rect, scale: &Scale) {
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
    let Some(Ok(verified)) = &state.plan.outcome else {
        return;
    };
    let plan = verified.plan();
    state.schedule.words.begin(state.plan.answered);
    for marked in marks(&plan.batches, scale) {
        let words = state.schedule.words.of(plan, marked.clone());
        mark(ui, &painter, (plan, &words, marked), scale, bar, plot);
    }
}

/// Returns ranges of batches, each with one mark: marks of batches at nearly the same time would lie
/// on each other. The work depends on the width of the ruler.
fn marks(batches: &[Batch], scale: &Scale) -> Vec<Range<usize>> {
    let mut marks = Vec::new();
    let mut first = 0;
    while let Some(batch) = batches.get(first) {
        let until = scale.seconds(scale.x(batch.at) + MARK);
        let rest = batches.get(first..).unwrap_or_default();
        let count = rest.partition_point(|batch| batch.at < until).max(1);
        marks.push(first..first + count);
        first += count;
    }
    marks
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

/// Draws the mark of batches, with their description.
fn mark(
    ui: &Ui,
    painter: &Painter,
    (plan, words, batches): (&Plan, &[String], Range<usize>),
    scale: &Scale,
    bar: Rect,
    plot: Rect,
) {
    let Some(batch) = plan.batches.get(batches.start) else {
        return;
    };
    let tokens = Tokens::of(ui);
    let center = pos2(scale.x(batch.at), bar.bottom() - 10.0);
    let area = Rect::from_center_size(center, vec2(MARK, 16.0));
    let id = Id::unique("schedule batch").with(batches.start);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Range as TimeRange;

    #[test]
    fn batches_at_nearly_the_same_time_share_a_mark() {
        let batch = |number: usize| Batch {
            at: number as f64 / 1000.0,
            pokes: Vec::new(),
            launched: Vec::new(),
            splashed: Vec::new(),
        };
        let batches: Vec<Batch> = (0..10_000).map(batch).collect();
        let scale = Scale {
            range: TimeRange {
                start: 0.0,
                end: 10.0,
            },
            x: egui::Rangef::new(0.0, 700.0),
        };
        let all = marks(&batches, &scale);
        assert!((40..=60).contains(&all.len()), "{}", all.len());
        assert_eq!(all.iter().map(Range::len).sum::<usize>(), batches.len());
        let far: Vec<Batch> = batches.into_iter().step_by(1000).collect();
        assert_eq!(marks(&far, &scale).len(), far.len());
    }
}
