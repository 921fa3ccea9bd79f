//! What one instruction reads and writes.

use iced_x86::{
    Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, RflagsBits,
};

use super::{Analysis, RegisterSet};
use crate::abi::{ARGUMENTS, CALLEE_SAVED};
use crate::cfg::Block;
use crate::image::{SiteKind, branch_target};
use crate::{Addr, Image, Span};

/// The status flags, as iced's bits. Others (DF, IF, AC) are left alone by instrument code.
pub(super) const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// Registers and status flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    pub(super) registers: RegisterSet,
    pub(super) flags: u32,
}

impl Values {
    pub(super) const NONE: Self = Self {
        registers: RegisterSet::EMPTY,
        flags: 0,
    };
    pub(super) const ALL: Self = Self {
        registers: RegisterSet::ALL,
        flags: STATUS,
    };

    pub(super) fn of(registers: &[Register]) -> Self {
        Self {
            registers: RegisterSet::of(registers),
            flags: 0,
        }
    }

    pub(super) const fn union(self, other: Self) -> Self {
        Self {
            registers: self.registers.union(other.registers),
            flags: self.flags | other.flags,
        }
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self {
            registers: self.registers.difference(other.registers),
            flags: self.flags & !other.flags,
        }
    }
}

/// What stays alive in any compiled function: a stack is unwound by these two, whenever an
/// interrupt or a trap comes.
pub(super) fn always() -> Values {
    Values::of(&[Register::RSP, Register::RBP])
}

/// Registers that a callee gives back as they were.
fn callee_saved() -> Values {
    Values::of(&CALLEE_SAVED)
}

/// What a compiled callee may read of its caller's registers: arguments, `rax` (how many vector
/// registers a variadic call passes) and `r10` (static chain). What it saves and restores it does not
/// read; so those stay as live as they are behind the call.
pub(super) fn passed() -> Values {
    let mut passed = Values::of(&ARGUMENTS);
    passed.registers.insert(Register::RAX);
    passed.registers.insert(Register::R10);
    passed
}

/// What is live at the return of a compiled function: its value in `rax` and `rdx`, and what it had
/// to save. Flags are not: the convention leaves them undefined.
pub(super) fn returned() -> Values {
    callee_saved().union(Values::of(&[Register::RAX, Register::RDX]))
}

/// What an instruction does to values: before = reads ∪ (after − kills).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Values it may read.
    pub(super) reads: Values,
    /// Values that nobody can read after it, as it overwrites them wholly whenever it runs.
    pub(super) kills: Values,
    /// Registers of which it may change any part.
    pub(super) writes: RegisterSet,
}

impl Effect {
    /// Nothing is known: it may read all, and overwrite all.
    pub(super) const UNKNOWN: Self = Self {
        reads: Values::ALL,
        kills: Values::NONE,
        writes: RegisterSet::ALL,
    };

    /// What is live before, of what is live behind.
    pub(super) const fn before(&self, after: Values) -> Values {
        self.reads.union(after.without(self.kills))
    }
}

/// Whether it is a call, direct or not.
pub(super) fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// Whether it is a return such as compilers write.
pub(super) fn is_return(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16)
}

/// Finds the effects of the instructions of one function.
pub(crate) struct Effects<'i> {
    image: &'i Image,
    factory: InstructionInfoFactory,
    /// Instructions that are not what they look like, by address.
    special: Vec<(Addr, SiteKind)>,
    /// Whether GCC compiled the function.
    compiled: bool,
    /// Where effects of callees without a convention come from, and how deep their calls are
    /// followed; none are read without it.
    callees: Option<(&'i Analysis<'i>, usize)>,
}

impl<'i> Effects<'i> {
    /// The effects of instructions of `function`; calls of functions that keep no convention are
    /// taken to do anything.
    pub(crate) fn new(image: &'i Image, function: Span) -> Self {
        let special = image
            .sites()
            .overlapping(function)
            .filter(|site| {
                matches!(
                    site.kind,
                    SiteKind::StaticCall | SiteKind::StaticKey | SiteKind::Ftrace
                )
            })
            .map(|site| (site.span.start, site.kind))
            .collect();
        Self {
            image,
            factory: InstructionInfoFactory::new(),
            special,
            compiled: image.is_compiled(function.start),
            callees: None,
        }
    }

    /// The same, with such calls followed `depth` levels deep.
    pub(super) fn following(analysis: &'i Analysis<'i>, function: Span, depth: usize) -> Self {
        Self {
            callees: Some((analysis, depth)),
            ..Self::new(analysis.image(), function)
        }
    }

    /// The effects of the instructions of a block, in order.
    pub(super) fn of_block(&mut self, block: &Block) -> Vec<Effect> {
        let mut flags_passed = false;
        let mut effects = Vec::with_capacity(block.instructions.len());
        for instruction in &block.instructions {
            effects.push(self.of(&instruction, flags_passed));
            flags_passed = matches!(
                instruction.mnemonic(),
                Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq
            );
        }
        effects
    }

    /// Registers that each instruction of a block may change, in order. For people, not for plans: of what
    /// compiled C calls by a pointer it is believed that it keeps the convention.
    pub(crate) fn written(&mut self, block: &Block) -> Vec<RegisterSet> {
        let effects = self.of_block(block);
        let kept = callee_saved().registers;
        block
            .instructions
            .iter()
            .zip(effects)
            .map(|(instruction, effect)| {
                if self.compiled && self.calls_by_pointer(&instruction) {
                    effect.writes.difference(kept)
                } else {
                    effect.writes
                }
            })
            .collect()
    }

    fn calls_by_pointer(&self, instruction: &Instruction) -> bool {
        let at = Addr(instruction.ip());
        let special = self.special.iter().find(|(known, _)| *known == at);
        match special {
            Some((_, kind)) => *kind == SiteKind::StaticCall,
            None => {
                instruction.flow_control() == FlowControl::IndirectCall
                    || (instruction.flow_control() == FlowControl::Call
                        && branch_target(instruction)
                            .is_some_and(|to| self.image.is_indirect_thunk(to)))
            }
        }
    }

    fn of(&mut self, instruction: &Instruction, flags_passed: bool) -> Effect {
        let at = Addr(instruction.ip());
        match self.special.iter().find(|(known, _)| *known == at) {
            // The tracer saves what it uses, and shows all registers to whoever listens.
            Some((_, SiteKind::Ftrace)) => {
                return Effect {
                    reads: Values::ALL,
                    kills: Values::NONE,
                    writes: RegisterSet::EMPTY,
                };
            }
            // `asm goto` on x86 clobbers the flags, whatever it says: nothing is passed in them.
            Some((_, SiteKind::StaticKey)) => {
                return Effect {
                    reads: Values::NONE,
                    kills: Values {
                        registers: RegisterSet::EMPTY,
                        flags: STATUS,
                    },
                    writes: RegisterSet::EMPTY,
                };
            }
            // A nop or a move now; the next moment a call of anything.
            Some(_) => return self.call(None, flags_passed),
            None => {}
        }
        match instruction.flow_control() {
            FlowControl::Call if branch_target(instruction).is_some() => {
                self.call(branch_target(instruction), flags_passed)
            }
            FlowControl::IndirectCall => self.call(None, flags_passed),
            // `vmcall`, `syscall` and `int`.
            FlowControl::Call | FlowControl::Interrupt => Effect::UNKNOWN,
            _ if is_opaque(instruction) => Effect::UNKNOWN,
            _ => plain(&mut self.factory, instruction),
        }
    }

    /// The effect of a call.
    ///
    /// Flags: in compiled code none is live across a call of anything. GCC's inline assembly, that
    /// the kernel's special calls are made of, can hand flags out (`=@cc`) and not in, and always
    /// clobbers them ("Extended Asm": on x86 the clobber `cc` is implied). Only inside of one statement
    /// can flags be passed, as KVM's emulator does: `popf; call`.
    fn call(&self, to: Option<Addr>, flags_passed: bool) -> Effect {
        let called = match to {
            Some(to) => self.callee(to),
            None => Effect::UNKNOWN,
        };
        if to.is_some_and(|to| self.image.is_compiled(to)) || !self.compiled {
            return called;
        }
        if flags_passed {
            return Effect::UNKNOWN;
        }
        let flags = Values {
            registers: RegisterSet::EMPTY,
            flags: STATUS,
        };
        Effect {
            reads: called.reads.without(flags),
            kills: called.kills.union(flags),
            ..called
        }
    }

    /// What the function at `to` does to its caller's values, by the convention or by its own code.
    /// Functions that never return are C, `panic` for example, though not all of them are traced.
    pub(super) fn callee(&self, to: Addr) -> Effect {
        if self.image.is_compiled(to) || self.image.never_returns(to) {
            let clobbered = Values::ALL.without(callee_saved());
            return Effect {
                reads: passed(),
                kills: clobbered,
                writes: clobbered.registers,
            };
        }
        match self.callees {
            Some((analysis, depth)) => analysis.effect(to, depth),
            None => Effect::UNKNOWN,
        }
    }
}

/// Instructions whose registers are more than their operands: firmware, hypervisors and enclaves
/// answer them (VMware's port reads `rbx`, `rsi` and `rdi` behind an `in`), or they switch contexts.
fn is_opaque(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::In
            | M::Insb
            | M::Insd
            | M::Insw
            | M::Out
            | M::Outsb
            | M::Outsd
            | M::Outsw
            | M::Vmcall
            | M::Vmmcall
            | M::Vmfunc
            | M::Vmlaunch
            | M::Vmresume
            | M::Vmrun
            | M::Vmgexit
            | M::Tdcall
            | M::Seamcall
            | M::Encls
            | M::Enclu
            | M::Enclv
            | M::Getsec
            | M::Pconfig
            | M::Syscall
            | M::Sysenter
            | M::Sysret
            | M::Sysretq
            | M::Sysexit
            | M::Sysexitq
            | M::Iret
            | M::Iretd
            | M::Iretq
            | M::Rsm
    )
}

/// Instructions that may leave their destination as it was, whatever their description says: sources
/// of zero (Intel SDM 2A, BSF: "If the content of the source operand is 0, the content of the
/// destination operand is undefined"; processors leave it) and failed conditions.
fn writes_perhaps(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    instruction.has_rep_prefix()
        || instruction.has_repne_prefix()
        || matches!(
            instruction.mnemonic(),
            M::Bsf | M::Bsr | M::Lar | M::Lsl | M::Cmpxchg | M::Cmpxchg8b | M::Cmpxchg16b
        )
        || (instruction.condition_code() != ConditionCode::None
            && instruction.flow_control() == FlowControl::Next)
}

/// Shifts by `cl` leave the flags as they were if `cl` is zero.
fn shifts_by_cl(instruction: &Instruction) -> bool {
    let last = instruction.op_count().saturating_sub(1);
    last > 0
        && instruction.op_kind(last) == OpKind::Register
        && instruction.op_register(last) == Register::CL
        && instruction.flow_control() == FlowControl::Next
        && !matches!(instruction.code(), Code::Mov_r8_rm8 | Code::Mov_rm8_r8)
}

/// An instruction that does what its description says and no more.
fn plain(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> Effect {
    let mut effect = Effect {
        reads: Values::NONE,
        kills: Values::NONE,
        writes: RegisterSet::EMPTY,
    };
    let perhaps = writes_perhaps(instruction);
    for used in factory.info(instruction).used_registers() {
        let register = used.register();
        if matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        ) {
            effect.reads.registers.insert(register);
        }
        if matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        ) {
            effect.writes.insert(register);
        }
        // A write of 32 bits clears the upper half; one of 8 or 16 leaves the rest (Intel SDM 1, 3.4.1.1).
        if matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite)
            && register.size() >= 4
            && !perhaps
        {
            effect.kills.registers.insert(register);
        }
    }
    effect.reads.flags = instruction.rflags_read() & STATUS;
    if !perhaps && !shifts_by_cl(instruction) {
        effect.kills.flags = instruction.rflags_modified() & STATUS;
    }
    effect
}
