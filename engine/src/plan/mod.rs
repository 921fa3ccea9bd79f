//! Instruments and times → splices, patches, and the ordered batches that install and remove them.

mod batches;
mod build;
mod patches;
pub mod report;
mod schedule;
#[cfg(test)]
mod tests;

use gilk_instruments::Definition;

use crate::cfg::Cfg;
use crate::layout::{CounterSlot, RuntimeLayout};
use crate::patch::Piece;
use crate::placement::Site;
use crate::{Addr, InstrumentId};

pub use build::plan;
pub use patches::PATCH_ALIGN;

/// A session worked out for one image and one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// `uname -r` of the kernel it was made for.
    pub release: String,
    /// Seconds from the start to the end; the last batch is not later.
    pub duration: f64,
    /// What the generated code was made for.
    pub layout: RuntimeLayout,
    /// The functions touched; the index is the major number.
    pub functions: Vec<PlannedFunction>,
    /// The instruments, in the order of the session's placements.
    pub instruments: Vec<PlannedInstrument>,
    /// Every version of every code patch, in order of address; never freed or changed while the
    /// session lasts.
    pub patches: Vec<Patch>,
    /// In order of time; no two at the same time, none without pokes.
    pub batches: Vec<Batch>,
}

/// A function with instruments.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFunction {
    /// Its number in instrument identifiers.
    pub major: u32,
    /// Kernel symbol.
    pub name: String,
    /// Its graph.
    pub cfg: Cfg,
}

/// An instrument of the session.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedInstrument {
    /// What its samples carry.
    pub id: InstrumentId,
    /// Index in the session's placements.
    pub placement: usize,
    /// The instrument of the library.
    pub definition: Definition,
    /// Seconds from the start.
    pub launch: f64,
    /// Seconds from the start.
    pub splash: f64,
    /// Its counter, if it counts; no two instruments have the same.
    pub counter: Option<CounterSlot>,
    /// The splice that leads to it.
    pub site: Site,
    /// The timer of the thread that it starts or stops.
    pub timer: u8,
}

/// One version of a site's code patch: what runs there for one set of instruments.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The site.
    pub site: Site,
    /// Where the code goes: in the arena, 16-byte aligned.
    pub address: Addr,
    /// The code.
    pub code: Vec<u8>,
    /// What its stretches are.
    pub pieces: Vec<Piece>,
    /// Instruments before the relocated sequence, in order.
    pub pre: Vec<InstrumentId>,
    /// Instruments behind its sequential part, in order.
    pub post: Vec<InstrumentId>,
}

/// What changes at one time, all or nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Seconds from the start.
    pub at: f64,
    /// Writes in order of address; they do not overlap.
    pub pokes: Vec<Poke>,
    /// Instruments that begin, in the order of the session.
    pub launched: Vec<InstrumentId>,
    /// Instruments that end, in the order of the session.
    pub splashed: Vec<InstrumentId>,
}

/// One write of text: five bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poke {
    /// Where.
    pub at: Addr,
    /// What must stand there before.
    pub expect: Vec<u8>,
    /// What is written; as long as `expect` and different from it.
    pub write: Vec<u8>,
    /// Why.
    pub kind: PokeKind,
    /// Index of the patch in whose favour a thread is diverted while the bytes change: the new one
    /// (install, retarget), or the one left (remove).
    pub patch: usize,
    /// Instructions that are overwritten (install) or put back (remove); more than one needs
    /// waiting. A retarget overwrites one: the splice itself.
    pub overwritten: u32,
}

/// Why text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PokeKind {
    /// A splice over original bytes.
    Install,
    /// A splice to another version of the patch.
    Retarget,
    /// The original bytes again.
    Remove,
}

impl Plan {
    /// The planned instrument of that identifier.
    #[must_use]
    pub fn instrument(&self, id: InstrumentId) -> Option<&PlannedInstrument> {
        self.instruments
            .iter()
            .find(|instrument| instrument.id == id)
    }

    /// The function of that major number.
    #[must_use]
    pub fn function(&self, major: u32) -> Option<&PlannedFunction> {
        self.functions.get(usize::try_from(major).ok()?)
    }
}
