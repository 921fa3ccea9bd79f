//! Leaders: instructions reached other than by falling through, and static probes, at which hooks are wanted.

use iced_x86::{Code, FlowControl};

use super::decode::{DecodedFunction, FlowAfter, InsnIndex, Offsets, Target};
use crate::code::{Function, Why};
use crate::isa::decode::branch_target;
use crate::{Image, Refusal, Rule};

impl DecodedFunction {
    fn enter(&mut self, index: InsnIndex) {
        self.insns[index].leader = true;
        self.insns[index].entered = true;
    }

    /// Makes a block of the one instruction of which a branch skips the `lock` prefix: what is hooked before and after
    /// it then has the one or the other.
    fn skip_lock(&mut self, index: InsnIndex) {
        self.insns[index].leader = true;
        self.insns[index].skipped = true;
        if let Some(next) = self.insns.find_mut(index.next()) {
            next.leader = true;
        }
    }

    /// Finds the leaders: instructions reached other than by falling through, and static probes.
    pub(super) fn find_leaders(&mut self, image: &Image, offsets: &Offsets) -> Result<(), Refusal> {
        if let Some(first) = self.insns.keys().next() {
            self.enter(first);
        }
        for index in self.insns.keys() {
            let insn = &self.insns[index];
            match insn.flow {
                FlowAfter::Jump(Target::Inside(to))
                | FlowAfter::Conditional(Target::Inside(to))
                | FlowAfter::Key(Target::Inside(to), _) => self.insns[to].leader = true,
                FlowAfter::Jump(Target::PastLock(to))
                | FlowAfter::Conditional(Target::PastLock(to))
                | FlowAfter::Key(Target::PastLock(to), _) => self.skip_lock(to),
                // A call into the function itself, as thunks do to push an address.
                FlowAfter::Next if insn.instruction.flow_control() == FlowControl::Call => {
                    let to = branch_target(&insn.instruction);
                    if let Some(to) = to.and_then(|to| offsets.index(to)) {
                        self.enter(to);
                    }
                }
                _ => {}
            }
        }
        for (_, fixup) in self.fixups.clone() {
            self.enter(fixup);
        }
        for &at in image.entered(offsets.span) {
            let index = offsets.index(at).ok_or_else(|| {
                Refusal::new(
                    Rule::Undecodable,
                    at,
                    "a branch or a pointer from elsewhere targets the middle of an instruction",
                )
            })?;
            self.enter(index);
        }
        for probe in image.probes_in(offsets.span) {
            // A note that names the middle of an instruction has no hook.
            if let Some(index) = offsets.index(probe.at) {
                self.insns[index].leader = true;
            }
        }
        Ok(())
    }

    /// Finds instructions with entries from unknown sources: the entry, targets of pointers, fixups,
    /// `endbr64`, and the instruction after the function tracer's site, to which trampolines jump.
    pub(super) fn find_open(&mut self, image: &Image, function: &Function, offsets: &Offsets) {
        let entry = (!function.is_part()).then_some(function.span.start);
        let traced = image
            .fixed()
            .overlapping(function.span)
            .filter(|site| site.why == Why::Tracer)
            .map(|site| site.span.end);
        let pointed = image.pointed_at(function.span).iter().copied();
        let known = entry.into_iter().chain(traced).chain(pointed);
        let mut open: Vec<InsnIndex> = known.filter_map(|at| offsets.index(at)).collect();
        open.extend(self.fixups.iter().map(|&(_, fixup)| fixup));
        for index in self.insns.keys() {
            if self.insns[index].instruction.code() == Code::Endbr64 {
                open.push(index);
                self.enter(index);
            }
        }
        for index in open {
            self.insns[index].open = true;
        }
    }
}
