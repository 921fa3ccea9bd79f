//! What instruments deliver, from the ring to the file and the screen.
//!
//! Data flows through the modules in this order: [`record`] (one sample) → [`ring`] (where the
//! patch wrote it) → [`recording`] (the file) → [`index`] (any
//! zoom) → [`stats`], [`chart`]; [`profile`], [`compare`] and [`export`] read the file as it comes.

mod error;
pub mod id;
pub mod meaning;
pub mod record;
pub mod ring;

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
pub mod joined;
#[cfg(feature = "recording")]
pub mod level;
#[cfg(feature = "recording")]
pub mod metadata;
#[cfg(feature = "recording")]
pub mod profile;
#[cfg(feature = "recording")]
pub mod recording;
#[cfg(feature = "recording")]
pub mod stats;
pub mod totals;

pub use error::{Error, Result};
pub use id::{HookType, InstrumentId};
pub use meaning::Meaning;
pub use record::{Batch, Sample};
