//! The measurement of a process in the code cache: every block is counted, or the session's instruments run.

use egui::Ui;
use ilk_driver::process::{CachedWork, ProcessChoices};

use crate::edited::EditedSession;
use crate::process_options::choice;
use crate::state::State;
use crate::widgets;

/// Measurements: the words in the list, and their meaning.
const WORK: [(CachedWork, &str, &str); 2] = [
    (
        CachedWork::Blocks,
        "every block",
        "Every block of the program and of its libraries counts its executions. The session's instruments are not used.",
    ),
    (
        CachedWork::Instruments,
        "the session's instruments",
        "The session's instruments run in the blocks of the code cache, and no text of the process is written.",
    ),
];

/// Draws the choice.
pub(crate) fn show(ui: &mut Ui, state: &mut State) {
    let choices = state.document.choices();
    let mut cached = choices.cached;
    let is_idle = state.run.active.is_none();
    ui.add_enabled_ui(is_idle, |ui| {
        ui.horizontal_wrapped(|ui| {
            widgets::caption(ui, "measured");
            choice(ui, "Measured in the cache", &mut cached, &WORK);
        });
    });
    if cached != choices.cached {
        state.document.choose(ProcessChoices { cached, ..choices });
    }
}

/// Returns the measurement of a session that runs in the code cache: every block is counted for one without instruments.
pub(crate) fn cached_work(session: &EditedSession) -> CachedWork {
    match session.placements.is_empty() {
        true => CachedWork::Blocks,
        false => CachedWork::Instruments,
    }
}

impl State {
    /// Returns whether runs count every block of the target in the code cache.
    #[must_use]
    pub fn counts_in_cache(&self) -> bool {
        self.is_in_cache() && self.document.choices().cached == CachedWork::Blocks
    }

    /// Returns the reason why nothing can be measured in the code cache, if so.
    pub(crate) fn cache_hindrance(&self) -> Option<String> {
        if !self.machines.others.is_empty() {
            let why = "A run in the code cache is of one process; remove the other machines.";
            return Some(why.to_owned());
        }
        if !self.counts_in_cache() && self.document.session().tracepoints {
            let why = "Static probes are not switched on in the code cache; change that in the options of the session.";
            return Some(why.to_owned());
        }
        self.threads_in_cache().err()
    }
}
