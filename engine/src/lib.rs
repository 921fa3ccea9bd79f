//! Plans and proves the instrumentation of a running x86-64 Linux kernel by basic block.
//!
//! Given an [`Image`] (symbols, live bytes, tables) and a [`Session`] (which instrument is launched
//! at which block, when), [`plan`](plan::plan) computes every byte to write and the order of writes,
//! and [`verify`](verify::verify) proves the result independently. The crate does no I/O, starts no
//! thread and uses no `unsafe`; the same input gives the same plan on every machine.
//!
//! Its layers, each of which uses only those above it:
//!
//! | layer | modules | contents |
//! |---|---|---|
//! | vocabulary | [`addr`], [`ids`], [`rule`], [`layout`], [`session`], [`collection`], [`unwind`], [`nanoseconds`] | addresses, typed ids, named refusals, the run-time layout of a target, the session file, times for estimates |
//! | target | [`code`], [`kernel`], [`elf`] | the neutral [`Image`]: functions, bytes, fixed sites, entries; its readers for Linux kernels, running or from a file, and for programs and libraries |
//! | machine | [`isa`], [`listing`] | decoding, effects, encoding and relocation of instructions; disassembly |
//! | analysis | [`cfg`](mod@cfg), [`circulation`], [`liveness`], [`native`], [`paths`], [`remarks`] | control-flow graphs, counts that follow from others, dead registers and flags, object files, path numbers, fields and texts that instructions refer to |
//! | decisions | [`placement`] | the cheapest tactic that reaches each hook, or the rule that refuses it |
//! | code | [`patch`] | instruments at points, copies of displaced code, exits |
//! | cache | [`cache`] | whole functions translated into fragments, which execute in place of the original code |
//! | process | [`rendezvous`], [`forks`], [`reads`], [`filters`] | code at which threads of a process wait while the agent instruments an object that is loaded; code at which forked children wait until it has removed their instruments; code that reads the memory of a process; system calls before which that ends |
//! | schedule | [`plan`](mod@plan) | versions of patches, dependences, and batches of writes |
//! | proof | [`verify`](mod@verify) | a [`VerifiedPlan`], the only form that is written to a target |
//!
//! `verify` shares nothing with the layers of the planner except decoding.
//!
//! # Examples
//! Plan a counter before the first block of a function, and prove the plan. The image in the tree
//! has the functions of `kernel/fork.c`; `ilk dump` saves a whole kernel.
//!
//! ```
//! use gilk_engine::layout::RuntimeLayout;
//! use gilk_engine::session::Placement;
//! use gilk_engine::{Addr, HookType, Image, Session};
//! use gilk_instruments::Library;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let saved = include_bytes!("../tests/data/fork.image");
//! let image = Image::from_live(&postcard::from_bytes(saved)?)?;
//! let mut session = Session::empty();
//! session.placements.push(Placement {
//!     function: "kernel_clone".into(),
//!     block: 0,
//!     hook: HookType::Pre,
//!     instrument: "counter".into(),
//!     launch: 0.0,
//!     splash: 1.0,
//! });
//! // A target reports its layout; a supposed one serves to look at plans.
//! let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000));
//! let plan = gilk_engine::plan::plan(&image, &session, &Library::builtin()?, &layout)?;
//! assert_eq!(plan.sites.len(), 1);
//! let verified = gilk_engine::verify::verify(&image, plan).map_err(|all| format!("{all:?}"))?;
//! assert_eq!(verified.plan().batches.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/graph.rs` and `examples/plan.rs` do the same from a file, and `tests/filetests` shows
//! each tactic and each typical instrument as text.
#![forbid(unsafe_code)]

pub mod addr;
pub mod cache;
pub mod cfg;
pub mod circulation;
pub mod code;
pub mod collection;
pub mod elf;
mod error;
#[cfg(test)]
mod extent;
mod few;
pub mod filters;
pub mod forks;
pub mod isa;
pub mod kernel;
pub mod layout;
pub mod listing;
pub mod liveness;
pub mod nanoseconds;
pub mod native;
pub mod patch;
pub mod paths;
pub mod placement;
pub mod plan;
pub mod reads;
pub mod remarks;
pub mod rendezvous;
pub mod rule;
pub mod session;
pub mod stacks;
pub mod unwind;
pub mod verify;

pub use addr::{Addr, Span};
pub use code::Image;
pub use error::{Error, Result};
pub use few::Few;
pub use gilk_samples::{HookType, InstrumentId, ids};
pub use plan::Plan;
pub use rule::{Refusal, Rule};
pub use session::Session;
pub use verify::VerifiedPlan;
