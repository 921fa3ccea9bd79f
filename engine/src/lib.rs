//! The heart of GILK: given an image and a session it yields the same plan every time, on any
//! machine, without a kernel. No I/O, no threads of its own, no unsafe.
//!
//! [`kernel`] → [`code`] → [`cfg`](mod@cfg) → [`liveness`] → [`placement`] → [`isa::relocate`] → [`patch`] → [`plan`] → [`verify`](mod@verify)
#![forbid(unsafe_code)]

pub mod addr;
pub mod cfg;
pub mod code;
pub mod collection;
mod error;
mod few;
pub mod ids;
pub mod isa;
pub mod kernel;
pub mod layout;
pub mod listing;
pub mod liveness;
pub mod native;
pub mod patch;
pub mod paths;
pub mod placement;
pub mod plan;
pub mod remarks;
pub mod rule;
pub mod session;
pub mod unwind;
pub mod verify;

pub use addr::{Addr, Span};
pub use code::Image;
pub use error::{Error, Result};
pub use few::Few;
pub use gilk_samples::{HookType, InstrumentId};
pub use plan::Plan;
pub use rule::{Refusal, Rule};
pub use session::Session;
pub use verify::VerifiedPlan;
