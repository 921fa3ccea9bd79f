//! Where control comes to other than from the instruction before.

use iced_x86::{Code, FlowControl};

use super::decode::{Decoded, Flow, Offsets, Target};
use crate::code::{Function, Why};
use crate::isa::decode::branch_target;
use crate::{Image, Refusal, Rule};

impl Decoded {
    pub(super) fn lead(&mut self, index: usize) {
        if let Some(leader) = self.leaders.get_mut(index) {
            *leader = true;
        }
    }

    fn enter(&mut self, index: usize) {
        self.lead(index);
        if let Some(entered) = self.entered.get_mut(index) {
            *entered = true;
        }
    }

    /// Where control comes to other than from the instruction before.
    pub(super) fn find_leaders(&mut self, image: &Image, offsets: &Offsets) -> Result<(), Refusal> {
        self.enter(0);
        for index in 0..self.flows.len() {
            match self.flows.get(index) {
                Some(
                    Flow::Jump(Target::Inside(to))
                    | Flow::Conditional(Target::Inside(to))
                    | Flow::Key(Target::Inside(to), _),
                ) => {
                    let to = *to;
                    self.lead(to);
                }
                Some(Flow::Next) => {
                    // A call into the function itself, as thunks do to push an address.
                    let call = self
                        .instructions
                        .get(index)
                        .filter(|instruction| instruction.flow_control() == FlowControl::Call);
                    if let Some(to) = call
                        .and_then(branch_target)
                        .and_then(|to| offsets.index(to))
                    {
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
                Refusal::new(Rule::Undecodable, at, "control or a table from elsewhere leads there, to the middle of an instruction")
            })?;
            self.enter(index);
        }
        Ok(())
    }

    /// Where control comes from nobody knows where: the entry, what pointers and fixups lead to, what
    /// bears the processor's mark for indirect branches, and the point behind the function tracer's
    /// site, to which trampolines jump.
    pub(super) fn find_open(&mut self, image: &Image, function: &Function, offsets: &Offsets) {
        let entry = (!function.is_part()).then_some(function.span.start);
        let traced = image
            .fixed()
            .overlapping(function.span)
            .filter(|site| site.why == Why::Tracer)
            .map(|site| site.span.end);
        let pointed = image.pointed_at(function.span).iter().copied();
        let known = entry.into_iter().chain(traced).chain(pointed);
        let mut open: Vec<usize> = known.filter_map(|at| offsets.index(at)).collect();
        open.extend(self.fixups.iter().map(|&(_, fixup)| fixup));
        for (index, instruction) in self.instructions.iter().enumerate() {
            if instruction.code() == Code::Endbr64 {
                open.push(index);
                self.leaders
                    .get_mut(index)
                    .into_iter()
                    .for_each(|leader| *leader = true);
                self.entered
                    .get_mut(index)
                    .into_iter()
                    .for_each(|entered| *entered = true);
            }
        }
        for index in open {
            if let Some(open) = self.open.get_mut(index) {
                *open = true;
            }
        }
    }
}
