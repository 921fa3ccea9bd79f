//! Levels: values that hold until the next sample, and their average over time.
//!
//! A level is one number for everything placed together: its samples come from every hook of the
//! placement and from every CPU, as one series in order of time. The mean of such samples is not
//! informative, because a level that holds for an hour has as many samples as one that holds for a
//! microsecond; the average over time weights each by its duration. For the number of threads
//! within a function this is the average number inside (KernInst), and by Little's law the rate of
//! calls times their average duration.

use serde::Serialize;

use crate::index::Part;
use crate::metadata::{InstrumentInfo, Metadata};

pub use crate::index::levels::heads;

/// Maximum number of samples in an index that are averaged at once.
pub const MOST: u64 = 1 << 20;

/// Average of a level over a span of time. Values are signed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Average {
    /// Mean over the covered time.
    pub mean: f64,
    /// Minimum of the level.
    pub least: i64,
    /// Maximum of the level.
    pub greatest: i64,
    /// TSC ticks of the span in which the level was known: from its first sample to the splash.
    pub covered: u64,
}

/// Accumulates the average of a level from its samples.
#[derive(Clone, Copy, Debug)]
pub struct LevelAverage {
    from: u64,
    last: Option<(u64, i64)>,
    area: i128,
    covered: u64,
    bounds: Option<(i64, i64)>,
}

impl LevelAverage {
    /// Returns an accumulator for the time from `from`, in TSC ticks.
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

    /// Sets the level to `value` at `tsc`. Samples arrive in order of time; those before the span
    /// determine its first level.
    pub fn sample(&mut self, tsc: u64, value: u64) {
        self.reach(tsc);
        self.last = Some((tsc, value.cast_signed()));
    }

    /// Extends the last level to `to`.
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

    /// Returns the average up to `to`; `None` if the level was never known for a tick.
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

    /// Returns the time of the last sample.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.last.map(|(tsc, _)| tsc)
    }
}

/// Returns the time up to which a level is known in a span that ends at `to`: its instrument's
/// splash, or the last sample before `to` if that is later.
#[must_use]
pub fn end(metadata: &Metadata, info: &InstrumentInfo, last: Option<u64>, to: u64) -> u64 {
    let splash = metadata.clock.tsc(info.splash);
    to.min(splash.max(last.map_or(0, |last| last.saturating_add(1))))
}

/// Returns the average of the level in lane `info` from `t0` to `t1` (exclusive), where `part` has
/// all of its samples ([`Owner::Level`](crate::index::Owner::Level)). `None` if it was not known
/// then, or has too many samples there.
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
    let mut held = LevelAverage::since(t0);
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
