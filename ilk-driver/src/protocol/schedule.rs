use serde::{Deserialize, Serialize};

/// The parameters of a session besides its plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// A program to run.
    pub workload: Option<Workload>,
    /// Parameters of the collection of samples and totals.
    pub collection: Collection,
    /// The target's TSC at second 0; if absent or in the past, second 0 is now.
    pub start: Option<u64>,
    /// Secret random number by which a client resumes the session.
    pub token: u64,
}

/// A program to run during the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Its path in the target.
    pub program: String,
    /// Command-line arguments.
    pub arguments: Vec<String>,
    /// Seconds from the start.
    pub at: f64,
}

/// The collection of samples and totals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collection {
    /// The strategy for samples.
    pub samples: Strategy,
    /// The interval of reports of totals.
    pub totals: Interval,
    /// Seconds for which a session continues without its client.
    pub grace: f64,
}

/// The strategy for samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Strategy {
    /// Samples are sent as they arrive.
    Stream,
    /// Samples are sent periodically.
    Periodic(Interval),
    /// Samples are taken periodically for so many seconds, and sent after each window.
    Windows(Interval, f64),
    /// Samples stay in the rings to the end; when a ring is full, further hits are lost.
    Oldest,
    /// Samples stay in the rings to the end; new ones overwrite the oldest.
    Newest,
}

/// The interval of a periodic action, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Mean interval.
    pub every: f64,
    /// Largest deviation of an interval, in either direction.
    pub jitter: f64,
}
