//! Whole function: the original code is left for patches at every entrance, and control stays in them
//! until it leaves the function.
//!
//! A call keeps its original return address, so control returns to the original code after every call; it
//! enters it too at the function's entry, where other functions branch or pointers point, and after
//! instructions that no patch may execute. These are the **entrances**. A site stands at each of them from
//! which a requested instruction can be reached, and its patch continues over all edges with copies, loops
//! included, up to a call, a return, a branch out of the function, or an instruction that stays. A call executes
//! in the original code unless a site displaces its bytes. So a pass
//! through the function costs a jump for each entrance on the way, however many blocks have hooks.
//!
//! - Applies where the session or [`Comparison::cheaper`](crate::placement::Comparison::cheaper) chooses it,
//!   to hooks whose instructions execute in patches alone. An entrance that hosts no splice leaves the code
//!   after it in the original, up to the next entrance: hooks there cannot be reached so.
//! - Writes the splices of the entrances.
//! - Waits as these sites do.
//!
//! Parts of a function elsewhere (`.cold`) are left and entered like other functions: the original code may
//! still branch there.

use super::search::HookEvent;
use crate::ids::{Id, Ids};
use crate::placement::availability::{Availability, refusal};
use crate::placement::body::Body;
use crate::placement::cover::Requirements;
use crate::placement::draft::Draft;
use crate::placement::ids::{InsnId, InsnRange};
use crate::placement::spread::Spread;
use crate::placement::tactic::Tactic;
use crate::{Refusal, Rule};

/// Maximum bytes of original code in the patches of one function, displaced or after edges.
const MAX_BYTES: u64 = 64 << 10;

/// The computation of a [`Spread`] by a worklist.
struct SpreadSearch<'s, 'a> {
    body: &'s Body<'a>,
    available: &'s Availability,
    spread: Spread,
    /// Instructions to continue from, and whether a copy executes.
    worklist: Vec<(InsnId, bool)>,
}

impl Spread {
    /// Follows control from all its entries into the function.
    pub(in crate::placement) fn of(body: &Body<'_>, available: &Availability) -> Self {
        let none: Ids<InsnId, bool> = body.insns().iter().map(|_| false).collect();
        let mut search = SpreadSearch {
            body,
            available,
            spread: Self {
                copied: none.clone(),
                original: none,
                ..Self::default()
            },
            worklist: Vec::new(),
        };
        for at in body.insns().iter().filter(|&at| body.begins_block(at)) {
            let is_reachable = |refusal: Refusal| refusal.rule != Rule::Unreached;
            if body.is_entry(at) || body.predecessors(at).is_err_and(is_reachable) {
                search.enter(at);
            }
        }
        while let Some((at, copy)) = search.worklist.pop() {
            search.continue_from(at, copy);
        }
        let mut spread = search.spread;
        spread.entrances.sort_unstable();
        spread.entrances.dedup();
        // An instruction whose original is executed anyway is left to it, so that each executes in one of
        // the two.
        let original = &spread.original;
        spread
            .edges
            .retain(|&(from, to)| !original[from] && !original[to]);
        spread.edges.sort_unstable();
        spread.edges.dedup();
        spread
    }

    fn next(&self, from: InsnId) -> impl Iterator<Item = InsnId> {
        let first = self.edges.partition_point(|edge| edge.0 < from);
        let rest = self.edges.iter().skip(first);
        rest.take_while(move |edge| edge.0 == from)
            .map(|edge| edge.1)
    }

    fn continues(&self, from: InsnId, to: InsnId) -> bool {
        self.edges.binary_search(&(from, to)).is_ok()
    }

    /// Replaces the instructions to be copied by the entrances whose patches copy them, and adds the
    /// continuations of these patches.
    ///
    /// # Errors
    /// [`Rule::TooFar`] if the copies would take too many bytes.
    pub(in crate::placement) fn complete<'e>(
        &self,
        body: &Body<'_>,
        available: &Availability,
        events: impl Iterator<Item = &'e HookEvent>,
        requirements: &mut Requirements,
    ) -> Result<(), Refusal> {
        let edges = requirements.continued.iter().chain(&requirements.diverted);
        let sources = edges.map(|edge| edge.0);
        let copied = requirements.copied.iter().copied();
        let mut targets: Vec<InsnId> = sources.chain(copied).collect();
        targets.retain(|&at| self.covers(at));
        let reaching = self.reaching(&targets);
        let mut entrances: Vec<InsnId> = self.entrances.clone();
        entrances.retain(|&at| reaching[at]);
        let reached = self.reached_from(body, &entrances)?;
        requirements.copied.retain(|&at| !self.covers(at));
        for &at in &entrances {
            if body.tracer == Some(at) {
                requirements.tracer = true;
            } else {
                requirements.copied.push(at);
            }
        }
        // A thread that executes the original code must be diverted around an arrival site, and an edge from one
        // part of a function to another must not be taken in the original code.
        let diverted = requirements.diverted.iter().copied();
        let mut anchors: Vec<InsnId> = diverted
            .filter(|&(from, to)| available.anchored || body.crosses(from, to))
            .map(|edge| edge.0)
            .collect();
        for event in events {
            if let HookEvent::On(edges) = event {
                let crosses = |from, to| {
                    let to = body.starting_at(to);
                    to.is_some_and(|to| body.crosses(from, to))
                };
                let crossing = edges.iter().filter(|&&(from, to)| crosses(from, to));
                anchors.extend(crossing.map(|edge| edge.0));
            }
        }
        for from in anchors {
            if !available.hosts(body, from) {
                return Err(refusal(body, from));
            }
            requirements.copied.push(from);
        }
        for &(from, to) in &self.edges {
            if reached[from] && body.begins_block(to) {
                requirements.continued.push((from, to));
                requirements.rows.push(self.row(body, to));
            }
        }
        requirements.normalize();
        Ok(())
    }

    /// The instructions that patches have in a row from `first` in its block.
    fn row(&self, body: &Body<'_>, first: InsnId) -> InsnRange {
        let mut row = InsnRange::one(first);
        while body.insns().contains(row.end)
            && !body.begins_block(row.end)
            && self.continues(row.last(), row.end)
        {
            row.end = row.end.next();
        }
        row
    }

    /// Continuations after sites whose displaced instructions end inside a block: the last displaced
    /// instruction, and the row after it.
    pub(in crate::placement) fn ends(
        &self,
        body: &Body<'_>,
        drafts: &[Draft],
    ) -> Vec<(InsnId, InsnRange)> {
        let ranges = drafts.iter().map(|draft| draft.range);
        let inside = ranges.filter(|range| {
            let end = range.end;
            body.insns().contains(end)
                && !body.begins_block(end)
                && self.continues(range.last(), end)
        });
        inside
            .map(|range| (range.last(), self.row(body, range.end)))
            .collect()
    }

    /// Computes from which instructions control reaches one of `targets` in patches.
    fn reaching(&self, targets: &[InsnId]) -> Ids<InsnId, bool> {
        let mut back: Vec<(InsnId, InsnId)> =
            self.edges.iter().map(|&(from, to)| (to, from)).collect();
        back.sort_unstable();
        let mut reaching = Ids::like(&self.copied, false);
        let mut worklist = targets.to_vec();
        while let Some(at) = worklist.pop() {
            if std::mem::replace(&mut reaching[at], true) {
                continue;
            }
            let first = back.partition_point(|edge| edge.0 < at);
            let edges = back.iter().skip(first).take_while(|edge| edge.0 == at);
            worklist.extend(edges.map(|edge| edge.1));
        }
        reaching
    }

    /// Computes the instructions that the patches of these sites copy.
    fn reached_from(
        &self,
        body: &Body<'_>,
        sites: &[InsnId],
    ) -> Result<Ids<InsnId, bool>, Refusal> {
        let mut reached = Ids::like(&self.copied, false);
        // The last site from which the instruction was visited.
        let mut visited = Ids::like(&self.copied, None);
        let mut bytes = 0;
        for &site in sites {
            let mut worklist = vec![site];
            while let Some(at) = worklist.pop() {
                if visited[at].replace(site) == Some(site) {
                    continue;
                }
                reached[at] = true;
                bytes += body.span(InsnRange::one(at)).len();
                worklist.extend(self.next(at));
            }
            if bytes > MAX_BYTES {
                let why = format!(
                    "its patches would have more than {} KiB of copies of its code",
                    MAX_BYTES >> 10
                );
                let start = body.start(InsnId::new(0));
                return Err(Refusal::new(Rule::TooFar, start, why));
            }
        }
        Ok(reached)
    }
}

impl SpreadSearch<'_, '_> {
    /// Control reaches the instruction in the original code.
    fn enter(&mut self, at: InsnId) {
        let body = self.body;
        let segment = body.segment_of(at).map(|segment| body.segments[segment]);
        let is_first = segment.is_some_and(|segment| segment.range.first == at);
        let is_traced = body.tracer == Some(at) && self.tracer_helps(at.next());
        if is_traced || is_first && self.available.hosts(body, at) {
            self.spread.entrances.push(at);
            if is_traced {
                self.continue_from(at, true);
            } else {
                self.copy(at);
            }
        } else if !std::mem::replace(&mut self.spread.original[at], true) {
            self.worklist.push((at, false));
        }
    }

    /// Returns whether the instruction after the tracer's site can execute in a patch only by its callback.
    fn tracer_helps(&self, next: InsnId) -> bool {
        let body = self.body;
        self.available.tactics.has(Tactic::Tracer)
            && body.insns().contains(next)
            && !body.begins_block(next)
            && !self.available.hosts(body, next)
            && body.is_executable(next)
    }

    /// A patch copies the instruction.
    fn copy(&mut self, at: InsnId) {
        if !std::mem::replace(&mut self.spread.copied[at], true) {
            self.worklist.push((at, true));
        }
    }

    fn continue_from(&mut self, at: InsnId, copy: bool) {
        let body = self.body;
        let copy = copy && !body.is_call(at);
        for to in body.next(at) {
            // Emulated, a static call would end the copy where the original may fall through: it stays.
            let stays = body.stays(to) == Some(Rule::StaticCall);
            if copy && !stays && body.is_executable(to) && !body.crosses(at, to) {
                self.spread.edges.push((at, to));
                self.copy(to);
            } else {
                self.enter(to);
            }
        }
    }
}
