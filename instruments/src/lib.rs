//! Instruments: the language they are written in, its checker, and the library of ready ones.
//!
//! A source passes four layers, and each uses only those above it:
//!
//! 1. [`source`]: text → tokens → syntax tree ([`Source::parse`]), the formatter, highlighting, the words.
//! 2. The checker ([`Source::check`]): names → inputs, variables and loads, for one function of one kernel
//!    ([`Context`], with the kernel's [`Types`] if it has type data). It folds constants and reports every fault
//!    with its span and a suggestion ([`Faults`]).
//! 3. [`program`]: the checked form, expression trees of 64-bit integers, with the bound of its cost. Code is
//!    generated from it and verified against it.
//! 4. [`interpret`]: the interpreter, which defines the meaning of a program. Generated code is tested against it.
//!
//! A [`Definition`] is an instrument that a session can name: a source, or a function of an object file
//! ([`Native`]). The [`Library`] has the ready ones, files under `instruments/library/`. [`editor`] combines the
//! layers for a text that is being typed.
//!
//! The crate does not know where instruments are placed, and does no I/O.
//!
//! ```
//! use gilk_instruments::{Context, Source};
//!
//! let text = "instrument slow \"Counts long times by powers of two.\" unit \"ticks\";
//!     call @start;
//!     entry { @start = tsc }
//!     return / @start != 0 && tsc - @start > 100000 / { @ticks = hist(tsc - @start) }";
//! let source = Source::parse(text)?;
//! let program = source.check(&Context::default())?;
//! for probe in &program.probes {
//!     println!("{}: {}", probe.hook, program.cost(probe));
//! }
//!
//! // A fault has a span and a suggestion.
//! let wrong = Source::parse("hit { sample(tcs) }")?;
//! let faults = wrong.check(&Context::default()).unwrap_err();
//! assert!(faults.to_string().contains("Did you mean tsc?"));
//! # Ok::<(), gilk_instruments::Faults>(())
//! ```
//!
//! The same is `cargo run -p gilk-instruments --example check -- FILE`.

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
pub use fault::{Fault, Faults, nearest};
pub use library::Library;
pub use native::{Native, Parameter};
pub use source::Source;
pub use types::{FunctionDescription, Pointee, Reached, StructLayout, Types};

#[cfg(test)]
mod reference;
#[cfg(test)]
mod trial;
