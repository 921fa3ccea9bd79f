//! The dynamic linker of a process.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::{Addr, Image};
use object::{Object as _, ObjectSymbol};

use super::objects::{Object, linker, slide};
use super::refused;
use super::subject::{files_of, image_of};
use crate::Result;

/// Offset of `r_state` in `struct r_debug` (glibc's elf/link.h), and of `state` in `struct debug` (musl's ldso/dynlink.c).
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
        let debug = files.find_map(|file| debug(file, slide(pid, file, &object).ok()?, memory));
        let debug = debug.ok_or_else(|| {
            refused(
                pid,
                "its dynamic linker has neither _r_debug, as that of glibc, nor _dl_debug_addr, as that of musl",
            )
        })?;
        let state = debug.add(R_STATE);
        Ok(Self {
            object,
            image,
            state,
        })
    }
}

/// Returns the address of `struct r_debug` of a dynamic linker that is loaded `slide` bytes above the addresses in its
/// file: a variable of glibc's, and one that a variable of musl's points to, whose fields are at the same offsets.
fn debug(file: &[u8], slide: u64, memory: &File) -> Option<Addr> {
    let elf = object::File::parse(file).ok()?;
    let named = |name| {
        let mut symbols = elf.dynamic_symbols();
        let found = symbols.find(|symbol| symbol.name() == Ok(name))?;
        Some(Addr(slide.wrapping_add(found.address())))
    };
    if let Some(debug) = named("_r_debug") {
        return Some(debug);
    }
    let mut pointer = [0; 8];
    let at = named("_dl_debug_addr")?;
    memory.read_exact_at(&mut pointer, at.0).ok()?;
    Some(Addr(u64::from_le_bytes(pointer))).filter(|debug| debug.0 != 0)
}
