//! The abstract machine that executes instrument code.

use super::descriptor::Descriptor;
use super::hit::{Expected, HitRules, Progress};
use super::state::AbstractState;
use crate::Addr;
use crate::layout::RuntimeLayout;
use crate::plan::PatchFault;
use crate::unwind::Row;
use crate::verify::symbolic::atom::{Key, SymValue};
use crate::verify::symbolic::value::SymValues;

/// Control flow after an instruction. A progress of `None` means that the instrument is complete.
pub(crate) enum MachineFlow {
    /// Falls through to the next instruction.
    On(Option<Progress>),
    /// Jumps to an address.
    Jump(u64),
    /// Branches conditionally.
    Branch {
        /// The branch target.
        to: u64,
        taken: Box<BranchWay>,
        falls: Box<BranchWay>,
    },
}

/// The state on one way of a branch.
pub(crate) struct BranchWay {
    pub(crate) state: AbstractState,
    /// `None` if the instrument is complete on this way.
    pub(crate) progress: Option<Progress>,
    /// A reservation failed on this way, because that of another writer succeeded.
    pub(crate) failed: bool,
    /// The condition proves that this way is never taken.
    pub(crate) never: bool,
}

/// Executes instrument code on symbolic values.
pub(crate) struct InstrumentMachine<'a> {
    pub(crate) layout: &'a RuntimeLayout,
    /// Bytes on the stack that the splice has pushed. They are not the patch's to read, write or pop.
    pub(crate) entered: u64,
    pub(crate) values: SymValues,
    /// Keys of the table of storage, and the addresses of their entries.
    pub(crate) entries: Vec<(Key, SymValue)>,
    /// Numbers of the thread's CPU, as instructions have read them, with whose rows of words programs work.
    pub(crate) rows: Vec<SymValue>,
    /// The instrument whose code executes.
    pub(crate) expected: Option<&'a Expected>,
    /// Descriptors of the patch's restartable sequences.
    pub(crate) descriptors: Vec<Descriptor>,
    /// Instructions that may fault, as the plan states.
    pub(crate) planned_faults: &'a [PatchFault],
    /// The unwind rows of the patch, and its start, from which they count.
    pub(crate) unwind_rows: (&'a [Row], Addr),
    /// Instructions that may fault, as found.
    pub(crate) faults: Vec<PatchFault>,
    /// Bytes of the stack that the target's code which reads the process uses, at most, if it is called.
    pub(crate) reader_stack: u64,
}

impl<'a> InstrumentMachine<'a> {
    pub(crate) fn hit(&mut self, expected: &'a Expected) -> HitRules<'_> {
        HitRules {
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
