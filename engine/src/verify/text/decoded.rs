//! An instruction of the original code.

use iced_x86::{FlowControl, Instruction};

use super::effects::Mask;
use crate::{Addr, Few, Span};

/// An instruction of a function, with its effects and successors.
#[derive(Clone, Debug)]
pub(crate) struct DecodedInsn {
    pub(crate) instruction: Instruction,
    /// Registers and flags that it may read.
    pub(crate) reads: Mask,
    /// Registers and flags that it overwrites completely.
    pub(crate) kills: Mask,
    /// Registers and flags that it may change.
    pub(crate) changes: Mask,
    /// True if control may fall through to the next instruction.
    pub(crate) runs_on: bool,
    /// Other successors in the function: its branch target, the other way of a static key, a fixup.
    pub(crate) leads_to: Few<u64>,
    /// Registers and flags that are live where control leaves the function here.
    pub(crate) leaves_with: Mask,
}

impl DecodedInsn {
    pub(crate) fn at(&self) -> u64 {
        self.instruction.ip()
    }

    pub(crate) fn end(&self) -> u64 {
        self.instruction.next_ip()
    }

    pub(crate) fn span(&self) -> Span {
        Span {
            start: Addr(self.at()),
            end: Addr(self.end()),
        }
    }

    pub(crate) fn is_call(&self) -> bool {
        matches!(
            self.instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        )
    }

    /// Returns whether it is a branch or a return, in the terms of the report.
    pub(crate) fn is_branch(&self) -> bool {
        !self.is_call() && self.instruction.flow_control() != FlowControl::Next
    }
}
