//! Tests on the image of a real kernel, the file that `GILK_IMAGE` names.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's helpers fail the test by panicking"
)]

mod analysis;
mod decisions;
mod files;
mod placement;
mod returns;
mod saved;
mod verified;
mod ways;
