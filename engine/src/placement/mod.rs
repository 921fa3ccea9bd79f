//! The tactic that reaches each hook, or its refusal, by rule.
//!
//! Code is divided into **segments**: runs of instructions that may be displaced and are entered at their
//! first instruction only. A segment extends over blocks that are entered only by falling through, ends with a
//! call or an unconditional branch, and before an instruction that stays or is the target of a branch. A
//! **site** is the part of a segment that one splice displaces; its patch executes a copy, with
//! instruments at **points** of it.
//!
//! Where a hook's own instruction is in no segment, its event is still known: a block begins whenever
//! control takes one of the edges into it, and ends whenever it takes one of the edges out. [`tactics`] has
//! a file for each way.
//!
//! The flow of data: [`body`] and [`flow`] (instructions, segments, control flow) → [`tactics`] with
//! [`cover`] (the requirements of each hook, given the [`availability`] of segments) → [`sites`] and
//! [`continuations`] (each site a [`draft`], copies after edges) → [`offers`], [`matching`], [`assign`] (bounces) →
//! [`solve`], which repeats this until nothing is refused a slot → [`finish`], whose result is a [`Solution`].

mod assign;
mod availability;
mod body;
mod bytes;
mod continuations;
mod cover;
pub mod coverage;
mod draft;
mod estimate;
mod family;
mod fill;
mod finish;
mod flow;
mod ids;
mod matching;
mod offers;
mod options;
mod sites;
mod slots;
mod solution;
mod solve;
mod splice;
mod spread;
mod style;
mod tactic;
mod tactics;
#[cfg(test)]
pub(crate) mod tests;

pub use bytes::PokeBytes;
pub(crate) use family::{branch_target, parts};
pub use ids::{BounceIndex, SiteIndex};
pub use options::{
    BlockOptions, Choice, Cost, at_hook, at_instruction, options, options_with, place, place_with,
    ways_out,
};
pub use solution::{Bounce, Continuation, InsnEdge, Point, Reached, Site, Slot, Solution, Wanted};
pub use splice::{SHORT_SPLICE_BYTES, SPLICE_BYTES, Splice};
pub use style::{Comparison, Style, StyleCost, Styled, compare, place_in_styles};
pub use tactic::{Tactic, Tactics};
