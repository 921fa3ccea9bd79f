//! Additional machines: a session runs on the target and all of them, and starts at the same time.
//!
//! The target is the machine whose kernel is shown; each additional machine has its own thread,
//! connection, image and plan. `connect` adds and removes machines, `messages` handles their threads'
//! messages, `run` runs the session on all of them, `bar` shows their status. Beside a process, the machine is the
//! kernel of this one (`pair`): each of the two has a part of the session, and either is shown.

pub(crate) mod bar;
mod connect;
mod machine;
mod messages;
mod pair;
mod pair_run;
mod run;
mod together;

pub use machine::{Machine, Machines};
pub use together::{Member, Together};
