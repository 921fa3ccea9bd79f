//! Lost samples on the timeline: hatched on the lanes where they were lost, with cause and count.

use std::collections::BTreeMap;

use egui::accesskit::Role;
use egui::{Id, Painter, Rect, Sense, Stroke, Ui, pos2};
use gilk_samples::Meaning;
use gilk_samples::index::Owner;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{Loss, LossCause, RowKind};

use super::scale::{Scale, length};
use super::stack::LaneRow;
use crate::theme::Tokens;
use crate::widgets;

/// Interval at which the agent reads the counters of losses, in seconds.
const INTERVAL: f64 = 0.1;
/// Maximum distance of two readings with losses that are drawn as one stretch, in seconds.
const GAP: f64 = 0.25;
/// Distance between hatch lines in points.
const STEP: f32 = 7.0;
/// Minimum width of a stretch in points.
const NARROWEST: f32 = 3.0;

/// A stretch of time in which a CPU lost samples for one cause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LossStretch {
    /// Seconds from the start.
    pub(crate) from: f64,
    /// Seconds from the start.
    pub(crate) to: f64,
    /// The CPU, or [`ALL_CPUS`] while it is unknown.
    pub(crate) cpu: u16,
    pub(crate) cause: LossCause,
    /// Number of lost samples.
    pub(crate) count: u64,
}

/// The losses of a recording, as stretches of time.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// In the order of their starts.
    stretches: Vec<LossStretch>,
    /// Duration of the longest stretch in seconds.
    longest: f64,
    /// The last stretch of each CPU and cause.
    last: BTreeMap<(u16, u8), usize>,
}

impl Losses {
    /// Creates the stretches of the losses of a recording.
    #[must_use]
    pub fn of(losses: &[Loss], clock: Clock) -> Self {
        let mut all = Self::default();
        for loss in losses {
            all.add(loss.cpu, loss.cause, clock.seconds(loss.tsc), loss.count);
        }
        all
    }

    /// Adds losses between the last reading and the one at `at` seconds.
    pub(crate) fn add(&mut self, cpu: u16, cause: LossCause, at: f64, count: u64) {
        if count == 0 {
            return;
        }
        let key = (cpu, RowKind::Loss(cause).number());
        let last = self.last.get(&key).copied();
        let last = last.and_then(|place| self.stretches.get_mut(place));
        if let Some(last) = last.filter(|last| at - last.to <= GAP) {
            last.to = last.to.max(at);
            last.count = last.count.saturating_add(count);
            self.longest = self.longest.max(last.to - last.from);
            return;
        }
        let from = (at - INTERVAL).max(0.0);
        // Readings of the CPUs are in the order of their times, but for a few.
        let mut place = self.stretches.len();
        while place > 0
            && self
                .stretches
                .get(place - 1)
                .is_some_and(|one| one.from > from)
        {
            place -= 1;
        }
        for later in self.last.values_mut().filter(|last| **last >= place) {
            *later += 1;
        }
        self.last.insert(key, place);
        self.longest = self.longest.max(at - from);
        let stretch = LossStretch {
            from,
            to: at,
            cpu,
            cause,
            count,
        };
        self.stretches.insert(place, stretch);
    }

    /// Returns the stretches that concern a lane and overlap a range of seconds: those of its CPU, while
    /// it is in place.
    pub(crate) fn of_lane<'a>(
        &'a self,
        of: &LaneRow<'a>,
        range: (f64, f64),
    ) -> impl Iterator<Item = &'a LossStretch> {
        let (info, owner) = (of.info, of.owner);
        let from = range.0.max(info.launch);
        let to = range.1.min(info.splash);
        // Stretches are in the order of their starts, and none is longer than `longest`.
        let first = self
            .stretches
            .partition_point(|one| one.from < from - self.longest);
        let after = self.stretches.partition_point(|one| one.from <= to);
        let overlapping = self.stretches.get(first..after.max(first));
        overlapping.unwrap_or_default().iter().filter(move |one| {
            let of_meaning = match one.cause {
                LossCause::Unmatched => info.meaning == Meaning::Duration,
                // Counters do not pass through a ring.
                _ => info.meaning != Meaning::Count,
            };
            let of_cpu = match owner {
                Owner::Cpu(cpu) => one.cpu == cpu || one.cpu == ALL_CPUS,
                _ => true,
            };
            of_meaning && of_cpu && one.to >= from && info.delivers.is_samples()
        })
    }
}

impl LossStretch {
    /// Describes the losses in a sentence.
    pub(crate) fn words(&self, metadata: &Metadata) -> String {
        let cpu = match self.cpu {
            ALL_CPUS => "a CPU".to_owned(),
            cpu => metadata.cpu_name(cpu),
        };
        let cause = match self.cause {
            LossCause::RingFull => format!("the ring of {cpu} was full"),
            LossCause::Unmatched => format!("timer stops on {cpu} had no start"),
            LossCause::RingOff => format!("the ring of {cpu} was off"),
            LossCause::Overwritten => format!("newer samples of {cpu} overwrote them"),
            LossCause::Overtaken => format!("older samples of {cpu} overwrote them"),
        };
        format!(
            "{} hits lost within {}: {cause}",
            widgets::grouped(self.count),
            length(self.to - self.from)
        )
    }
}

/// Draws the hatched stretches of a lane that are in view; `row` is its rectangle. Stretches that are
/// drawn at the same place are one, so that the work depends on the width of the pane.
pub(super) fn show(
    ui: &Ui,
    painter: &Painter,
    losses: &Losses,
    metadata: &Metadata,
    of: &LaneRow<'_>,
    row: Rect,
    scale: &Scale,
) {
    let tokens = Tokens::of(ui);
    let view = (scale.range.start, scale.range.end);
    let mut areas: Vec<HatchedArea<'_>> = Vec::new();
    for one in losses.of_lane(of, view) {
        let (left, right) = (scale.x(one.from), scale.x(one.to));
        let right = right.max(left + NARROWEST);
        match areas.last_mut() {
            Some(last) if left <= last.right => {
                last.right = last.right.max(right);
                last.stretches += 1;
                last.count = last.count.saturating_add(one.count);
            }
            _ => areas.push(HatchedArea {
                left,
                right,
                first: one,
                stretches: 1,
                count: one.count,
            }),
        }
    }
    for (place, one) in areas.iter().enumerate() {
        let area = Rect::from_x_y_ranges(one.left..=one.right, row.y_range());
        let area = area.intersect(row);
        if !area.is_positive() {
            continue;
        }
        hatch(painter, area, tokens);
        let id = Id::unique("lost").with((of.info.id, of.index, place));
        let words = format!("{} on {}", one.words(metadata), of.info.label);
        widgets::named(ui.interact(area, id, Sense::hover()), Role::Label, &words);
    }
}

/// Stretches that are drawn as one.
struct HatchedArea<'a> {
    left: f32,
    right: f32,
    first: &'a LossStretch,
    stretches: usize,
    /// Lost samples of all of them.
    count: u64,
}

impl HatchedArea<'_> {
    fn words(&self, metadata: &Metadata) -> String {
        match self.stretches {
            1 => self.first.words(metadata),
            more => format!(
                "{} hits lost in {}; zoom in for each with its cause",
                widgets::grouped(self.count),
                widgets::counted(more, "stretch")
            ),
        }
    }
}

fn hatch(painter: &Painter, area: Rect, tokens: &Tokens) {
    painter.rect_filled(area, 0.0, tokens.warning.gamma_multiply(0.10));
    let inside = painter.with_clip_rect(painter.clip_rect().intersect(area));
    let line = Stroke::new(1.0, tokens.warning.gamma_multiply(0.75));
    // The lines of neighbouring stretches are the same lines.
    let mut x = ((area.left() - area.height()) / STEP).floor() * STEP;
    while x < area.right() {
        let ends = [pos2(x, area.bottom()), pos2(x + area.height(), area.top())];
        inside.line_segment(ends, line);
        x += STEP;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_readings_of_a_cpu_are_one_stretch() {
        let clock = Clock {
            hz: 1000,
            start: 0,
            start_unix_ns: 0,
        };
        let loss = |cpu, tsc, cause, count| Loss {
            cpu,
            tsc,
            cause,
            count,
        };
        let losses = Losses::of(
            &[
                loss(0, 1000, LossCause::RingFull, 5),
                loss(1, 1000, LossCause::RingFull, 1),
                loss(0, 1100, LossCause::RingFull, 7),
                loss(0, 1100, LossCause::Unmatched, 2),
                loss(0, 5000, LossCause::RingFull, 3),
            ],
            clock,
        );
        let starts: Vec<f64> = losses.stretches.iter().map(|one| one.from).collect();
        assert!(starts.is_sorted(), "{starts:?}");
        let shown: Vec<(f64, f64, u16, u64)> = losses
            .stretches
            .iter()
            .map(|one| (one.from, one.to, one.cpu, one.count))
            .collect();
        assert_eq!(
            shown,
            [
                (0.9, 1.1, 0, 12),
                (0.9, 1.0, 1, 1),
                (1.0, 1.1, 0, 2),
                (4.9, 5.0, 0, 3)
            ]
        );
    }
}
