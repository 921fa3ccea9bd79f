//! The kernel's types, indexed when somebody asks.

use std::sync::{Arc, OnceLock};

use gilk_instruments::Types;

use super::memory::Memory;
use crate::Span;

/// Where the type data lies, and what it says.
#[derive(Clone, Debug)]
pub(super) struct Typed {
    span: Option<Span>,
    read: OnceLock<Option<Arc<Types>>>,
}

impl Typed {
    pub(super) fn new(span: Option<Span>) -> Self {
        Self {
            span,
            read: OnceLock::new(),
        }
    }

    /// The types; `None` if the kernel has none, or they were not read, or are damaged: an image does
    /// without them.
    pub(super) fn get(&self, memory: &Memory) -> Option<&Types> {
        let read = || {
            let bytes = memory.bytes(self.span?)?;
            Types::read(bytes).ok().map(Arc::new)
        };
        self.read.get_or_init(read).as_deref()
    }
}
