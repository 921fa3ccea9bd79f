//! The callee contract of native functions: each returns to its caller with the stack pointer and
//! the callee-saved registers of its entry, by an abstract interpretation of its bytes.
//!
//! Saved registers and the return address are considered overwritten only where constant offsets
//! prove it. A store through an index or an unrelated pointer is assumed to stay inside its object:
//! this is the compiler's word, and is not proven.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpKind};

use crate::Addr;
use crate::native::NativeCode;
use crate::verify::reason::Reason;
use crate::verify::text::stack::{CallFrame, Callers};

/// Interprets the function at `entry`. Returns the functions that it calls, and those that it
/// tail-calls.
///
/// # Errors
/// The place and the reason if it breaks the contract.
pub(crate) fn follow(code: &NativeCode, entry: Addr) -> Result<BTreeSet<Addr>, Reason> {
    let span = code.span();
    let mut info = InstructionInfoFactory::new();
    let mut calls = BTreeSet::new();
    let mut before = BTreeMap::from([(entry, CallFrame::at_entry(Callers::Frame))]);
    let mut worklist = vec![entry];
    while let Some(at) = worklist.pop() {
        let Some(mut frame) = before.get(&at).cloned() else {
            continue;
        };
        let offset = usize::try_from(span.start.to(at)).unwrap_or(usize::MAX);
        let bytes = code.bytes.get(offset..).unwrap_or_default();
        let instruction = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
        let wrong = |why: Reason| Reason::NativeInstruction {
            at,
            why: why.into(),
        };
        let lost = || wrong(Reason::NativeUnfollowed);
        if instruction.is_invalid() || instruction.is_privileged() {
            return Err(lost());
        }
        let direct = instruction.op0_kind() == OpKind::NearBranch64;
        let branch = Addr(instruction.near_branch_target());
        let next = Addr(instruction.next_ip());
        let to = match instruction.flow_control() {
            FlowControl::Return if instruction.code() == Code::Retnq => {
                frame.returns().map_err(wrong)?;
                continue;
            }
            FlowControl::Call if direct => {
                calls.insert(branch);
                frame.called();
                vec![next]
            }
            FlowControl::UnconditionalBranch if direct => vec![branch],
            FlowControl::Next => {
                frame.step(&instruction, &mut info).map_err(wrong)?;
                vec![next]
            }
            FlowControl::ConditionalBranch if direct => {
                frame.step(&instruction, &mut info).map_err(wrong)?;
                vec![next, branch]
            }
            _ => return Err(lost()),
        };
        for to in to {
            if !span.contains(to) {
                // The target of a tail call returns in its place.
                frame.returns().map_err(wrong)?;
                calls.insert(to);
            } else if let Some(known) = before.get_mut(&to) {
                if !known.has_stack_of(&frame) {
                    return Err(wrong(Reason::NativeStackDepth { to }));
                }
                worklist.extend(known.join(&frame).then_some(to));
            } else {
                before.insert(to, frame.clone());
                worklist.push(to);
            }
        }
    }
    Ok(calls)
}
