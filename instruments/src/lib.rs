//! What can be measured. An instrument is a file under `instruments/library/`: a name, one
//! sentence of help, the program that runs at each hit, and what its samples mean.

mod check;
mod definition;
pub mod editor;
mod error;
mod fault;
pub mod interpret;
mod library;
mod native;
pub mod program;
pub mod source;
mod types;

pub use check::Context;
pub use definition::{Definition, Program, Stand};
pub use error::{Error, Result};
pub use fault::{Fault, Faults};
pub use library::Library;
pub use native::{Native, Parameter};
pub use source::Source;
pub use types::{Pointee, Reached, Types};

#[cfg(test)]
mod reference;
#[cfg(test)]
mod trial;
