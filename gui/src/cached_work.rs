//! The measurement of a process in the code cache: every block is counted, or the session's instruments run; and the fate
//! of what the process starts.

use egui::Ui;
use ilk_driver::process::{CachedChildren, CachedWork, ProcessChoices};

use crate::edited::EditedSession;
use crate::process_options::{EXEC, EXECUTED, FORKED, choice};
use crate::state::State;

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

/// Fates of forked children: the words in the list, and their meaning.
const CHILDREN: [(CachedChildren, &str, &str); 2] = [
    (
        CachedChildren::Clean,
        "are left clean",
        "The children that the process forks execute their original code.",
    ),
    (
        CachedChildren::Own,
        "have counts of their own",
        "Each child that the process forks is in a code cache of its own, with counts, samples and lanes of its own.",
    ),
];

/// Caption and name of the list.
const MEASURED: (&str, &str) = ("measured", "Measured in the cache");

/// Draws the choices.
pub(crate) fn show(ui: &mut Ui, state: &mut State) {
    let choices = state.document.choices();
    let ProcessChoices {
        mut cached,
        mut cached_children,
        mut exec,
        ..
    } = choices;
    let is_idle = state.run.active.is_none();
    ui.add_enabled_ui(is_idle, |ui| {
        choice(ui, MEASURED, &mut cached, &WORK);
        choice(ui, FORKED, &mut cached_children, &CHILDREN);
        choice(ui, EXECUTED, &mut exec, &EXEC);
    });
    let chosen = ProcessChoices {
        cached,
        cached_children,
        exec,
        ..choices
    };
    if chosen != choices {
        state.document.choose(chosen);
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
        match self.threads_in_cache() {
            Ok(threads) => {
                let why = self.document.choices().refused_in_cache(&threads)?;
                Some(format!(
                    "{why}: choose others, or leave the children clean."
                ))
            }
            Err(why) => Some(why),
        }
    }
}
