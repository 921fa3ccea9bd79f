//! Times of what instruments add to the original code, in nanoseconds, for estimates.
//!
//! They are those of the processor that [`fitted`] names. `cargo xtask bench native --model --keep` measures them on the
//! machine at hand and writes that file: those of a lone hit fitted on random functions, the others differences of rows
//! of the bench. `docs/cost.md` has the residuals. Another processor differs by more than a factor: an estimate
//! compares, and a run measures.

mod fitted;

pub use fitted::{CLOSE_JUMP, IN_LOOP, MOVED, TRACER, TRAP, WAITING};

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
