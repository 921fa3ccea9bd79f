//! The cost of a hit on this machine's processor, in nanoseconds.
//!
//! Small kernels are planned at the addresses of a kernel, verified, and executed in this process, [`target::SHIFT`]
//! bytes below: distances between text, patches and words are those of the plan, so that every byte of a patch is
//! the engine's, but for the highest bit of return addresses that a patch pushes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench that cannot run says so and ends"
)]

#[path = "../support/host.rs"]
mod host;
#[path = "../relocation/random.rs"]
pub(crate) mod numbers;
#[path = "../support/small.rs"]
mod small;

pub(crate) mod cases;
pub(crate) mod measure;
pub(crate) mod model;
mod random;
pub(crate) mod results;
mod rivals;
pub(crate) mod target;
mod trees;
mod tried;
pub(crate) mod unwinder;
