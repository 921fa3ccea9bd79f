//! Proof of the hits: the events of hooks, and the instruments that run on each.
//!
//! Proven: one run for each event, after and within each batch. Assumed: the known entries of functions.

pub(crate) mod batch;
pub(crate) mod hooks;
pub(crate) mod reach;
pub(crate) mod retirement;
pub(crate) mod state;
pub(crate) mod transition;
