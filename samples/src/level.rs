//! Levels: values that hold until the next sample, and what they are on average over time.
//!
//! A level is one number of all that was placed together: its samples come from every hook of the placement and
//! from whatever CPU passes it, so they are one series in order of time. The mean of such samples says little,
//! for a level that holds for an hour is sampled as often as one that holds for a microsecond; the average
//! over time weighs each with how long it held. Of the number of threads within a function this is the average
//! number inside (KernInst), and by Little's law the rate of calls times how long each takes.

use std::collections::HashMap;

use serde::Serialize;

use crate::Meaning;
use crate::index::Part;
use crate::metadata::{InstrumentInfo, Metadata};

/// Samples of which an average is made of an index at once, at most.
pub const MOST: u64 = 1 << 20;

/// What a level was over a span of time. Values are read with a sign.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Average {
    /// The mean over the time that is covered.
    pub mean: f64,
    /// The least level that held.
    pub least: i64,
    /// The greatest level that held.
    pub greatest: i64,
    /// TSC ticks of the span in which the level was known: before its first sample it is not, nor behind
    /// the splash.
    pub covered: u64,
}

/// A level as its samples come.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    from: u64,
    last: Option<(u64, i64)>,
    area: i128,
    covered: u64,
    bounds: Option<(i64, i64)>,
}

impl Held {
    /// Of the time from `from` on, in TSC ticks.
    #[must_use]
    pub const fn since(from: u64) -> Self {
        Self {
            from,
            last: None,
            area: 0,
            covered: 0,
            bounds: None,
        }
    }

    /// From `tsc` on the level is `value`. Samples come in order of time; those before the span tell with
    /// which level it begins.
    pub fn sample(&mut self, tsc: u64, value: u64) {
        self.reach(tsc);
        self.last = Some((tsc, value.cast_signed()));
    }

    /// The last level holds up to `to`.
    fn reach(&mut self, to: u64) {
        let Some((at, value)) = self.last else {
            return;
        };
        let ticks = to.saturating_sub(at.max(self.from));
        if ticks > 0 {
            self.area += i128::from(value) * i128::from(ticks);
            self.covered += ticks;
            let (least, greatest) = self.bounds.unwrap_or((value, value));
            self.bounds = Some((least.min(value), greatest.max(value)));
        }
    }

    /// What it was up to `to`; `None` if it was never known for a tick.
    #[must_use]
    pub fn until(mut self, to: u64) -> Option<Average> {
        self.reach(to);
        let (least, greatest) = self.bounds?;
        Some(Average {
            mean: self.area as f64 / self.covered as f64,
            least,
            greatest,
            covered: self.covered,
        })
    }

    /// The last sample's time.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.last.map(|(tsc, _)| tsc)
    }
}

/// Which instruments sample one level together: the identifier of each, and that of the first of them, by which
/// the level goes.
#[must_use]
pub fn heads(metadata: &Metadata) -> HashMap<u64, u64> {
    let mut firsts: HashMap<u32, u64> = HashMap::new();
    let levels = metadata.instruments.iter().filter(|info| is_level(info));
    let head = |info: &InstrumentInfo| match &info.placed {
        Some(placed) => *firsts.entry(placed.placement).or_insert(info.id),
        None => info.id,
    };
    let ids: Vec<u64> = levels.clone().map(|info| info.id).collect();
    ids.into_iter().zip(levels.map(head)).collect()
}

fn is_level(info: &InstrumentInfo) -> bool {
    info.meaning == Meaning::Level
}

/// Up to when a level is known in a span that ends at `to`: no further than its instrument's splash, or the
/// last sample before `to` if that came later.
#[must_use]
pub fn end(metadata: &Metadata, info: &InstrumentInfo, last: Option<u64>, to: u64) -> u64 {
    let splash = metadata.clock.tsc(info.splash);
    to.min(splash.max(last.map_or(0, |last| last.saturating_add(1))))
}

/// What the level in lane `info` was on average from `t0` up to but without `t1`, where `part` has all of its
/// samples ([`Whose::Level`](crate::index::Whose::Level)). `None` if it was not known then, or has too
/// many samples there.
#[must_use]
pub fn average(
    part: Part<'_>,
    metadata: &Metadata,
    info: &InstrumentInfo,
    (t0, t1): (u64, u64),
) -> Option<Average> {
    if part.is_coarse(info.id) || part.total(info.id, t0, t1).count > MOST {
        return None;
    }
    let mut held = Held::since(t0);
    if let Some(before) = part.last_before(info.id, t0) {
        held.sample(before.tsc, before.value);
    }
    for point in part.samples_in(info.id, t0, t1, usize::MAX) {
        held.sample(point.tsc, point.value);
    }
    let end = end(metadata, info, held.last(), t1);
    held.until(end)
}

#[cfg(test)]
mod tests;
