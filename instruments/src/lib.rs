//! What can be measured. An instrument is a file under `instruments/library/`: a name, one
//! sentence of help, the program that runs at each hit, and what its samples mean.

mod definition;
mod error;
pub mod interpret;
mod library;
pub mod program;

pub use definition::{Definition, Program, Sampled};
pub use error::{Error, Result};
pub use library::Library;
