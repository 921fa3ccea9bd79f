//! Tests on a live kernel: the lab is booted, real sessions run in it, and what comes back is held
//! against what is known of the workload.
//!
//! They are ignored by a plain `cargo test`, for they download a kernel and boot it;
//! `cargo xtask test` runs them. One boot serves as many of them as possible.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail where it likes"
)]
#![allow(
    missing_docs,
    reason = "nobody reads the documentation of a test program"
)]

mod chosen;
mod circulation;
mod guest;
mod live;
#[path = "../nonsense/mod.rs"]
mod nonsense;
mod support;
#[path = "../../examples/evaluate/trace.rs"]
mod trace;
