//! Sites and continuations that make every execution of an instruction one of its copies.
//!
//! An instruction of a segment is copied by a site there. One that stays, or whose segment hosts no splice,
//! may be copied after every edge that targets it, if control reaches it in no other way: the patches of
//! its predecessors continue with it.

use super::availability::{Availability, refusal};
use super::body::Body;
use super::ids::{InsnId, InsnRange};
use super::tactic::Tactic;
use crate::{Refusal, Rule};

/// Maximum number of instructions that are copied for one hook in addition to those of its sites.
const MAX_COPIED: usize = 96;

/// Sites and copies that hooks depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requirements {
    /// Instructions that a site copies.
    pub(super) copied: Vec<InsnId>,
    /// Edges after which every patch with a copy of the first continues with a copy of the second.
    pub(super) continued: Vec<(InsnId, InsnId)>,
    /// Copies of more than one instruction after those edges.
    pub(super) rows: Vec<InsnRange>,
    /// Edges after which every patch with a copy of the first continues with the displaced instructions of
    /// the site that begins at the second: control is diverted around that site's splice.
    pub(super) diverted: Vec<(InsnId, InsnId)>,
    /// First instructions of sites that depend on others, and may host nothing that those depend on.
    pub(super) waiting: Vec<InsnId>,
    /// True if the function tracer's site is required.
    pub(super) tracer: bool,
}

impl Requirements {
    /// Those of a single site's copy.
    pub(super) fn copy_of(at: InsnId) -> Self {
        Self {
            copied: vec![at],
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.copied.extend(&other.copied);
        self.continued.extend(&other.continued);
        self.rows.extend(&other.rows);
        self.diverted.extend(&other.diverted);
        self.waiting.extend(&other.waiting);
        self.tracer |= other.tracer;
    }

    /// Sorts all lists and removes duplicates.
    pub(super) fn normalize(&mut self) {
        for list in [&mut self.continued, &mut self.diverted] {
            list.sort_unstable();
            list.dedup();
        }
        for list in [&mut self.copied, &mut self.waiting] {
            list.sort_unstable();
            list.dedup();
        }
        self.rows.sort_unstable();
        self.rows.dedup();
    }
}

/// A search for the copies that cover instructions.
pub(super) struct Cover<'o, 'a> {
    body: &'o Body<'a>,
    available: &'o Availability,
    visited: Vec<InsnId>,
    pub(super) requirements: Requirements,
}

impl<'o, 'a> Cover<'o, 'a> {
    pub(super) fn new(body: &'o Body<'a>, available: &'o Availability) -> Self {
        Self {
            body,
            available,
            visited: Vec::new(),
            requirements: Requirements::default(),
        }
    }

    /// Ensures that every execution of the instruction is one of a copy.
    ///
    /// # Errors
    /// The rule that keeps the last instruction of some path to it in the original code.
    pub(super) fn instruction(&mut self, at: InsnId) -> Result<(), Refusal> {
        if self.visited.contains(&at) {
            return Ok(());
        }
        self.visited.push(at);
        if self.visited.len() > MAX_COPIED {
            return Err(Refusal::new(
                Rule::TooFar,
                self.body.start(at),
                format!("more than {MAX_COPIED} instructions would have to be copied to reach it"),
            ));
        }
        if self.available.reaches(self.body, at) {
            self.requirements.copied.push(at);
            return Ok(());
        }
        if self.body.tracer == Some(at) && self.available.tactics.has(Tactic::Tracer) {
            self.requirements.tracer = true;
            return Ok(());
        }
        if !self.body.is_copyable(at) {
            return Err(refusal(self.body, at));
        }
        for from in self.body.predecessors(at)? {
            self.leaving(from)?;
            self.requirements.continued.push((from, at));
        }
        Ok(())
    }

    /// Ensures that every successor of the instruction is reached from a copy.
    ///
    /// # Errors
    /// As [`Self::instruction`], and if the instruction is a call, which returns to the original code.
    pub(super) fn leaving(&mut self, from: InsnId) -> Result<(), Refusal> {
        if self.body.is_call(from) {
            return Err(Refusal::new(
                Rule::PostAfterCall,
                self.body.start(from),
                "the callee returns to the original code after this call",
            ));
        }
        self.instruction(from)
    }
}
