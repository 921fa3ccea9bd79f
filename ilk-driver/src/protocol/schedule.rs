use serde::{Deserialize, Serialize};

/// How a session goes, beside its batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Seconds from the start to the end.
    pub duration: f64,
    /// A program to run.
    pub workload: Option<Workload>,
    /// How what is measured is collected.
    pub collection: Collection,
    /// The target's TSC at second 0; left out, or gone by, it is at once.
    pub start: Option<u64>,
    /// Events that the processor is to count meanwhile, and in which counters.
    pub events: Vec<EventCounter>,
    /// By which a client that was lost finds it again: a number that nobody guesses.
    pub token: u64,
}

/// An event that is counted, and the counter that was planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounter {
    /// Its number in `enum perf_hw_id`.
    pub event: u8,
    /// What `rdpmc` is given.
    pub index: u32,
}

/// A program to run while the session lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Its path in the target.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Seconds from the start.
    pub at: f64,
}

/// How what is measured is collected.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collection {
    /// What becomes of samples.
    pub samples: Strategy,
    /// How often totals are told.
    pub totals: Interval,
    /// Seconds for which a session goes on without its client.
    pub grace: f64,
}

/// What becomes of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Strategy {
    /// They are told as they come.
    Stream,
    /// They are told now and then.
    Periodic(Interval),
    /// They are taken now and then for so many seconds, and told after that.
    Windows(Interval, f64),
    /// They stay in the rings to the end; what comes when a ring is full is lost.
    Oldest,
    /// They stay in the rings to the end; new ones overwrite the oldest.
    Newest,
}

/// A time that comes again, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// From one time to the next.
    pub every: f64,
    /// By which this varies, either way.
    pub jitter: f64,
}
