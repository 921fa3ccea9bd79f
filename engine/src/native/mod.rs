//! Instrument functions that a person compiled: from an object file to code in the arena.
//!
//! What they compute is theirs to answer for, and no proof says it; that is why they stand behind a switch.
//! What can be told from the bytes is: that they change nothing but general registers and what they have an
//! address for, come back with all that their callers count on, take little of the stack, and call nothing of
//! the kernel that a session has instruments in, or that may not be called from everywhere. One thing is taken
//! for granted in that: a pointer that is not known to the byte stays in what it points into (`state`).

mod callee;
mod check;
mod frame;
mod link;
mod state;
mod value;

use std::sync::Arc;

use gilk_instruments::Native;

use crate::code::FunctionId;
use crate::{Addr, Image, Span};

/// An object file's code and constants, where they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeCode {
    /// The object file's name, for people.
    pub file: Arc<str>,
    /// The object file that it was linked from: others may have the same name.
    pub object: Arc<[u8]>,
    /// Where it goes: in the arena.
    pub address: Addr,
    /// Code, then constants.
    pub bytes: Box<[u8]>,
    /// Bytes from the start that are code.
    pub text: u64,
    /// Its functions by symbol.
    pub entries: Vec<(String, Addr)>,
}

impl NativeCode {
    /// All of it.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.address, self.bytes.len() as u64)
    }

    /// Whether it is of that function's file.
    #[must_use]
    pub fn is_of(&self, native: &Native) -> bool {
        self.file == native.file && self.object == native.object
    }

    /// Where a function of it begins.
    #[must_use]
    pub fn entry(&self, function: &str) -> Option<Addr> {
        let found = self.entries.iter().find(|(name, _)| name == function);
        found.map(|(_, at)| *at)
    }
}

/// Links the object of `native` for `address`. `touched` says which functions of the kernel the session has
/// instruments in.
///
/// # Errors
/// Why it may not run in a patch: whole sentences without their end.
pub(crate) fn load(
    native: &Native,
    image: &Image,
    address: Addr,
    touched: &dyn Fn(FunctionId) -> bool,
) -> Result<NativeCode, String> {
    let linked = link::link(native, image, address, touched)?;
    check::check(&linked.code, &linked.functions, &linked.called)?;
    Ok(linked.code)
}

#[cfg(test)]
pub(crate) mod tests;
