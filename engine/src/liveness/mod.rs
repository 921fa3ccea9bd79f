//! Registers and flags whose value nobody reads again, and arguments that nobody has overwritten.
//!
//! Both analyses look at one function at a time, and take the worst where they cannot know. What
//! they assume of calls holds only between functions that GCC compiled with `-pg`, which have an
//! ftrace site: there it keeps to the System V calling convention ("-fipa-ra is disabled when
//! generating code for profiling", GCC's manual). Everything else may keep any register live across
//! a call: the kernel's assembly (`__get_user_4`, `__sw_hweight64`, the thunks of preempt_schedule),
//! paravirtual calls, and static calls, which may lead to any of these.

use iced_x86::Register;

use crate::cfg::{BlockIndex, Cfg};
use crate::{Addr, Image};

mod arguments;
mod backward;
mod effect;
mod registers;
#[cfg(test)]
mod tests;

pub use arguments::Arguments;
pub use registers::RegisterSet;

/// What is live at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Registers whose value may be read again. The stack and the frame pointer always are: stacks
    /// are unwound by them.
    pub registers: RegisterSet,
    /// Whether a status flag (OF, SF, ZF, AF, CF, PF) may be read again.
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
    /// By index of the block.
    after: Vec<Live>,
}

impl Liveness {
    /// Analyses one function.
    #[must_use]
    pub fn of(image: &Image, cfg: &Cfg) -> Self {
        let (before, after) = backward::analyse(image, cfg);
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

    /// At the end of a block, behind its last instruction, whichever way control goes.
    #[must_use]
    pub fn after_block(&self, index: BlockIndex) -> Live {
        self.after
            .get(index.0 as usize)
            .copied()
            .unwrap_or(Live::ALL)
    }
}

/// The registers of integer arguments, by number (System V ABI, AMD64 supplement, 3.2.3).
pub const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];
