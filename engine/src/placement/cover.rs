//! What makes every execution of an instruction one of a copy in a patch.
//!
//! An instruction of a segment is copied by a site there. One that stays, or whose segment takes no
//! splice, may be copied behind every edge that leads to it, if there are no other ways to it: the
//! patches of the instructions that lead there run on with it.

use super::segments::{Number, Outline};
use super::whole::Spread;
use crate::{Refusal, Rule};

/// Instructions that one hook may have copied beyond its sites.
const MOST: usize = 96;

/// What segments take.
#[derive(Clone, Debug, Default)]
pub(super) struct Dead {
    /// By segment: no splice fits, nor is a slot in reach.
    pub(super) segments: Vec<bool>,
    /// Segments, sorted, that hooks can be reached by alone but for an `int3`: they are first to get slots.
    pub(super) needy: Vec<u32>,
    /// Segments, sorted, that have one site at most, for the room behind its splice.
    pub(super) merged: Vec<u32>,
    /// Instructions whose arrivals would need each other.
    pub(super) arrivals: Vec<Number>,
    /// Whether an `int3` is allowed there.
    pub(super) traps: bool,
    /// If the function is relocated whole: what is run in patches then.
    pub(super) whole: Option<Box<Spread>>,
    /// Whether arrivals have sites of their own before them there, for those of the patches would need
    /// each other.
    pub(super) anchored: bool,
}

impl Dead {
    /// Segments of one byte are dead from the beginning.
    pub(super) fn new(outline: &Outline<'_>) -> Self {
        let short = |&segment: &_| outline.room(segment) < super::SHORT_SPLICE_BYTES;
        Self {
            segments: outline.segments.iter().map(short).collect(),
            needy: Vec::new(),
            merged: Vec::new(),
            arrivals: Vec::new(),
            traps: false,
            whole: None,
            anchored: false,
        }
    }

    /// Whether a site can copy the instruction; if the function is relocated whole, whether all
    /// executions are of copies then.
    pub(super) fn reachable(&self, outline: &Outline<'_>, at: Number) -> bool {
        match &self.whole {
            Some(spread) => spread.covers(at),
            None => {
                self.takes_splice(outline, at) || self.traps && outline.segment_of(at).is_some()
            }
        }
    }

    /// Whether a splice fits in the instruction's segment, as far as is known.
    pub(super) fn takes_splice(&self, outline: &Outline<'_>, at: Number) -> bool {
        let segment = outline.segment_of(at);
        let dead = segment.and_then(|segment| self.segments.get(segment as usize));
        dead == Some(&false)
    }
}

/// What has to be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Instructions that a site copies.
    pub(super) copied: Vec<Number>,
    /// Edges behind which every patch with a copy of the first runs on with a copy of the second.
    pub(super) runs: Vec<(Number, Number)>,
    /// Copies behind those edges of more than one instruction: the first, and one past the last.
    pub(super) rows: Vec<(Number, Number)>,
    /// Edges behind which every patch with a copy of the first runs on with what the site that begins
    /// at the second displaces.
    pub(super) past: Vec<(Number, Number)>,
    /// First instructions of sites that wait for others, and may hold nothing that those need.
    pub(super) waiting: Vec<Number>,
    /// The function tracer's site.
    pub(super) tracer: bool,
}

impl Needs {
    /// Adds all of another's.
    pub(super) fn add(&mut self, other: &Self) {
        self.copied.extend(&other.copied);
        self.runs.extend(&other.runs);
        self.rows.extend(&other.rows);
        self.past.extend(&other.past);
        self.waiting.extend(&other.waiting);
        self.tracer |= other.tracer;
    }
}

/// A search for what covers instructions.
pub(super) struct Cover<'o, 'a> {
    outline: &'o Outline<'a>,
    dead: &'o Dead,
    seen: Vec<Number>,
    pub(super) needs: Needs,
}

impl<'o, 'a> Cover<'o, 'a> {
    pub(super) fn new(outline: &'o Outline<'a>, dead: &'o Dead) -> Self {
        Self {
            outline,
            dead,
            seen: Vec::new(),
            needs: Needs::default(),
        }
    }

    /// Sees to it that every execution of the instruction is one of a copy.
    ///
    /// # Errors
    /// The rule that keeps the last of the instructions on some way there in the text.
    pub(super) fn instruction(&mut self, at: Number) -> Result<(), Refusal> {
        if self.seen.contains(&at) {
            return Ok(());
        }
        self.seen.push(at);
        let here = self.outline.start(at);
        if self.seen.len() > MOST {
            return Err(Refusal::new(
                Rule::TooFar,
                here,
                format!("more than {MOST} instructions would have to be copied to reach it"),
            ));
        }
        if self.dead.reachable(self.outline, at) {
            self.needs.copied.push(at);
            return Ok(());
        }
        if self.outline.tracer == Some(at) {
            self.needs.tracer = true;
            return Ok(());
        }
        if !self.outline.copyable(at) {
            return Err(self.refusal(at));
        }
        for from in self.outline.ways(at)? {
            self.leaving(from)?;
            self.needs.runs.push((from, at));
        }
        Ok(())
    }

    /// Sees to it that whatever runs behind the instruction comes from a copy.
    ///
    /// # Errors
    /// As [`Self::instruction`], and if the instruction is a call, which returns to the text.
    pub(super) fn leaving(&mut self, from: Number) -> Result<(), Refusal> {
        if self.outline.returns(from) {
            return Err(Refusal::new(
                Rule::PostAfterCall,
                self.outline.start(from),
                "what is behind this call is returned to in the text",
            ));
        }
        self.instruction(from)
    }

    /// Why no site copies the instruction.
    pub(super) fn refusal(&self, at: Number) -> Refusal {
        refusal(self.outline, at)
    }
}

/// Why no site copies an instruction.
pub(super) fn refusal(outline: &Outline<'_>, at: Number) -> Refusal {
    let room = (outline
        .segment_of(at)
        .and_then(|segment| outline.segment(segment)))
    .map(|segment| outline.room(segment));
    match room {
        Some(room) if room < super::SHORT_SPLICE_BYTES => Refusal {
            rule: Rule::BlockTooShort,
            at: outline.start(at),
            why: "only one byte can be written here, and a splice needs two".to_owned(),
        },
        Some(room) => Refusal {
            rule: Rule::NoSlot,
            at: outline.start(at),
            why: format!(
                "only {room} bytes can be written here, and a two-byte splice finds no room for a bounce in its reach"
            ),
        },
        None => outline.refusal(at).unwrap_or(Refusal::new(
            Rule::NothingToDisplace,
            outline.start(at),
            "there is no instruction that could be displaced",
        )),
    }
}
