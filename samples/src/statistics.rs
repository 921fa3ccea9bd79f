//! The definition of every number that is printed of an instrument; everything that prints one
//! takes it from here.
//!
//! Times are in TSC ticks, spans half-open. Of an instrument in a span:
//!
//! | number | definition |
//! |---|---|
//! | hits | of a counter, the last reading before the span's end minus the last one before its start ([`counted`]); of any other instrument, its samples in the span |
//! | time in place | the part of the span between the first measured launch and the last measured splash ([`seconds_in_place`]); a [gap](crate::totals::Gap) between them counts too |
//! | rate | hits / time in place ([`Rate`]); a lower bound if samples were lost in the span, since a ring does not know which instrument lost them |
//! | values | the values of its samples, if they are quantities ([`is_quantity`]): a counter's readings, the raw clock of an event, the index of a block and what is read as text are none |
//! | sum, minimum, maximum | of the values |
//! | mean, deviation | `Σv / n`, `√(Σ(v − mean)² / n)` |
//! | percentile `p` | the value at nearest rank `⌈p·n⌉` of the sorted values; from a histogram at most 1.6 % too great, and then marked `~` |
//! | gap | the time between consecutive samples over all CPUs |
//! | average over time | of a level: `Σ value·time / Σ time` over the time in which it is known ([`level`](crate::level)) |
//!
//! A recording contains the *measured* launch and splash of each instrument as marks. The planned
//! ones in its metadata differ from them: batches take time, and a session may be stopped early or
//! its machine lost. [`measured`] replaces the planned ones by the measured ones.

use std::collections::HashMap;

use serde::Serialize;

use crate::Meaning;
use crate::chart::scale;
use crate::metadata::{Clock, InstrumentInfo, Metadata};
use crate::recording::{Mark, MarkKind};

/// Seconds from the start beyond which a planned time means forever.
const FOREVER: f64 = 1e6;

/// Hits per second of the time in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Hits per second; `None` if the instrument was never in place.
    pub per_second: Option<f64>,
    /// Samples were lost meanwhile, so that the rate is a lower bound.
    pub at_least: bool,
}

impl Rate {
    /// Returns the rate of `hits` in `seconds` of time in place.
    #[must_use]
    pub fn of(hits: u64, seconds: f64, at_least: bool) -> Self {
        Self {
            per_second: (seconds > 0.0).then(|| hits as f64 / seconds),
            at_least: at_least && seconds > 0.0,
        }
    }
}

impl std::fmt::Display for Rate {
    /// Writes `16/s`, `≥ 16/s`, or nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bound = if self.at_least { "≥ " } else { "" };
        let rate = self.per_second.map(scale::rate);
        f.pad(&rate.map_or_else(String::new, |rate| format!("{bound}{rate}")))
    }
}

/// Returns metadata whose launches and splashes are the measured ones, from `marks`.
/// `first` and `last` are the times of the first and last row of the recording.
///
/// Without a splash an instrument was in place up to the last row; without a launch in a recording
/// that has others it never was. A recording without launches is imported or old: its planned times
/// hold, and forever is as far as it extends.
#[must_use]
pub fn measured(metadata: &Metadata, marks: &[Mark], (first, last): (u64, u64)) -> Metadata {
    let mut times: HashMap<u64, (Option<u64>, Option<u64>)> = HashMap::new();
    for mark in marks {
        let (launch, splash) = times.entry(mark.id).or_default();
        match mark.kind {
            MarkKind::Launch => *launch = Some(launch.unwrap_or(mark.tsc).min(mark.tsc)),
            MarkKind::Splash => *splash = Some(splash.unwrap_or(mark.tsc).max(mark.tsc)),
            MarkKind::User | MarkKind::Clock => {}
        }
    }
    let has_launches = times.values().any(|(launch, _)| launch.is_some());
    let clock = &metadata.clock;
    let (begin, end) = (clock.seconds(first), clock.seconds(last.saturating_add(1)));
    let mut metadata = metadata.clone();
    for info in &mut metadata.instruments {
        let (launch, splash) = times.get(&info.id).copied().unwrap_or_default();
        let planned = |time: f64| match time {
            time if time < -FOREVER => begin,
            time if time < FOREVER => time,
            // Also a time that is no number, in a damaged file.
            _ => end,
        };
        info.launch = match launch {
            Some(launch) => clock.seconds(launch),
            // An imported instrument of a joined recording has no launch.
            None if has_launches && info.launch >= -FOREVER => end,
            None => planned(info.launch),
        };
        info.splash = match splash {
            Some(splash) => clock.seconds(splash),
            None if has_launches => end,
            None => planned(info.splash),
        }
        .max(info.launch);
    }
    metadata
}

/// Returns the span of a recording, whose rows are from `first` to `last`: from the start of the
/// instrumentation, or an earlier row, to the last row or splash. Its times are [measured].
#[must_use]
pub fn whole(metadata: &Metadata, (first, last): (u64, u64)) -> (u64, u64) {
    let clock = &metadata.clock;
    let splashes = metadata.instruments.iter().map(|info| info.splash);
    let splashes = splashes.filter(|splash| *splash < FOREVER);
    let ends = splashes.map(|splash| tick(clock, splash));
    let end = ends.fold(last.saturating_add(1), u64::max);
    (first.min(clock.start), end)
}

/// Returns the part of a span in which an instrument was in place, in TSC ticks; its times are
/// [measured].
#[must_use]
pub fn in_place(info: &InstrumentInfo, clock: &Clock, (from, to): (u64, u64)) -> (u64, u64) {
    let limited = |seconds: f64, limit: u64| match seconds {
        seconds if seconds.abs() > FOREVER * 100.0 => limit,
        seconds => tick(clock, seconds),
    };
    let from = limited(info.launch, from).max(from);
    (from, limited(info.splash, to).min(to).max(from))
}

/// Returns the tick nearest to a time, so that a measured tick survives as seconds.
fn tick(clock: &Clock, seconds: f64) -> u64 {
    let ticks = (seconds * clock.hz as f64).round();
    clock.start.wrapping_add_signed(ticks as i64)
}

/// Returns the seconds of a span in which an instrument was in place; its times are [measured].
#[must_use]
pub fn seconds_in_place(info: &InstrumentInfo, clock: &Clock, span: (u64, u64)) -> f64 {
    let (from, to) = in_place(info, clock, span);
    (to - from) as f64 / clock.hz.max(1) as f64
}

/// Returns the hits of a counter between two readings of its running total; without a second
/// reading, 0.
#[must_use]
pub const fn counted(before: u64, last: u64) -> u64 {
    last.saturating_sub(before)
}

/// Returns whether the values of samples are quantities, of which statistics make sense.
#[must_use]
pub const fn has_values(meaning: Meaning) -> bool {
    matches!(meaning, Meaning::Value | Meaning::Duration | Meaning::Level)
}

/// Returns whether the values of an instrument's samples are quantities: [those of its meaning are](has_values), and
/// they are not read as [text](crate::texts).
#[must_use]
pub fn is_quantity(metadata: &Metadata, info: &InstrumentInfo) -> bool {
    has_values(info.meaning) && metadata.texts.get(info.id).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Delivers;

    const CLOCK: Clock = Clock {
        hz: 100,
        start: 1000,
        start_unix_ns: 0,
    };

    fn metadata(times: &[(f64, f64)]) -> Metadata {
        let info = |(id, &(launch, splash)): (u64, &(f64, f64))| InstrumentInfo {
            id,
            label: String::new(),
            instrument: String::new(),
            meaning: Meaning::Event,
            unit: String::new(),
            launch,
            splash,
            placed: None,
            delivers: Delivers::Samples,
        };
        Metadata {
            clock: CLOCK,
            instruments: (1..).zip(times).map(info).collect(),
            ..Metadata::default()
        }
    }

    fn mark(kind: MarkKind, tsc: u64, id: u64) -> Mark {
        Mark {
            kind,
            tsc,
            id,
            value: 0,
        }
    }

    fn times(metadata: &Metadata) -> Vec<(f64, f64)> {
        let infos = metadata.instruments.iter();
        infos.map(|info| (info.launch, info.splash)).collect()
    }

    #[test]
    fn a_stopped_session_counts_only_its_real_time() {
        // An hour was planned. The first was removed after 1.5 s, the second never placed, and the
        // third was in place when the machine was lost at 4.99 s.
        let planned = metadata(&[(0.0, 3600.0), (7.0, 3600.0), (1.0, 3600.0)]);
        let marks = [
            mark(MarkKind::Launch, 1050, 1),
            mark(MarkKind::Splash, 1200, 1),
            mark(MarkKind::Launch, 1110, 3),
        ];
        let measured = measured(&planned, &marks, (1000, 1499));
        assert_eq!(times(&measured), [(0.5, 2.0), (5.0, 5.0), (1.1, 5.0)]);
        let span = (1000, 1500);
        let seconds = |place: usize| {
            let info = measured.instruments.get(place).unwrap();
            seconds_in_place(info, &CLOCK, span)
        };
        assert_eq!([seconds(0), seconds(1), seconds(2)], [1.5, 0.0, 3.9]);
        assert_eq!(Rate::of(30, seconds(0), false).to_string(), "20/s");
        assert_eq!(Rate::of(30, seconds(0), true).to_string(), "≥ 20/s");
        assert_eq!(Rate::of(0, seconds(1), true).to_string(), "");
    }

    #[test]
    fn planned_times_hold_in_an_older_or_imported_recording() {
        let planned = metadata(&[(0.0, 3600.0), (1.0, 2.0), (-1e9, 1e9)]);
        let measured = measured(&planned, &[], (900, 1499));
        assert_eq!(times(&measured), [(0.0, 3600.0), (1.0, 2.0), (-1.0, 5.0)]);
        assert_eq!(whole(&measured, (900, 1499)), (900, 361_000));
        let info = planned.instruments.get(2).unwrap();
        assert_eq!(in_place(info, &CLOCK, (50, 60)), (50, 60));
    }
}
