//! Instruments and times → splices, patches, and the ordered batches that install and remove them.
//!
//! The flow of data: [`names`] with [`places`], [`exits`] and [`jumps`] (probes → hooks) → placement → [`build`] (points
//! of instruments) → [`dependencies`] (what must be in place before what) → [`schedule`] (versions of patches) →
//! [`patches`] (code) → [`batches`] (writes). [`model`] has the result.

mod arguments;
mod batches;
mod build;
mod cost;
mod dependencies;
mod error;
mod exits;
mod functions;
mod jumps;
mod major;
mod model;
mod names;
mod natives;
mod notes;
mod numbered;
mod patches;
mod placed;
mod places;
mod planner;
mod possible;
mod probes;
mod refusals;
mod replaced;
pub mod report;
mod resumed;
mod schedule;
mod stage;
#[cfg(test)]
mod tests;
mod way;

pub use crate::placement::PokeBytes;
#[cfg(test)]
pub(crate) use build::plan_placed;
pub use build::{plan, plan_resumed, plan_watched};
pub use cost::HitCosts;
pub use model::{
    Batch, Dependence, MAX_POKES, Part, Patch, PatchFault, PatchIndex, Plan, PlannedFunction,
    PlannedInstrument, Poke, PokeKind, Quiesce,
};
pub use notes::Note;
#[cfg(test)]
pub(crate) use patches::faults;
pub use possible::{LeftOut, Possible, plan_possible};
pub use resumed::Resumption;
pub(crate) use stage::report as report_stage;
pub use stage::{Stage, Watch};
