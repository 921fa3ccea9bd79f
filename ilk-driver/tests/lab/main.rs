//! Tests on a live kernel: real sessions run in the lab, and their samples are compared with what is known of the
//! workload.
//!
//! Plain `cargo test` ignores them, since they download a kernel and boot it; `cargo xtask test` runs them. As many
//! as possible share one boot.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail anywhere"
)]
#![allow(missing_docs, reason = "a test program has no documentation")]

mod chosen;
mod circulation;
mod guest;
mod live;
#[path = "../nonsense/mod.rs"]
mod nonsense;
mod support;
#[path = "../../examples/evaluate/trace.rs"]
mod trace;
mod userland;
