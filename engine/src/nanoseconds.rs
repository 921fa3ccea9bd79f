//! Times of what instruments add to the original code, in nanoseconds, for estimates.
//!
//! `cargo xtask bench native --model` fits those of a lone hit on random functions; the others are read from the rows
//! of `cargo xtask bench native`. `docs/cost.md` names the processors and the residuals. Another processor differs by
//! more than a factor: an estimate compares, and a run measures.

/// Times of the work of a hit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// A jump between the original code and a patch, where no other site is near.
    pub jump: f64,
    /// An instruction without a time of its own here: many execute next to the original ones.
    pub instruction: f64,
    /// A read of the time stamp counter.
    pub clock: f64,
    /// An unlocked compare-and-exchange.
    pub exchange: f64,
    /// An instruction that is atomic for all CPUs.
    pub locked: f64,
    /// An access to memory by another instruction.
    pub access: f64,
    /// A search for the highest bit, with the word that it selects.
    pub scan: f64,
}

/// Times where the processor mostly waits for something else, so that the rest executes meanwhile.
pub const WAITING: Times = Times {
    jump: 0.0,
    instruction: 0.01,
    clock: 1.2,
    exchange: 0.72,
    locked: 1.97,
    access: 0.04,
    scan: 0.79,
};
/// Times in a loop of one block, where nothing hides the work.
pub const IN_LOOP: Times = Times {
    jump: 0.08,
    instruction: 0.04,
    clock: 5.15,
    exchange: 0.0,
    locked: 1.2,
    access: 0.05,
    scan: 6.7,
};

/// A jump between the original code and a patch in a function with many sites, where processors have a jump to predict
/// every few instructions (the rows "every block of ten", less what a lone jump takes).
pub const CLOSE_JUMP: f64 = 0.5;
/// A call that a patch executes, eight calls deep: a push and a jump leave the processor's stack of return addresses
/// one short, so that every outer return mispredicts, 5 to 8 ns each (the rows "a call displaced").
pub const MOVED: f64 = 65.0;
/// A call by the function tracer, which saves all registers that a callee may change (the row "counter that is
/// called").
pub const TRACER: f64 = 12.0;
/// An `int3` that a kernel handles: not measured by the bench, whose trap has a signal and takes six times as long.
pub const TRAP: f64 = 300.0;
