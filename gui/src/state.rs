//! State of the window.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use gilk_engine::HookType;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use gilk_engine::session::Placement;
use gilk_instruments::{Definition, Library};
use gilk_samples::export::Progress;
use ilk_driver::client::StopFlag;
use ilk_driver::process::CloneThreads;

use crate::args::Source;
use crate::call_graph::CallGraph;
use crate::calls::CallView;
use crate::catalogue::Catalogue;
use crate::command::Command;
use crate::desk::{Desk, PaneFocus};
use crate::document::Document;
use crate::draft::Draft;
use crate::editor::Editor;
use crate::function_paths::FunctionPaths;
use crate::functions::Functions;
use crate::graph::marks::Hooked;
use crate::graph::{Graph, Metrics};
use crate::history::History;
use crate::hook_facts::HookFacts;
use crate::machines::Machines;
use crate::manual::Manual;
use crate::only_while::OnlyWhile;
use crate::palette::CommandPalette;
use crate::patch_view::LastPatchView;
use crate::path_dialog::PathDialog;
use crate::placement_rows::PlacementRows;
use crate::plan_state::{PlanState, Preview, first_error};
use crate::process_dialog::ProcessDialog;
use crate::questions::Question;
use crate::recent_paths::RecentPaths;
use crate::run::Run;
use crate::schedule::Schedule;
use crate::source_lines::Lines;
use crate::statistics::Statistics;
use crate::theme::Colours;
use crate::timeline::Timeline;

pub use crate::notices::{Notice, NoticeKind};
pub use crate::target_state::TargetState;

/// State of the window; panels draw it, commands and messages change it.
#[derive(Debug)]
pub struct State {
    /// The source that was last connected to.
    pub source: Option<Source>,
    /// Status of the target.
    pub target: TargetState,
    /// The additional machines.
    pub machines: Machines,
    /// The kernel's image, once it is loaded.
    pub catalogue: Option<Arc<Catalogue>>,
    /// The threads of a process that runs execute in the code cache.
    pub only_while: OnlyWhile,
    /// Lines of the console of the lab's kernel.
    pub console: Vec<String>,
    /// The functions whose entry can be hooked, once computed.
    pub(crate) hookable: Option<Arc<BTreeSet<FunctionId>>>,
    /// The call graph, once computed.
    pub calls: Option<Arc<CallGraph>>,
    /// Source lines and files.
    pub lines: Lines,
    /// The paths through the open function.
    pub function_paths: FunctionPaths,
    /// The list of functions.
    pub functions: Functions,
    /// The graph of the open function.
    pub graph: Graph,
    /// The pane with the keyboard focus.
    pub(crate) focus: PaneFocus,
    /// The question that waits for a target.
    pub question: Option<Question>,
    /// The function whose graph is being computed.
    pub opening: Option<FunctionId>,
    /// The navigation history.
    pub history: History,
    /// The session.
    pub document: Document,
    /// The instrument that the inspector would add.
    pub draft: Draft,
    /// The library of instruments.
    pub library: Arc<Library>,
    /// The session's own instruments, as far as they are valid.
    pub own_instruments: Vec<Definition>,
    /// The filter of the list of instruments.
    pub wanted_instrument: String,
    /// The instrument editor.
    pub editor: Editor,
    /// The plan of the session.
    pub plan: PlanState,
    /// The writes of the plan shown last.
    pub(crate) patch_view: LastPatchView,
    /// The hooks that have instruments of the session.
    pub hooked: Arc<Hooked>,
    /// Facts about the instruments at the selected block.
    pub(crate) hook_facts: HookFacts,
    /// The running session and the last one.
    pub run: Run,
    /// The samples.
    pub timeline: Timeline,
    /// State of the pane of calls.
    pub call_tree: CallView,
    /// The table of statistics.
    pub statistics: Statistics,
    /// The recording being read.
    pub reading: Option<RecordingTask>,
    /// The export in progress.
    pub exporting: Option<Exporting>,
    /// Notices for the user.
    pub notices: Vec<Notice>,
    /// Notices that are not on the window any more, oldest first.
    pub log: Vec<Notice>,
    /// The open path dialog.
    pub dialog: Option<PathDialog>,
    /// The list of processes, if it is open.
    pub processes: Option<ProcessDialog>,
    /// The paths used last.
    pub(crate) recent_paths: RecentPaths,
    /// Count of path dialogs so far.
    pub(crate) dialogs: u64,
    /// The command that waits for the user's decision on unsaved changes.
    pub guard: Option<Command>,
    /// Native instruments that wait for confirmation.
    pub natives: Option<Natives>,
    /// True while the list of shortcuts is open.
    pub shortcuts: bool,
    /// The step of the tour, while it is open.
    pub tour: Option<Tour>,
    /// The manual, while it is open.
    pub manual: Option<Manual>,
    /// The palette, while it is open.
    pub palette: Option<CommandPalette>,
    /// The layout of panes.
    pub desk: Desk,
    /// The choice of colours.
    pub look: Colours,
    /// The schedule pane.
    pub schedule: Schedule,
    /// The rows of the session's table.
    pub(crate) session_rows: PlacementRows,
    /// The plan with the inspector's instrument added.
    pub preview: Preview,
    /// The plan of the inspector's instrument alone: whether its hook refuses it.
    pub offer: Preview,
    /// The metrics of the code font.
    pub metrics: Option<Metrics>,
}

impl State {
    /// Creates an empty state.
    #[must_use]
    pub fn new(library: Library) -> Self {
        let document = Document::new();
        Self {
            source: None,
            target: TargetState::None,
            machines: Machines::default(),
            catalogue: None,
            only_while: OnlyWhile::default(),
            console: Vec::new(),
            hookable: None,
            calls: None,
            lines: Lines::default(),
            function_paths: FunctionPaths::default(),
            functions: Functions::default(),
            graph: Graph::default(),
            focus: PaneFocus::default(),
            question: None,
            opening: None,
            history: History::default(),
            draft: Draft::new(document.session().duration, &library),
            document,
            library: Arc::new(library),
            own_instruments: Vec::new(),
            wanted_instrument: String::new(),
            editor: Editor::default(),
            plan: PlanState::default(),
            patch_view: LastPatchView::default(),
            hooked: Arc::default(),
            hook_facts: HookFacts::default(),
            run: Run::default(),
            timeline: Timeline::default(),
            call_tree: CallView::default(),
            statistics: Statistics::default(),
            reading: None,
            exporting: None,
            notices: Vec::new(),
            log: Vec::new(),
            dialog: None,
            processes: None,
            recent_paths: RecentPaths::default(),
            dialogs: 0,
            guard: None,
            natives: None,
            shortcuts: false,
            tour: None,
            manual: None,
            palette: None,
            desk: Desk::default(),
            look: Colours::default(),
            schedule: Schedule::default(),
            session_rows: PlacementRows::default(),
            preview: Preview::default(),
            offer: Preview::default(),
            metrics: None,
        }
    }

    /// Returns the reason why the session cannot run now, as a whole sentence, or `None` if it can.
    #[must_use]
    pub fn run_hindrance(&self) -> Option<String> {
        if let Some(hindrance) = self.target_hindrance() {
            return Some(hindrance);
        }
        if let Some(hindrance) = self.pair_hindrance() {
            return Some(hindrance);
        }
        if let Some(hindrance) = self.program_hindrance() {
            return Some(hindrance);
        }
        if self.is_in_cache() {
            let hindrance = self.cache_hindrance();
            if hindrance.is_some() || self.counts_in_cache() {
                return hindrance;
            }
        } else if let Some(hindrance) = self.choices_hindrance() {
            return Some(hindrance);
        }
        if self.document.session().placements.is_empty() {
            return Some("The session has no instruments; select a block and add one.".to_owned());
        }
        match &self.plan.outcome {
            Some(Ok(_)) if !self.plan.pending() => match &self.source {
                Some(source) if source.is_process() || source.is_in_cache() => {
                    let refusal = self.plan.process_refusal.clone();
                    refusal.or_else(|| self.machines.hindrance())
                }
                _ => self.machines.hindrance(),
            },
            Some(Err(wrong)) if !self.plan.pending() => Some(first_error(wrong)),
            _ => Some("The session is being planned.".to_owned()),
        }
    }

    /// Returns the reason why the session's program is not run during it: the target is a process, alone or with its kernel.
    fn program_hindrance(&self) -> Option<String> {
        let source = self.source.as_ref()?;
        let is_process = source.is_process() || source.is_in_cache();
        let has_program = self.document.session().workload.is_some();
        (is_process && has_program).then(|| {
            "The session runs a program, and the target is a process. Clear \u{201c}run\u{201d} in \
             the session; a program is measured itself by Program\u{2026} in the Target menu."
                .to_owned()
        })
    }

    /// Returns whether runs execute the target in the code cache.
    #[must_use]
    pub fn is_in_cache(&self) -> bool {
        self.source.as_ref().is_some_and(Source::is_in_cache)
    }

    /// Returns the threads that a run executes in the code cache.
    pub(crate) fn threads_in_cache(&self) -> Result<CloneThreads, String> {
        match self.is_in_cache() {
            true => self.only_while.threads(self.catalogue.as_ref()),
            false => Ok(CloneThreads::All),
        }
    }

    /// Returns the reason why the target cannot run a session now, if any.
    pub(crate) fn target_hindrance(&self) -> Option<String> {
        if self.run.active.is_some() {
            return Some("A session is running; stop it first.".to_owned());
        }
        match &self.target {
            TargetState::Ready(_) => None,
            TargetState::Offline => Some(
                "A saved image cannot run anything; start the lab or connect to an agent."
                    .to_owned(),
            ),
            TargetState::Busy(_) => Some("The target is not ready yet.".to_owned()),
            TargetState::Lost(why) => Some(why.clone()),
            TargetState::None => Some(
                "There is no target; open a process or start the lab from the Target menu."
                    .to_owned(),
            ),
        }
    }

    /// Returns the instruments that can be placed: the session's own and the library's. The
    /// session's own shadow instruments of the library with the same name.
    pub fn offered(&self) -> impl Iterator<Item = &Definition> {
        let hidden = |one: &Definition| {
            self.own_instruments
                .iter()
                .any(|own_instruments| own_instruments.name == one.name)
        };
        let ready = self.library.iter().filter(move |one| !hidden(one));
        self.own_instruments.iter().chain(ready)
    }

    /// Returns the instrument with the given name.
    #[must_use]
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.offered().find(|one| one.name == name)
    }

    /// Returns which fields are open that take the focus when they open.
    pub(crate) fn fields_open(&self) -> [bool; 6] {
        [
            self.dialog.is_some(),
            self.palette.is_some(),
            self.graph.find.is_some(),
            self.timeline.find.is_some(),
            self.functions.focus,
            self.timeline.is_writing(),
        ]
    }

    /// Stores the note being edited.
    pub(crate) fn finish_note(&mut self) {
        if let Some(edit) = self.timeline.finish_note() {
            self.document.write_note(edit.place, edit.note);
        }
    }

    /// Returns the placement that the inspector would add at a hook of the open function.
    #[must_use]
    pub fn drafted(&self, block: BlockIndex, hook: HookType) -> Option<Placement> {
        let scene = self.graph.scene.as_ref()?;
        let draft = &self.draft;
        let definition = self.definition(&draft.instrument);
        let (block, hook) = match definition.is_some_and(Definition::replaces) {
            true => (BlockIndex(0), HookType::Pre),
            false => (block, hook),
        };
        Some(Placement {
            function: scene.name.as_str().into(),
            block: block.0,
            hook,
            instrument: draft.instrument.as_str().into(),
            launch: draft.launch,
            splash: draft.splash,
        })
    }
}

/// A recording being read.
#[derive(Debug)]
pub struct RecordingTask {
    /// Samples read so far.
    pub done: u64,
    /// Samples in total; 0 until known.
    pub all: u64,
    /// Stops it.
    pub stop: StopFlag,
}

/// An export of a recording in progress.
#[derive(Debug)]
pub struct Exporting {
    /// The file.
    pub path: PathBuf,
    /// Progress of the export.
    pub progress: Progress,
    /// Stops it.
    pub stop: StopFlag,
}

/// Instruments of an object file that wait for confirmation.
#[derive(Debug)]
pub struct Natives {
    /// The file.
    pub path: PathBuf,
    /// Its instruments.
    pub definitions: Vec<Definition>,
}

/// Progress of the tour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tour {
    pub(crate) step: usize,
}
