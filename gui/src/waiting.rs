//! Instruments in libraries that the process has not loaded yet: they are placed when it loads them.

use std::sync::Arc;

use egui::{RichText, Ui};
use gilk_engine::code::Origin;
use gilk_samples::metadata::Metadata;
use ilk_driver::process::ProcessLayouts;

use crate::app::App;
use crate::catalogue::Catalogue;
use crate::machines::Machines;
use crate::run::Run;
use crate::state::State;
use crate::theme::Tokens;
use crate::widgets;

impl State {
    /// Returns the process whose functions are shown, if they are of one.
    pub(crate) fn shown_process(&self) -> Option<&ProcessLayouts> {
        process(self.catalogue.as_deref(), &self.machines)
    }

    /// Returns whether the functions that are shown are those of a process.
    #[must_use]
    pub fn shows_process(&self) -> bool {
        let catalogue = self.catalogue.as_ref();
        catalogue.is_some_and(|catalogue| catalogue.image().origin() == Origin::Object)
    }

    /// Returns the library of a function, if the process has not loaded it.
    pub(crate) fn awaited<'f>(&self, function: &'f str) -> Option<&'f str> {
        awaited(self.shown_process(), &self.run, function)
    }
}

/// Returns the process whose functions a catalogue has, if they are of one.
pub(crate) fn process<'m>(
    catalogue: Option<&Catalogue>,
    machines: &'m Machines,
) -> Option<&'m ProcessLayouts> {
    let is_process = catalogue?.image().origin() == Origin::Object;
    machines.process.as_ref().filter(|_| is_process)
}

/// Returns the library of a function, if the process that is shown has not loaded it.
pub(crate) fn awaited<'f>(
    process: Option<&ProcessLayouts>,
    run: &Run,
    function: &'f str,
) -> Option<&'f str> {
    let library = process?.awaited(function)?;
    (!has_loaded(run, library)).then_some(library)
}

/// Returns whether the process has loaded a library, and it has its instruments, since the start of the run.
fn has_loaded(run: &Run, library: &str) -> bool {
    let active = run.active.as_ref();
    active.is_some_and(|active| active.loaded.contains(library))
}

/// Shows which instruments wait for which library.
pub(crate) fn show(ui: &mut Ui, state: &State) {
    let tokens = Tokens::of(ui);
    for (library, count) in &state.plan.waiting {
        let instruments = widgets::counted(*count, "instrument");
        let (words, color) = match has_loaded(&state.run, library) {
            true => (
                format!("{library} was loaded: {instruments} in it."),
                tokens.good,
            ),
            false => (
                format!("Placed when {library} is loaded: {instruments}."),
                tokens.weak,
            ),
        };
        ui.label(RichText::new(words).small().color(color));
    }
}

impl App {
    /// Shows what the recording of the running session has besides what it had at the start: libraries that the process has
    /// loaded, other processes, and programs that they execute.
    pub(crate) fn described_further(&mut self, described: Metadata) {
        let Some(active) = &mut self.state.run.active else {
            return;
        };
        let process = self.state.machines.process.as_ref();
        let functions = described.functions.iter();
        let awaited = functions.filter_map(|one| process?.awaited(&one.name));
        active.loaded.extend(awaited.map(str::to_owned));
        // The recording is read again at the end: it also has what is drawn of levels and threads there.
        active.is_several = true;
        self.state.timeline.describe(Arc::new(described));
    }
}
