//! Additional machines: a session runs on the target and all of them, and starts at the same time.
//!
//! The target is the machine whose kernel is shown; each additional machine has its own thread,
//! connection, image and plan. `connect` adds and removes machines, `messages` handles their threads'
//! messages, `run` runs the session on all of them, `bar` shows their status.

pub(crate) mod bar;
mod connect;
mod machine;
mod messages;
mod run;
mod together;

pub use machine::{Machine, Machines};
pub use together::{Member, Together};
