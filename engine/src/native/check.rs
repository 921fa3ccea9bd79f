//! What native code may be made of.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
    Register,
};

use super::NativeCode;
use crate::{Addr, Span};

/// Bytes of stack that a native function may take with all that it calls of its own file. A kernel stack has
/// 16 KiB, and a hook may be anywhere on it.
const MOST_STACK: u64 = 1024;

/// Looks at every instruction, and at how deep calls go.
pub(super) fn check(
    code: &NativeCode,
    functions: &[Addr],
    called: &BTreeSet<Addr>,
) -> Result<(), String> {
    let text = Span::new(code.address, code.text);
    let bytes = { usize::try_from(code.text).ok() }.and_then(|length| code.bytes.get(..length));
    let mut decoder = Decoder::with_ip(
        64,
        bytes.unwrap_or_default(),
        text.start.0,
        DecoderOptions::NONE,
    );
    let mut all: BTreeMap<Addr, Frame> =
        functions.iter().map(|&at| (at, Frame::default())).collect();
    let mut runs_on = false;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let at = Addr(instruction.ip());
        let filler = instruction.code() == Code::Int3 && !runs_on;
        if !filler && let Some(why) = forbidden(&instruction) {
            return Err(format!("{} {why}", place(code, at)));
        }
        if let Some(to) = branch(&instruction) {
            let fits = text.contains(to) || called.contains(&to);
            if !fits {
                return Err(format!(
                    "{} leads to {to}, which is not code of its own",
                    place(code, at)
                ));
            }
        }
        if let Some((_, frame)) = all.range_mut(..=at).next_back() {
            frame.note(&instruction);
        }
        runs_on = !matches!(
            instruction.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Interrupt
        );
    }
    if runs_on {
        return Err("it runs off its end".into());
    }
    for &function in functions {
        let deep = depth(&all, function, &mut Vec::new()).ok_or_else(|| {
            format!(
                "{} may call itself, and nobody knows how often",
                place(code, function)
            )
        })?;
        if deep > MOST_STACK {
            return Err(format!(
                "{} takes {deep} bytes of the stack, and {MOST_STACK} are allowed",
                place(code, function)
            ));
        }
    }
    Ok(())
}

/// What a function takes of the stack, and which others it calls or jumps to.
#[derive(Default)]
struct Frame {
    bytes: u64,
    leads_to: BTreeSet<Addr>,
}

impl Frame {
    fn note(&mut self, instruction: &Instruction) {
        let down =
            instruction.mnemonic() == Mnemonic::Sub && instruction.op0_register() == Register::RSP;
        self.bytes += match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq => 8,
            Mnemonic::Sub if down => instruction
                .try_immediate(1)
                .unwrap_or(MOST_STACK + 1)
                .min(MOST_STACK + 1),
            _ => 0,
        };
        self.leads_to.extend(branch(instruction));
    }
}

/// Bytes of the stack below a function's return address; `None` if it comes to itself again.
fn depth(all: &BTreeMap<Addr, Frame>, function: Addr, above: &mut Vec<Addr>) -> Option<u64> {
    if above.contains(&function) {
        return None;
    }
    let Some(frame) = all.get(&function) else {
        return Some(0);
    };
    above.push(function);
    let mut deepest = 0;
    for &to in &frame.leads_to {
        // A branch inside of it is no call.
        if all.contains_key(&to) && to != function {
            deepest = deepest.max(8 + depth(all, to, above)?);
        } else if to == function {
            return None;
        }
    }
    above.pop();
    Some(frame.bytes + deepest)
}

/// Where a direct branch or call leads.
fn branch(instruction: &Instruction) -> Option<Addr> {
    let direct = instruction.op0_kind() == OpKind::NearBranch64;
    direct.then(|| Addr(instruction.near_branch_target()))
}

/// Why an instruction may not be there.
fn forbidden(instruction: &Instruction) -> Option<&'static str> {
    if instruction.is_invalid() {
        return Some("is not an instruction");
    }
    let leaves = match instruction.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch => None,
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => None,
        FlowControl::Call if instruction.is_call_near() => None,
        FlowControl::Return if instruction.code() == Code::Retnq => None,
        FlowControl::IndirectBranch | FlowControl::IndirectCall => {
            Some("leads where nobody knows; compile it with -fno-jump-tables, and call by name")
        }
        FlowControl::Exception => Some("stops the kernel (a trap, or a panic of Rust)"),
        _ => Some("enters or leaves the kernel"),
    };
    if leaves.is_some() {
        return leaves;
    }
    let registers =
        (0..instruction.op_count()).filter(|&op| instruction.op_kind(op) == OpKind::Register);
    let general = registers
        .map(|op| instruction.op_register(op))
        .all(|register| register.is_gpr());
    if !general || instruction.cpuid_features().contains(&CpuidFeature::FPU) {
        return Some(
            "uses registers that the kernel does not save; compile it with -mgeneral-regs-only",
        );
    }
    if instruction.is_privileged()
        || matches!(instruction.mnemonic(), Mnemonic::Popfq | Mnemonic::Std)
    {
        return Some("changes how the processor works");
    }
    if instruction.is_string_instruction() {
        return Some("copies or fills by a string instruction, whose direction nobody has set");
    }
    let fs = instruction.segment_prefix() == Register::FS;
    fs.then_some("uses fs:, which is the user's; compile it with -fno-stack-protector")
}

fn place(code: &NativeCode, at: Addr) -> String {
    let before = code.entries.iter().filter(|(_, start)| *start <= at);
    match before.max_by_key(|(_, start)| *start) {
        Some((name, start)) => format!("{name}+{:#x}", at.0 - start.0),
        None => format!("{at}"),
    }
}
