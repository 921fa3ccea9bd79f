//! Everything that touches a target.
//!
//! [`protocol`] defines the messages between client and agent; [`agent`] runs on the target as
//! root; `client` serves the window and the terminal program and needs no privilege; `lab` boots a
//! kernel in QEMU; `process` instruments processes of this machine; `saved` reads kernels from files; `sources` maps code to source lines; `doctor` examines a machine
//! before anything is installed on it; `script` reads one-line scripts; `streams` writes remarks; `writes` converts a verified plan to what the
//! module carries out.

#![cfg_attr(
    not(test),
    warn(
        clippy::print_stdout,
        clippy::print_stderr,
        reason = "print! panics when its reader is gone"
    )
)]

pub mod accesses;
mod accounts;
pub mod agent;
pub mod client;
mod debug_symbols;
pub mod doctor;
mod error;
pub mod interrupt;
pub mod lab;
mod mapping;
pub mod memory;
pub mod possible;
pub mod process;
mod processor;
mod programs;
pub mod protocol;
pub mod saved;
pub mod script;
mod shared;
pub mod sources;
pub mod spread;
pub mod ssh;
pub mod streams;
mod tracepoint;
mod workload;
pub mod writes;

pub use error::{Error, Result};
