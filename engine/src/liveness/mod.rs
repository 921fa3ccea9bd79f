//! Liveness of registers and flags, and arguments that are still intact: two data-flow analyses.
//!
//! Both analyses are conservative. Of a call they assume:
//!
//! - the System V calling convention, of functions that have a tracer's site at their entry, and only
//!   of them: GCC compiled those with `-pg`, and "-fipa-ra is disabled when generating code for
//!   profiling" (GCC's manual), and of functions that never return, which are C too;
//! - what its code says, of any other function that is called by its name, is short, and returns to its
//!   caller: what it may read, and what it overwrites on every way to its returns (`callees`). So
//!   `__sw_hweight64`, `__get_user_4` and the thunks of preempt_schedule keep what they do keep;
//! - nothing, of static calls and their trampolines, which may target any function a moment later, of
//!   paravirtual and other indirect calls, which inline assembly makes with registers of its own
//!   choice, and of the function tracer's site, whose listeners may look at all registers. They read
//!   everything, and keep everything.
//!
//! Whatever is called, all registers of arguments are live before it, as an instrument may sample them
//! at its entry. An instruction with an entry in the exception table reads everything: handlers of
//! faults do as they like. Flags never live across a call in compiled code, nor across a static key.
//!
//! What is dead on a way that ends in a `BUG` or `panic` may have been written over, and an oops shows
//! it so: its registers, but `rsp` and `rbp`, are no evidence where an instrument stands before it.

use crate::Addr;
use crate::cfg::{BlockIndex, Cfg};
use crate::ids::Ids;

mod arguments;
mod backward;
mod callees;
#[cfg(test)]
mod callees_tests;
mod effect;
#[cfg(test)]
mod tests;

pub use crate::isa::RegisterSet;
pub use arguments::Arguments;
pub use callees::Analysis;
pub(crate) use effect::Effects;

/// The live registers and flags at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Registers whose value may be read again. The stack and the frame pointer always are: stacks
    /// are unwound by them.
    pub registers: RegisterSet,
    /// True if a status flag (OF, SF, ZF, AF, CF, PF) may be read again.
    pub flags: bool,
}

impl Live {
    /// Everything: what is assumed where nothing is known.
    pub const ALL: Self = Self {
        registers: RegisterSet::ALL,
        flags: true,
    };
}

/// Live sets before every instruction, and at the end of every block, of one function.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// By address.
    before: Vec<(Addr, Live)>,
    after: Ids<BlockIndex, Live>,
}

impl Liveness {
    /// Analyses one function.
    #[must_use]
    pub fn of(analysis: &Analysis<'_>, cfg: &Cfg) -> Self {
        let (before, after) = backward::analyse(analysis.image(), analysis, cfg);
        Self { before, after }
    }

    /// Before the instruction at `at` (an instruction boundary of the graph); everything is live
    /// where nothing is known.
    #[must_use]
    pub fn before(&self, at: Addr) -> Live {
        let found = self
            .before
            .binary_search_by_key(&at, |(known, _)| *known)
            .ok()
            .and_then(|index| self.before.get(index));
        found.map_or(Live::ALL, |(_, live)| *live)
    }

    /// Live values at the end of a block, after its last instruction, on all its edges. Panics at an index that is
    /// not of the function's graph.
    #[must_use]
    pub fn after_block(&self, index: BlockIndex) -> Live {
        self.after[index]
    }
}
