//! Sites, bounces and points: the result of placement.

use serde::{Deserialize, Serialize};

use super::ids::SiteIndex;
use super::splice::Splice;
use super::tactic::Tactic;
use crate::cfg::BlockIndex;
use crate::{Addr, Few, HookType, Refusal, Span};

/// A splice and the instructions that it displaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    /// The branch written at the start of `displaced`.
    pub splice: Splice,
    /// Whole instructions in a row, entered only at the first of them while the site is not in place:
    /// the relocated sequence. No thread executes the originals while the splice is in place, so those of
    /// their bytes that follow the splice (and padding after them) may hold bounces.
    pub displaced: Span,
    /// Number of instructions of the original code that anything written in `displaced` overlaps, the
    /// bounces in it included; all of them if a hook requires the site to be in place first, so that no
    /// thread among them continues in the original code. More than one requires quiescence.
    pub overwritten: u32,
    /// Displaced bytes that the driver fills with `int3` while the splice is in place: bit `n` stands for
    /// byte `n` after the splice. So code that is decoded from the start of its function, as kprobes
    /// decode it, stays on the boundaries of instructions. Bytes of bounces are not filled.
    pub filled: u64,
    /// Original code that the patch continues with, after `displaced` or after another continuation,
    /// instead of an exit to the original code: sorted, no two for one edge. The originals stay in place.
    pub continuations: Box<[Continuation]>,
}

impl Site {
    /// The bytes that are filled with `int3`, by address.
    pub fn filled_bytes(&self) -> impl Iterator<Item = Addr> + use<> {
        let (filled, first) = (self.filled, self.after_splice());
        let bits = (0..u64::from(u64::BITS)).filter(move |bit| filled >> bit & 1 == 1);
        bits.map(move |bit| first.add(bit))
    }

    /// The first byte after the splice.
    pub(super) const fn after_splice(&self) -> Addr {
        self.displaced.start.add(self.splice.bytes())
    }
}

/// A copy that a patch continues with when control takes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Continuation {
    /// Control transfer after which the patch continues.
    pub edge: InsnEdge,
    /// Instructions in a row that begin at the target of the edge. Static keys and static calls among
    /// them are emulated, never copied.
    pub copied: Span,
}

/// Control transfer from one instruction to another: a branch, or falling through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InsnEdge {
    /// Address of the instruction that control leaves.
    pub from: Addr,
    /// Address of the instruction that control reaches.
    pub to: Addr,
}

/// A place in a site's patch where instruments run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Point {
    /// The start of the patch, when control reaches it from the original code through the splice.
    Entry,
    /// Before each execution of this instruction's copy, except the one for which [`Point::Entry`] stands:
    /// that of the first displaced instruction, reached through the splice.
    Before(Addr),
    /// On this edge, whether the patch continues with a copy or leaves; before the instruments at
    /// [`Point::Before`] its target.
    On(InsnEdge),
}

/// Reason why the bytes of a bounce are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// Displaced by this site, or padding that only the end of its displaced instructions keeps from being executed.
    Exposed(SiteIndex),
    /// Padding, which is never executed.
    Padding,
}

/// A `jmp rel32` to the patch of `site`, used as a stepping stone by its short splice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bounce {
    /// Address of the first byte.
    pub at: Addr,
    /// Reason why the bytes are free.
    pub slot: Slot,
    /// The site whose short splice branches to the bounce.
    pub site: SiteIndex,
}

/// A hook that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// Index of the graph among those given to [`place`](super::place).
    pub graph: usize,
    /// Index of the block in the graph.
    pub block: BlockIndex,
    /// The event of the block.
    pub hook: HookType,
}

/// The points of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The most expensive tactic among those that the hook requires.
    pub tactic: Tactic,
    /// Points where its instruments run: each hit of the hook passes exactly one of them.
    /// Sorted; never empty.
    pub points: Few<(SiteIndex, Point)>,
    /// Further sites that must be in place, and be so first, for the points to mean this hook alone. Sorted.
    pub needs: Few<SiteIndex>,
}

/// The sites and bounces for all hooks of a session at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solution {
    /// Sites by address; their `displaced` do not overlap.
    pub sites: Vec<Site>,
    /// Bounces by address; they overlap neither each other nor the splices.
    pub bounces: Vec<Bounce>,
    /// For each wanted hook its points or its refusal, in the order given.
    pub hooks: Vec<Result<Reached, Refusal>>,
}
