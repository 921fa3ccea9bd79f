//! Which tactic reaches a hook, or the refusal, by rule.
//!
//! Code is seen as **segments**: runs of instructions that may be displaced, entered at their first
//! instruction only. A segment goes over blocks that are entered by running on alone, ends with a
//! call or an unconditional branch, and before an instruction that may not be displaced or that
//! control comes to from elsewhere. A **site** is the part of a segment that is displaced by one
//! splice; its patch runs a copy, with instruments at **points** of it.
//!
//! Where a hook's own instruction is in no segment, its event is still known: a block begins whenever
//! control takes one of the edges into it, and ends whenever it takes one of the edges out.

mod arrivals;
mod assign;
mod cover;
pub mod coverage;
mod draft;
mod edges;
mod estimate;
mod family;
mod finish;
mod hooks;
mod matching;
mod options;
mod runs;
mod segments;
mod slots;
mod solve;
mod style;
#[cfg(test)]
pub(crate) mod tests;
mod tracer;
mod ways;
mod whole;

use serde::{Deserialize, Serialize};

pub(crate) use family::{branch_target, parts};
pub use options::{BlockOptions, Choice, Cost, at_hook, at_instruction, options, place};
pub use style::{Comparison, Style, StyleCost, Styled, compare, place_in_styles};

use crate::cfg::BlockIndex;
use crate::{Addr, Few, HookType, Refusal, Span};

/// Bytes of a splice that leads anywhere: `jmp rel32`. A bounce is one too.
pub const SPLICE_BYTES: u64 = 5;
/// Bytes of a splice that leads to a bounce: `jmp rel8`.
pub const SHORT_SPLICE_BYTES: u64 = 2;

/// How a hook is reached, in order of cost: the dearest of what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Tactic {
    /// A splice over the hook's own instructions.
    DirectSplice,
    /// A splice before them, in the same segment: what is between is relocated too, or one patch
    /// serves several hooks (the report's relocated block, 3.4.1).
    BlockRelocation,
    /// A two-byte splice to a bounce in padding within its reach.
    Padding,
    /// A two-byte splice to a bounce in bytes that another splice of the session exposes (3.4.2).
    LocalBounce,
    /// A two-byte splice to a bounce in bytes that are displaced for the room alone.
    Donor,
    /// A two-byte splice to a bounce in another function's bytes (KernInst's springboard).
    Springboard,
    /// The function is relocated whole: splices stand where control comes into it, and their patches
    /// run on until it leaves.
    WholeFunction,
    /// The hook's event is known by the edges: instruments stand on every edge into (pre-hook) or
    /// out of (post-hook) the block.
    Edges,
    /// A post-hook behind a call, or another instruction that stays, whose block runs on into one
    /// that is entered from elsewhere too: every other way there is led past the splice, so that who
    /// comes by the text comes from the block.
    Arrivals,
    /// The kernel's own function tracer calls for us at the function's entry.
    Tracer,
    /// An `int3` that stays: the last resort.
    Trap,
}

impl Tactic {
    /// What a person reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DirectSplice => "direct splice",
            Self::BlockRelocation => "block relocation",
            Self::Padding => "padding",
            Self::LocalBounce => "local bounce",
            Self::Donor => "donor",
            Self::Springboard => "springboard",
            Self::WholeFunction => "whole function",
            Self::Edges => "edges",
            Self::Arrivals => "arrivals",
            Self::Tracer => "tracer",
            Self::Trap => "int3",
        }
    }
}

/// Number of a site in its placement and plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SiteIndex(pub u32);

/// Number of a bounce in its placement and plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BounceIndex(pub u32);

/// What is written at the start of a site, and how it leads to the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Splice {
    /// `jmp rel32` to the patch.
    Jump,
    /// `jmp rel8` to a bounce, which is a `jmp rel32` to the patch.
    Short(BounceIndex),
    /// Nothing is written: the function tracer's callback at its five bytes, which are the site's
    /// `displaced`, leads to the patch, and the patch goes back behind them.
    Tracer,
    /// `int3`; the driver leads to the patch.
    Trap,
}

impl Splice {
    /// Bytes that are written at the site.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Jump => SPLICE_BYTES,
            Self::Short(_) => SHORT_SPLICE_BYTES,
            Self::Tracer => 0,
            Self::Trap => 1,
        }
    }
}

/// A splice and what it displaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    /// What is written at the start of `displaced`.
    pub splice: Splice,
    /// Whole instructions in a row, entered only at the first of them while the site is not in place:
    /// the relocated sequence. Nobody runs the originals while the splice is in place, so bytes of them behind
    /// the splice (and padding behind them) may hold bounces.
    pub displaced: Span,
    /// Instructions of the original code that anything written in `displaced` overlaps, the
    /// bounces in it included; all of them if a hook needs the site to be in place first, so that nobody
    /// who was among them goes on by the text. More than one needs waiting.
    pub overwritten: u32,
    /// Original code that the patch goes on with, behind `displaced` or behind another of these,
    /// instead of leaving for the text: sorted, no two for one edge. The text there stays as it is.
    pub continuations: Box<[Continuation]>,
}

/// An edge behind which a patch goes on with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Continuation {
    /// The edge.
    pub edge: InsnEdge,
    /// Instructions in a row that begin where the edge leads. Static keys and static calls among
    /// them are emulated, never copied.
    pub copied: Span,
}

/// Control goes from one instruction to another: by a branch, or by running on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InsnEdge {
    /// Address of the instruction that control leaves.
    pub from: Addr,
    /// Address of the one that it comes to.
    pub to: Addr,
}

/// Where in a site's patch instruments run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Point {
    /// First of all, when control has come by the text (the splice).
    Entry,
    /// Whenever the copy of this instruction is about to run, except where [`Point::Entry`] stands for it:
    /// the first of the site's `displaced`, come to by the splice.
    Before(Addr),
    /// On this edge, whether the patch goes on with a copy or leaves; before what stands at
    /// [`Point::Before`] its end.
    On(InsnEdge),
}

/// Bytes that hold a bounce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// Displaced by this site, or padding behind what it displaces that only its end keeps from being run.
    Exposed(SiteIndex),
    /// Padding: nobody ever runs it.
    Padding,
}

/// A bounce: `jmp rel32` to the patch of `site`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bounce {
    /// Its first byte.
    pub at: Addr,
    /// What makes the bytes free.
    pub slot: Slot,
    /// The site whose short splice leads to it.
    pub site: SiteIndex,
}

/// A hook that someone wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// Index of the graph among those given to [`place`].
    pub graph: usize,
    /// The block.
    pub block: BlockIndex,
    /// Before or after it.
    pub hook: HookType,
}

/// How a hook is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The dearest tactic of those that it needs.
    pub tactic: Tactic,
    /// Where its instruments run. Each time the hook is hit exactly one of these is passed.
    /// Sorted; never empty.
    pub points: Few<(SiteIndex, Point)>,
    /// Further sites that must be in place, and be so first, for the points to mean the hook alone. Sorted.
    pub needs: Few<SiteIndex>,
}

/// Sites for all hooks of a session at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solution {
    /// By address; their `displaced` do not overlap.
    pub sites: Vec<Site>,
    /// By address; they do not overlap, neither each other nor the splices.
    pub bounces: Vec<Bounce>,
    /// For each wanted hook, in the order given.
    pub hooks: Vec<Result<Reached, Refusal>>,
}
