//! Proof of the code of patches, path by path.
//!
//! Proven: equivalence to the original code, the effect of each hit, the recovery from faults, the unwind rows.
//! Assumed: the results of native functions.

pub(crate) mod action;
pub(crate) mod callee_contract;
pub(crate) mod compute;
pub(crate) mod descriptor;
pub(crate) mod equivalence;
pub(crate) mod explain;
pub(crate) mod fault;
mod flags;
pub(crate) mod hit;
pub(crate) mod joins;
pub(crate) mod location;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod native;
pub(crate) mod operands;
pub(crate) mod phase;
pub(crate) mod points;
mod process;
pub(crate) mod program;
mod replaced;
pub(crate) mod ring;
mod scan;
pub(crate) mod sequence;
mod shared_ring;
pub(crate) mod slot;
mod stack;
pub(crate) mod state;
pub(crate) mod step;
pub(crate) mod timer;
pub(crate) mod transfer;
pub(crate) mod unwind;
pub(crate) mod walk;
