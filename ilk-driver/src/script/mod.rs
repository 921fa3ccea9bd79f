//! One-line scripts: probes that name the code that they stand on, and blocks for the terminal.
//!
//! [`Script::parse`] reads the text and reports every fault with its column. [`resolve()`] finds the code in a kernel's
//! image and gives a [`Session`](gilk_engine::Session) of ordinary instruments, which runs, is saved, and opens in the
//! window like any other.

mod arguments;
mod comments;
mod parse;
mod pattern;
mod point;
mod query;
mod resolve;
mod terminal;
#[cfg(test)]
mod tests;
mod wanted;

pub use parse::Script;
pub use pattern::{is_pattern, matches};
pub use point::{KINDS, seconds};
pub use query::{Absent, Designations, Filter, Place, Query};
pub use resolve::{Lines, NOT_HERE, resolve};
pub use terminal::{Terminal, TerminalAction, time_of_day};
pub use wanted::TypesWanted;
