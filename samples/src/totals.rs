//! What instruments have added up where it happened, as a run tells it at its end.

use serde::{Deserialize, Serialize};

/// What a run has added up. It stands in the footer of its recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// In the order of the session.
    pub added_up: Vec<Total>,
    /// Reads of the kernel's memory that failed and gave 0, in the order of the session: where there was nothing,
    /// or a process's memory. A side of `&&`, `||` or `?:` that does not count may have been read all the same.
    #[serde(default)]
    pub failed_reads: Vec<Counted>,
    /// Values that were to be kept for a thread or a call, and were not, in the order of the session: another one's
    /// stood where they belong in the table that all share. The variable read 0 then.
    #[serde(default)]
    pub no_room: Vec<Counted>,
}

impl Totals {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added_up.is_empty() && self.failed_reads.is_empty() && self.no_room.is_empty()
    }

    /// Keeps what is told of instruments whose name is wanted.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.added_up.retain(|one| wanted(&one.instrument));
        self.failed_reads.retain(|one| wanted(&one.instrument));
        self.no_room.retain(|one| wanted(&one.instrument));
    }
}

/// What a placement has added up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Index of the placement.
    pub placement: usize,
    /// The instrument.
    pub instrument: String,
    /// The aggregate's name, without the `@`.
    pub name: String,
    /// Unit of what is added up; empty for none.
    pub unit: String,
    /// What it came to.
    pub value: Summary,
}

/// How often something befell an instrument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Index of the placement.
    pub placement: usize,
    /// The instrument.
    pub instrument: String,
    /// How many times.
    pub count: u64,
}

/// An aggregate, read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Summary {
    /// A number.
    Number(i128),
    /// No value has come.
    Nothing,
    /// A mean.
    Mean(f64),
    /// All buckets.
    Buckets(Vec<Bucket>),
    /// Values by how often they came, most often first, and how many cannot be told apart.
    Values(Vec<(i128, u64)>, u64),
}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The smallest value in it; `None` for no bound.
    pub from: Option<i128>,
    /// The largest value in it; `None` for no bound.
    pub to: Option<i128>,
    /// How many values.
    pub count: u64,
}
