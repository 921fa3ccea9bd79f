//! Times of what instruments add to the original code, in nanoseconds, for estimates.
//!
//! `cargo xtask bench native --model` fits those of a lone hit on random functions; the others are read from the rows
//! of `cargo xtask bench native`. `docs/cost.md` names the processor and the residuals. Another processor differs,
//! mostly by a common factor: an estimate compares, and a run measures.

/// A jump between the original code and a patch, where no other site is near.
pub const JUMP: f64 = 0.1;
/// The same in a function with many sites, where processors have a jump to predict every few instructions (the rows
/// "every block of ten").
pub const CLOSE_JUMP: f64 = 0.5;
/// An instruction without a time of its own here: many execute next to the original ones.
pub const INSTRUCTION: f64 = 0.25;
/// A read of the time stamp counter.
pub const CLOCK: f64 = 6.1;
/// An unlocked compare-and-exchange.
pub const EXCHANGE: f64 = 1.4;
/// An access to memory by another instruction.
pub const ACCESS: f64 = 0.05;
/// A call that a patch executes, eight calls deep: a push and a jump leave the processor's stack of return addresses
/// one short, so that every outer return mispredicts, 8 ns each (the rows "a call displaced").
pub const MOVED: f64 = 65.0;
/// A call by the function tracer, which saves all registers that a callee may change (the row "counter that is
/// called").
pub const TRACER: f64 = 12.0;
/// An `int3` that a kernel handles: not measured by the bench, whose trap has a signal and takes six times as long.
pub const TRAP: f64 = 300.0;
