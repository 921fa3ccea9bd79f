//! Calls of native functions. The result of the function is not proven, hence the switch that
//! enables them. Proven are the called function and its arguments, that all registers it may change
//! are restored after it, and that the sampled value is its return value.

use crate::verify::reason::Reason;
use std::collections::BTreeSet;

use gilk_instruments::Parameter;
use gilk_instruments::program::{Gpr, Input};
use iced_x86::{FlowControl, Instruction, OpKind};

use super::callee_contract;
use super::hit::{Expected, HitRules, HitStage, Progress};
use super::machine::InstrumentMachine;
use super::process::ReaderCode;
use super::state::{AbstractState, Compare, RAX, Since};
use crate::code::Why;
use crate::layout::Abi;
use crate::native::NativeCode;
use crate::plan::Plan;
use crate::verify::symbolic::atom::{Atom, SymValue};
use crate::verify::text::callee::Callees;
use crate::verify::text::effects::argument_number;
use crate::verify::text::routine::Routine;
use crate::verify::violation::Violation;
use crate::{Addr, Image, Span};

/// Caller-saved registers (System V ABI, 3.2.1).
const CHANGED: [u8; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

impl<'a> InstrumentMachine<'a> {
    /// Executes a call in instrument code.
    pub(crate) fn call(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        expected: Option<&'a Expected>,
        progress: Progress,
    ) -> Result<Option<Progress>, Reason> {
        if self.program().is_some() {
            match ReaderCode::called(self.layout, instruction) {
                Some(ReaderCode::Memory) => self.read_process(state, progress)?,
                Some(ReaderCode::Stacks) => self.number_stack(instruction, state, progress)?,
                None => self.read_stack(instruction, state, progress)?,
            }
            return Ok(Some(progress));
        }
        let instrument =
            expected.and_then(|instrument| Some((instrument, instrument.native.as_ref()?)));
        let Some((instrument, call)) = instrument.filter(|_| progress.is_nothing()) else {
            return Err(Reason::UnplannedCall);
        };
        let direct = instruction.op0_kind() == OpKind::NearBranch64;
        if !direct || instruction.near_branch_target() != call.entry.0 {
            let function = call.native.function.to_string();
            let entry = call.entry;
            return Err(Reason::OtherFunction { function, entry });
        }
        for (number, parameter) in (0..).zip(&call.native.parameters) {
            let given = argument_number(number)
                .map_or(SymValue::UNKNOWN, |register| state.register(register));
            if !self.is_given(given, *parameter, instrument) {
                let parameter = format!("{parameter:?}");
                return Err(Reason::OtherParameter { number, parameter });
            }
        }
        for register in CHANGED {
            state.set(register, SymValue::UNKNOWN);
        }
        state.flags = 0;
        state.compare = Compare::Unknown;
        state.since_head = Since::default();
        if !call.native.samples {
            return Ok(None);
        }
        let returned = self.read(Atom::Returned(instruction.next_ip()), state, progress)?;
        state.set(RAX, returned);
        Ok(Some(Progress {
            steps: 1,
            ..progress
        }))
    }

    fn is_given(&self, given: SymValue, parameter: Parameter, expected: &Expected) -> bool {
        let constant = self.values.as_constant(given);
        let register = match parameter {
            Parameter::Counter => {
                let word = expected.counter.and_then(|slot| self.layout.counter(slot));
                return constant.is_some() && constant == word.map(|word| word.0);
            }
            Parameter::Input(Input::Identifier) => return constant == Some(expected.id.pack()),
            Parameter::Input(Input::Block) => return constant == Some(expected.id.block.into()),
            Parameter::Input(Input::Argument(number)) => argument_number(number),
            Parameter::Input(Input::Returned) => Some(RAX),
            Parameter::Input(Input::Register(gpr)) => {
                let number = Gpr::ALL.iter().position(|known| *known == gpr);
                number.and_then(|number| u8::try_from(number).ok())
            }
            Parameter::Input(_) => None,
        };
        register.is_some_and(|register| given == SymValue::original(register))
    }
}

impl HitRules<'_> {
    /// Returns whether the function was called and its return value is to be sampled.
    pub(crate) fn has_returned(&self, progress: Progress) -> bool {
        self.expected.native.is_some() && progress.steps == 1 && progress.stage == HitStage::Nothing
    }

    /// Returns whether it is the return value of the function.
    pub(crate) fn is_returned(&self, stored: SymValue) -> bool {
        matches!(self.values.as_atom(stored), Some(Atom::Returned(_)))
    }
}

/// Checks that the code overlaps nothing else, that each called function keeps the callee contract,
/// and that control leaves it only for kernel functions that the session leaves unmodified.
pub(crate) fn check(image: &Image, plan: &Plan, violations: &mut Vec<Violation>) {
    for (number, code) in plan.natives.iter().enumerate() {
        let span = code.span();
        let others = plan
            .natives
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number)
            .map(|(_, other)| other.span());
        let patches = plan
            .patches
            .iter()
            .map(|patch| Span::new(patch.address, patch.code.len() as u64));
        let arena = plan.layout.arena;
        let inside = arena.start <= span.start && span.start <= span.end && span.end <= arena.end;
        let why = if plan.layout.abi != Abi::KERNEL {
            Some(Reason::NativeAbi)
        } else if !inside {
            Some(Reason::NativeOutsideArena)
        } else if others.chain(patches).any(|other| other.overlaps(span)) {
            Some(Reason::NativeOverwritten)
        } else {
            walk(image, plan, code).err()
        };
        if let Some(why) = why {
            let why = Reason::NativeCode {
                file: code.file.to_string(),
                why: why.into(),
            };
            violations.push(Violation::Plan { why });
        }
    }
}

/// Follows the functions that instruments name, and their callees.
fn walk(image: &Image, plan: &Plan, code: &NativeCode) -> Result<(), Reason> {
    let natives = plan.instruments.iter();
    let natives = natives.filter_map(|one| one.definition.native());
    let named = natives.filter(|native| code.is_of(native));
    let mut worklist: Vec<Addr> = named
        .filter_map(|native| code.entry(&native.function))
        .collect();
    let mut visited = BTreeSet::new();
    while let Some(at) = worklist.pop() {
        if !visited.insert(at) {
            continue;
        }
        if code.span().contains(at) {
            worklist.extend(callee_contract::follow(code, at)?);
        } else {
            left_alone(image, plan, at)?;
        }
    }
    Ok(())
}

/// Checks that a kernel function begins at `at` from which control never reaches a function that
/// the session modifies.
pub(crate) fn left_alone(image: &Image, plan: &Plan, at: Addr) -> Result<(), Reason> {
    let callees = Callees::new(image);
    let begins = |to: Addr| {
        image
            .function_at(to)
            .filter(|function| function.span.start == to)
    };
    let called = begins(at).ok_or(Reason::NotAFunction { at })?;
    let mut worklist = vec![called];
    let mut visited = BTreeSet::new();
    while let Some(function) = worklist.pop() {
        if !visited.insert(function.span.start) {
            continue;
        }
        let wrong = |why: &'static str| {
            let name = function.name.to_string();
            Reason::ReachesFunction { at, name, why }
        };
        let mut planned = plan.functions.iter();
        if planned.any(|planned| planned.outline.span == function.span) {
            return Err(wrong("which this session does not leave alone"));
        }
        let routine = Routine::read(&callees, function);
        let routine = routine.map_err(|_| wrong("which does not decode"))?;
        for to in leads_to(image, &routine) {
            let to = to.ok_or_else(|| wrong("from which it may go anywhere"))?;
            let to = image.function_at(to);
            worklist.push(to.ok_or_else(|| wrong("from which it goes to no function"))?);
        }
    }
    Ok(())
}

/// Returns the targets of control out of a function, other than returns; `None` for unknown ones.
fn leads_to(image: &Image, routine: &Routine) -> Vec<Option<Addr>> {
    let mut out = Vec::new();
    // Entries of the function, including those from tables of other code.
    let mut worklist: Vec<u64> = routine.entered.iter().copied().collect();
    worklist.push(routine.span.start.0);
    let mut visited = BTreeSet::new();
    while let Some(at) = worklist.pop() {
        if !visited.insert(at) || at == routine.span.end.0 {
            continue;
        }
        let decoded = routine
            .executed_from(at)
            .and_then(|index| routine.instructions.get(index));
        let Some(decoded) = decoded else {
            out.push(None);
            continue;
        };
        worklist.extend(decoded.runs_on.then(|| decoded.end()));
        worklist.extend(decoded.leads_to.iter());
        let mut rewritten = false;
        for site in routine.sites_in(decoded.span()) {
            rewritten |= site.why == Why::StaticCall;
            out.extend(
                site.target
                    .filter(|to| !routine.span.contains(*to))
                    .map(Some),
            );
        }
        let instruction = &decoded.instruction;
        let to = match instruction.flow_control() {
            _ if rewritten => None,
            FlowControl::Next | FlowControl::Return => continue,
            _ if instruction.op0_kind() == OpKind::NearBranch64 => {
                Some(Addr(instruction.near_branch_target()))
            }
            _ => None,
        };
        let inside = to.is_some_and(|to| routine.span.contains(to) || image.is_return_thunk(to));
        out.extend((!inside).then_some(to));
    }
    out
}
