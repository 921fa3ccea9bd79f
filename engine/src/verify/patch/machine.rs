//! The abstract machine that executes instrument code.

use super::hit::{Expected, Hit, Progress};
use super::state::State;
use crate::layout::RuntimeLayout;
use crate::plan::PatchFault;
use crate::verify::symbolic::atom::{Key, Value};
use crate::verify::symbolic::value::Values;

/// Control flow after an instruction. A progress of `None` means that the instrument is complete.
pub(crate) enum Flow {
    /// Falls through to the next instruction.
    On(Option<Progress>),
    /// Jumps to an address.
    Jump(u64),
    /// Branches conditionally.
    Branch {
        /// The branch target.
        to: u64,
        taken: Box<Way>,
        falls: Box<Way>,
    },
}

/// The state on one way of a branch.
pub(crate) struct Way {
    pub(crate) state: State,
    /// `None` if the instrument is complete on this way.
    pub(crate) progress: Option<Progress>,
    /// A reservation failed on this way, because that of another writer succeeded.
    pub(crate) failed: bool,
    /// The condition proves that this way is never taken.
    pub(crate) never: bool,
}

/// Executes instrument code on symbolic values.
pub(crate) struct Machine<'a> {
    pub(crate) layout: &'a RuntimeLayout,
    pub(crate) values: Values,
    /// Keys of the table of storage, and the addresses of their entries.
    pub(crate) entries: Vec<(Key, Value)>,
    /// The instrument whose code executes.
    pub(crate) expected: Option<&'a Expected>,
    /// Instructions that may fault, as the plan states.
    pub(crate) told: &'a [PatchFault],
    /// Instructions that may fault, as found.
    pub(crate) faults: Vec<PatchFault>,
}

impl<'a> Machine<'a> {
    pub(crate) fn hit(&mut self, expected: &'a Expected) -> Hit<'_> {
        Hit {
            expected,
            layout: self.layout,
            values: &mut self.values,
            entries: &mut self.entries,
        }
    }

    /// Returns the instrument, if it is a program in the language.
    pub(crate) fn program(&self) -> Option<&'a Expected> {
        self.expected.filter(|expected| expected.probe.is_some())
    }
}
