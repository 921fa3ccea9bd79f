//! The recording: an Arrow IPC file that is self-describing, and survives interruptions.
//!
//! Five plain columns, no nulls, one record batch per drained block of one CPU:
//!
//! | column | type | contents |
//! |---|---|---|
//! | `time` | u64 | TSC ticks |
//! | `cpu` | u16 | the CPU, or 65535 for totals over all of them |
//! | `kind` | u8 | 0 a sample; anything else a loss, a mark, or a further word of a sample ([`RowKind`]) |
//! | `id` | u64 | the packed [`InstrumentId`](crate::InstrumentId) |
//! | `value` | u64 | the measured value; for a loss, the number of samples |
//!
//! The schema's metadata carries [`Metadata`](crate::metadata::Metadata) as JSON under `gilk`.
//! `README.md` of this crate describes the same for readers that have only pyarrow, and the
//! sidecar.
//!
//! A [`Writer`] appends whole batches; while it does, and after a crash, the file reads
//! as a stream from its schema message. [`Writer::finish`] or [`recover()`] write the footer that
//! makes it an Arrow *file*. [`Recording`] opens all of these, and [`GrowingRecording`] reads one as it grows.

mod batch;
mod format;
mod growing;
mod head;
mod merge;
mod message;
mod path;
mod reader;
mod recover;
mod rows;
mod sidecar;
mod writer;

pub use format::{COLUMNS, FORMAT_VERSION, MAX_ROWS};
pub use growing::{Appended, GrowingRecording};
pub use merge::Merged;
pub(crate) use merge::Words;
pub use path::sidecar_path;
pub use reader::{Batches, Recording};
pub use recover::{Recovery, recover};
pub use rows::{Loss, LossCause, Mark, MarkKind, RowKind};
pub use sidecar::Block;
pub use writer::{Compression, Summary, Writer};

#[cfg(test)]
mod tests;
