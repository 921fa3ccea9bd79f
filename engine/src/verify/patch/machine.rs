//! The abstract machine that runs instrument code.

use super::hit::{Expected, Hit, Progress};
use super::state::State;
use crate::layout::RuntimeLayout;
use crate::plan::PatchFault;
use crate::verify::symbolic::atom::{Key, Value};
use crate::verify::symbolic::value::Values;

/// Where control goes after an instruction. A progress of `None` means that the instrument is done.
pub(crate) enum Flow {
    /// To the next instruction.
    On(Option<Progress>),
    /// To an address.
    Jump(u64),
    /// Either way.
    Branch {
        /// The address of the branch taken.
        to: u64,
        taken: Box<Way>,
        falls: Box<Way>,
    },
}

/// One way of a branch.
pub(crate) struct Way {
    pub(crate) state: State,
    /// `None` if the instrument is done on this way.
    pub(crate) progress: Option<Progress>,
    /// Whether a reservation has failed on this way, because someone else's succeeded.
    pub(crate) failed: bool,
    /// Whether nobody comes this way.
    pub(crate) never: bool,
}

/// Runs instrument code on what is known.
pub(crate) struct Machine<'a> {
    pub(crate) layout: &'a RuntimeLayout,
    pub(crate) values: Values,
    /// Keys of the table of timers, and where their entries were found.
    pub(crate) entries: Vec<(Key, Value)>,
    /// The instrument whose code runs.
    pub(crate) expected: Option<&'a Expected>,
    /// Which instructions may fault, by the plan.
    pub(crate) told: &'a [PatchFault],
    /// Those that do.
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

    /// The instrument, if it is one in the language.
    pub(crate) fn program(&self) -> Option<&'a Expected> {
        self.expected.filter(|expected| expected.probe.is_some())
    }
}
