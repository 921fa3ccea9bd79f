//! Decodes a function, and classifies the flow of control after each instruction.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Register};

use crate::code::{Contract, Function, Origin, Why};
use crate::ids::{Id, Ids, id};
use crate::isa::decode::{branch_target, is_emulation_prefix, is_padding};
use crate::{Addr, Image, Refusal, Rule, Span};

id!(
    /// An instruction of a function, in order of address.
    pub(super) InsnIndex
);

impl InsnIndex {
    /// The instruction that follows, which the function may lack.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The prefix that makes an instruction atomic.
const LOCK: u8 = 0xf0;

/// The target of a branch, seen from its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To this instruction of the function.
    Inside(InsnIndex),
    /// To this instruction of the function, after its `lock` prefix: `je 1f; lock; 1: cmpxchg`, which a program with
    /// one thread executes without.
    PastLock(InsnIndex),
    /// Somewhere else.
    Outside,
}

/// The flow of control after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowAfter {
    /// The next instruction: calls too.
    Next,
    Jump(Target),
    Conditional(Target),
    /// A static key, and whether it jumps now.
    Key(Target, bool),
    Return,
    Indirect,
    NoReturn,
}

impl FlowAfter {
    /// Returns whether control may fall through to the next instruction.
    pub(super) const fn falls_through(self) -> bool {
        matches!(self, Self::Next | Self::Conditional(_) | Self::Key(..))
    }
}

/// A function's instructions; they cover its bytes.
pub(super) struct DecodedFunction {
    pub(super) insns: Ids<InsnIndex, CfgInsn>,
    /// Instructions that may fault, and their fixups in the function.
    pub(super) fixups: Vec<(InsnIndex, InsnIndex)>,
}

/// An instruction with the facts that divide the function into blocks.
pub(super) struct CfgInsn {
    pub(super) instruction: Instruction,
    pub(super) flow: FlowAfter,
    /// True if it is reached by a branch, a fixup or from outside.
    pub(super) leader: bool,
    /// True if a branch skips its `lock` prefix.
    pub(super) skipped: bool,
    /// True if it is reached from outside, or by an instruction that is not a branch.
    pub(super) entered: bool,
    /// True if it has entries from unknown sources.
    pub(super) open: bool,
    /// True of padding, which never executes.
    pub(super) padding: bool,
}

/// The instruction at each offset in the function.
pub(super) struct Offsets {
    pub(super) span: Span,
    /// By offset; `None` where no instruction begins.
    at: Vec<Option<InsnIndex>>,
    /// Instructions of which a `lock` prefix is the first byte.
    locked: Vec<InsnIndex>,
}

impl Offsets {
    /// The instruction that begins at an address, if it is one of the function's.
    pub(super) fn index(&self, at: Addr) -> Option<InsnIndex> {
        let offset = usize::try_from(at.0.checked_sub(self.span.start.0)?).ok()?;
        self.at.get(offset).copied().flatten()
    }

    /// The target of a branch to `to`.
    fn target(&self, from: Addr, to: Addr) -> Result<Target, Refusal> {
        let locked = || {
            let index = self.index(Addr(to.0.checked_sub(1)?))?;
            self.locked.binary_search(&index).is_ok().then_some(index)
        };
        match self.index(to) {
            Some(index) => Ok(Target::Inside(index)),
            None if let Some(index) = locked() => Ok(Target::PastLock(index)),
            None if self.span.contains(to) => Err(Refusal::new(
                Rule::Undecodable,
                from,
                format!("it branches to {to}, the middle of an instruction"),
            )),
            None => Ok(Target::Outside),
        }
    }
}

/// Decodes a function from its first byte to its last.
///
/// # Errors
/// The refusal, if the bytes are no instructions, a branch targets the middle of one, or another probe
/// hides some of them.
pub(super) fn decode(image: &Image, function: &Function) -> Result<DecodedFunction, Refusal> {
    let span = function.span;
    if let Some(refusal) = image.refused(function.id) {
        return Err(refusal.clone());
    }
    let bytes = image
        .bytes(span)
        .ok_or_else(|| Refusal::new(Rule::NotText, span.start, "its bytes were not read"))?;
    let (instructions, offsets) = instructions(span, bytes)?;
    let mut decoded = DecodedFunction {
        insns: (instructions.into_iter())
            .map(|instruction| CfgInsn::new(image, instruction, &offsets))
            .collect::<Result<_, _>>()?,
        fixups: Vec::new(),
    };
    decoded.find_fixed_flows(image, function, &offsets)?;
    decoded.find_leaders(image, &offsets)?;
    decoded.find_open(image, function, &offsets);
    decoded.end_calls(image, function);
    decoded.find_padding(image.origin())?;
    Ok(decoded)
}

fn instructions(span: Span, bytes: &[u8]) -> Result<(Vec<Instruction>, Offsets), Refusal> {
    let mut decoder = Decoder::with_ip(64, bytes, span.start.0, DecoderOptions::NONE);
    // The average instruction of a kernel has four bytes.
    let mut instructions = Vec::with_capacity(bytes.len() / 4 + 1);
    let mut offsets = Offsets {
        span,
        at: Vec::with_capacity(bytes.len()),
        locked: Vec::new(),
    };
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(Refusal::new(
                Rule::Undecodable,
                Addr(instruction.ip()),
                "the bytes there are no instruction",
            ));
        }
        if is_emulation_prefix(bytes, span.start, &instruction) {
            let why = "the letters after this ud2 are no instruction: a hypervisor emulates what follows them";
            return Err(Refusal::new(Rule::Undecodable, Addr(instruction.ip()), why));
        }
        let index = InsnIndex::new(instructions.len());
        if bytes.get(offsets.at.len()) == Some(&LOCK) {
            offsets.locked.push(index);
        }
        offsets.at.push(Some(index));
        offsets.at.resize(decoder.position(), None);
        instructions.push(instruction);
    }
    Ok((instructions, offsets))
}

impl CfgInsn {
    /// An instruction with the flow of control after it, as the instruction alone has it.
    fn new(image: &Image, instruction: Instruction, offsets: &Offsets) -> Result<Self, Refusal> {
        Ok(Self {
            flow: flow(image, &instruction, offsets)?,
            instruction,
            leader: false,
            skipped: false,
            entered: false,
            open: false,
            padding: false,
        })
    }
}

impl DecodedFunction {
    /// Finds the flow of control after instructions that the kernel rewrites, or that may fault.
    fn find_fixed_flows(
        &mut self,
        image: &Image,
        function: &Function,
        offsets: &Offsets,
    ) -> Result<(), Refusal> {
        for site in image.fixed().overlapping(function.span) {
            let index = offsets.index(site.span.start);
            match (site.why, index.map(|index| &mut self.insns[index])) {
                (Why::StaticKey, Some(insn)) => {
                    let to = site.target.map_or(Ok(Target::Outside), |to| {
                        offsets.target(site.span.start, to)
                    })?;
                    let flow = insn.instruction.flow_control();
                    insn.flow = FlowAfter::Key(to, flow == FlowControl::UnconditionalBranch);
                }
                (Why::StaticKey | Why::StaticCall, None) => {
                    let why = "what the kernel rewrites there is not where an instruction begins";
                    return Err(Refusal::new(Rule::Undecodable, site.span.start, why));
                }
                (Why::Bug { warn: true }, Some(insn)) if is_trap(&insn.instruction) => {
                    insn.flow = FlowAfter::Next;
                }
                // One that is not at an instruction was replaced at boot, with its instruction.
                (Why::Exception { .. }, Some(_)) => {
                    let fixup = site.target.and_then(|to| offsets.index(to));
                    self.fixups.extend(index.zip(fixup));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Finds calls that end the path: of functions that never return, and calls without code after them.
    fn end_calls(&mut self, image: &Image, function: &Function) {
        // Assembly may fall through into the next symbol; compiled code never does.
        let adjacent = image.function_at(function.span.end).is_some();
        let compiled = function.contract == Contract::Believed || function.is_part();
        for index in self.insns.keys() {
            let CfgInsn {
                instruction, flow, ..
            } = &self.insns[index];
            let call = matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            if !call || *flow != FlowAfter::Next {
                continue;
            }
            let listed = branch_target(instruction).is_some_and(|to| image.never_returns(to));
            let last = match self.insns.find(index.next()) {
                None => compiled || !adjacent,
                Some(next) => next.instruction.code() == Code::Int3 && self.is_gap(index.next()),
            };
            if listed || last {
                self.insns[index].flow = FlowAfter::NoReturn;
            }
        }
    }

    /// Returns whether there is only `int3` from this instruction to the target of a branch, or to the end.
    fn is_gap(&self, from: InsnIndex) -> bool {
        let mut rest = self.insns.values().iter().skip(from.index());
        let after_gap = rest.find(|insn| insn.instruction.code() != Code::Int3 || insn.leader);
        after_gap.is_none_or(|insn| insn.leader)
    }

    /// Marks padding after instructions that do not fall through, and refuses a reachable `int3` of a kernel: it may be
    /// another probe's, and then the bytes after it are not instructions. One of a program is in its file, since
    /// functions whose bytes are not those of the file are refused: its handler may continue after it.
    fn find_padding(&mut self, origin: Origin) -> Result<(), Refusal> {
        let mut falls_through = true;
        for (_, insn) in self.insns.iter_mut() {
            let instruction = &insn.instruction;
            // The mark after the trampoline of a static call (arch/x86/include/asm/static_call.h).
            let marks = instruction.code() == Code::Ud1_r32_rm32;
            if !falls_through
                && !insn.leader
                && (marks || is_padding(instruction) && insn.flow == FlowAfter::Next)
            {
                insn.padding = true;
                continue;
            }
            if instruction.code() == Code::Int3 && origin == Origin::Kernel {
                let why = "there is an int3, which may be another tool's probe";
                return Err(Refusal::new(Rule::Probed, Addr(instruction.ip()), why));
            }
            insn.leader |= !falls_through;
            falls_through = insn.flow.falls_through();
        }
        Ok(())
    }
}

/// Returns whether it is `ud1 rdi, [edx]`, which reports a warning and continues (`__WARN_trap` of
/// arch/x86/entry/entry.S since Linux 6.19, and its inlined static calls).
fn is_warning(instruction: &Instruction) -> bool {
    instruction.code() == Code::Ud1_r64_rm64
        && instruction.op0_register() == Register::RDI
        && instruction.memory_base() == Register::EDX
}

/// `ud0`, `ud1` or `ud2`.
fn is_trap(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Exception
}

/// The flow of control after an instruction, by the instruction alone.
fn flow(image: &Image, instruction: &Instruction, offsets: &Offsets) -> Result<FlowAfter, Refusal> {
    let at = Addr(instruction.ip());
    let target = || match branch_target(instruction) {
        Some(to) => offsets.target(at, to),
        None => Ok(Target::Outside),
    };
    Ok(match instruction.flow_control() {
        FlowControl::Next
        | FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::Interrupt => FlowAfter::Next,
        FlowControl::UnconditionalBranch => {
            let target = target()?;
            match branch_target(instruction).filter(|_| target == Target::Outside) {
                Some(to) if image.is_return_thunk(to) => FlowAfter::Return,
                Some(to) if image.is_indirect_thunk(to) => FlowAfter::Indirect,
                Some(to) if !image.contains(to) && !is_static_call(image, at) => {
                    let why = format!(
                        "it jumps out of the kernel, to {to}; it may be another tool's probe"
                    );
                    return Err(Refusal::new(Rule::Probed, at, why));
                }
                _ => FlowAfter::Jump(target),
            }
        }
        FlowControl::ConditionalBranch => FlowAfter::Conditional(target()?),
        FlowControl::XbeginXabortXend => match branch_target(instruction) {
            Some(_) => FlowAfter::Conditional(target()?),
            None => FlowAfter::Next,
        },
        FlowControl::IndirectBranch => FlowAfter::Indirect,
        FlowControl::Return => FlowAfter::Return,
        FlowControl::Exception if is_warning(instruction) => FlowAfter::Next,
        FlowControl::Exception => FlowAfter::NoReturn,
    })
}

fn is_static_call(image: &Image, at: Addr) -> bool {
    image
        .fixed()
        .overlapping(Span::new(at, 1))
        .any(|site| site.why == Why::StaticCall)
}
