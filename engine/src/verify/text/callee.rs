//! Effects of calls, by this verifier's own reading of the callee.
//!
//! Compiled C, and a function that never returns, keeps the calling convention. The code of other
//! functions is read: the registers that it may use, and those that it overwrites on every path to
//! its return.

use std::cell::RefCell;

use iced_x86::{FlowControl, InstructionInfoFactory};

use super::call::{Call, CallEffects};
use super::effects::Mask;
use super::liveness::{LiveSets, SampledAt};
use super::routine::{Reading, Routine};
use super::stack::{CallFrame, Callers};
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
            comes_back.then(|| LiveSets::of(&routine, &SampledAt::default()).before(&routine, to.0))
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
    follow(routine).is_some()
}

/// Follows the stack pointer to a fixpoint; `None` if the function may return elsewhere.
fn follow(routine: &Routine) -> Option<()> {
    let mut info = InstructionInfoFactory::new();
    let mut before: Vec<Option<CallFrame>> = vec![None; routine.instructions.len()];
    let mut worklist = vec![(0, CallFrame::at_entry(Callers::ReturnAddress))];
    while let Some((index, frame)) = worklist.pop() {
        let Some(decoded) = routine.instructions.get(index) else {
            // It falls off its end into another function.
            frame.is_at_return_address().then_some(())?;
            continue;
        };
        let frame = match before.get_mut(index)? {
            Some(known) => {
                known.has_stack_of(&frame).then_some(())?;
                if !known.join(&frame) {
                    continue;
                }
                known.clone()
            }
            unknown => unknown.insert(frame).clone(),
        };
        let instruction = &decoded.instruction;
        let returns = instruction.flow_control() == FlowControl::Return;
        if returns || !decoded.leaves_with.is_empty() && decoded.is_branch() {
            frame.is_at_return_address().then_some(())?;
        }
        let mut after = frame.clone();
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => after.called_assembly(),
            FlowControl::Return => {}
            _ => after.step(instruction, &mut info).ok()?,
        }
        for &target in &decoded.leads_to {
            // A fault leaves before the instruction.
            let frame = if decoded.is_branch() { &after } else { &frame };
            worklist.push((routine.executed_from(target)?, frame.clone()));
        }
        if decoded.runs_on {
            worklist.push((index + 1, after));
        }
    }
    Some(())
}
