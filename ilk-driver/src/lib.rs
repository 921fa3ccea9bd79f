//! Everything that touches a target.
//!
//! [`protocol`] is what is said; [`agent`] says it beside the kernel, as root; `client` says it
//! for the window and the terminal program, as anyone; `lab` is a kernel to try things on;
//! `saved` is a kernel on a file; `sources` which lines of source its code comes from.

pub mod agent;
#[cfg(feature = "client")]
pub mod client;
mod error;
pub mod interrupt;
#[cfg(feature = "client")]
pub mod lab;
pub mod memory;
pub mod protocol;
#[cfg(feature = "client")]
pub mod saved;
mod shared;
#[cfg(feature = "client")]
pub mod sources;
pub mod spread;
#[cfg(feature = "client")]
pub mod ssh;

pub use error::{Error, Result};
