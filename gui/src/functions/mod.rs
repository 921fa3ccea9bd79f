//! State of the list of functions.
//!
//! `pane` draws it.

pub(crate) mod pane;

use std::collections::BTreeSet;
use std::sync::Arc;

use gilk_engine::code::FunctionId;

use crate::live::Live;

/// State of the list.
#[derive(Debug, Default)]
pub struct Functions {
    /// Text of the filter.
    pub filter: String,
    /// The matching functions, best first.
    pub found: Arc<Vec<FunctionId>>,
    /// The filter that `found` answers.
    pub answered: Option<String>,
    /// The scope of the list.
    pub scope: Scope,
    /// True while the set of functions that can be hooked is being computed.
    pub(crate) looking: bool,
    /// The row that Enter opens.
    pub row: usize,
    /// Requests the keyboard focus for the filter.
    pub focus: bool,
    pub(crate) scroll_to_row: bool,
    /// True once the source file of each function is known.
    pub(crate) filed: bool,
    /// The functions with hits, while the scope needs them.
    pub(crate) hot: Live<(u64, u64), Arc<BTreeSet<FunctionId>>>,
}

impl Functions {
    /// Stores the result of a search.
    pub fn answer(&mut self, filter: String, found: Arc<Vec<FunctionId>>) {
        self.found = found;
        self.answered = Some(filter);
        self.row = 0;
        self.scroll_to_row = true;
    }

    /// Scrolls to a function's row, if it is listed.
    pub fn reveal(&mut self, function: FunctionId) {
        if let Some(row) = self.found.iter().position(|&found| found == function) {
            self.row = row;
            self.scroll_to_row = true;
        }
    }

    /// Clears everything except the filter's text.
    pub fn clear(&mut self) {
        self.found = Arc::default();
        self.answered = None;
        self.row = 0;
    }
}

/// Scope of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Every function.
    #[default]
    All,
    /// Functions with instruments of the session.
    Touched,
    /// Functions hit in the run on the timeline.
    Hot,
    /// Functions of modules.
    Modules,
    /// Functions whose entry can be hooked.
    Hookable,
}

impl Scope {
    pub(crate) const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::All, "all", "every function"),
        (
            Self::Touched,
            "touched",
            "functions with instruments of the session",
        ),
        (Self::Hot, "hot", "functions hit in the run on the timeline"),
        (Self::Modules, "modules", "functions of loaded modules"),
        (
            Self::Hookable,
            "hookable",
            "functions whose entry can be hooked",
        ),
    ];
}
