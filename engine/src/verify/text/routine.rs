//! A function as its bytes say it: decoded from its start, with every place control may come to.
//!
//! Nothing here is taken from the planner's graph. From the image come the bytes, the kernel's
//! own sites (static keys, exception entries, …) and the addresses that other code leads to.

use crate::verify::reason::Reason;
use std::collections::BTreeSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
};

use super::call::{CallEffects, FOLLOWED};
use super::decoded::Decoded;
use super::effects::{self, Mask};
use crate::image::{Function, Site, SiteKind};
use crate::{Addr, Few, Span};

/// A function of the image.
#[derive(Clone, Debug)]
pub(crate) struct Routine {
    pub(crate) name: String,
    pub(crate) span: Span,
    /// In order of address.
    pub(crate) instructions: Vec<Decoded>,
    /// Every address inside that control may come to other than from the instruction before it.
    pub(crate) targets: BTreeSet<u64>,
    /// Those of them that code or data outside leads to.
    pub(crate) entered: BTreeSet<u64>,
    /// Where calls return to.
    pub(crate) returns: BTreeSet<u64>,
    /// The kernel's own sites of one instruction, by address.
    pub(crate) sites: Vec<Site>,
    /// What of it the kernel forbids probes in.
    forbidden: Vec<Site>,
    /// A branch leads into the middle of an instruction: some code is decoded twice.
    pub(crate) strays: bool,
    /// Whether it is compiled C that keeps the calling convention.
    pub(crate) compiled: bool,
    /// Where its jumps to return thunks lead: sorted.
    thunks: Vec<u64>,
}

/// As what a function is read.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// What may be used of what its returns leave.
    pub(crate) returns_with: Mask,
    /// How many calls deep callees are read.
    pub(crate) followed: u8,
}

/// The three bytes that come next.
fn behind(bytes: &[u8], decoder: &Decoder<'_>) -> Option<[u8; 3]> {
    bytes.get(decoder.position()..)?.first_chunk().copied()
}

impl Routine {
    /// Decodes a function that may be called by anyone.
    ///
    /// # Errors
    /// Where and why it does not decode.
    pub(crate) fn read(
        callees: &dyn CallEffects,
        function: &Function,
    ) -> Result<Self, (Addr, Reason)> {
        let returns_with = if callees.image().is_compiled(function.span.start) {
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
    /// Where and why it does not decode.
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
        let (forbidden, mut sites): (Vec<Site>, Vec<Site>) = image
            .sites()
            .overlapping(span)
            .partition(|site| site.kind == SiteKind::Blacklist);
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
            strays: false,
            compiled: image.is_compiled(span.start),
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
                // Compiled code keeps nothing in the flags across a call of anything: an `asm`
                // statement clobbers them and cannot take them in. Only inside of one statement can
                // they be passed: `popf; call`, as KVM's emulator does.
                decoded.reads = decoded.reads.without(Mask::FLAGS);
                decoded.kills = decoded.kills.union(Mask::FLAGS);
            }
            if instruction.code() == Code::Int3
                && let Some(before) = routine.instructions.last_mut()
                && before.is_call()
            {
                // Nothing was compiled to run behind this call.
                before.runs_on = false;
            }
            if instruction.code() == Code::Ud2
                && behind(bytes, &decoder).is_some_and(|name| name == *b"xen" || name == *b"kvm")
            {
                // A hypervisor emulates the instruction behind the three letters
                // (arch/x86/include/asm/xen/prefix.h): they are no instruction.
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
        routine.follow_strays(bytes);
        // There may be all functions of a kernel.
        routine.instructions.shrink_to_fit();
        Ok(routine)
    }

    fn ends_in_popf(&self) -> bool {
        self.instructions
            .last()
            .is_some_and(|last| last.instruction.mnemonic() == Mnemonic::Popfq)
    }

    fn is_static_call(&self, decoded: &Decoded) -> bool {
        self.sites_in(decoded.span())
            .any(|site| site.kind == SiteKind::StaticCall)
    }

    /// A branch into the middle of an instruction runs bytes that were decoded otherwise: decodes
    /// them from there too, for they may branch and call.
    fn follow_strays(&mut self, bytes: &[u8]) {
        let mut to_follow: Vec<u64> = self
            .targets
            .iter()
            .copied()
            .filter(|&at| self.index(at).is_none())
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
    ) -> Decoded {
        let image = callees.image();
        let (reads, kills, changes) = effects::of(info, &instruction);
        let mut decoded = Decoded {
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
                decoded.changes = decoded.changes.union(if image.is_compiled(target) {
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
            FlowControl::Exception => decoded.runs_on = false,
            FlowControl::IndirectBranch => {
                decoded.runs_on = false;
                decoded.leaves_with = Mask::ALL;
            }
            FlowControl::Interrupt | FlowControl::XbeginXabortXend => {
                decoded.runs_on = instruction.code() != Code::Int3;
                decoded.leaves_with = Mask::ALL;
                let falls_back = instruction.mnemonic() == Mnemonic::Xbegin && inside;
                decoded
                    .leads_to
                    .edit(|to| to.extend(falls_back.then_some(target.0)));
            }
        }
        self.add_sites(&mut decoded);
        decoded
    }

    /// What the kernel makes of the instruction at other times, or when it faults.
    fn add_sites(&self, decoded: &mut Decoded) {
        for site in self.sites_in(decoded.span()) {
            match site.kind {
                SiteKind::StaticKey | SiteKind::Exception { .. } => {
                    if matches!(site.kind, SiteKind::Exception { .. }) {
                        // The kernel's handlers of a fault may read any register.
                        decoded.reads = Mask::ALL;
                    }
                    if site.kind == SiteKind::StaticKey {
                        decoded.runs_on = true;
                        // Every `asm` clobbers the flags, one with labels too.
                        decoded.kills = decoded.kills.union(Mask::FLAGS);
                    }
                    match site.target {
                        Some(target) if self.span.contains(target) => {
                            decoded.leads_to.edit(|to| to.push(target.0));
                        }
                        _ => decoded.leaves_with = Mask::ALL,
                    }
                }
                SiteKind::StaticCall => {
                    // A nop, a jump or a return now; a call of anything later.
                    decoded.reads = Mask::ALL;
                    decoded.kills = Mask::NONE;
                    decoded.changes = Mask::ALL;
                }
                SiteKind::Ftrace => {
                    // The tracer's call saves every register.
                    decoded.reads = Mask::ALL;
                    decoded.kills = Mask::NONE;
                    decoded.changes = Mask::NONE;
                }
                SiteKind::Bug { warn } => decoded.runs_on = warn,
                _ => {}
            }
        }
    }

    /// Whether a jump of the function there is a return.
    pub(crate) fn is_return(&self, target: u64) -> bool {
        self.thunks.binary_search(&target).is_ok()
    }

    /// The number of the instruction that begins at `at`.
    pub(crate) fn index(&self, at: u64) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&at, Decoded::at)
            .ok()
    }

    /// The instructions of a span, if it begins and ends on boundaries.
    pub(crate) fn within(&self, span: Span) -> Option<&[Decoded]> {
        let from = self.index(span.start.0)?;
        let to = if span.end == self.span.end {
            self.instructions.len()
        } else {
            self.index(span.end.0)?
        };
        self.instructions.get(from..to)
    }

    /// The kernel's own sites that have a byte in `span`.
    pub(crate) fn sites_in(&self, span: Span) -> impl Iterator<Item = &Site> {
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
