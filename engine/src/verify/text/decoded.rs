//! One instruction of the original code.

use iced_x86::{FlowControl, Instruction};

use super::effects::Mask;
use crate::{Addr, Few, Span};

/// One instruction of a function.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub(crate) instruction: Instruction,
    /// Registers and flags whose value it may use.
    pub(crate) reads: Mask,
    /// Registers and flags that have nothing of their old value after it.
    pub(crate) kills: Mask,
    /// Registers and flags that it may change.
    pub(crate) changes: Mask,
    /// Whether control may run on to the next instruction.
    pub(crate) runs_on: bool,
    /// Where else in the function control may go: its branch, the other way of a static key, a fixup.
    pub(crate) leads_to: Few<u64>,
    /// What may be used where control leaves the function from here.
    pub(crate) leaves_with: Mask,
}

impl Decoded {
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

    /// Whether it is a branch or a return: what is not sequential, in the report's word.
    pub(crate) fn is_branch(&self) -> bool {
        !self.is_call() && self.instruction.flow_control() != FlowControl::Next
    }
}
