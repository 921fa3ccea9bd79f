//! The original code: functions decoded from their start, their liveness, and the bytes that may be changed.
//!
//! Proven: decoding, entries, liveness, movable instructions, padding. Assumed: the image.

pub(crate) mod call;
pub(crate) mod callee;
pub(crate) mod decoded;
pub(crate) mod effects;
pub(crate) mod exception;
pub(crate) mod liveness;
pub(crate) mod originals;
pub(crate) mod padding;
pub(crate) mod relied;
pub(crate) mod routine;
pub(crate) mod site;
pub(crate) mod stack;
