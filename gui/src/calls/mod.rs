//! The calls of a recording: callees below their callers, each as wide as its time.
//!
//! `run` reads them on a thread, `shape` lays them out, `pane` draws them.

pub(crate) mod pane;
mod run;
pub mod shape;

use gilk_samples::calls::{CallId, ROOT};

pub use run::{CallRun, CallsKey, CallsRequest};

use crate::{Error, Result};

/// State of the pane.
#[derive(Debug, Default)]
pub struct CallView {
    /// Text of the filter: calls whose function contains it are marked.
    pub filter: String,
    /// The call that has the full width; `None` for all calls.
    pub zoomed: Option<CallId>,
    /// The request that a thread works on.
    pub(crate) requested: Option<CallsRequest>,
    /// The last answer, and the contents that it answers.
    answer: Option<(CallsKey, Result<Box<CallRun>>)>,
}

impl CallView {
    /// Returns the calls, if they were read.
    #[must_use]
    pub fn run(&self) -> Option<&CallRun> {
        self.answer.as_ref()?.1.as_deref().ok()
    }

    /// Returns the call that has the full width.
    #[must_use]
    pub fn top(&self) -> CallId {
        self.zoomed.unwrap_or(ROOT)
    }

    /// Returns the error of the last reading.
    pub(crate) fn error(&self) -> Option<&Error> {
        self.answer.as_ref()?.1.as_ref().err()
    }

    /// Returns whether the last answer has these contents.
    pub(crate) fn answers(&self, key: &CallsKey) -> bool {
        self.answer.as_ref().is_some_and(|(known, _)| known == key)
    }

    /// Forgets the last answer, so that the recording is read again.
    pub(crate) fn forget(&mut self) {
        self.answer = None;
    }

    /// Takes the answer of a request.
    pub(crate) fn answer(&mut self, key: CallsKey, read: Result<Box<CallRun>>) {
        self.requested = None;
        self.zoomed = None;
        self.answer = Some((key, read));
    }
}
