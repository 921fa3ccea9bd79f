//! Reads ELF programs and shared libraries, from a file or as a process has them, into the neutral
//! [`Image`](crate::Image).
//!
//! Functions are bounded by symbols, of the object or of its separate debug file, and by unwind entries, which stripped
//! objects have too. All
//! addresses at which control may enter a function are known: branches; pointers, which the dynamic
//! linker writes and its relocations name; addresses that instructions compute; landing pads of exceptions; and
//! the targets of jump tables of relative entries, proven by data flow ([`tables`]). A function with a
//! jump of which that proof does not succeed is refused by [`Rule::JumpUnknown`](crate::Rule::JumpUnknown).
//!
//! # Examples
//! ```
//! use gilk_engine::cfg::Cfg;
//! use gilk_engine::elf::ElfParts;
//! use gilk_engine::Image;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::read("/proc/self/exe")?;
//! let image = Image::from_elf(&ElfParts::of_file("this program", &file))?;
//! let main = image.function_named("main")?;
//! assert!(!Cfg::of(&image, main.id).blocks.is_empty());
//! # Ok(())
//! # }
//! ```

mod build;
mod callers;
mod debug;
mod file;
mod frames;
mod names;
mod plt;
mod probes;
mod sites;
mod sweep;
mod tables;

use crate::Addr;

pub use callers::caller_rules;
pub use debug::{DebugSymbols, FunctionSymbol, preferred};
pub use file::{is_program, static_probes};

/// An object, as its file and the process that loaded it have it.
#[derive(Clone, Debug)]
pub struct ElfParts<'f> {
    /// The name of its file, for people.
    pub name: String,
    /// True if the names of its functions are qualified by its name, as those of a kernel's modules are:
    /// `libc.so.6:malloc`.
    pub is_library: bool,
    /// The bytes of the file.
    pub file: &'f [u8],
    /// The symbols of its separate debug file.
    pub debug: Option<&'f DebugSymbols>,
    /// The distance in bytes from the addresses in the file to those in the process; 0 of a file.
    pub slide: u64,
    /// The bytes in the process, at least of every section of code; empty of a file. Where they differ from
    /// the file's, another tool's probe is.
    pub live: Vec<(Addr, Vec<u8>)>,
    /// False to leave out the tables of jumps, which take most of the time: functions with such jumps are refused then.
    pub tables: bool,
}

impl<'f> ElfParts<'f> {
    /// An object that is looked at as a file.
    #[must_use]
    pub fn of_file(name: impl Into<String>, file: &'f [u8]) -> Self {
        Self {
            name: name.into(),
            is_library: false,
            file,
            debug: None,
            slide: 0,
            live: Vec::new(),
            tables: true,
        }
    }
}
