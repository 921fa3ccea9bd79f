//! Effects of instructions in their function: of calls, fixed sites and special instructions.

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register};

use super::RegisterSet;
use crate::cfg::Block;
use crate::code::Why;
use crate::isa::abi::{ARGUMENTS, CALLEE_SAVED};
use crate::isa::decode::branch_target;
use crate::isa::effect::{Effect, STATUS, Values, is_opaque, plain};
use crate::{Addr, Image, Span};

/// Values that are always live in compiled functions: stacks are unwound by these two at any interrupt or
/// trap.
pub(super) fn always() -> Values {
    Values::of(&[Register::RSP, Register::RBP])
}

/// Registers that a callee gives back as they were.
fn callee_saved() -> Values {
    Values::of(&CALLEE_SAVED)
}

/// Registers of its caller that a compiled callee may read: arguments, `rax` (the number of vector
/// registers of a variadic call) and `r10` (static chain). Saving and restoring a register is no read;
/// those are live before the call if they are live after it.
pub(super) fn passed() -> Values {
    let mut passed = Values::of(&ARGUMENTS);
    passed.registers.insert(Register::RAX);
    passed.registers.insert(Register::R10);
    passed
}

/// Live values at the return of a compiled function: its result in `rax` and `rdx`, and callee-saved
/// registers. Flags are not: the convention leaves them undefined.
pub(super) fn returned() -> Values {
    callee_saved().union(Values::of(&[Register::RAX, Register::RDX]))
}

/// A source of effects of calls of functions that keep no convention.
pub(super) trait CalleeEffects {
    /// Returns the effect of a call to `to`, with calls followed `depth` levels deep. Only whole
    /// functions are read.
    fn effect(&self, to: Addr, depth: usize) -> Effect;
}

/// Finds the effects of the instructions of one function.
pub(crate) struct Effects<'i> {
    image: &'i Image,
    factory: InstructionInfoFactory,
    /// Instructions that are not what they look like, by address.
    special: Vec<(Addr, Why)>,
    /// True if the function keeps the calling convention.
    compiled: bool,
    /// The source of effects of callees without a convention, and the depth to which their calls are
    /// followed; without it none are read.
    callees: Option<(&'i dyn CalleeEffects, usize)>,
}

impl<'i> Effects<'i> {
    /// Prepares effects of the instructions of `function`; calls of functions that keep no convention are
    /// taken to do anything.
    pub(crate) fn new(image: &'i Image, function: Span) -> Self {
        let special = image
            .fixed()
            .overlapping(function)
            .filter(|site| matches!(site.why, Why::StaticCall | Why::StaticKey | Why::Tracer))
            .map(|site| (site.span.start, site.why))
            .collect();
        Self {
            image,
            factory: InstructionInfoFactory::new(),
            special,
            compiled: image.keeps_convention(function.start),
            callees: None,
        }
    }

    /// The same, with such calls followed `depth` levels deep.
    pub(super) fn following(
        image: &'i Image,
        callees: &'i dyn CalleeEffects,
        function: Span,
        depth: usize,
    ) -> Self {
        Self {
            callees: Some((callees, depth)),
            ..Self::new(image, function)
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
            Some((_, kind)) => *kind == Why::StaticCall,
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
            // The tracer saves the registers that it uses, and its callbacks may read all of them.
            Some((_, Why::Tracer)) => {
                return Effect {
                    reads: Values::ALL,
                    kills: Values::NONE,
                    writes: RegisterSet::EMPTY,
                };
            }
            // `asm goto` on x86 clobbers the flags, whatever it says: nothing is passed in them.
            Some((_, Why::StaticKey)) => {
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
            // The report of a WARN prints arguments of the function (`__WARN_trap`).
            FlowControl::Exception if instruction.code() == Code::Ud1_r64_rm64 => Effect::UNKNOWN,
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
        if to.is_some_and(|to| self.image.keeps_convention(to)) || !self.compiled {
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

    /// Effect of the function at `to` on its caller's values, by the convention or by its own code.
    /// Functions that never return are C, `panic` for example, though not all of them are traced.
    pub(super) fn callee(&self, to: Addr) -> Effect {
        if self.image.keeps_convention(to) || self.image.never_returns(to) {
            let clobbered = Values::ALL.without(callee_saved());
            return Effect {
                reads: passed(),
                kills: clobbered,
                writes: clobbered.registers,
            };
        }
        match self.callees {
            Some((callees, depth)) => callees.effect(to, depth),
            None => Effect::UNKNOWN,
        }
    }
}
