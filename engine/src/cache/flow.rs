//! The translation that each kind of instruction gets.

use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};

use super::CACHE_ABI;
use crate::isa::relocate::movable;
use crate::{Addr, Span};

/// The translation of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowKind {
    /// The same instruction, with another displacement if it has one.
    Copied,
    /// Left out: `endbr64`, since indirect branches land elsewhere.
    LeftOut,
    /// A direct branch.
    Jump(Addr),
    /// `jcc`.
    Conditional(Addr),
    /// `loop` and `jrcxz`, which have no near form.
    ShortConditional(Addr),
    /// A direct call.
    Call(Addr),
    /// A call through a register or memory.
    IndirectCall,
    /// A jump through a register or memory.
    IndirectJump,
    /// `ret`.
    Return,
    /// `syscall`.
    SystemCall,
    /// None: the agent has the thread execute the original instruction.
    Stepped,
}

impl FlowKind {
    /// Returns whether control always falls through.
    pub(super) const fn is_sequential(self) -> bool {
        matches!(self, Self::Copied | Self::LeftOut)
    }

    /// The target of a branch after which a block that records its accesses may continue.
    pub(super) const fn exit(self) -> Option<Addr> {
        match self {
            Self::Conditional(to) => Some(to),
            _ => None,
        }
    }

    /// Classifies an instruction whose translation will be in the arena.
    pub(super) fn of(instruction: &Instruction, arena: Span) -> Self {
        let direct = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
        let target = Addr(instruction.near_branch_target());
        match instruction.code() {
            Code::Endbr64 => return Self::LeftOut,
            Code::Call_rel32_64 => return Self::Call(target),
            Code::Call_rm64 => return Self::near(instruction, arena, Self::IndirectCall),
            Code::Jmp_rm64 => return Self::near(instruction, arena, Self::IndirectJump),
            Code::Retnq => return Self::Return,
            Code::Syscall => return Self::SystemCall,
            _ => {}
        }
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch if direct => Self::Jump(target),
            FlowControl::ConditionalBranch if direct && instruction.is_jcc_short_or_near() => {
                Self::Conditional(target)
            }
            FlowControl::ConditionalBranch if direct => Self::ShortConditional(target),
            FlowControl::Next if movable(instruction, &CACHE_ABI).is_ok() => {
                Self::near(instruction, arena, Self::Copied)
            }
            _ => Self::Stepped,
        }
    }

    /// An instruction whose operand must be within reach.
    fn near(instruction: &Instruction, arena: Span, flow: Self) -> Self {
        let relative = instruction.is_ip_rel_memory_operand();
        let is_near = instruction.memory_base() != Register::EIP
            && reaches(arena, Addr(instruction.ip_rel_memory_address()));
        if !relative || is_near {
            flow
        } else {
            Self::Stepped
        }
    }
}

/// Returns whether a 32-bit displacement reaches an address from everywhere in an arena.
pub(super) fn reaches(arena: Span, target: Addr) -> bool {
    const REACH: i64 = (1 << 31) - 64;
    let within = |from: Addr| (-REACH..REACH).contains(&from.to(target));
    within(arena.start) && within(arena.end)
}
