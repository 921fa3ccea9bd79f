//! The target's types, indexed at the first request.

use std::sync::{Arc, OnceLock};

use gilk_instruments::Types;

use super::memory::Memory;
use crate::Span;

/// The span of the type data, and the types once they are indexed.
#[derive(Clone, Debug)]
pub(crate) struct LazyTypes {
    span: Option<Span>,
    read: OnceLock<Option<Arc<Types>>>,
}

impl LazyTypes {
    pub(crate) fn new(span: Option<Span>) -> Self {
        Self {
            span,
            read: OnceLock::new(),
        }
    }

    /// Sets the types, which the target's memory does not have; returns whether none were looked for before.
    pub(super) fn set(&self, types: Types) -> bool {
        self.read.set(Some(Arc::new(types))).is_ok()
    }

    /// The types, if they were indexed.
    pub(super) fn indexed(&self) -> Option<Arc<Types>> {
        self.read.get()?.clone()
    }

    /// Sets types that were indexed before, if the target's type data are those bytes.
    pub(super) fn reuse(&self, types: Arc<Types>, memory: &Memory) {
        if self.span.and_then(|span| memory.bytes(span)) == Some(types.data()) {
            // Those that are indexed already are the same.
            let _same = self.read.set(Some(types));
        }
    }

    /// The types; `None` if the target has none, or they were not read, or are damaged: they are
    /// optional.
    pub(super) fn get(&self, memory: &Memory) -> Option<&Types> {
        let read = || {
            let bytes = memory.bytes(self.span?)?;
            Types::read(bytes).ok().map(Arc::new)
        };
        self.read.get_or_init(read).as_deref()
    }
}
