//! Proof of the batches, replayed write by write.
//!
//! Proven: expected bytes, dependences, ranks, restoration. Assumed: the order and the waits of the driver.

pub(crate) mod parts;
pub(crate) mod player;
pub(crate) mod running;
pub(crate) mod splice;
