//! The client of an agent: connects, reads the image, executes a verified plan and records it.
//!
//! [`Connection::connect`] connects, [`Connection::live_parts`] reads the parts of an
//! [`Image`](gilk_engine::Image), [`Connection::run`] runs a session and records it. All of them
//! block: call them from a thread of their own.

mod address;
mod aggregates;
mod clock;
mod connection;
mod describe;
mod event;
mod feed;
mod lease;
mod lock;
mod own_workload;
mod prediction;
mod resume;
mod run;
mod sidecar;
mod status;
mod tally;
mod throughput;
mod together;
pub(crate) mod upload;
mod wire;

use std::path::{Path, PathBuf};

pub use crate::protocol::{CpuLosses, Holder, SplicedFunction, Status};
pub use address::{Route, TargetAddress};
pub use aggregates::{is_aggregate_word, totals, totals_of_banks};
pub use connection::{Connection, TargetInfo};
pub use describe::{append_metadata, frame, label, metadata, samples, texts};
pub use event::{
    AggregateSummary, Counted, Event, Gap, InstrumentSummary, ProcessEvent, StopFlag, Summary,
    Switch,
};
pub use prediction::{Prediction, RunHits, counting};
pub use resume::resume;
pub use status::{end, status};
pub use throughput::{Throughput, measure_throughput};
pub use together::{Participant, Seat, together};
pub use wire::PATIENCE;

/// Returns the path of the link to the socket of the lab that runs from this cache; `ilk lab`
/// creates it.
#[must_use]
pub fn lab_link(cache: &Path) -> PathBuf {
    cache.join("lab.sock")
}
