//! The instrument editor: its text, errors while typing, and the generated code at the inspector's
//! hook.

mod check;
mod highlight;
pub(crate) mod pane;

use std::path::PathBuf;
use std::sync::Arc;

use gilk_engine::VerifiedPlan;
use gilk_engine::session::Placement;
use gilk_instruments::editor::Edited;

/// State of the editor.
#[derive(Debug, Default)]
pub struct Editor {
    /// The text, if an instrument is open.
    pub text: Option<String>,
    /// The file that it was read from or written to.
    pub path: Option<PathBuf>,
    /// The text and function that were checked last.
    checked: Option<(String, Option<String>)>,
    /// Result of the check.
    pub edited: Option<Edited>,
    /// The last compile request.
    request: Option<CompileRequest>,
    /// Number of the last compile request.
    pub(crate) number: u64,
    /// The plan with only this instrument, or the errors.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
}

/// A compile request: text, placement, and state of the target.
#[derive(Clone, Debug, PartialEq)]
struct CompileRequest {
    text: String,
    placement: Placement,
    target: u64,
}

impl Editor {
    /// Opens a text.
    pub(crate) fn open(&mut self, text: String, path: Option<PathBuf>) {
        *self = Self {
            text: Some(text),
            path,
            number: self.number,
            ..Self::default()
        };
    }

    /// Returns the name of the instrument, if it has no errors.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let good = self.edited.as_ref()?.good.as_ref()?;
        Some(&good.definition.name)
    }
}
