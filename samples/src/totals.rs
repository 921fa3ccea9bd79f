//! Aggregates that instruments computed in the target, reported at the end of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cache_numbers::CacheNumbers;
use crate::kept_stacks::KeptStacks;
use crate::process_end::ProcessEnd;

/// Aggregates of a run. They are in the footer of its recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Aggregates in the order of the session.
    pub added_up: Vec<Total>,
    /// Reads of the kernel's memory that failed and yielded 0, in the order of the session: of
    /// unmapped addresses, or of user memory. The unused side of `&&`, `||` or `?:` may have been
    /// read too.
    #[serde(default)]
    pub failed_reads: Vec<Counted>,
    /// Values of thread and call variables that could not be stored, in the order of the session:
    /// their entries in the shared table were occupied. The variables then yielded 0.
    #[serde(default)]
    pub no_room: Vec<Counted>,
    /// Names of the target's addresses among values and keys: `vfs_read+0x1c`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub symbols: BTreeMap<u64, String>,
    /// Stacks among values and keys.
    #[serde(default, skip_serializing_if = "KeptStacks::is_empty")]
    pub stacks: KeptStacks,
    /// Reason why the session ended before its time, as a sentence; empty if it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ended: String,
    /// Ends of executions in the code cache. Earlier recordings have their sentences in [`ended`](Self::ended).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<ProcessEnd>,
    /// Times without instruments, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// The predicted cost of the session next to that of its hits, if a run of counters preceded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<SessionCost>,
    /// Numbers of the code cache, if the process has executed in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheNumbers>,
}

/// A time in the middle of a session in which none of its instruments was in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// Its begin, in seconds from the start.
    pub out: f64,
    /// Its end, in seconds from the start; `None` if the session ended before.
    pub back: Option<f64>,
    /// The event, as a clause: `a live patch changed the kernel`.
    pub why: String,
    /// Number of instruments that were left out after it.
    pub left_out: usize,
    /// The reason: functions that are replaced, by name.
    pub replaced: Vec<String>,
}

impl std::fmt::Display for Gap {
    /// Writes sentences: *No instrument was in place from 1.250 s to 2.500 s: …*
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (out, why) = (self.out, &self.why);
        match self.back {
            Some(back) => write!(
                f,
                "No instrument was in place from {out:.3} s to {back:.3} s: {why}."
            )?,
            None => write!(f, "No instrument is in place from {out:.3} s on: {why}.")?,
        }
        if self.left_out > 0 {
            let (count, functions) = (self.left_out, self.replaced.join(", "));
            write!(
                f,
                " After that {count} of them were left out, since it replaces {functions}."
            )?;
        }
        Ok(())
    }
}

/// Hits, and the estimated time of their instruments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HitsCost {
    /// Number of hits; predicted ones are not whole.
    pub hits: f64,
    /// Their time on the processors, in seconds.
    pub seconds: f64,
}

impl HitsCost {
    /// Adds hits that take so many nanoseconds each.
    pub fn add(&mut self, hits: f64, ns: f64) {
        self.hits += hits;
        self.seconds += hits * ns * 1e-9;
    }
}

/// Cost of a session, predicted by a run of counters, and estimated from the hits that it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionCost {
    /// Length of the run of counters, in seconds.
    pub counted_for: f64,
    /// Cost of the whole session, predicted.
    pub predicted: HitsCost,
    /// Planned length of the session, in seconds.
    pub planned_for: f64,
    /// Cost of the hits that the session had.
    pub estimated: HitsCost,
    /// Length of the session, in seconds: less than planned if it was stopped.
    pub ran_for: f64,
    /// Instruments that do not report how often they were hit: both costs have their predicted hits.
    pub silent: u32,
}

impl Totals {
    /// Returns whether there is nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added_up.is_empty()
            && self.failed_reads.is_empty()
            && self.no_room.is_empty()
            && self.stacks.limits.is_empty()
            && self.ended.is_empty()
            && self.ends.is_empty()
            && self.gaps.is_empty()
            && self.cost.is_none()
            && self.cache.is_none()
    }

    /// Adds results whose placements are numbered from `first_placement` on. Gaps, symbols, frames of stacks, the cost and the
    /// numbers of a cache are left out: they are of another clock, other code and another session.
    pub fn append(&mut self, other: Self, first_placement: usize) {
        let moved = |placement: usize| placement.saturating_add(first_placement);
        let added_up = other.added_up.into_iter();
        self.added_up.extend(added_up.map(|total| Total {
            placement: moved(total.placement),
            ..total
        }));
        let counted = |counted: Counted| Counted {
            placement: moved(counted.placement),
            ..counted
        };
        let failed = other.failed_reads.into_iter();
        self.failed_reads.extend(failed.map(counted));
        self.no_room.extend(other.no_room.into_iter().map(counted));
        self.ended += &other.ended;
        self.ends.extend(other.ends);
        self.stacks.of_processes.extend(other.stacks.of_processes);
        self.stacks.lost += other.stacks.lost;
        self.stacks.limits.extend(other.stacks.limits);
    }

    /// Returns them with a name before those of instruments, and before the reason of an end; as they are if it is empty.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        if name.is_empty() {
            return self;
        }
        let prefix = |instrument: &mut String| *instrument = format!("{name}: {instrument}");
        let added_up = self.added_up.iter_mut();
        added_up.for_each(|one| prefix(&mut one.instrument));
        let counted = self.failed_reads.iter_mut().chain(&mut self.no_room);
        counted.for_each(|one| prefix(&mut one.instrument));
        if !self.ended.is_empty() {
            self.ended = format!("{name}: {} ", self.ended);
        }
        self
    }

    /// Keeps the entries of instruments whose name is `wanted`. The cost and the numbers of a cache are of all
    /// instruments, so they go.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.cost = None;
        self.cache = None;
        self.added_up.retain(|total| wanted(&total.instrument));
        self.failed_reads.retain(|reads| wanted(&reads.instrument));
        self.no_room.retain(|values| wanted(&values.instrument));
    }
}

/// An aggregate of a placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Index of the placement.
    pub placement: usize,
    /// Name of the instrument in the library.
    pub instrument: String,
    /// The aggregate's name, without the `@`.
    pub name: String,
    /// Unit of the values; empty for none.
    pub unit: String,
    /// True if a number may be 0 where values have arrived: a sum, a smallest or a largest value.
    #[serde(default)]
    pub may_be_zero: bool,
    /// Value of the aggregate.
    pub value: TotalValue,
}

impl Total {
    /// Returns whether nothing was counted or added up.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.value.is_idle(self.may_be_zero)
    }

    /// Returns the numbers that may be addresses: counted values, and the numbers of keys.
    #[must_use]
    pub fn numbers(&self) -> Vec<i128> {
        match &self.value {
            TotalValue::Values(values, _) => values.iter().map(|(value, _)| *value).collect(),
            TotalValue::Map(rows, _) => rows.iter().flat_map(TotalRow::numbers).collect(),
            _ => Vec::new(),
        }
    }
}

/// Count of an incident of an instrument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Index of the placement.
    pub placement: usize,
    /// Name of the instrument in the library.
    pub instrument: String,
    /// Number of incidents.
    pub count: u64,
}

/// Value of an aggregate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TotalValue {
    /// A sum, count, minimum or maximum.
    Number(i128),
    /// No value has arrived.
    Nothing,
    /// An average.
    Mean(f64),
    /// All buckets of a histogram.
    Buckets(Vec<TotalBucket>),
    /// Values and their counts in descending order, and the number of values that were not
    /// distinguished.
    Values(Vec<(i128, u64)>, u64),
    /// The totals of keys, the largest first, and the number of values whose keys were not distinguished.
    Map(Vec<TotalRow>, u64),
}

/// The total of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TotalRow {
    /// Parts of the key: one or two.
    pub key: Vec<KeyPart>,
    /// Total of its values: a number, a mean or a histogram.
    pub value: TotalValue,
}

/// One value of a key of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KeyPart {
    /// A value, signed by its type.
    Number(i128),
    /// The name of a thread.
    Text(String),
}

impl TotalRow {
    /// Returns the parts of the key that are numbers.
    pub fn numbers(&self) -> impl Iterator<Item = i128> {
        self.key.iter().filter_map(|part| match part {
            KeyPart::Number(number) => Some(*number),
            KeyPart::Text(_) => None,
        })
    }

    /// Returns the key as text, its parts separated by commas.
    #[must_use]
    pub fn key(&self) -> String {
        self.key_by(|number| number.to_string())
    }

    /// Returns the key as text, its numbers formatted by `number`.
    #[must_use]
    pub fn key_by(&self, number: impl Fn(i128) -> String) -> String {
        let part = |part: &KeyPart| match part {
            KeyPart::Number(value) => number(*value),
            KeyPart::Text(text) => text.clone(),
        };
        let parts: Vec<String> = self.key.iter().map(part).collect();
        parts.join(", ")
    }

    /// Sorts rows: the largest totals first, then by key.
    pub fn sort(rows: &mut [Self]) {
        rows.sort_by(|one, other| {
            let by_weight = other.value.weight().total_cmp(&one.value.weight());
            by_weight.then_with(|| one.key.cmp(&other.key))
        });
    }
}

impl TotalValue {
    /// Returns the weight by which totals are sorted: the number of values of a histogram or table,
    /// the magnitude of a number; 0 if no value has arrived.
    #[must_use]
    pub fn hits(&self) -> u64 {
        match self {
            Self::Number(number) => u64::try_from(number.unsigned_abs()).unwrap_or(u64::MAX),
            Self::Nothing => 0,
            // A mean has values, even if they cancel out.
            Self::Mean(mean) => (mean.abs() as u64).max(1),
            Self::Buckets(buckets) => buckets
                .iter()
                .fold(0, |sum, bucket| sum.saturating_add(bucket.count)),
            Self::Values(values, others) => values
                .iter()
                .fold(*others, |sum, (_, count)| sum.saturating_add(*count)),
            Self::Map(rows, others) => rows
                .iter()
                .fold(*others, |sum, row| sum.saturating_add(row.value.hits())),
        }
    }

    /// Returns whether no value has arrived. A number of 0 is one only if it `may_be_zero`.
    #[must_use]
    pub fn is_idle(&self, may_be_zero: bool) -> bool {
        match self {
            Self::Number(_) if may_be_zero => false,
            // The totals of keys may be 0, too.
            Self::Map(rows, others) => rows.is_empty() && *others == 0,
            value => value.hits() == 0,
        }
    }

    /// Returns the number that rows are sorted by: the total with its sign, the mean, or the number of values.
    #[must_use]
    pub fn weight(&self) -> f64 {
        match self {
            Self::Number(number) => *number as f64,
            Self::Mean(mean) => *mean,
            Self::Nothing => f64::NEG_INFINITY,
            counted => counted.hits() as f64,
        }
    }
}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalBucket {
    /// Minimum, inclusive; `None` if unbounded.
    pub from: Option<i128>,
    /// Maximum, inclusive; `None` if unbounded.
    pub to: Option<i128>,
    /// Number of values.
    pub count: u64,
}
