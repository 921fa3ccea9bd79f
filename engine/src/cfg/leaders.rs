//! Leaders: instructions reached other than by falling through.

use iced_x86::{Code, FlowControl};

use super::decode::{DecodedFunction, FlowAfter, Offsets, Target};
use crate::code::{Function, Why};
use crate::isa::decode::branch_target;
use crate::{Image, Refusal, Rule};

impl DecodedFunction {
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

    /// Finds the leaders: instructions reached other than by falling through.
    pub(super) fn find_leaders(&mut self, image: &Image, offsets: &Offsets) -> Result<(), Refusal> {
        self.enter(0);
        for index in 0..self.flows.len() {
            match self.flows.get(index) {
                Some(
                    FlowAfter::Jump(Target::Inside(to))
                    | FlowAfter::Conditional(Target::Inside(to))
                    | FlowAfter::Key(Target::Inside(to), _),
                ) => {
                    let to = *to;
                    self.lead(to);
                }
                Some(FlowAfter::Next) => {
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
                Refusal::new(
                    Rule::Undecodable,
                    at,
                    "a branch or a pointer from elsewhere targets the middle of an instruction",
                )
            })?;
            self.enter(index);
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
        let mut open: Vec<usize> = known.filter_map(|at| offsets.index(at)).collect();
        open.extend(self.fixups.iter().map(|&(_, fixup)| fixup));
        for index in 0..self.instructions.len() {
            let instruction = self.instructions.get(index);
            if instruction.is_some_and(|instruction| instruction.code() == Code::Endbr64) {
                open.push(index);
                self.enter(index);
            }
        }
        for index in open {
            if let Some(open) = self.open.get_mut(index) {
                *open = true;
            }
        }
    }
}
