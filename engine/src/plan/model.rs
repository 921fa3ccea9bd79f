//! A plan: sites, patches, and the batches of writes that install and remove them.

use std::sync::Arc;

use gilk_instruments::Definition;

use crate::cfg::Outline;
use crate::ids::{Id, id};
use crate::layout::{CounterSlot, RuntimeLayout};
use crate::native::NativeCode;
use crate::patch::{Piece, Pieces, Probed, Recovery};
use crate::placement::{
    Bounce, BounceIndex, Comparison, Point, PokeBytes, Site, SiteIndex, Style, Tactic,
};
use crate::unwind::Row;
use crate::{Addr, Few, InstrumentId};

use super::notes::Note;

/// Maximum number of writes in one batch (`ILK_MAX_POKES` in
/// `ilk-driver/kmod/ilk_abi.h`).
pub const MAX_POKES: usize = 1 << 20;

/// A session prepared for one image and one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// `uname -r` of the kernel that it is for.
    pub release: String,
    /// Seconds from the start to the end; the last batch is not later.
    pub duration: f64,
    /// Run-time layout that the generated code uses.
    pub layout: RuntimeLayout,
    /// Functions with instruments; the index is the major number.
    pub functions: Vec<PlannedFunction>,
    /// The instruments, in the order of the session's placements.
    pub instruments: Vec<PlannedInstrument>,
    /// All splices of the session, by address.
    pub sites: Vec<Site>,
    /// All bounces of the session, by address.
    pub bounces: Vec<Bounce>,
    /// Edges of the dependency graph, which is acyclic: sorted.
    pub dependences: Vec<Dependence>,
    /// All versions of all patches, by address; never freed or changed while the session lasts.
    pub patches: Vec<Patch>,
    /// Instructions of patches that may fault, by address.
    pub faults: Vec<PatchFault>,
    /// Code that patches call: object files' instruments, below all patches.
    pub natives: Vec<NativeCode>,
    /// In order of time; no two at the same time, none without pokes.
    pub batches: Vec<Batch>,
    /// Remarks for users, by placement.
    pub notes: Vec<Note>,
}

/// A function with instruments.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFunction {
    /// Number in instrument identifiers.
    pub major: u32,
    /// Symbol in the kernel.
    pub name: String,
    /// Blocks and edges.
    pub outline: Outline,
    /// Style of its placement: in place or whole.
    pub style: Style,
    /// Cost of both styles, where both were tried.
    pub compared: Option<Box<Comparison>>,
}

/// An instrument of the session.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedInstrument {
    /// Identifier in its samples.
    pub id: InstrumentId,
    /// Index in the session's placements.
    pub placement: usize,
    /// Major number of the function where it was placed: that of `id`, unless this is a probe that names
    /// another function, or is at the return of a tail call, or in a part of the function elsewhere.
    pub origin: u32,
    /// Definition in the library or the session.
    pub definition: Arc<Definition>,
    /// Seconds from the start.
    pub launch: f64,
    /// Seconds from the start.
    pub splash: f64,
    /// Counter, if it only counts its hits or has a native function count; no two instruments have the same.
    pub counter: Option<CounterSlot>,
    /// Most expensive tactic among those that it requires.
    pub tactic: Tactic,
    /// Points where it runs: each hit of its hook passes exactly one of them. Sorted.
    pub points: Few<(SiteIndex, Point)>,
    /// Further sites that must be in place whenever it runs. Sorted.
    pub needs: Few<SiteIndex>,
    /// Probe that it runs, if it is an instrument in the language.
    pub probe: Option<Arc<Probed>>,
}

/// One version of a site's patch: the code for one set of instruments.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// Site whose splice branches to it.
    pub site: SiteIndex,
    /// Address in the arena, aligned to [`RuntimeLayout::patch_align`].
    pub address: Addr,
    /// Machine code, and after it the descriptors of restartable sequences.
    pub code: Box<[u8]>,
    /// Descriptors of restartable sequences at the end of `code`, 32 bytes each.
    pub sequences: u32,
    /// Unwind entries, if the target unwinds stacks through patches (`unwinds` of the layout).
    pub rows: Box<[Row]>,
    /// Pieces of the code, packed; [`Patch::pieces`] unpacks them.
    pub pieces: Pieces,
    /// Instruments by point, each list in the order of execution; sorted, no list empty. Without any, the
    /// patch has the effect of the original code, for a site on which others depend.
    pub hooks: Few<(Point, Few<InstrumentId>)>,
}

/// An instruction of a patch that may fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchFault {
    /// Address of the instruction.
    pub at: Addr,
    /// Recovery by the kernel.
    pub recovery: Recovery,
}

id!(
    /// Number of a patch in its plan.
    pub PatchIndex(pub)
);

/// A dependency: `what` may only be in place while `on` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependence {
    /// The part that must not be in place alone.
    pub what: Part,
    /// The part that is written before it, and removed after it.
    pub on: Part,
}

/// A splice or bounce, written over original code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The splice of a site.
    Site(SiteIndex),
    /// A `jmp rel32` used as a stepping stone.
    Bounce(BounceIndex),
}

/// Writes of one time, all or nothing.
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
/// A batch is carried out in this order. First every install of more than one overwritten instruction,
/// and every trap, gets an `int3`, in order, that diverts threads to `detour`. Then, if there is one, quiescence
/// of the kind [`Quiesce::Between`]. Then all installs and retargets are written, those of a rank after
/// every CPU has seen those below it. Then the removals, from the highest rank down, with quiescence of the kind
/// [`Quiesce::Inside`] between ranks and at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poke {
    /// Splice or bounce that changes.
    pub part: Part,
    /// Address of the first byte.
    pub at: Addr,
    /// Bytes that must be there before: for a bounce the original bytes as well. Empty for a tracer's site.
    pub expect: PokeBytes,
    /// Bytes to write; as many as `expect`, and different.
    pub write: PokeBytes,
    /// Install, retarget or remove.
    pub kind: PokeKind,
    /// Topological rank in the dependency graph: 0 depends on nothing.
    pub rank: u8,
    /// Patch that it targets: the new one (install, retarget), or the old one (remove).
    pub patch: PatchIndex,
    /// Patch to which threads are diverted while the bytes change: `patch`, or a version of its site without
    /// instruments where arrivals would be counted before its prerequisites are in place.
    pub detour: PatchIndex,
    /// Number of instructions that are overwritten (install) or restored (remove), those under bounces of this
    /// site included. A retarget overwrites one, and so does a bounce, which no thread executes.
    pub overwritten: u32,
}

/// Reason of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PokeKind {
    /// A splice or bounce over original bytes.
    Install,
    /// A splice or bounce to another version of the patch. A short splice stays; its bounce is retargeted.
    Retarget,
    /// The original bytes over a splice or bounce.
    Remove,
}

/// Bytes that must be free of threads around a write. The driver of a target decides how it waits for that: see
/// `ilk_driver::writes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quiesce {
    /// None: at most one instruction changes, or no thread executes the bytes.
    None,
    /// The boundaries between the instructions that change: a preempted thread there would resume inside another.
    Between,
    /// The patch or bounce that a removal leaves: a thread may still execute it.
    Inside,
}

impl Poke {
    /// The bytes that must be free of threads before the write (install), or after it and before
    /// prerequisites are removed (remove).
    #[must_use]
    pub const fn quiesce(&self) -> Quiesce {
        match self.kind {
            PokeKind::Install if self.overwrites_several() => Quiesce::Between,
            PokeKind::Install | PokeKind::Retarget => Quiesce::None,
            PokeKind::Remove => Quiesce::Inside,
        }
    }

    /// Returns whether several instructions of a site change, so that the write is staged by an `int3`.
    #[must_use]
    pub const fn overwrites_several(&self) -> bool {
        let is_site = matches!(self.part, Part::Site(_));
        is_site && self.overwritten > 1 && !matches!(self.kind, PokeKind::Retarget)
    }
}

impl Patch {
    /// The pieces of the code, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        let ids = || self.hooks.iter().flat_map(|(_, ids)| ids);
        self.pieces.unpack(move |number| ids().nth(number).copied())
    }
}

impl Plan {
    /// Returns the instrument with an identifier.
    #[must_use]
    pub fn instrument(&self, id: InstrumentId) -> Option<&PlannedInstrument> {
        self.instruments
            .iter()
            .find(|instrument| instrument.id == id)
    }

    /// Returns the site of an index, or `None` if the plan has none.
    #[must_use]
    pub fn site(&self, index: SiteIndex) -> Option<&Site> {
        self.sites.get(index.index())
    }

    /// Returns the bounce of an index, or `None` if the plan has none.
    #[must_use]
    pub fn bounce(&self, index: BounceIndex) -> Option<&Bounce> {
        self.bounces.get(index.index())
    }

    /// Returns the patch of an index, or `None` if the plan has none.
    #[must_use]
    pub fn patch(&self, index: PatchIndex) -> Option<&Patch> {
        self.patches.get(index.index())
    }

    /// Returns the function of a major number, or `None` if the plan has none.
    #[must_use]
    pub fn function(&self, major: u32) -> Option<&PlannedFunction> {
        self.functions.get(usize::try_from(major).ok()?)
    }
}
