//! Instruments and times → splices, patches, and the ordered batches that install and remove them.

mod arguments;
mod batches;
mod build;
mod bytes;
mod dependences;
mod exits;
mod functions;
mod jumps;
mod names;
mod natives;
mod notes;
mod numbered;
mod patches;
mod places;
mod probes;
pub mod report;
mod schedule;
mod stage;
#[cfg(test)]
mod tests;
mod way;

use std::sync::Arc;

use gilk_instruments::Definition;

use crate::cfg::Outline;
use crate::layout::{CounterSlot, RuntimeLayout};
use crate::native::NativeCode;
use crate::patch::{Piece, Pieces, Probed, Recovery};
use crate::placement::{Bounce, BounceIndex, Comparison, Point, Site, SiteIndex, Style, Tactic};
use crate::unwind::Row;
use crate::{Addr, Few, InstrumentId};

#[cfg(test)]
pub(crate) use build::plan_placed;
pub use build::{plan, plan_watched};
pub use bytes::PokeBytes;
pub use notes::Note;
pub use patches::PATCH_ALIGN;
#[cfg(test)]
pub(crate) use patches::faults;
pub use stage::{Stage, Watch};

/// Writes of text that the driver carries out in one batch, at most (`ILK_MAX_POKES` in
/// `ilk-driver/kmod/ilk_abi.h`).
pub const MAX_POKES: usize = 1 << 20;

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
    /// Every splice there ever is, by address.
    pub sites: Vec<Site>,
    /// Every bounce there ever is, by address.
    pub bounces: Vec<Bounce>,
    /// What must be in place before what, whenever both are: sorted. An acyclic graph.
    pub dependences: Vec<Dependence>,
    /// Every version of every code patch, in order of address; never freed or changed while the
    /// session lasts.
    pub patches: Vec<Patch>,
    /// Instructions of patches that may fault, by address.
    pub faults: Vec<PatchFault>,
    /// Code that patches call: object files' instruments, below all patches.
    pub natives: Vec<NativeCode>,
    /// In order of time; no two at the same time, none without pokes.
    pub batches: Vec<Batch>,
    /// What a person should know of it, by placement.
    pub notes: Vec<Note>,
}

/// A function with instruments.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFunction {
    /// Its number in instrument identifiers.
    pub major: u32,
    /// Kernel symbol.
    pub name: String,
    /// Its blocks and edges.
    pub outline: Outline,
    /// How its hooks are reached: in place or whole.
    pub style: Style,
    /// What both styles cost, where both were looked at.
    pub compared: Option<Box<Comparison>>,
}

/// An instrument of the session.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedInstrument {
    /// What its samples carry.
    pub id: InstrumentId,
    /// Index in the session's placements.
    pub placement: usize,
    /// Major number of the function where it was placed: that of `id`, unless this is a probe that names
    /// another function, or stands where a call that was passed on comes back, or in a part of the function.
    pub origin: u32,
    /// The instrument of the library.
    pub definition: Arc<Definition>,
    /// Seconds from the start.
    pub launch: f64,
    /// Seconds from the start.
    pub splash: f64,
    /// Its counter, if it only counts its hits or has a native function count; no two instruments have the
    /// same.
    pub counter: Option<CounterSlot>,
    /// How it is reached.
    pub tactic: Tactic,
    /// Where it runs: at each hit of its hook exactly one of these is passed. Sorted.
    pub points: Few<(SiteIndex, Point)>,
    /// Further sites that are in place whenever it runs. Sorted.
    pub needs: Few<SiteIndex>,
    /// The probe that it runs, if it is an instrument in the language.
    pub probe: Option<Arc<Probed>>,
}

/// One version of a site's code patch: what runs there for one set of instruments.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The site.
    pub site: SiteIndex,
    /// Where the code goes: in the arena, 16-byte aligned.
    pub address: Addr,
    /// The code.
    pub code: Box<[u8]>,
    /// How stacks are unwound through it, where they are (`unwinds` of the layout).
    pub rows: Box<[Row]>,
    /// What its stretches are: [`Patch::pieces`] tells.
    pub pieces: Pieces,
    /// Instruments by point, each list in the order in which it runs; sorted, no list empty. Without
    /// any, the patch does what the original code does: a site that is in place for others' sake.
    pub hooks: Few<(Point, Few<InstrumentId>)>,
}

/// An instruction of a patch that may fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchFault {
    /// The instruction.
    pub at: Addr,
    /// What the kernel does then.
    pub recovery: Recovery,
}

/// Number of a patch in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchIndex(pub u32);

/// `what` may only be in place while `on` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependence {
    /// Depends.
    pub what: Part,
    /// Is depended on.
    pub on: Part,
}

/// Something written into the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The splice of a site.
    Site(SiteIndex),
    /// A bounce.
    Bounce(BounceIndex),
}

/// What changes at one time, all or nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Seconds from the start.
    pub at: f64,
    /// Writes in the order in which they are carried out, no two of the same part:
    /// installs and retargets by rising rank, then removals by falling rank; equal ranks by address.
    pub pokes: Vec<Poke>,
    /// Instruments that begin, in the order of the session.
    pub launched: Vec<InstrumentId>,
    /// Instruments that end, in the order of the session.
    pub splashed: Vec<InstrumentId>,
}

/// One write of text.
///
/// A batch is carried out like this. First every install of more than one overwritten instruction,
/// and every trap, gets an `int3`, in order, that sends threads to `detour`. Then, if there is one, a wait until no
/// thread is between the instructions overwritten. Then all installs and retargets are written, those of a rank
/// after those below it are seen by every CPU. Then the removals, from the highest rank down, with a
/// wait between ranks until no thread is in what was left; and such a wait at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poke {
    /// What is written.
    pub part: Part,
    /// Where.
    pub at: Addr,
    /// What must stand there before: for a bounce the original bytes as well. Empty for a tracer's site.
    pub expect: PokeBytes,
    /// What is written; as long as `expect` and different from it.
    pub write: PokeBytes,
    /// Why.
    pub kind: PokeKind,
    /// How deep it is in the graph of dependences: 0 depends on nothing.
    pub rank: u8,
    /// Index of the patch that it leads to: the new one (install, retarget), or the one left (remove).
    pub patch: PatchIndex,
    /// Index of the patch to which a thread is diverted while the bytes change: `patch`, or a version of
    /// its site without instruments where arrivals would be taken for another's until what it needs is in place.
    pub detour: PatchIndex,
    /// Instructions that are overwritten (install) or put back (remove), those under bounces of this site
    /// included; more than one needs waiting. A retarget overwrites one, and so does a bounce: nobody runs it.
    pub overwritten: u32,
}

/// Why text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PokeKind {
    /// A splice or bounce over original bytes.
    Install,
    /// A splice or bounce to another version of the patch. A short splice stays; its bounce is retargeted.
    Retarget,
    /// The original bytes again.
    Remove,
}

impl Patch {
    /// What its stretches are, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        let ids = || self.hooks.iter().flat_map(|(_, ids)| ids);
        self.pieces.unpack(move |number| ids().nth(number).copied())
    }
}

impl Plan {
    /// The planned instrument of that identifier.
    #[must_use]
    pub fn instrument(&self, id: InstrumentId) -> Option<&PlannedInstrument> {
        self.instruments
            .iter()
            .find(|instrument| instrument.id == id)
    }

    /// A patch by its number.
    #[must_use]
    pub fn patch(&self, index: PatchIndex) -> Option<&Patch> {
        self.patches.get(usize::try_from(index.0).ok()?)
    }

    /// The function of that major number.
    #[must_use]
    pub fn function(&self, major: u32) -> Option<&PlannedFunction> {
        self.functions.get(usize::try_from(major).ok()?)
    }
}
