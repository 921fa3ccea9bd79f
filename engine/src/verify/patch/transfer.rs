//! One original instruction that the patch executes: a copy, an emulation, or the jump back to the
//! text.

use crate::verify::reason::Reason;
use iced_x86::{Code, ConditionCode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::equivalence::{opposite_condition, same, same_condition};
use super::phase::{Aim, By, Phase};
use super::state::AbstractState;
use super::walk::Walk;
use crate::Addr;
use crate::code::{Decision, Transfer, Why};
use crate::layout::{ReturnPush, WordSegment};
use crate::placement::Splice;
use crate::verify::text::decoded::DecodedInsn;
use crate::verify::text::effects::{Mask, names};
use crate::verify::text::routine::Routine;

impl Walk<'_> {
    /// Returns whether the patch's instruction executes the next original one, or leaves for its
    /// address; if so, control continues after it.
    pub(crate) fn original(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        goal: Aim,
    ) -> Result<bool, Reason> {
        let copy = match goal.by {
            By::Text { from } => {
                let live = self.originals.live_on(from, goal.at);
                return self.leave(instruction, state, live, goal.at);
            }
            By::Fragment { place, live } => return self.leave(instruction, state, live, place),
            By::Copy(copy) => copy,
        };
        let originals = self.originals;
        let (routine, original) = originals
            .instruction(goal.at)
            .ok_or(Reason::NothingToCopy { at: Addr(goal.at) })?;
        if !self.restored(state, originals.live_after_hook(goal.at)) {
            return Ok(false);
        }
        if let Some(decision) = decision(self, routine, original)? {
            return self.emulated(instruction, state, original, copy, decision);
        }
        if original.is_call() && self.site.splice == Splice::Call {
            // The splice has pushed the return address.
            if !instruction.is_jmp_short_or_near() || self.is_jump_inside(instruction) {
                return Ok(false);
            }
            self.facts.calls.push(original.at());
            self.called(instruction, original.instruction.near_branch_target())?;
            return Ok(true);
        }
        if original.is_call() {
            return self.pushes_return(
                instruction,
                state,
                original,
                original.instruction.near_branch_target(),
            );
        }
        match original.instruction.flow_control() {
            FlowControl::ConditionalBranch => {
                let target = original.instruction.near_branch_target();
                let ways = if same_condition(&original.instruction, instruction) {
                    [target, original.end()]
                } else if opposite_condition(&original.instruction, instruction) {
                    [original.end(), target]
                } else {
                    return Ok(false);
                };
                let state = self.relocated(original, state)?;
                self.branch(instruction, state, original, copy, ways)?;
                Ok(true)
            }
            FlowControl::Return if same(&original.instruction, instruction) => {
                if ends_in_upper_half(&original.instruction) && !ends_in_upper_half(instruction) {
                    return Err(Reason::ReturnHalf);
                }
                if self.bytes_from(instruction.next_ip()).first() == Some(&0xcc) {
                    Ok(true)
                } else {
                    Err(Reason::ReturnUnguarded)
                }
            }
            FlowControl::Next if same(&original.instruction, instruction) => {
                if moves_segment(instruction, self.machine.layout.abi.segment) {
                    let instruction = instruction.to_string();
                    return Err(Reason::MovesSegment { instruction });
                }
                self.may_fault(instruction, (routine, original), state, (goal, copy))?;
                let state = self.relocated(original, state)?;
                let way = self.cross(goal.at, original.end(), copy, true);
                self.continue_at(instruction.next_ip(), way, state)?;
                Ok(true)
            }
            FlowControl::IndirectBranch if self.machine.layout.abi.moves_indirect_jumps => {
                let is_copy = original.instruction.code() == Code::Jmp_rm64
                    && same(&original.instruction, instruction);
                if is_copy {
                    self.check_after(instruction)?;
                }
                Ok(is_copy)
            }
            FlowControl::Next | FlowControl::Return => Ok(false),
            _ => Err(Reason::Uncopyable {
                instruction: original.instruction.to_string(),
                at: Addr(goal.at),
            }),
        }
    }

    /// Returns whether the instruction pushes the return address of a call, or its lower half; if so, control
    /// continues after it.
    fn pushes_return(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        original: &DecodedInsn,
        target: u64,
    ) -> Result<bool, Reason> {
        let abi = &self.machine.layout.abi;
        let Some(word) = pushed(instruction) else {
            return Ok(false);
        };
        let (at, end) = (original.at(), original.end());
        let halves = abi.return_push == ReturnPush::Halves;
        let phase = if halves && word & 0xffff_ffff == end & 0xffff_ffff {
            Phase::HalfPushed { at, target }
        } else if !halves && word == end {
            Phase::Called { at, target }
        } else {
            return Ok(false);
        };
        if abi.shadow_stack {
            return Err(Reason::ShadowStack);
        }
        self.facts.calls.push(at);
        self.reach(instruction.next_ip(), phase, state.clone())?;
        Ok(true)
    }

    /// Checks the store of the upper half of a return address: `mov dword ptr [rsp+4], imm32`.
    pub(crate) fn upper_half(
        &mut self,
        instruction: &Instruction,
        state: AbstractState,
        (at, target): (u64, u64),
    ) -> Result<(), Reason> {
        let original = self.originals.instruction(at);
        let (_, original) = original.ok_or(Reason::NothingToCopy { at: Addr(at) })?;
        let upper = original.end() >> 32;
        let right = instruction.code() == Code::Mov_rm32_imm32
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RSP
            && instruction.memory_index() == Register::None
            && instruction.segment_prefix() == Register::None
            && instruction.memory_displacement64() == 4
            && u64::from(instruction.immediate32()) == upper;
        if !right {
            return Err(Reason::ReturnHalves);
        }
        self.reach(instruction.next_ip(), Phase::Called { at, target }, state)
    }

    /// Returns whether it is a nop before a return that must keep its half of a cache line.
    pub(crate) fn is_before_return(&self, instruction: &Instruction, goal: Aim) -> bool {
        let returns = |(_, original): (&Routine, &DecodedInsn)| {
            original.instruction.flow_control() == FlowControl::Return
        };
        instruction.mnemonic() == Mnemonic::Nop
            && matches!(goal.by, By::Copy(_))
            && self.originals.instruction(goal.at).is_some_and(returns)
    }

    /// Returns the state after a copied instruction.
    fn relocated(
        &mut self,
        original: &DecodedInsn,
        state: &AbstractState,
    ) -> Result<AbstractState, Reason> {
        let spoilt = state.spoilt();
        let used = Mask(spoilt.0 & original.reads.0);
        if !used.is_empty() {
            return Err(Reason::SpoiltOperand {
                instruction: original.instruction.to_string(),
                registers: names(used),
            });
        }
        Ok(AbstractState::original(spoilt.without(original.kills)))
    }

    /// Follows both ways of a branch with the condition of the original one.
    fn branch(
        &mut self,
        instruction: &Instruction,
        state: AbstractState,
        original: &DecodedInsn,
        copy: usize,
        [target, next]: [u64; 2],
    ) -> Result<(), Reason> {
        let runs_on = |to: u64| to == original.end();
        let taken = instruction.near_branch_target();
        let way = self.cross(original.at(), target, copy, runs_on(target));
        if self.span.contains(Addr(taken)) {
            self.continue_at(taken, way, state.clone())?;
        } else if !self.leads_out(taken, way)? {
            return Err(other_target(taken, target));
        } else if !self.restored(&state, self.originals.live_on(original.at(), target)) {
            return Err(self.not_restored());
        }
        let way = self.cross(original.at(), next, copy, runs_on(next));
        self.continue_at(instruction.next_ip(), way, state)
    }

    /// Checks the emulation of a static key or a static call, which reads the state that the kernel
    /// rewrites them by.
    fn emulated(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        original: &DecodedInsn,
        copy: usize,
        decision: Decision,
    ) -> Result<bool, Reason> {
        match decision {
            Decision::StaticKey { key, .. } => {
                if !compares_with_zero(instruction, key.0) {
                    return Ok(false);
                }
                // No flags are live across a static key, as across a call.
                let spoilt = state.spoilt().without(original.kills);
                let state = AbstractState::original(spoilt);
                let keyed = Phase::Keyed {
                    at: original.at(),
                    copy,
                };
                self.reach(instruction.next_ip(), keyed, state)?;
                Ok(true)
            }
            Decision::StaticCall {
                trampoline,
                transfer: Transfer::Call,
            } => self.pushes_return(instruction, state, original, trampoline.0),
            Decision::StaticCall {
                trampoline,
                transfer: Transfer::Jump,
            } => {
                let jumps = instruction.is_jmp_short_or_near();
                if jumps {
                    self.called(instruction, trampoline.0)?;
                }
                Ok(jumps)
            }
            Decision::StaticCall {
                trampoline,
                transfer: Transfer::Conditional(condition),
            } => {
                let same = instruction.is_jcc_short_or_near()
                    && instruction.condition_code() as u8 == condition + 1;
                if same {
                    let ways = [trampoline.0, original.end()];
                    self.branch(instruction, state.clone(), original, copy, ways)?;
                }
                Ok(same)
            }
        }
    }

    /// Checks the branch after the comparison of a static key.
    pub(crate) fn decide(
        &mut self,
        instruction: &Instruction,
        state: AbstractState,
        at: u64,
        copy: usize,
    ) -> Result<(), Reason> {
        let originals = self.originals;
        let decided = originals.image.decided(Addr(at));
        let original = originals.instruction(at);
        let (
            Some((_, original)),
            Some(Decision::StaticKey {
                inverted, target, ..
            }),
        ) = (original, decided.map(|decided| decided.by))
        else {
            return Err(Reason::UnknownKey);
        };
        let taken_if_on = match instruction.condition_code() {
            ConditionCode::ne if instruction.is_jcc_short_or_near() => true,
            ConditionCode::e if instruction.is_jcc_short_or_near() => false,
            _ => return Err(Reason::KeyUndecided),
        };
        let ways = if taken_if_on == inverted {
            [original.end(), target.0]
        } else {
            [target.0, original.end()]
        };
        self.branch(instruction, state, original, copy, ways)
    }

    /// Checks the jump to a callee.
    pub(crate) fn called(&mut self, instruction: &Instruction, target: u64) -> Result<(), Reason> {
        if instruction.is_jmp_short_or_near() && instruction.near_branch_target() == target {
            self.check_after(instruction)
        } else {
            Err(Reason::OtherCallee)
        }
    }

    /// Checks the jump to the continuation in the text or in a code cache.
    fn leave(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        live: Mask,
        to: u64,
    ) -> Result<bool, Reason> {
        let target = instruction.near_branch_target();
        let leaves = instruction.is_jmp_short_or_near() && !self.span.contains(Addr(target));
        if !leaves || !self.restored(state, live) {
            return Ok(false);
        }
        if target != to {
            return Err(other_target(target, to));
        }
        self.check_after(instruction)?;
        Ok(true)
    }

    /// Checks that bytes follow the exit of the patch, code or int3, for processors that speculate
    /// past it.
    fn check_after(&self, instruction: &Instruction) -> Result<(), Reason> {
        match self.bytes_from(instruction.next_ip()).first() {
            Some(_) => Ok(()),
            None => Err(Reason::SpeculatesPastEnd),
        }
    }
}

/// Returns whether the instruction may change the base of a segment. Of `gs`, no instruction that does may be
/// displaced.
fn moves_segment(instruction: &Instruction, segment: WordSegment) -> bool {
    let loads = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Pop)
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::FS;
    segment == WordSegment::Fs && (loads || instruction.mnemonic() == Mnemonic::Wrfsbase)
}

/// Returns whether the last byte is in the second half of its cache line, where the kernel keeps
/// bare returns for processors that mispredict others (`cpu_wants_rethunk_at`,
/// arch/x86/kernel/alternative.c).
fn ends_in_upper_half(instruction: &Instruction) -> bool {
    instruction.next_ip().wrapping_sub(1) & 0x20 != 0
}

/// Returns the state that decides the kernel's version of an instruction, if it is a fixed site.
///
/// # Errors
/// The kernel rewrites it by an unknown state.
fn decision(
    walk: &Walk<'_>,
    routine: &Routine,
    original: &DecodedInsn,
) -> Result<Option<Decision>, Reason> {
    let rewritten = routine
        .sites_in(original.span())
        .any(|site| matches!(site.why, Why::StaticKey | Why::StaticCall));
    if !rewritten {
        return Ok(None);
    }
    let decided = walk.originals.image.decided(Addr(original.at()));
    let decided = decided.filter(|decided| decided.span == original.span());
    match decided {
        Some(decided) => Ok(Some(decided.by)),
        None => Err(Reason::UndecidedSite {
            at: Addr(original.at()),
        }),
    }
}

fn other_target(target: u64, expected: u64) -> Reason {
    let (target, expected) = (Addr(target), Addr(expected));
    Reason::OtherTarget { target, expected }
}

/// Returns whether it is `cmp dword ptr [key], 0`.
fn compares_with_zero(instruction: &Instruction, key: u64) -> bool {
    matches!(
        instruction.code(),
        Code::Cmp_rm32_imm8 | Code::Cmp_rm32_imm32
    ) && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RIP
        && instruction.segment_prefix() == Register::None
        && instruction.ip_rel_memory_address() == key
        && instruction.try_immediate(1).ok() == Some(0)
}

/// Returns the address that the instruction pushes, if it has no other effect.
fn pushed(instruction: &Instruction) -> Option<u64> {
    let pushes = instruction.mnemonic() == Mnemonic::Push && !instruction.has_lock_prefix();
    // `push imm16` moves the stack by two bytes only.
    let wide = instruction.stack_pointer_increment() == -8;
    if pushes && wide {
        instruction.try_immediate(0).ok()
    } else {
        None
    }
}
