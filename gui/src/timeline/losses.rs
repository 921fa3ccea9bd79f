//! Lost samples on the timeline: hatched on the lanes where they were lost, with cause and count.

use std::collections::BTreeMap;
use std::ops::Range;

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

/// The losses of a recording, as stretches of time by CPU and cause.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    tracks: BTreeMap<(u16, u8), LossTrack>,
}

/// The losses of a CPU for one cause.
#[derive(Clone, Debug, Default)]
struct LossTrack {
    /// In order; no two overlap.
    stretches: Vec<LossStretch>,
    /// Number of lost samples before each stretch.
    before: Vec<u64>,
}

impl LossTrack {
    fn add(&mut self, stretch: LossStretch) {
        let before = match (self.stretches.last_mut(), self.before.last()) {
            (Some(last), _) if stretch.to - last.to <= GAP => {
                last.to = last.to.max(stretch.to);
                last.count = last.count.saturating_add(stretch.count);
                return;
            }
            (Some(last), Some(before)) => before.saturating_add(last.count),
            _ => 0,
        };
        self.stretches.push(stretch);
        self.before.push(before);
    }

    /// Returns the number of lost samples before the stretch at `place`.
    fn lost_before(&self, place: usize) -> u64 {
        match (self.before.get(place), self.stretches.last()) {
            (Some(before), _) => *before,
            (None, Some(last)) => {
                let before = self.before.last().copied().unwrap_or(0);
                before.saturating_add(last.count)
            }
            (None, None) => 0,
        }
    }

    /// Returns the places of the stretches that overlap a range of seconds.
    fn overlapping(&self, (from, to): (f64, f64)) -> Range<usize> {
        let first = self.stretches.partition_point(|one| one.to < from);
        let after = self.stretches.partition_point(|one| one.from <= to);
        first..after.max(first)
    }

    /// Returns the hatched areas of stretches, from left to right. Stretches that are drawn at the same
    /// place are one area, so the work depends on the width of the pane.
    fn areas(&self, places: Range<usize>, scale: &Scale) -> Vec<HatchedArea> {
        let mut areas = Vec::new();
        let mut place = places.start;
        while let Some(first) = self.stretches.get(place).filter(|_| place < places.end) {
            let left = scale.x(first.from);
            let (mut right, mut next) = (scale.x(first.to).max(left + NARROWEST), place + 1);
            loop {
                let rest = self.stretches.get(next..places.end).unwrap_or_default();
                let covered = rest.partition_point(|one| scale.x(one.from) <= right);
                next += covered;
                match rest.get(..covered).and_then(<[LossStretch]>::last) {
                    Some(last) => {
                        let from = scale.x(last.from);
                        right = right.max(scale.x(last.to)).max(from + NARROWEST);
                    }
                    None => break,
                }
            }
            areas.push(HatchedArea {
                left,
                right,
                first: *first,
                stretches: next - place,
                count: self
                    .lost_before(next)
                    .saturating_sub(self.lost_before(place)),
            });
            place = next;
        }
        areas
    }
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
        let track = self.tracks.entry((cpu, RowKind::Loss(cause).number()));
        track.or_default().add(LossStretch {
            from: (at - INTERVAL).max(0.0),
            to: at,
            cpu,
            cause,
            count,
        });
    }

    /// Returns the tracks that concern a lane, those of its CPU, with the places of their stretches that
    /// overlap a range of seconds while it is in place.
    fn tracks_of(
        &self,
        of: &LaneRow<'_>,
        range: (f64, f64),
    ) -> impl Iterator<Item = (&LossTrack, Range<usize>)> {
        let (info, owner) = (of.info, of.owner);
        let range = (range.0.max(info.launch), range.1.min(info.splash));
        let (meaning, has_samples) = (info.meaning, info.delivers.is_samples());
        let concerned = self.tracks.values().filter(move |track| {
            let Some(one) = track.stretches.first() else {
                return false;
            };
            let of_meaning = match one.cause {
                LossCause::Unmatched => meaning == Meaning::Duration,
                // Counters do not pass through a ring.
                _ => meaning != Meaning::Count,
            };
            let of_cpu = match owner {
                Owner::Cpu(cpu) => one.cpu == cpu || one.cpu == ALL_CPUS,
                _ => true,
            };
            of_meaning && of_cpu && has_samples
        });
        concerned.map(move |track| (track, track.overlapping(range)))
    }

    /// Returns the stretches that concern a lane and overlap a range of seconds: those of its CPU, while
    /// it is in place.
    pub(crate) fn of_lane(
        &self,
        of: &LaneRow<'_>,
        range: (f64, f64),
    ) -> impl Iterator<Item = &LossStretch> {
        let tracks = self.tracks_of(of, range);
        tracks.flat_map(|(track, places)| track.stretches.get(places).unwrap_or_default())
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
            LossCause::Unfinished => "their threads have left them unfinished".to_owned(),
        };
        format!(
            "{} hits lost within {}: {cause}",
            widgets::grouped(self.count),
            length(self.to - self.from)
        )
    }
}

/// Draws the hatched stretches of a lane that are in view; `row` is its rectangle.
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
    let tracks = losses.tracks_of(of, view);
    let areas = tracks.flat_map(|(track, places)| track.areas(places, scale));
    let areas = joined(areas.collect());
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

/// Joins the areas of several tracks where they overlap.
fn joined(mut areas: Vec<HatchedArea>) -> Vec<HatchedArea> {
    areas.sort_by(|a, b| a.left.total_cmp(&b.left));
    let mut joined: Vec<HatchedArea> = Vec::new();
    for one in areas {
        match joined.last_mut().filter(|last| one.left <= last.right) {
            Some(last) => {
                last.right = last.right.max(one.right);
                last.stretches += one.stretches;
                last.count = last.count.saturating_add(one.count);
            }
            None => joined.push(one),
        }
    }
    joined
}

/// Stretches that are drawn as one.
#[derive(Debug)]
struct HatchedArea {
    left: f32,
    right: f32,
    first: LossStretch,
    stretches: usize,
    /// Lost samples of all of them.
    count: u64,
}

impl HatchedArea {
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
    use proptest::prelude::*;

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
        let shown: Vec<(f64, f64, u16, u64)> = losses
            .tracks
            .values()
            .flat_map(|track| &track.stretches)
            .map(|one| (one.from, one.to, one.cpu, one.count))
            .collect();
        assert_eq!(
            shown,
            [
                (0.9, 1.1, 0, 12),
                (4.9, 5.0, 0, 3),
                (1.0, 1.1, 0, 2),
                (0.9, 1.0, 1, 1)
            ]
        );
    }
    proptest! {
        #[test]
        fn areas_cover_the_stretches_in_view_and_count_all_of_them(
            readings in prop::collection::vec((0.01f64..3.0, 0u16..2, 1u64..9), 1..200),
            (start, width) in (0.0f64..100.0, 0.5f64..400.0),
        ) {
            let (mut losses, mut at) = (Losses::default(), 0.0);
            for (after, cpu, count) in readings {
                at += after;
                losses.add(cpu, LossCause::RingFull, at, count);
            }
            let range = super::super::Range { start, end: start + width };
            let scale = Scale { range, x: egui::Rangef::new(0.0, 500.0) };
            let view = (range.start, range.end);
            let mut areas = Vec::new();
            let mut stretches: Vec<&LossStretch> = Vec::new();
            for track in losses.tracks.values() {
                let places = track.overlapping(view);
                prop_assert!(track.stretches[places.clone()].iter().all(|one| one.to >= view.0 && one.from <= view.1));
                stretches.extend(&track.stretches[places.clone()]);
                areas.extend(track.areas(places, &scale));
            }
            let all = joined(areas);
            prop_assert_eq!(all.iter().map(|one| one.count).sum::<u64>(), stretches.iter().map(|one| one.count).sum::<u64>());
            prop_assert_eq!(all.iter().map(|one| one.stretches).sum::<usize>(), stretches.len());
            prop_assert!(all.windows(2).all(|pair| pair[0].right < pair[1].left), "{:?}", all);
            for one in stretches {
                let (left, right) = (scale.x(one.from), scale.x(one.to));
                prop_assert!(all.iter().any(|area| area.left <= left && right <= area.right));
            }
        }
    }
}
