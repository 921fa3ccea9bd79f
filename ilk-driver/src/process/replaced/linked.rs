//! An object file as a process will have it.

use std::sync::Arc;

use gilk_engine::{Addr, Span};
use gilk_instruments::Native;

use crate::process::maps::PAGE;

/// Length of `jmp rel32`.
pub(super) const JUMP_BYTES: u64 = 5;

/// An object file, linked for its addresses in a process.
#[derive(Clone, Debug)]
pub(in crate::process) struct LinkedObject {
    /// The file's name, for people.
    pub(super) file: Arc<str>,
    /// Code, constants, and data that changes.
    pub(in crate::process) parts: Vec<LinkedPart>,
    /// Jumps to functions that are replaced.
    pub(super) stubs: Vec<Stub>,
}

/// A part of an object file, and the protection of its mapping.
#[derive(Clone, Debug)]
pub(in crate::process) struct LinkedPart {
    pub(in crate::process) start: Addr,
    pub(in crate::process) bytes: Vec<u8>,
    pub(in crate::process) protection: i32,
}

/// A jump by which a replacement calls the function that it replaces.
#[derive(Clone, Debug)]
pub(super) struct Stub {
    pub(super) replacement: Arc<Native>,
    pub(super) at: Addr,
    /// The replaced function.
    pub(super) original: Addr,
}

impl LinkedPart {
    /// The pages that it is on.
    pub(in crate::process) fn span(&self) -> Span {
        Span::new(self.start, (self.bytes.len() as u64).next_multiple_of(PAGE))
    }
}
