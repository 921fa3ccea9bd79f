//! Native functions of instruments: from an object file to code in the arena.
//!
//! The result of a native function is not verified, and native instruments need a switch. The bytes are checked:
//! the code changes only general registers and memory that it has an address of, preserves callee-saved registers,
//! uses little of the stack, and calls no kernel function that the session instruments or that may not be called
//! in every context. One assumption remains: a pointer that is not known to the byte stays in its object (`state`).

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
    /// Its address in the arena.
    pub address: Addr,
    /// Code, then constants.
    pub bytes: Box<[u8]>,
    /// Bytes from the start that are code.
    pub text: u64,
    /// Its functions by symbol.
    pub entries: Vec<(String, Addr)>,
}

impl NativeCode {
    /// The addresses of its code and constants.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.address, self.bytes.len() as u64)
    }

    /// Returns whether the function is of this object file.
    #[must_use]
    pub fn is_of(&self, native: &Native) -> bool {
        self.file == native.file && self.object == native.object
    }

    /// Returns the address of a function.
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
