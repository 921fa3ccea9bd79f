//! The instructions that native code may have.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpKind, Register,
};

use super::NativeCode;
use super::frame::{Frame, branch};
use crate::isa::effect::is_write;
use crate::{Addr, Span};

/// Bytes of stack that a native function may take with all that it calls of its own file. A kernel stack has
/// 16 KiB, and a hook may be anywhere on it.
const MOST_STACK: u64 = 1024;

/// Instructions of any privilege that change state which the kernel relies on: segments, control flags, the stack
/// by an amount that is not analysed, or the time for which the processor waits.
const CHANGES: [Mnemonic; 22] = [
    Mnemonic::Cld,
    Mnemonic::Enter,
    Mnemonic::Ldmxcsr,
    Mnemonic::Lds,
    Mnemonic::Les,
    Mnemonic::Lfs,
    Mnemonic::Lgs,
    Mnemonic::Lss,
    Mnemonic::Monitor,
    Mnemonic::Monitorx,
    Mnemonic::Mwait,
    Mnemonic::Mwaitx,
    Mnemonic::Popf,
    Mnemonic::Popfd,
    Mnemonic::Popfq,
    Mnemonic::Std,
    Mnemonic::Tpause,
    Mnemonic::Umonitor,
    Mnemonic::Umwait,
    Mnemonic::Wrfsbase,
    Mnemonic::Wrgsbase,
    Mnemonic::Wrpkru,
];

/// Features whose instructions on general registers, flags and memory are permitted. Other features have registers
/// or modes of their own.
const PLAIN: [CpuidFeature; 25] = [
    CpuidFeature::ADX,
    CpuidFeature::BMI1,
    CpuidFeature::BMI2,
    CpuidFeature::CET_IBT,
    CpuidFeature::CMOV,
    CpuidFeature::CMPXCHG16B,
    CpuidFeature::CPUID,
    CpuidFeature::CX8,
    CpuidFeature::INTEL186,
    CpuidFeature::INTEL286,
    CpuidFeature::INTEL386,
    CpuidFeature::INTEL486,
    CpuidFeature::INTEL8086,
    CpuidFeature::LZCNT,
    CpuidFeature::MOVBE,
    CpuidFeature::MULTIBYTENOP,
    CpuidFeature::PAUSE,
    CpuidFeature::POPCNT,
    CpuidFeature::PREFETCHW,
    CpuidFeature::RDPID,
    CpuidFeature::RDRAND,
    CpuidFeature::RDSEED,
    CpuidFeature::RDTSCP,
    CpuidFeature::TSC,
    CpuidFeature::X64,
];

/// Others that do no more than that.
const PLAIN_TOO: [Mnemonic; 10] = [
    Mnemonic::Crc32,
    Mnemonic::Lfence,
    Mnemonic::Mfence,
    Mnemonic::Movnti,
    Mnemonic::Prefetchnta,
    Mnemonic::Prefetcht0,
    Mnemonic::Prefetcht1,
    Mnemonic::Prefetcht2,
    Mnemonic::Rdpkru,
    Mnemonic::Sfence,
];

/// Looks at every instruction, at what functions do to the stack, and at how deep calls go.
pub(super) fn check(
    code: &NativeCode,
    functions: &[Addr],
    called: &BTreeSet<Addr>,
) -> Result<(), String> {
    let text = Span::new(code.address, code.text);
    let bytes = usize::try_from(code.text)
        .ok()
        .and_then(|length| code.bytes.get(..length))
        .ok_or("it has less code than it states")?;
    let mut decoder = Decoder::with_ip(64, bytes, text.start.0, DecoderOptions::NONE);
    let mut all = BTreeMap::new();
    let mut entries: BTreeSet<Addr> = functions.iter().copied().collect();
    let mut falls_through = false;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let at = Addr(instruction.ip());
        let filler = instruction.code() == Code::Int3 && !falls_through;
        if !filler && let Some(why) = forbidden(&instruction) {
            let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
            return Err(format!("{} ({name}) {why}", place(code, at)));
        }
        if let Some(to) = branch(&instruction) {
            let fits = text.contains(to) || called.contains(&to);
            if !fits {
                return Err(format!(
                    "{} branches to {to}, which is not code of its own",
                    place(code, at)
                ));
            }
            let calls = instruction.is_call_near() && text.contains(to);
            entries.extend(calls.then_some(to));
        }
        falls_through = !matches!(
            instruction.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Interrupt
        );
        all.insert(at, instruction);
    }
    if falls_through {
        return Err("it runs off its end".into());
    }
    let mut frames = BTreeMap::new();
    for &function in &entries {
        let frame = Frame::of(function, &all, called)
            .map_err(|(at, why)| format!("{} {why}", place(code, at)))?;
        frames.insert(function, frame);
    }
    let mut depths = BTreeMap::new();
    for &function in &entries {
        let deep = depth(&frames, function, &mut depths)
            .ok_or_else(|| format!("{} may call itself without a bound", place(code, function)))?;
        if deep > MOST_STACK {
            return Err(format!(
                "{} takes {deep} bytes of the stack, and {MOST_STACK} are allowed",
                place(code, function)
            ));
        }
    }
    Ok(())
}

/// Bytes of the stack below a function's return address; `None` if it calls itself, or others that do.
/// `known` has those that were reckoned, and `None` for those that are being reckoned.
fn depth(
    all: &BTreeMap<Addr, Frame>,
    function: Addr,
    visited: &mut BTreeMap<Addr, Option<u64>>,
) -> Option<u64> {
    if let Some(visited) = visited.get(&function) {
        return *visited;
    }
    let Some(frame) = all.get(&function) else {
        return Some(0);
    };
    visited.insert(function, None);
    let mut deepest = frame.bytes;
    for (&to, &bytes) in &frame.calls {
        let below = depth(all, to, visited)?.saturating_add(8);
        deepest = deepest.max(bytes.saturating_add(below));
    }
    visited.insert(function, Some(deepest));
    Some(deepest)
}

/// Returns the reason why an instruction is forbidden.
fn forbidden(instruction: &Instruction) -> Option<&'static str> {
    if instruction.is_invalid() {
        return Some("is not an instruction");
    }
    let leaves = match instruction.flow_control() {
        FlowControl::Next => None,
        FlowControl::ConditionalBranch if branch(instruction).is_some() => None,
        FlowControl::UnconditionalBranch if branch(instruction).is_some() => None,
        FlowControl::Call if branch(instruction).is_some() => None,
        FlowControl::Return if instruction.code() == Code::Retnq => None,
        FlowControl::IndirectBranch | FlowControl::IndirectCall => Some(
            "branches to a computed address; compile it with -fno-jump-tables, and call by name",
        ),
        FlowControl::Exception => Some("stops the kernel (a trap, or a panic of Rust)"),
        _ => Some("enters or leaves the kernel"),
    };
    if leaves.is_some() {
        return leaves;
    }
    let mut registers = (0..instruction.op_count())
        .filter(|&op| instruction.op_kind(op) == OpKind::Register)
        .map(|op| instruction.op_register(op));
    let mnemonic = instruction.mnemonic();
    let segment = registers.clone().any(Register::is_segment_register);
    if instruction.is_privileged() || segment || CHANGES.contains(&mnemonic) {
        return Some("changes how the processor works");
    }
    let plain = PLAIN_TOO.contains(&mnemonic)
        || instruction
            .cpuid_features()
            .iter()
            .all(|feature| PLAIN.contains(feature));
    if !registers.all(Register::is_gpr) || !plain {
        return Some(
            "uses or changes what the kernel does not save; compile it with -mgeneral-regs-only, and Rust for x86_64-unknown-none",
        );
    }
    if instruction.is_string_instruction() {
        return Some(
            "copies or fills by a string instruction, whose direction is not set; compile it with -mstringop-strategy=loop",
        );
    }
    if writes_constant(instruction) {
        return Some("writes to code or to a constant, where nothing can be written");
    }
    let fs = instruction.segment_prefix() == Register::FS;
    fs.then_some("uses fs:, which is the user's; compile it with -fno-stack-protector")
}

/// Returns whether it writes to a constant address, where only code and constants are.
fn writes_constant(instruction: &Instruction) -> bool {
    let named = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
        && matches!(instruction.memory_base(), Register::None | Register::RIP)
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() != Register::GS;
    named && {
        let mut info = InstructionInfoFactory::new();
        info.info(instruction)
            .used_memory()
            .iter()
            .any(|memory| is_write(memory.access()))
    }
}

fn place(code: &NativeCode, at: Addr) -> String {
    let before = code.entries.iter().filter(|(_, start)| *start <= at);
    match before.max_by_key(|(_, start)| *start) {
        Some((name, start)) => format!("{name}+{:#x}", at.0 - start.0),
        None => format!("{at}"),
    }
}
