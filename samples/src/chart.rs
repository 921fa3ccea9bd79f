//! Pictures of a recording: a lane per instrument, or one per CPU or thread of it; time to the
//! right.
//!
//! [`svg()`] writes text that any browser shows, [`png()`] renders it without one, and
//! [`terminal()`] draws the same lanes with the characters of a terminal.

use std::collections::HashSet;

use crate::Meaning;
use crate::id::InstrumentId;
use crate::index::{By, Column, Index, Owner, Part};
use crate::metadata::{Clock, InstrumentInfo, Metadata};
use crate::recording::{Loss, Mark, RowKind};
use crate::statistics::{self, Rate};

pub mod bars;
mod canvas;
mod lane;
mod png;
pub mod scale;
mod svg;
mod terminal;
pub mod totals;

pub use canvas::escaped;
pub use png::png;
pub use svg::svg;
pub use terminal::terminal;

/// A timeline to draw.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// Metadata of the recording, with [measured](crate::statistics::measured) times.
    pub metadata: &'a Metadata,
    /// Its samples.
    pub index: &'a Index,
    /// Losses, drawn in a strip of their own.
    pub losses: &'a [Loss],
    /// Marks: the measured launches and splashes, and the user's marks.
    pub marks: &'a [Mark],
    /// The heading.
    pub title: String,
    /// Half-open range in TSC ticks; `None` draws everything.
    pub range: Option<(u64, u64)>,
    /// Width of the picture in pixels.
    pub width: u32,
    /// Maximum number of lanes; the others are counted in a line below.
    pub max_lanes: usize,
    /// Draws the lanes of instruments without hits, too, which otherwise are counted in a line.
    pub all: bool,
    /// Leaves out samples owner instrument is not in the metadata.
    pub only_known: bool,
    /// Splits the lanes of an instrument by CPU or thread; `None` draws one lane per instrument.
    pub by: Option<By>,
    /// Lines of text below a picture: the [totals](totals::text) of the run.
    pub notes: String,
}

impl<'a> Chart<'a> {
    /// Returns a chart of everything, 1280 pixels wide, with at most 40 lanes.
    #[must_use]
    pub fn new(metadata: &'a Metadata, index: &'a Index) -> Self {
        Self {
            metadata,
            index,
            losses: &[],
            marks: &[],
            title: "GILK recording".to_owned(),
            range: None,
            width: 1280,
            max_lanes: 40,
            all: false,
            only_known: false,
            by: None,
            notes: String::new(),
        }
    }

    /// Returns the range that is drawn, in TSC ticks, never empty: from the start of the
    /// instrumentation, or the first sample if that is earlier, to the last event.
    #[must_use]
    pub fn span(&self) -> (u64, u64) {
        if let Some((from, to)) = self.range.filter(|(from, to)| from < to) {
            return (from, to);
        }
        let clock = self.clock();
        let samples = self.index.span();
        let splashes = self
            .metadata
            .instruments
            .iter()
            .map(|instrument| instrument.splash);
        // The splash of a session that runs until it is stopped is infinite.
        let splashes = splashes
            .filter(|splash| splash.is_finite() && *splash < 1e6)
            .map(|splash| clock.tsc(splash));
        let marks = self
            .marks
            .iter()
            .map(|mark| mark.tsc)
            .chain(self.losses.iter().map(|loss| loss.tsc));
        let last = splashes
            .chain(marks)
            .chain(samples.map(|(_, last)| last.saturating_add(1)))
            .max();
        let first = samples.map_or(clock.start, |(first, _)| first.min(clock.start));
        let last = last.unwrap_or(first).max(first.saturating_add(1));
        // A margin after the last sample, so that it is not drawn on the frame.
        (
            first,
            last.saturating_add((last - first) / 100).max(first + 1),
        )
    }

    fn clock(&self) -> &Clock {
        &self.metadata.clock
    }

    /// Returns the lanes to draw: those of instruments with the most hits first, or, if they are
    /// split, in the order of the session; then samples of unknown instruments.
    fn lanes(&self) -> Lanes<'_> {
        let instruments = &self.metadata.instruments;
        let ids: Vec<u64> = instruments.iter().map(|instrument| instrument.id).collect();
        let wanted = match self.by {
            Some(by) => self.index.lanes_by(by, &ids),
            None => self.index.lanes_whole(&ids),
        };
        let instrument_ids: HashSet<u64> = ids.into_iter().collect();
        let mut lanes: Vec<LaneView<'_>> = wanted
            .into_iter()
            .filter_map(|(lane, owner)| Some((instruments.get(lane)?, owner)))
            // Totals are shown next to the picture.
            .filter(|(info, _)| info.delivers.is_samples())
            .map(|(info, owner)| self.lane(info, owner))
            .collect();
        lanes.extend(
            self.index
                .lanes()
                .filter(|lane| !self.only_known && !instrument_ids.contains(&lane.id))
                .map(|lane| self.unknown(lane.id)),
        );
        let every = lanes.len();
        lanes.retain(|lane| self.all || lane.is_active(self.span()));
        let idle = every - lanes.len();
        if self.by.is_none() {
            lanes.sort_by_key(|lane| std::cmp::Reverse(lane.hits));
        }
        let beyond = lanes.len().saturating_sub(self.max_lanes);
        lanes.truncate(self.max_lanes);
        Lanes {
            drawn: lanes,
            left_out: self.left_out(beyond, idle),
        }
    }

    fn lane(&self, instrument: &'a InstrumentInfo, owner: Owner) -> LaneView<'a> {
        let (t0, t1) = self.span();
        let part = owner.part(self.index);
        let hits = part.hits(instrument.id, instrument.meaning, (t0, t1));
        let seconds = statistics::seconds_in_place(instrument, self.clock(), (t0, t1));
        let label = owner.label(instrument);
        let place = label
            .strip_prefix(&instrument.instrument)
            .unwrap_or(&label)
            .trim();
        let holds = instrument.meaning == Meaning::Level && owner == Owner::Level;
        let owner = owner.name(self.metadata, self.index);
        LaneView {
            id: instrument.id,
            owner: owner.map_or_else(String::new, |owner| format!("{owner} · ")),
            name: &instrument.instrument,
            place: place.to_owned(),
            meaning: match instrument.meaning {
                // A subset of a level's samples does not give the time that each value held.
                Meaning::Level if !holds => Meaning::Value,
                meaning => meaning,
            },
            unit: &instrument.unit,
            times: Some((instrument.launch, instrument.splash)),
            part,
            total: part.total(instrument.id, t0, t1),
            hits,
            rate: Rate::of(hits, seconds, self.has_losses()),
        }
    }

    fn unknown(&self, id: u64) -> LaneView<'a> {
        let (t0, t1) = self.span();
        let part = self.index.part(None);
        let hits = part.hits(id, Meaning::Value, (t0, t1));
        let seconds = (t1 - t0) as f64 / self.clock().hz.max(1) as f64;
        LaneView {
            id,
            owner: String::new(),
            name: "unknown instrument",
            place: InstrumentId::unpack(id).map_or_else(|| id.to_string(), |id| id.to_string()),
            meaning: Meaning::Value,
            unit: "",
            times: None,
            part,
            total: part.total(id, t0, t1),
            hits,
            rate: Rate::of(hits, seconds, self.has_losses()),
        }
    }

    /// Returns the line about lanes that are not drawn: those beyond the limit, and those without
    /// hits. Empty if all are drawn.
    fn left_out(&self, beyond: usize, idle: usize) -> String {
        let what = match self.by {
            Some(_) => "lanes",
            None => "instruments",
        };
        let beyond =
            (beyond > 0).then(|| format!("and {} more {what}", scale::grouped(beyond as u64)));
        let idle = (idle > 0).then(|| scale::idle(idle));
        let parts: Vec<String> = beyond.into_iter().chain(idle).collect();
        parts.join("; ")
    }

    /// Returns whether samples were lost in the range.
    fn has_losses(&self) -> bool {
        let (t0, t1) = self.span();
        let mut losses = self.losses.iter();
        losses.any(|loss| loss.count > 0 && (t0..t1).contains(&loss.tsc))
    }

    /// Returns the losses in words; `None` without losses.
    fn lost(&self) -> Option<String> {
        let sum = |cause| {
            self.losses
                .iter()
                .filter(|loss| loss.cause == cause)
                .map(|loss| loss.count)
                .sum::<u64>()
        };
        let causes = RowKind::ALL.iter().filter_map(|(_, kind, _)| match kind {
            RowKind::Loss(cause) => Some(*cause),
            RowKind::Sample | RowKind::Word | RowKind::Mark(_) => None,
        });
        let parts: Vec<String> = causes
            .map(|cause| (sum(cause), cause.words()))
            .filter(|(count, _)| *count > 0)
            .map(|(count, words)| format!("{} ({words})", scale::grouped(count)))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The lanes of a chart.
struct Lanes<'a> {
    drawn: Vec<LaneView<'a>>,
    /// A line about the others; empty if there are none.
    left_out: String,
}

/// A lane ready to be drawn.
struct LaneView<'a> {
    id: u64,
    /// Prefix that names the owner of these samples, empty for all: `thread 40 · `.
    owner: String,
    /// Name of the instrument: `timestamp`.
    name: &'a str,
    /// Hook of the instrument: `pre kernel_clone block 0`.
    place: String,
    meaning: Meaning,
    unit: &'a str,
    /// Launch and splash in seconds from the start.
    times: Option<(f64, f64)>,
    /// Samples of the lane's owner.
    part: Part<'a>,
    /// Totals over the range that is drawn.
    total: Column,
    /// Hits in the range that is drawn.
    hits: u64,
    rate: Rate,
}

impl LaneView<'_> {
    /// Returns whether there is anything to see in a range; a level holds without samples.
    fn is_active(&self, (t0, _): (u64, u64)) -> bool {
        let holds = || self.part.last_before(self.id, t0).is_some();
        self.hits > 0 || self.meaning == Meaning::Level && holds()
    }

    /// Returns the last value before the end of one of a range's equal columns.
    fn held_after(&self, (t0, t1): (u64, u64), (number, columns): (usize, usize)) -> Option<u64> {
        let ticks = u128::from(t1 - t0) * (number as u128 + 1) / columns as u128;
        let until = t0.saturating_add(ticks as u64);
        let last = self.part.last_before(self.id, until);
        last.map(|point| point.value)
    }
}

#[cfg(test)]
mod tests;
