//! Samples of GILK's instruments: reading rings, recording files, querying and exporting them.
//!
//! The crate knows nothing about kernels or code; a sample is an identifier, a value and a time. Its
//! layers, each of which uses only those above it:
//!
//! | layer | modules | contents |
//! |---|---|---|
//! | vocabulary | [`ids`] | typed indices and dense maps, for all crates of the project |
//! | formats in memory | [`mod@id`], [`record`], [`meaning`], [`ring`] | a sample's 24 bytes, its identifier, and the per-CPU ring that patches write; all that the agent links |
//! | the file | `metadata`, `totals`, `recording`, `collector` | an Arrow IPC file that is self-describing and survives a crash, and the thread that writes it |
//! | time | `clocks`, `joined`, `beside` | the clocks of several machines aligned, and their recordings read as one; recordings of one machine and clock as one |
//! | queries | `statistics`, `index`, `level`, `stats`, `histogram`, `profile`, `compare`, `graph`, `calls` | columns of a lane at any zoom, averages over time, the definition of every number, tests for differences, counts per block, call trees |
//! | files | `input`, `output` | what people name: bounded reading, whole writing |
//! | output | `chart`, `export`, `import` | pictures, other programs' formats, and other programs' recordings |
//!
//! Everything but the first two layers needs the feature `recording`, which is enabled by default.
//!
//! # Examples
//! Write a recording, open it, and query its time index:
//!
//! ```
//! # #[cfg(feature = "recording")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::ops::ControlFlow;
//!
//! use gilk_samples::index::Index;
//! use gilk_samples::metadata::Metadata;
//! use gilk_samples::recording::{Recording, Writer};
//! use gilk_samples::{Batch, HookType, InstrumentId, Sample};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("run.arrow");
//! let id = InstrumentId::new(7, HookType::Pre, 0, 0).ok_or("a part exceeds its bits")?.pack();
//! let mut writer = Writer::create(&path, &Metadata::default())?;
//! let samples = (0..1000).map(|n| Sample { id, value: n % 10, tsc: 100 * n }).collect();
//! writer.write(&Batch { cpu: 0, samples })?;
//! writer.finish()?;
//!
//! let recording = Recording::open(&path)?;
//! assert_eq!(recording.samples(), 1000);
//! let (index, damaged) = Index::of(&recording, |_| ControlFlow::Continue(()));
//! assert!(damaged.is_empty());
//! // Ten columns over the whole time: each has the count, minimum, maximum and sum of its samples.
//! let columns = index.query(id, 0, 100_000, 10);
//! assert!(columns.iter().all(|column| column.count == 100 && column.max == 9));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "recording"))]
//! # fn main() {}
//! ```
//!
//! `examples/read.rs` prints the lanes of a recording; the README describes the file for other
//! programs. To add an export format, see `docs/add-an-export.md`.

pub mod cache_numbers;
mod error;
pub mod id;
pub mod ids;
pub mod kept_stacks;
pub mod meaning;
pub mod process_end;
pub mod record;
pub mod ring;

#[cfg(feature = "recording")]
pub mod beside;
#[cfg(feature = "recording")]
pub mod block_lines;
#[cfg(feature = "recording")]
pub mod calls;
#[cfg(feature = "recording")]
pub mod chart;
#[cfg(feature = "recording")]
pub mod clocks;
#[cfg(feature = "recording")]
pub mod collector;
#[cfg(feature = "recording")]
pub mod compare;
#[cfg(feature = "recording")]
pub mod export;
#[cfg(feature = "recording")]
pub mod graph;
#[cfg(feature = "recording")]
pub mod histogram;
#[cfg(feature = "recording")]
pub mod import;
#[cfg(feature = "recording")]
pub mod index;
#[cfg(feature = "recording")]
pub mod input;
#[cfg(feature = "recording")]
pub mod joined;
#[cfg(feature = "recording")]
pub mod level;
#[cfg(feature = "recording")]
pub mod live_beside;
#[cfg(feature = "recording")]
pub mod metadata;
#[cfg(feature = "recording")]
pub mod output;
#[cfg(feature = "recording")]
pub mod profile;
#[cfg(feature = "recording")]
pub mod recording;
#[cfg(feature = "recording")]
pub mod statistics;
#[cfg(feature = "recording")]
pub mod stats;
pub mod texts;
pub mod totals;

pub use error::{Error, Result};
pub use id::{HookType, InstrumentId};
pub use meaning::Meaning;
pub use record::{Batch, Sample};
