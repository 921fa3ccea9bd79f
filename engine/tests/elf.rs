//! The reader of programs and libraries: against installed files, objdump (GNU binutils), compilers, and
//! against execution, one instruction at a time.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "elf/compiled.rs"]
mod compiled;
#[path = "elf/damaged.rs"]
mod damaged;
#[path = "elf/forks.rs"]
mod forks;
#[path = "elf/installed.rs"]
mod installed;
#[path = "elf/objdump.rs"]
mod objdump;
#[path = "relocation/random.rs"]
mod random;
#[path = "elf/rendezvous.rs"]
mod rendezvous;
#[path = "elf/separate.rs"]
mod separate;
#[path = "elf/stepped.rs"]
mod stepped;
#[path = "elf/tables.rs"]
mod tables;
#[path = "elf/tracee.rs"]
mod tracee;

use std::path::Path;

use gilk_engine::Image;
use gilk_engine::elf::ElfParts;

/// A number from the environment.
fn set(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number"))
    })
}

/// The image of a file.
fn image(path: &Path) -> Image {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parts = ElfParts::of_file(path.display().to_string(), &file);
    Image::from_elf(&parts).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
