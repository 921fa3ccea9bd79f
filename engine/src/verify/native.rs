//! Calls of functions of object files. What those compute is not proven: that is what the switch in front
//! of them says. But they are what is called, with what the instrument gives them; all that they may
//! change has its value again behind it; and what is sampled is what they returned.

use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_instruments::program::{Gpr, Input};
use gilk_instruments::{Native, Parameter, Program};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::hit::{Expected, Hit, Progress, Stage, argument_number};
use super::state::{Compare, RAX, Since, State};
use super::step::Machine;
use super::value::{Atom, Value};
use super::violation::Violation;
use crate::cfg::Cfg;
use crate::image::SiteKind;
use crate::native::NativeCode;
use crate::plan::Plan;
use crate::{Addr, Image, Span};

/// A function and where it begins.
#[derive(Clone, Debug)]
pub(super) struct NativeCall {
    pub(super) native: Arc<Native>,
    pub(super) entry: Addr,
}

/// Numbers of the registers that a function may change (System V ABI, 3.2.1).
const CHANGED: [u8; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

impl<'a> Machine<'a> {
    /// A call in instrument code.
    pub(super) fn call(
        &mut self,
        instruction: &Instruction,
        state: &mut State,
        expected: Option<&'a Expected>,
        progress: Progress,
    ) -> Result<Option<Progress>, String> {
        let one = expected.and_then(|one| Some((one, one.native.as_ref()?)));
        let Some((one, call)) = one.filter(|_| progress.is_nothing()) else {
            return Err("it calls a function, and no instrument says so".into());
        };
        let direct = instruction.op0_kind() == OpKind::NearBranch64;
        if !direct || instruction.near_branch_target() != call.entry.0 {
            return Err(format!(
                "it does not call {}, at {}",
                call.native.function, call.entry
            ));
        }
        for (number, parameter) in (0..).zip(&call.native.parameters) {
            let given =
                argument_number(number).map_or(Value::UNKNOWN, |register| state.register(register));
            if !self.is_given(given, *parameter, one) {
                return Err(format!("its parameter {number} is not {parameter:?}"));
            }
        }
        for register in CHANGED {
            state.set(register, Value::UNKNOWN);
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

    fn is_given(&self, given: Value, parameter: Parameter, one: &Expected) -> bool {
        let constant = self.values.as_constant(given);
        let register = match parameter {
            Parameter::Counter => return constant.is_some() && constant == one.counter,
            Parameter::Input(Input::Identifier) => return constant == Some(one.id.pack()),
            Parameter::Input(Input::Block) => return constant == Some(one.id.block.into()),
            Parameter::Input(Input::Argument(number)) => argument_number(number),
            Parameter::Input(Input::Returned) => Some(RAX),
            Parameter::Input(Input::Register(gpr)) => {
                let number = Gpr::ALL.iter().position(|known| *known == gpr);
                number.and_then(|number| u8::try_from(number).ok())
            }
            Parameter::Input(_) => None,
        };
        register.is_some_and(|register| given == Value::original(register))
    }
}

impl Hit<'_> {
    /// Whether the function has been called and what it returned comes into a sample.
    pub(super) fn has_returned(&self, progress: Progress) -> bool {
        self.expected.program == Program::Native
            && progress.steps == 1
            && progress.stage == Stage::Nothing
    }

    /// Whether it is what the function returned.
    pub(super) fn is_returned(&self, stored: Value) -> bool {
        matches!(self.values.as_atom(stored), Some(Atom::Returned(_)))
    }
}

/// Checks that the code lies where nothing else does, and that control, once in it, leaves only by returning
/// or for functions of the kernel that the session leaves alone.
pub(super) fn check(image: &Image, plan: &Plan, violations: &mut Vec<Violation>) {
    for (number, code) in plan.natives.iter().enumerate() {
        let span = code.span();
        let others = { plan.natives.iter().enumerate() }
            .filter(|(other, _)| *other != number)
            .map(|(_, other)| other.span());
        let patches =
            { plan.patches.iter() }.map(|patch| Span::new(patch.address, patch.code.len() as u64));
        let arena = plan.layout.arena;
        let inside = arena.start <= span.start && span.start <= span.end && span.end <= arena.end;
        let why = if !inside {
            Some("it is not inside the arena".into())
        } else if others.chain(patches).any(|other| other.overlaps(span)) {
            Some("something else is written over it".into())
        } else {
            walk(image, plan, code).err()
        };
        if let Some(why) = why {
            let why = format!("the code of {}: {why}", code.file);
            violations.push(Violation::Plan { why });
        }
    }
}

/// Goes every way from every entry.
fn walk(image: &Image, plan: &Plan, code: &NativeCode) -> Result<(), String> {
    let span = code.span();
    let mut left: Vec<Addr> = code.entries.iter().map(|(_, at)| *at).collect();
    let mut known = BTreeSet::new();
    while let Some(at) = left.pop() {
        if !known.insert(at) {
            continue;
        }
        if !span.contains(at) {
            left_alone(image, plan, at)?;
            continue;
        }
        let offset = usize::try_from(span.start.to(at)).unwrap_or(usize::MAX);
        let bytes = code.bytes.get(offset..).unwrap_or_default();
        let instruction = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
        let direct = instruction.op0_kind() == OpKind::NearBranch64;
        let wrong = || format!("the instruction at {at} has no place in it");
        let (on, to) = match instruction.flow_control() {
            _ if instruction.is_invalid() || instruction.is_privileged() => return Err(wrong()),
            FlowControl::Next => (true, false),
            FlowControl::Return if instruction.code() == Code::Retnq => (false, false),
            FlowControl::ConditionalBranch if direct => (true, true),
            FlowControl::UnconditionalBranch if direct => (false, true),
            FlowControl::Call if direct => (true, true),
            _ => return Err(wrong()),
        };
        left.extend(on.then_some(Addr(instruction.next_ip())));
        left.extend(to.then_some(Addr(instruction.near_branch_target())));
    }
    Ok(())
}

/// Whether at `at` a function of the kernel begins from which control comes to none that the session changes.
fn left_alone(image: &Image, plan: &Plan, at: Addr) -> Result<(), String> {
    let called = { image.function_at(at) }.filter(|function| function.span.start == at);
    let called = called.ok_or_else(|| format!("it leads to {at}, where no function begins"))?;
    let mut left = vec![called.id];
    let mut known = BTreeSet::new();
    while let Some(function) = left.pop() {
        if !known.insert(function) {
            continue;
        }
        let cfg = Cfg::of(image, function);
        let wrong =
            |what: &str| format!("it leads to {at}, and from there to {}, {what}", cfg.name);
        let mut planned = plan.functions.iter();
        if planned.any(|planned| planned.outline.span == cfg.span) {
            return Err(wrong("which this session does not leave alone"));
        }
        if cfg.blocks.is_empty() {
            return Err(wrong("of which nothing is known"));
        }
        for instruction in cfg.blocks.iter().flat_map(|block| &block.instructions) {
            let at = Addr(instruction.ip());
            let rewritten = { image.sites().overlapping(Span::new(at, 1)) }
                .any(|site| site.kind == SiteKind::StaticCall);
            let to = match instruction.flow_control() {
                _ if rewritten => None,
                FlowControl::Next | FlowControl::Return => continue,
                _ if instruction.op0_kind() == OpKind::NearBranch64 => {
                    Some(Addr(instruction.near_branch_target()))
                }
                _ => None,
            };
            let to = to.ok_or_else(|| wrong("which leads where nobody knows"))?;
            if cfg.span.contains(to) || image.is_return_thunk(to) {
                continue;
            }
            let to = image.function_at(to);
            left.push(to.ok_or_else(|| wrong("which leads to no function"))?.id);
        }
    }
    Ok(())
}
