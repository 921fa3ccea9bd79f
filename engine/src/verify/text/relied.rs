//! Reliance of callers on more than the calling convention of a function.

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::verify::hash::Set;
use crate::{Addr, Image};

/// The most functions that are read.
const MOST: usize = 256;

/// Returns whether functions may call the one at `entry` that a compiler compiled with knowledge of the registers that it
/// leaves alone: functions of its file call it, and nothing that it reaches by direct calls and jumps calls code that the
/// compiler cannot have known.
pub(crate) fn may_be_relied_on(image: &Image, entry: Addr) -> bool {
    if image.keeps_convention(entry) {
        return false;
    }
    let mut visited = Set::default();
    let mut worklist = vec![entry];
    while let Some(at) = worklist.pop() {
        // Code that is in no function says nothing.
        let Some(function) = image.function_at(at) else {
            continue;
        };
        if !visited.insert(function.span.start) || visited.len() > MOST {
            continue;
        }
        let Some(bytes) = image.bytes(function.span) else {
            return true;
        };
        let decoder = Decoder::with_ip(64, bytes, function.span.start.0, DecoderOptions::NONE);
        for instruction in decoder {
            let to = match instruction.op0_kind() {
                OpKind::NearBranch64 => Some(Addr(instruction.near_branch_target())),
                _ => None,
            };
            match (instruction.flow_control(), to) {
                (FlowControl::IndirectCall, _) => return false,
                (FlowControl::Call, Some(to)) if image.keeps_convention(to) => return false,
                (FlowControl::Call, Some(to)) => worklist.push(to),
                (FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch, Some(to))
                    if !function.span.contains(to) =>
                {
                    if image.keeps_convention(to) {
                        return false;
                    }
                    worklist.push(to);
                }
                _ => {}
            }
        }
    }
    true
}
