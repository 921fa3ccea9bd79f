//! The dynamic linker of a process.

use std::fs::File;

use gilk_engine::{Addr, Image};
use object::{Object as _, ObjectSymbol};

use super::objects::{Object, linker, slide};
use super::refused;
use super::subject::{files_of, image_of};
use crate::Result;

/// Offset of `r_state` in `struct r_debug` (glibc's elf/link.h).
const R_STATE: u64 = 24;

/// The dynamic linker of a process.
pub(super) struct Linker {
    pub(super) object: Object,
    /// Its image, without the name of the object.
    pub(super) image: Image,
    /// Address of the word that says whether objects are being mapped or unmapped.
    pub(super) state: Addr,
}

impl Linker {
    /// Reads the dynamic linker of a process.
    pub(super) fn read(pid: u32, memory: &File) -> Result<Self> {
        let objects = [(linker(pid)?, true)];
        let files = files_of(pid, &objects)?;
        let image = image_of(pid, memory, &objects, &files)?;
        let [(object, _)] = objects;
        let mut files = files.iter();
        let state = files.find_map(|file| state(file, slide(pid, file, &object).ok()?));
        let state = state.ok_or_else(|| refused(pid, "its dynamic linker has no _r_debug"))?;
        Ok(Self {
            object,
            image,
            state,
        })
    }
}

/// Returns the address of `r_state` of a dynamic linker that is loaded `slide` bytes above the addresses in its file.
fn state(file: &[u8], slide: u64) -> Option<Addr> {
    let elf = object::File::parse(file).ok()?;
    let mut symbols = elf.dynamic_symbols();
    let debug = symbols.find(|symbol| symbol.name() == Ok("_r_debug"))?;
    Some(Addr(
        slide.wrapping_add(debug.address()).wrapping_add(R_STATE),
    ))
}
