//! Everything that touches a target.
//!
//! [`protocol`] is what is said; [`agent`] says it beside the kernel, as root; `client` says it
//! for the window and the terminal program, as anyone; `lab` is a kernel to try things on.

pub mod agent;
#[cfg(feature = "client")]
pub mod client;
mod error;
pub mod interrupt;
#[cfg(feature = "client")]
pub mod lab;
pub mod protocol;
pub mod spread;

pub use error::{Error, Result};
