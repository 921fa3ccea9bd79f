//! A function decoded from its start, with every address that control may enter.
//!
//! Nothing here is taken from the planner's graph. The image provides the bytes, the fixed sites
//! (static keys, exception entries, …) and the addresses that other code targets.

use crate::verify::reason::Reason;
use std::collections::BTreeSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    Register,
};

use super::call::{CallEffects, FOLLOWED};
use super::decoded::DecodedInsn;
use super::effects::{self, Mask};
use crate::code::{Fixed, Function, Origin, Why};
use crate::{Addr, Few, Span};

/// A decoded function.
#[derive(Clone, Debug)]
pub(crate) struct Routine {
    pub(crate) name: String,
    pub(crate) span: Span,
    /// Instructions in order of address.
    pub(crate) instructions: Vec<DecodedInsn>,
    /// Addresses inside that control may enter other than from the previous instruction.
    pub(crate) targets: BTreeSet<u64>,
    /// Targets of code or data outside of the function.
    pub(crate) entered: BTreeSet<u64>,
    /// Return addresses of calls.
    pub(crate) returns: BTreeSet<u64>,
    /// Fixed sites of one instruction, by address.
    pub(crate) sites: Vec<Fixed>,
    /// Spans in which the kernel forbids probes.
    forbidden: Vec<Fixed>,
    /// Targets of its own branches that skip the `lock` prefix of an instruction.
    past_locks: BTreeSet<u64>,
    /// True if a branch targets the middle of an instruction otherwise, so that some code is decoded twice.
    pub(crate) strays: bool,
    /// True if it is compiled C that keeps the calling convention.
    pub(crate) compiled: bool,
    /// Return thunks that it jumps to, sorted.
    thunks: Vec<u64>,
}

/// Parameters of the decoding of a function.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// Registers that are live after its returns.
    pub(crate) returns_with: Mask,
    /// Remaining depth of calls whose callees are read.
    pub(crate) followed: u8,
}

/// Returns the three bytes after the instruction.
fn following(bytes: &[u8], decoder: &Decoder<'_>) -> Option<[u8; 3]> {
    bytes.get(decoder.position()..)?.first_chunk().copied()
}

impl Routine {
    /// Decodes a function that may have any caller.
    ///
    /// # Errors
    /// The place and the reason if it does not decode.
    pub(crate) fn read(
        callees: &dyn CallEffects,
        function: &Function,
    ) -> Result<Self, (Addr, Reason)> {
        let returns_with = if callees.image().keeps_convention(function.span.start) {
            Mask::RETURN
        } else {
            Mask::ALL
        };
        let followed = FOLLOWED;
        Self::read_as(
            callees,
            function,
            Reading {
                returns_with,
                followed,
            },
        )
    }

    /// Decodes a function.
    ///
    /// # Errors
    /// The place and the reason if it does not decode.
    pub(crate) fn read_as(
        callees: &dyn CallEffects,
        function: &Function,
        reading: Reading,
    ) -> Result<Self, (Addr, Reason)> {
        let image = callees.image();
        let span = function.span;
        let bytes = image.bytes(span).ok_or((
            span.start,
            Reason::Unread {
                name: function.name.to_string(),
            },
        ))?;
        let (forbidden, mut sites): (Vec<Fixed>, Vec<Fixed>) = image
            .fixed()
            .overlapping(span)
            .partition(|site| site.why == Why::Forbidden);
        sites.sort_unstable_by_key(|site| (site.span.start, site.span.end));
        let mut routine = Self {
            name: function.name.clone(),
            span,
            instructions: Vec::new(),
            targets: BTreeSet::new(),
            entered: image.entered(span).iter().map(|at| at.0).collect(),
            returns: BTreeSet::new(),
            sites,
            forbidden,
            past_locks: BTreeSet::new(),
            strays: false,
            compiled: image.keeps_convention(span.start),
            thunks: Vec::new(),
        };
        let mut info = InstructionInfoFactory::new();
        let mut decoder = Decoder::with_ip(64, bytes, span.start.0, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                let at = Addr(instruction.ip());
                return Err((
                    at,
                    Reason::Undecodable {
                        name: function.name.to_string(),
                        at,
                    },
                ));
            }
            let mut decoded = routine.judge(callees, reading, &mut info, instruction);
            let may_call = decoded.is_call() || routine.is_static_call(&decoded);
            if routine.compiled && may_call && !routine.ends_in_popf() {
                // Compiled code has no live flags across a call: an `asm` statement clobbers them
                // and cannot take them in. Flags can be passed within one statement only: `popf;
                // call`, as in KVM's emulator.
                decoded.reads = decoded.reads.without(Mask::FLAGS);
                decoded.kills = decoded.kills.union(Mask::FLAGS);
            }
            if instruction.code() == Code::Int3
                && image.origin() == Origin::Kernel
                && let Some(before) = routine.instructions.last_mut()
                && before.is_call()
            {
                // The compiler emitted no code after this call.
                before.runs_on = false;
            }
            if instruction.code() == Code::Ud2
                && following(bytes, &decoder).is_some_and(|name| name == *b"xen" || name == *b"kvm")
            {
                // A hypervisor emulates the instruction after these three letters
                // (arch/x86/include/asm/xen/prefix.h), which are not an instruction.
                (decoded.runs_on, decoded.reads) = (true, Mask::ALL);
                let (position, ip) = (decoder.position() + 3, decoder.ip() + 3);
                if decoder.set_position(position).is_ok() {
                    decoder.set_ip(ip);
                }
            }
            routine.instructions.push(decoded);
        }
        if let Some(last) = routine.instructions.last_mut()
            && last.is_call()
        {
            last.runs_on = false;
        }
        routine.targets.extend(routine.entered.iter().copied());
        routine.targets.extend(
            routine
                .sites
                .iter()
                .filter_map(|site| site.target)
                .filter(|at| span.contains(*at))
                .map(|at| at.0),
        );
        for decoded in &routine.instructions {
            routine.targets.extend(decoded.leads_to.iter().copied());
        }
        if image.origin() == Origin::Object {
            routine.end_calls_before_padding();
        }
        for decoded in &routine.instructions {
            if decoded.is_call() && decoded.runs_on {
                routine.returns.insert(decoded.end());
            }
        }
        for decoded in &routine.instructions {
            let target = decoded.instruction.near_branch_target();
            if !decoded.runs_on && image.is_return_thunk(Addr(target)) {
                routine.thunks.push(target);
            }
        }
        routine.thunks.sort_unstable();
        routine.thunks.dedup();
        routine.past_locks = routine.find_past_locks(bytes);
        routine.follow_strays(bytes);
        // The table may have all functions of a kernel.
        routine.instructions.shrink_to_fit();
        Ok(routine)
    }

    /// Ends calls after which there is only `int3` up to the target of a branch or the end, which no program executes.
    fn end_calls_before_padding(&mut self) {
        let mut padding = true;
        for decoded in self.instructions.iter_mut().rev() {
            let is_trap = decoded.instruction.code() == Code::Int3;
            if decoded.is_call() && padding {
                decoded.runs_on = false;
            }
            // A trap that is a target is code; before it there may be padding again.
            let entered = self.targets.contains(&decoded.at());
            padding = entered || is_trap && padding;
        }
    }

    fn ends_in_popf(&self) -> bool {
        self.instructions
            .last()
            .is_some_and(|last| last.instruction.mnemonic() == Mnemonic::Popfq)
    }

    fn is_static_call(&self, decoded: &DecodedInsn) -> bool {
        self.sites_in(decoded.span())
            .any(|site| site.why == Why::StaticCall)
    }

    /// Finds the targets of its own branches that skip the `lock` prefix of an instruction.
    fn find_past_locks(&self, bytes: &[u8]) -> BTreeSet<u64> {
        let byte = |at: u64| {
            let offset = usize::try_from(at.checked_sub(self.span.start.0)?).ok()?;
            bytes.get(offset).copied()
        };
        let skips = |at: u64| {
            let before = at.checked_sub(1);
            before.is_some_and(|at| self.index(at).is_some() && byte(at) == Some(0xf0))
        };
        let own = self.instructions.iter().flat_map(|one| one.leads_to.iter());
        own.copied()
            .filter(|at| self.index(*at).is_none() && !self.entered.contains(at) && skips(*at))
            .collect()
    }

    /// Decodes the code of branches into the middle of instructions, which may branch and call too.
    fn follow_strays(&mut self, bytes: &[u8]) {
        let mut to_follow: Vec<u64> = self
            .targets
            .iter()
            .copied()
            .filter(|&at| self.index(at).is_none() && !self.past_locks.contains(&at))
            .collect();
        self.strays = !to_follow.is_empty();
        let mut followed: BTreeSet<u64> = BTreeSet::new();
        while let Some(from) = to_follow.pop() {
            let mut at = from;
            while self.span.contains(Addr(at)) && self.index(at).is_none() && followed.insert(at) {
                let offset = usize::try_from(at - self.span.start.0).unwrap_or(usize::MAX);
                let instruction = Decoder::with_ip(
                    64,
                    bytes.get(offset..).unwrap_or_default(),
                    at,
                    DecoderOptions::NONE,
                )
                .decode();
                if instruction.is_invalid() {
                    break;
                }
                match instruction.flow_control() {
                    FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                        let target = instruction.near_branch_target();
                        if self.span.contains(Addr(target))
                            && self.targets.insert(target)
                            && self.index(target).is_none()
                        {
                            to_follow.push(target);
                        }
                    }
                    FlowControl::Call | FlowControl::IndirectCall => {
                        self.returns.insert(instruction.next_ip());
                    }
                    _ => {}
                }
                at = instruction.next_ip();
            }
        }
    }

    fn judge(
        &self,
        callees: &dyn CallEffects,
        reading: Reading,
        info: &mut InstructionInfoFactory,
        instruction: Instruction,
    ) -> DecodedInsn {
        let image = callees.image();
        let (reads, kills, changes) = effects::of(info, &instruction);
        let mut decoded = DecodedInsn {
            instruction,
            reads,
            kills,
            changes,
            runs_on: true,
            leads_to: Few::default(),
            leaves_with: Mask::NONE,
        };
        let target = Addr(instruction.near_branch_target());
        let inside = self.span.contains(target);
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch if inside => {
                decoded.runs_on = false;
                decoded.leads_to.edit(|to| to.push(target.0));
            }
            FlowControl::ConditionalBranch if inside => {
                decoded.leads_to.edit(|to| to.push(target.0));
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                decoded.runs_on = instruction.flow_control() == FlowControl::ConditionalBranch;
                decoded.leaves_with = if image.is_return_thunk(target) {
                    reading.returns_with
                } else {
                    let call = callees.call(target, reading.followed);
                    call.before(reading.returns_with)
                };
            }
            FlowControl::Call => {
                let call = callees.call(target, reading.followed);
                decoded.runs_on = !image.never_returns(target);
                decoded.reads = decoded.reads.union(call.reads);
                decoded.kills = decoded.kills.union(call.kills);
                decoded.changes = decoded.changes.union(if image.keeps_convention(target) {
                    Mask::CLOBBERED
                } else {
                    Mask::ALL
                });
            }
            FlowControl::IndirectCall => {
                (decoded.reads, decoded.kills) = (Mask::ALL, Mask::NONE);
                decoded.changes = Mask::ALL;
            }
            FlowControl::Return => {
                decoded.runs_on = false;
                decoded.leaves_with = if instruction.op_count() == 0 {
                    reading.returns_with
                } else {
                    Mask::ALL
                };
            }
            // decode_bug() of arch/x86/kernel/traps.c continues after this ud1 of a WARN.
            FlowControl::Exception => {
                decoded.runs_on = instruction.code() == Code::Ud1_r64_rm64
                    && (instruction.op0_register(), instruction.memory_base())
                        == (Register::RDI, Register::EDX);
                if decoded.runs_on {
                    // Its report prints arguments of the function.
                    decoded.reads = Mask::ALL;
                }
            }
            FlowControl::IndirectBranch => {
                decoded.runs_on = false;
                decoded.leaves_with = Mask::ALL;
            }
            FlowControl::Interrupt | FlowControl::XbeginXabortXend => {
                // A program's own, after which its handler may continue. A kernel's is padding or a probe.
                let continues = image.origin() == Origin::Object;
                decoded.runs_on = instruction.code() != Code::Int3 || continues;
                decoded.leaves_with = Mask::ALL;
                if instruction.code() == Code::Int3 && continues {
                    // The handler reads and writes what it likes.
                    (decoded.reads, decoded.kills) = (Mask::ALL, Mask::NONE);
                    decoded.changes = Mask::ALL;
                }
                let falls_back = instruction.mnemonic() == Mnemonic::Xbegin && inside;
                decoded
                    .leads_to
                    .edit(|to| to.extend(falls_back.then_some(target.0)));
            }
        }
        self.add_sites(&mut decoded);
        decoded
    }

    /// Adds the effects of fixed sites: other versions of the instruction, and its faults.
    fn add_sites(&self, decoded: &mut DecodedInsn) {
        for site in self.sites_in(decoded.span()) {
            match site.why {
                Why::StaticKey | Why::Exception { .. } => {
                    if matches!(site.why, Why::Exception { .. }) {
                        // The kernel's fault handlers may read any register.
                        decoded.reads = Mask::ALL;
                    }
                    if site.why == Why::StaticKey {
                        decoded.runs_on = true;
                        // Every `asm` clobbers the flags, with labels too.
                        decoded.kills = decoded.kills.union(Mask::FLAGS);
                    }
                    match site.target {
                        Some(target) if self.span.contains(target) => {
                            decoded.leads_to.edit(|to| to.push(target.0));
                        }
                        _ => decoded.leaves_with = Mask::ALL,
                    }
                }
                Why::StaticCall => {
                    // A nop, a jump or a return now; a call of any function later.
                    decoded.reads = Mask::ALL;
                    decoded.kills = Mask::NONE;
                    decoded.changes = Mask::ALL;
                }
                Why::Tracer => {
                    // The tracer's call saves every register.
                    decoded.reads = Mask::ALL;
                    decoded.kills = Mask::NONE;
                    decoded.changes = Mask::NONE;
                }
                Why::Bug { warn } => decoded.runs_on = warn,
                _ => {}
            }
        }
    }

    /// Returns whether a jump of the function to `target` is a return.
    pub(crate) fn is_return(&self, target: u64) -> bool {
        self.thunks.binary_search(&target).is_ok()
    }

    /// Returns the index of the instruction that begins at `at`.
    pub(crate) fn index(&self, at: u64) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&at, DecodedInsn::at)
            .ok()
    }

    /// Returns the index of the instruction that executes from `at` on: without its `lock` prefix, if a branch skips
    /// that, which makes no difference to registers, flags and memory.
    pub(crate) fn executed_from(&self, at: u64) -> Option<usize> {
        let skipped = || {
            self.index(at.checked_sub(1)?)
                .filter(|_| self.past_locks.contains(&at))
        };
        self.index(at).or_else(skipped)
    }

    /// Returns the instructions of a span, if it begins and ends at instruction boundaries.
    pub(crate) fn within(&self, span: Span) -> Option<&[DecodedInsn]> {
        let from = self.index(span.start.0)?;
        let to = if span.end == self.span.end {
            self.instructions.len()
        } else {
            self.index(span.end.0)?
        };
        self.instructions.get(from..to)
    }

    /// Returns the fixed sites that overlap `span`.
    pub(crate) fn sites_in(&self, span: Span) -> impl Iterator<Item = &Fixed> {
        // No instruction is longer than 15 bytes.
        let from = self
            .sites
            .partition_point(|site| site.span.start.add(15) <= span.start);
        let small = self
            .sites
            .iter()
            .skip(from)
            .take_while(move |site| site.span.start < span.end);
        small
            .chain(&self.forbidden)
            .filter(move |site| site.span.overlaps(span))
    }
}
