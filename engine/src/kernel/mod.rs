//! Reads Linux kernels, running or from a file, into the neutral [`Image`](crate::Image).

use serde::{Deserialize, Serialize};

use crate::{Addr, Result, Span};

mod bounds;
mod build;
mod collect;
mod compared;
mod decisions;
mod faulting;
mod file;
#[cfg(test)]
pub(crate) mod fixture;
mod formats;
mod functions;
mod kallsyms;
mod modules;
mod names;
mod notes;
mod notified;
mod notifiers;
mod serialised_memory;
mod sweep;
mod tables;
mod trapping;
mod weak;

pub use compared::lists_were_compared;
pub use file::FileParts;
pub use modules::ModuleParts;

use bounds::Bounds;

/// Data read from a running kernel: everything that an [`Image`](crate::Image) is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveParts {
    /// `uname -r`.
    pub release: String,
    /// `/proc/kallsyms`.
    pub kallsyms: String,
    /// `/sys/kernel/debug/kprobes/blacklist`, and the lines of [`wanted_and_notifiers`] after it.
    pub blacklist: String,
    /// Memory as (address, bytes), at least the spans that [`wanted`] returns.
    #[serde(with = "serialised_memory")]
    pub memory: Vec<(Addr, Vec<u8>)>,
}

/// Returns the memory to read for an image, given the text of `/proc/kallsyms`: text, read-only data, tables and types,
/// about 25 MB; sorted, and no span touches another.
///
/// # Errors
/// [`Error::Image`](crate::Error::Image) if a symbol that bounds the text or a table is missing, or all addresses are zero
/// (kallsyms read without privilege).
pub fn wanted(symbols: &str) -> Result<Vec<Span>> {
    Ok(Bounds::of(&kallsyms::parse(symbols)?)?.wanted())
}

/// Returns the spans of [`wanted`], and lines for the notifiers of traps that the running kernel calls before the
/// driver's, in which no splice may stand; `read` fills a buffer with the kernel's memory and returns whether it could.
///
/// # Errors
/// As [`wanted`], and if the kernel's list of notifiers cannot be read or is of a form that is not known.
pub fn wanted_and_notifiers(
    symbols: &str,
    read: impl FnMut(Addr, &mut [u8]) -> bool,
) -> Result<(Vec<Span>, String)> {
    let symbols = kallsyms::parse(symbols)?;
    let spans = Bounds::of(&symbols)?.wanted();
    Ok((spans, notifiers::of_a_running_kernel(&symbols, read)?))
}
