//! Effects of calls, by this verifier's own reading of the callee.
//!
//! Compiled C, and a function that never returns, keeps the calling convention. The code of other
//! functions is read: the registers that it may use, and those that it overwrites on every path to
//! its return.

use std::cell::RefCell;

use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};

use super::call::{Call, CallEffects};
use super::effects::Mask;
use super::liveness::{Live, SampledAt};
use super::routine::{Reading, Routine};
use crate::verify::hash::Map;
use crate::{Addr, Image};

/// Maximum size of a callee that is read.
const MOST_BYTES: u64 = 2048;

/// The effects of the callees of one image, computed on demand.
pub(crate) struct Callees<'a> {
    image: &'a Image,
    /// By address and remaining depth.
    known: RefCell<Map<(Addr, u8), Call>>,
}

impl<'a> Callees<'a> {
    pub(crate) fn new(image: &'a Image) -> Self {
        Self {
            image,
            known: RefCell::default(),
        }
    }

    fn read(&self, to: Addr, followed: u8) -> Option<Call> {
        let function = self.image.function_at(to)?;
        let readable = function.span.start == to
            && function.span.len() <= MOST_BYTES
            && !function.is_part()
            && !self.image.is_return_thunk(to)
            && !self.image.is_indirect_thunk(to);
        if !readable {
            return None;
        }
        let at_entry = |returns_with| {
            let reading = Reading {
                returns_with,
                followed,
            };
            let routine = Routine::read_as(self, function, reading).ok()?;
            let comes_back = !routine.strays && keeps_its_return_address(&routine);
            comes_back.then(|| Live::of(&routine, &SampledAt::default()).before(&routine, to.0))
        };
        Some(Call {
            // Any argument may be sampled at its entry.
            reads: at_entry(Mask::NONE)?.union(Mask::CALL),
            kills: Mask::ALL.without(at_entry(Mask::ALL)?),
        })
    }
}

impl CallEffects for Callees<'_> {
    fn image(&self) -> &Image {
        self.image
    }

    fn call(&self, to: Addr, followed: u8) -> Call {
        if self.image.keeps_convention(to) || self.image.never_returns(to) {
            return Call::CONVENTION;
        }
        if followed == 0 {
            return Call::UNKNOWN;
        }
        let known = self.known.borrow().get(&(to, followed)).copied();
        known.unwrap_or_else(|| {
            let found = self.read(to, followed - 1).unwrap_or(Call::UNKNOWN);
            self.known.borrow_mut().insert((to, followed), found);
            found
        })
    }
}

/// Returns whether a function returns to its caller only: wherever it leaves, its stack has the
/// depth of its entry, and it never writes its return address.
fn keeps_its_return_address(routine: &Routine) -> bool {
    // Height of the return address above the stack pointer, before each instruction.
    let mut above: Vec<Option<i64>> = vec![None; routine.instructions.len()];
    let mut to_see = vec![(0_usize, 0_i64)];
    while let Some((index, now)) = to_see.pop() {
        let (Some(decoded), Some(known)) = (routine.instructions.get(index), above.get_mut(index))
        else {
            continue;
        };
        if let Some(known) = *known {
            if known != now {
                return false;
            }
            continue;
        }
        *known = Some(now);
        if writes_return_address(&decoded.instruction, now) {
            return false;
        }
        let Some(next) = shifted(&decoded.instruction, now) else {
            return false;
        };
        if !decoded.leaves_with.is_empty() && decoded.is_branch() && now != 0 {
            return false;
        }
        if decoded.instruction.flow_control() == FlowControl::Return && now != 0 {
            return false;
        }
        for target in &decoded.leads_to {
            let Some(target) = routine.index(*target) else {
                return false;
            };
            to_see.push((target, if decoded.is_branch() { next } else { now }));
        }
        if decoded.runs_on {
            to_see.push((index + 1, next));
        }
    }
    true
}

/// Returns whether it stores to the eight bytes that are `above` bytes below the stack pointer.
fn writes_return_address(instruction: &Instruction, above: i64) -> bool {
    let overlaps = |from: i64, len: i64| from < 8 && from.saturating_add(len) > 0;
    let change = i64::from(instruction.stack_pointer_increment());
    if change < 0 && overlaps(above + change, -change) {
        return true;
    }
    let len = i64::try_from(instruction.memory_size().size()).unwrap_or(i64::MAX);
    let shift = instruction.memory_displacement64().cast_signed();
    instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && overlaps(above.saturating_add(shift), len)
}

/// Returns the stack pointer after an instruction, if it moves by a constant only.
fn shifted(instruction: &Instruction, above: i64) -> Option<i64> {
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return => return Some(above),
        _ => {}
    }
    let onto_stack_pointer = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == Register::RSP;
    let constant = || instruction.immediate(1).cast_signed();
    match instruction.code() {
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 if onto_stack_pointer => {
            above.checked_add(constant())
        }
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 if onto_stack_pointer => {
            above.checked_sub(constant())
        }
        Code::Lea_r64_m if onto_stack_pointer => {
            let own = instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None;
            let to = instruction.memory_displacement64().cast_signed();
            own.then(|| above.checked_add(to))?
        }
        // Comparisons and pushes of the stack pointer do not change it.
        Code::Push_r64 | Code::Cmp_rm64_r64 | Code::Cmp_rm64_imm8 | Code::Test_rm64_r64 => {
            above.checked_add(instruction.stack_pointer_increment().into())
        }
        Code::Leaveq | Code::Enterq_imm16_imm8 => None,
        _ if onto_stack_pointer => None,
        Code::Xchg_rm64_r64 if instruction.op1_register() == Register::RSP => None,
        _ => above.checked_add(instruction.stack_pointer_increment().into()),
    }
}
