//! Status flags that are dead before an instruction, by reading the code after it (JIFL, 3.5.1).

use iced_x86::{Instruction, RflagsBits};

use super::CodeBytes;
use super::flow::FlowKind;
use super::original::OriginalReader;
use crate::isa::effect::{STATUS, flags};
use crate::{Addr, Span};

/// The flags that `inc` changes.
pub(super) const INCREMENTED: u32 = STATUS & !RflagsBits::CF;

/// The most instructions that are read after a block, along each path.
const MOST_READ: usize = 12;
/// The most branches in a row that are followed.
const MOST_BRANCHES: usize = 4;

/// Reads code for its use of flags.
pub(super) struct FlagReader<'c> {
    reader: OriginalReader<'c>,
    arena: Span,
}

impl<'c> FlagReader<'c> {
    pub(super) fn new(code: &'c dyn CodeBytes, arena: Span) -> Self {
        Self {
            reader: OriginalReader::new(code),
            arena,
        }
    }

    /// The flags that are live before an instruction, from those after it.
    pub(super) fn before(instruction: &Instruction, after: u32) -> u32 {
        let (reads, kills) = flags(instruction);
        reads | after & !kills
    }

    /// The flags of `wanted` that may be live after an instruction that does not fall through, or only perhaps.
    pub(super) fn after(&mut self, instruction: &Instruction, flow: FlowKind, wanted: u32) -> u32 {
        self.after_branch(instruction, flow, wanted, MOST_BRANCHES)
    }

    fn after_branch(
        &mut self,
        instruction: &Instruction,
        flow: FlowKind,
        wanted: u32,
        branches: usize,
    ) -> u32 {
        let Some(branches) = branches.checked_sub(1) else {
            return wanted;
        };
        let next = Addr(instruction.next_ip());
        match flow {
            FlowKind::Jump(to) | FlowKind::Call(to) => self.live_at(to, wanted, branches),
            FlowKind::Conditional(to) | FlowKind::ShortConditional(to) => {
                self.live_at(next, wanted, branches) | self.live_at(to, wanted, branches)
            }
            FlowKind::Copied | FlowKind::LeftOut => self.live_at(next, wanted, branches),
            FlowKind::IndirectCall
            | FlowKind::IndirectJump
            | FlowKind::Return
            | FlowKind::SystemCall
            | FlowKind::Stepped => wanted,
        }
    }

    /// The flags of `wanted` that may be live at an address.
    fn live_at(&mut self, at: Addr, wanted: u32, branches: usize) -> u32 {
        let Some(decoder) = self.reader.at(at) else {
            return wanted;
        };
        let mut unknown = wanted;
        for _ in 0..MOST_READ {
            if unknown == 0 {
                return 0;
            }
            let instruction = decoder.decode();
            let flow = FlowKind::of(&instruction, self.arena);
            if instruction.is_invalid() || flow == FlowKind::Stepped {
                return unknown;
            }
            let (reads, kills) = flags(&instruction);
            if reads & unknown != 0 {
                return unknown;
            }
            if !flow.is_sequential() {
                return self.after_branch(&instruction, flow, unknown, branches);
            }
            unknown &= !kills;
        }
        unknown
    }
}
