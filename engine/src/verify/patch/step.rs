//! The execution of one instruction of instrument code.

use crate::verify::reason::Reason;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::hit::{Expected, HitRules, HitStage, Progress, one, slots_after_head};
use super::location;
use super::machine::{BranchWay, InstrumentMachine, MachineFlow};
use super::operands::{is_wide, not_allowed, push};
use super::state::{AbstractState, Compare, Fact, RAX, RCX, RDX, Since};
use crate::verify::symbolic::atom::{Atom, SymValue};

impl<'a> InstrumentMachine<'a> {
    /// Executes `instruction` on `state`.
    ///
    /// # Errors
    /// The instruction is not permitted.
    pub(crate) fn step(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        expected: Option<&'a Expected>,
        progress: Progress,
    ) -> Result<MachineFlow, Reason> {
        self.expected = expected;
        if instruction.has_rep_prefix() || instruction.has_repne_prefix() {
            return Err(Reason::Prefix);
        }
        if let Some(flow) = self.restartable(instruction, state, expected, progress)? {
            return Ok(flow);
        }
        if instruction.has_lock_prefix() && !self.may_lock(instruction) {
            return Err(Reason::Prefix);
        }
        let mnemonic = instruction.mnemonic();
        let condition = instruction.condition_code();
        if progress.is_trying() {
            let looked_at = instruction.is_jcc_short_or_near()
                && matches!(condition, ConditionCode::e | ConditionCode::ne);
            return if looked_at {
                Ok(match (progress.stage, expected) {
                    (HitStage::Raising, Some(one)) => {
                        self.raised(instruction, state, (one, progress))
                    }
                    (HitStage::Exchanging { .. }, Some(one)) => {
                        self.exchanged(instruction, state, (one, progress))
                    }
                    _ => self.tried(instruction, state, progress),
                })
            } else {
                Err(Reason::UntestedExchange)
            };
        }
        if instruction.is_jcc_short_or_near() {
            return self.branch(instruction, state, progress);
        }
        if let Some(fixup) = self.fixup(instruction) {
            return if instruction.mnemonic() == Mnemonic::Rdpmc {
                self.read_event(instruction, state, progress, fixup)
            } else {
                self.read_memory(instruction, state, progress, fixup)
            };
        }
        if instruction.is_jmp_short_or_near() {
            return Ok(MachineFlow::Jump(instruction.near_branch_target()));
        }
        if self.flags(instruction, state)? {
            return Ok(MachineFlow::On(Some(progress)));
        }
        let kept = state.flags & !instruction.rflags_modified();
        let mut now = Some(progress);
        match mnemonic {
            Mnemonic::Nop => {}
            Mnemonic::Mov => {
                let value = self.operand(instruction, 1, state, progress)?;
                if let Some(read) = state.zero
                    && self.values.as_constant(value) == Some(0)
                    && self.set_whole(instruction, read, state)
                {
                    state.zero = None;
                    return Ok(MachineFlow::On(Some(progress)));
                }
                now = self.assign(instruction, value, state, expected, progress)?;
            }
            Mnemonic::Lea if instruction.op0_register() == Register::RSP => {
                self.steps_over(instruction, state)?;
            }
            Mnemonic::Lea => {
                let value = match self.stack_address(instruction, state) {
                    Some(value) => value,
                    None => location::address(&mut self.values, instruction, state)?,
                };
                self.set(instruction, value, state)?;
            }
            Mnemonic::Inc | Mnemonic::Add
                if instruction.op0_kind() == OpKind::Memory && self.program().is_some() =>
            {
                now = self.add_to(instruction, state, progress)?;
            }
            Mnemonic::Inc | Mnemonic::Add if instruction.op0_kind() == OpKind::Memory => {
                now = self.count(instruction, state, expected, progress)?;
            }
            Mnemonic::Cmp | Mnemonic::Test => {
                let (a, b) = (
                    self.operand(instruction, 0, state, progress)?,
                    self.operand(instruction, 1, state, progress)?,
                );
                state.compare = match mnemonic {
                    _ if !is_wide(instruction) => Compare::Unknown,
                    Mnemonic::Cmp => Compare::Of(a, b),
                    _ => Compare::Zero(self.values.and(a, b)),
                };
            }
            Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Shrd
            | Mnemonic::Rol
            | Mnemonic::Imul
            | Mnemonic::Sar
            | Mnemonic::Neg
            | Mnemonic::Inc
            | Mnemonic::Dec => {
                let result = self.arithmetic(instruction, state, progress)?;
                // The flags of these do not state whether the result is zero.
                let silent = matches!(mnemonic, Mnemonic::Imul | Mnemonic::Rol)
                    || instruction.op1_register() == Register::CL;
                state.compare = if is_wide(instruction) && !silent {
                    Compare::Zero(result)
                } else {
                    Compare::Unknown
                };
                self.set(instruction, result, state)?;
            }
            Mnemonic::Push => {
                self.may_push(state)?;
                let value = match instruction.op0_kind() {
                    OpKind::Register if instruction.op0_register().is_gpr64() => {
                        self.operand(instruction, 0, state, progress)?
                    }
                    OpKind::Immediate32to64 | OpKind::Immediate8to64
                        if self.program().is_some() =>
                    {
                        self.values.constant(instruction.immediate(0))
                    }
                    _ => return Err(not_allowed(instruction)),
                };
                push(state, value)?;
            }
            Mnemonic::Pop => {
                let value = state.stack.pop().ok_or(Reason::PopsOriginal)?;
                if !instruction.op0_register().is_gpr64() {
                    return Err(not_allowed(instruction));
                }
                self.set(instruction, value, state)?;
            }
            Mnemonic::Rdtscp if !self.shares_ring(progress) => {
                return Err(not_allowed(instruction));
            }
            Mnemonic::Rdtsc | Mnemonic::Rdtscp => {
                let tsc = self.read(Atom::Tsc(instruction.ip()), state, progress)?;
                let (low, high) = (self.values.mask(tsc, 0xffff_ffff), self.values.shr(tsc, 32));
                state.set(RAX, low);
                state.set(RDX, high);
                if mnemonic == Mnemonic::Rdtscp {
                    let cpu = self.read(Atom::ClockCpu(instruction.ip()), state, progress)?;
                    let cpu = self.values.mask(cpu, 0xffff_ffff);
                    state.set(RCX, cpu);
                }
                state.since_head.tsc = Some(tsc);
                // The first reading of a step is its clock; the next is for the sample.
                if self.program().is_some()
                    && state.clock.is_none_or(|(step, _)| step != progress.steps)
                {
                    state.clock = Some((progress.steps, tsc));
                }
            }
            Mnemonic::Call => {
                self.may_push(state)?;
                now = self.call(instruction, state, expected, progress)?;
                return Ok(MachineFlow::On(now));
            }
            Mnemonic::Cmpxchg => now = self.reserve(instruction, state, expected, progress)?,
            _ => self.compute(instruction, state, progress)?,
        }
        state.flags = kept;
        Ok(MachineFlow::On(now))
    }

    /// Executes `lea rsp, [rsp ± red zone]`: down before all pushes, up after all pops.
    fn steps_over(
        &self,
        instruction: &Instruction,
        state: &mut AbstractState,
    ) -> Result<(), Reason> {
        let zone = self.layout.abi.red_zone;
        if zone == 0 {
            return Err(Reason::MovesStack);
        }
        let by = instruction.memory_displacement64().cast_signed();
        let (from, to) = if by < 0 { (0, zone) } else { (zone, 0) };
        let right = instruction.memory_base() == Register::RSP
            && instruction.memory_index() == Register::None
            && by.unsigned_abs() == u64::from(zone)
            && state.stack.is_empty()
            && state.red_zone == from;
        if !right {
            return Err(Reason::SteppedOver);
        }
        state.red_zone = to;
        Ok(())
    }

    /// Checks that a push overwrites no red zone.
    fn may_push(&self, state: &AbstractState) -> Result<(), Reason> {
        if state.red_zone == self.layout.abi.red_zone {
            Ok(())
        } else {
            Err(Reason::RedZone)
        }
    }

    /// Executes the branch on the result of a reservation.
    fn tried(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        progress: Progress,
    ) -> MachineFlow {
        let way = |success: bool| {
            let (progress, head) = HitRules::tried(progress, success);
            let mut state = state.clone();
            let rax = head.unwrap_or_else(|| {
                let atom = Atom::Head(instruction.ip());
                state.forget(&self.values, &atom);
                state.since_head = Since::default();
                self.values.atom(atom)
            });
            state.set(RAX, rax);
            Box::new(BranchWay {
                state,
                progress: Some(progress),
                failed: !success,
                never: false,
            })
        };
        by_success(instruction, way)
    }

    /// Executes the branch on the result of a maximum's `cmpxchg`.
    fn raised(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        (one, progress): (&'a Expected, Progress),
    ) -> MachineFlow {
        let way = |success: bool| {
            let progress = self.hit(one).raised(progress, success);
            let mut state = state.clone();
            let atom = Atom::Largest(instruction.ip());
            state.forget(&self.values, &atom);
            let read = self.values.atom(atom);
            state.set(RAX, if success { SymValue::UNKNOWN } else { read });
            Box::new(BranchWay {
                state,
                progress,
                failed: !success,
                never: false,
            })
        };
        by_success(instruction, way)
    }

    /// Executes the branch on the result of an entry's `cmpxchg`.
    fn exchanged(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        (one, progress): (&'a Expected, Progress),
    ) -> MachineFlow {
        let way = |success: bool| {
            let progress = self.hit(one).exchanged(progress, success);
            let mut state = state.clone();
            state.set(RAX, SymValue::UNKNOWN);
            // Earlier reads were of an earlier entry.
            state.disown();
            Box::new(BranchWay {
                state,
                progress,
                failed: false,
                never: false,
            })
        };
        by_success(instruction, way)
    }

    fn branch(
        &mut self,
        instruction: &Instruction,
        state: &AbstractState,
        progress: Progress,
    ) -> Result<MachineFlow, Reason> {
        let (mut taken, mut falls) = self.facts(instruction.condition_code(), state);
        let program = self.program();
        let mut never = [false; 2];
        let mut branch_facts = [None; 2];
        if program.is_some() {
            let truth = self.truth(instruction.condition_code(), state.compare);
            let other = self.values.not(truth);
            taken.push(Fact::Holds(truth));
            falls.push(Fact::Holds(other));
            never = [truth, other].map(|truth| self.values.as_constant(truth) == Some(0));
            branch_facts =
                [truth, other].map(|truth| Some(truth).filter(|truth| !truth.is_unknown()));
        }
        let mut way = |facts: Vec<Fact>, branch_fact, never| {
            let mut state = state.clone();
            state.branch_fact = branch_fact;
            facts.into_iter().for_each(|fact| state.learn(fact));
            let progress = match program {
                Some(one) => self.hit(one).decide(progress, &state),
                None => Some(progress),
            };
            Box::new(BranchWay {
                state,
                progress,
                failed: false,
                never,
            })
        };
        let [never_taken, never_falls] = never;
        let [taken_fact, falls_fact] = branch_facts;
        Ok(MachineFlow::Branch {
            to: instruction.near_branch_target(),
            taken: way(taken, taken_fact, never_taken),
            falls: way(falls, falls_fact, never_falls),
        })
    }

    /// Returns the facts where a branch is taken, and where it is not.
    fn facts(&mut self, condition: ConditionCode, state: &AbstractState) -> (Vec<Fact>, Vec<Fact>) {
        let (compare, limit) = (state.compare, state.since_head.limit);
        let difference = match compare {
            Compare::Unknown => return (Vec::new(), Vec::new()),
            Compare::Of(a, b) => self.values.xor(a, b),
            Compare::Zero(value) | Compare::OnlyZero(value) => value,
        };
        let (mut equal, mut unequal) = (
            vec![Fact::Zero(difference)],
            vec![Fact::NonZero(difference)],
        );
        // Only equality counts. After a migration the two may be of different CPUs: then they
        // differ, and the reservation fails, but their order has no meaning.
        let head = match compare {
            Compare::Of(a, b) if limit == Some(b) => Some(a),
            Compare::Of(a, b) if limit == Some(a) => Some(b),
            _ => None,
        };
        if let Some(head) = head
            && let Some(after) = slots_after_head(&mut self.values, self.layout, head)
        {
            equal.push(Fact::Full(head));
            // While the head stays, the limit only moves on: once it is beyond a slot, it may be at the next one.
            let one = self.values.constant(one(self.layout));
            let before = self.values.sub(head, one);
            if after == 0 || state.knows(Fact::Room(before)) {
                unequal.push(Fact::Room(head));
            }
        }
        match condition {
            ConditionCode::e => (equal, unequal),
            ConditionCode::ne => (unequal, equal),
            _ => (Vec::new(), Vec::new()),
        }
    }
}

/// Returns both ways of a branch after `cmpxchg`, which sets ZF on success.
fn by_success(
    instruction: &Instruction,
    mut way: impl FnMut(bool) -> Box<BranchWay>,
) -> MachineFlow {
    let taken_if_equal = instruction.condition_code() == ConditionCode::e;
    MachineFlow::Branch {
        to: instruction.near_branch_target(),
        taken: way(taken_if_equal),
        falls: way(!taken_if_equal),
    }
}
