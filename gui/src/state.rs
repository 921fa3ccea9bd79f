//! State of the window.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use gilk_engine::placement::Comparison;
use gilk_engine::plan::{HitCosts, Note};
use gilk_engine::session::Placement;
use gilk_engine::{HookType, Session, VerifiedPlan};
use gilk_instruments::{Definition, Library};
use gilk_samples::export::Progress;
use ilk_driver::client::StopFlag;

use crate::args::Source;
use crate::call_graph::CallGraph;
use crate::calls::CallView;
use crate::catalogue::Catalogue;
use crate::command::Command;
use crate::desk::{Desk, PaneFocus};
use crate::document::Document;
use crate::editor::Editor;
use crate::function_paths::FunctionPaths;
use crate::functions::Functions;
use crate::graph::marks::Hooked;
use crate::graph::{Graph, Metrics};
use crate::history::History;
use crate::hook_facts::HookFacts;
use crate::machines::Machines;
use crate::manual::Manual;
use crate::palette::CommandPalette;
use crate::placement_rows::PlacementRows;
use crate::plan_reply::PlanReply;
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

use crate::purpose::Purpose;

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
    /// The hooks that have instruments of the session.
    pub hooked: Hooked,
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
            draft: Draft::new(document.session(), &library),
            document,
            library: Arc::new(library),
            own_instruments: Vec::new(),
            wanted_instrument: String::new(),
            editor: Editor::default(),
            plan: PlanState::default(),
            hooked: Hooked::default(),
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
        if self.document.session().placements.is_empty() {
            return Some("The session has no instruments; select a block and add one.".to_owned());
        }
        match &self.plan.outcome {
            Some(Ok(_)) if !self.plan.pending() => self.machines.hindrance(),
            Some(Err(wrong)) if !self.plan.pending() => Some(first_error(wrong)),
            _ => Some("The session is being planned.".to_owned()),
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
            TargetState::None | TargetState::Lost(_) => {
                Some("There is no target; start the lab from the Target menu.".to_owned())
            }
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

/// The instrument that the inspector would add.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Pre-hook or post-hook.
    pub hook: HookType,
    /// Name of the instrument.
    pub instrument: String,
    /// Launch in seconds.
    pub launch: f64,
    /// Splash in seconds.
    pub splash: f64,
    /// True while the splash is the end of the session, whatever that is.
    pub to_end: bool,
}

/// Returns the instrument that the inspector offers first.
pub(crate) fn first_instrument(library: &Library) -> String {
    let timestamp = library.get("timestamp").ok();
    let first = timestamp.or_else(|| library.iter().next());
    first.map(|first| first.name.clone()).unwrap_or_default()
}

impl Draft {
    fn new(session: &Session, library: &Library) -> Self {
        Self {
            hook: HookType::Pre,
            instrument: first_instrument(library),
            launch: 0.0,
            splash: session.duration,
            to_end: true,
        }
    }

    /// Sets the times to the whole of another session.
    pub(crate) fn reset(&mut self, session: &Session) {
        (self.launch, self.splash, self.to_end) = (0.0, session.duration, true);
    }

    /// Sets the splash, which follows the end of the session once it is there.
    pub(crate) fn set_splash(&mut self, splash: f64, duration: f64) {
        (self.splash, self.to_end) = (splash, splash == duration);
    }

    /// Keeps launch and splash inside a session of this duration.
    pub(crate) fn follow(&mut self, duration: f64) {
        self.to_end |= self.splash > duration;
        if self.to_end {
            self.splash = duration;
        }
        if self.launch >= self.splash {
            self.launch = 0.0;
        }
    }
}

/// Returns the reason why a session cannot get this duration: a time of an instrument or of the
/// program would be after its end. Splashes at the end move with it.
pub(crate) fn too_short(session: &Session, duration: f64) -> Option<String> {
    let splashes = session
        .placements
        .iter()
        .filter(|one| one.splash != session.duration);
    let last = splashes.map(|one| one.splash).fold(0.0, f64::max);
    if last > duration {
        return Some(format!(
            "An instrument is in place until {last} s. Change its splash first."
        ));
    }
    let launch = session
        .placements
        .iter()
        .map(|one| one.launch)
        .fold(0.0, f64::max);
    if launch > 0.0 && launch >= duration {
        return Some(format!(
            "An instrument launches at {launch} s. Change its launch first."
        ));
    }
    let start = session
        .workload
        .as_ref()
        .map_or(0.0, |workload| workload.start);
    (start > duration).then(|| format!("The program starts at {start} s. Change its start first."))
}

/// Changes a session's duration. A splash at the end moves with the end; a later splash is moved to
/// the end.
pub fn set_duration(session: &mut Session, duration: f64) {
    let before = session.duration;
    session.duration = duration;
    for placement in &mut session.placements {
        if placement.splash == before || placement.splash > duration {
            placement.splash = duration;
        }
        if placement.launch >= placement.splash {
            placement.launch = 0.0;
        }
    }
    if let Some(workload) = &mut session.workload {
        workload.start = workload.start.min(duration);
    }
}

/// Returns the first error of a refused plan. A refusal without an error is a bug of the planner.
pub(crate) fn first_error(errors: &[String]) -> String {
    debug_assert!(!errors.is_empty(), "a plan was refused without an error");
    let first = errors.first().cloned();
    first.unwrap_or_else(|| "Internal error: a plan was refused without a reason.".to_owned())
}

/// State of the session's plan.
#[derive(Debug, Default)]
pub struct PlanState {
    /// Number of the last request.
    pub requested: u64,
    /// Number of the last reply.
    pub answered: u64,
    /// The plan, or the errors of the session.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
    /// Costs in place and whole of each function, by its session name.
    pub compared: BTreeMap<String, Comparison>,
    /// The index of the placement that the errors are about, if they are about one.
    pub fault: Option<usize>,
    /// True until the table of the session has scrolled to the faulty placement.
    pub(crate) fault_unseen: bool,
    /// Size of all patches of the plan in bytes.
    pub(crate) bytes: usize,
}

impl PlanState {
    /// Returns the plan's notes.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        match &self.outcome {
            Some(Ok(plan)) => &plan.plan().notes,
            _ => &[],
        }
    }

    /// Takes a reply of the planner.
    pub(crate) fn answer(&mut self, reply: PlanReply) {
        self.answered = self.requested;
        self.fault_unseen = reply.fault.is_some() && reply.fault != self.fault;
        self.fault = reply.fault;
        self.compared = reply.compared;
        self.bytes = match &reply.outcome {
            Ok(verified) => {
                let patches = verified.plan().patches.iter();
                patches.map(|patch| patch.code.len()).sum()
            }
            Err(_) => 0,
        };
        self.outcome = Some(reply.outcome);
    }

    /// Returns whether a reply is pending.
    #[must_use]
    pub const fn pending(&self) -> bool {
        self.requested != self.answered
    }
}

/// A plan with the inspector's instrument added.
#[derive(Debug, Default)]
pub struct Preview {
    /// The last request.
    pub(crate) requested: Option<PreviewRequest>,
    /// Number of the last request.
    pub(crate) number: u64,
    /// The plan, or the errors.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
    /// The estimated nanoseconds of a hit of the added instrument, once it is planned.
    pub(crate) hit_ns: Option<f64>,
}

impl Preview {
    /// Stores the answer to the last request; the added placement has this index.
    pub(crate) fn answer(
        &mut self,
        outcome: Result<Arc<VerifiedPlan>, Vec<String>>,
        placement: usize,
    ) {
        self.hit_ns = outcome.as_ref().ok().and_then(|plan| {
            let plan = plan.plan();
            let one = (plan.instruments.iter()).find(|one| one.placement == placement)?;
            let mut costs = HitCosts::of(plan).of_instruments(|id| id == one.id);
            costs.remove(&one.id)
        });
        self.outcome = Some(outcome);
    }

    /// Returns the reasons why the placement is refused, if it is.
    #[must_use]
    pub fn refused(&self) -> Option<&[String]> {
        self.outcome.as_ref()?.as_ref().err().map(Vec::as_slice)
    }

    /// Makes a request if it differs from the last one, and returns its number.
    pub(crate) fn request(&mut self, wanted: Option<PreviewRequest>) -> Option<(u64, Placement)> {
        if wanted == self.requested {
            return None;
        }
        self.requested = wanted;
        self.number += 1;
        self.outcome = None;
        self.hit_ns = None;
        let requested = self.requested.as_ref()?;
        Some((self.number, requested.placement.clone()))
    }
}

/// The plan and placement for which a preview was requested.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PreviewRequest {
    pub(crate) plan: u64,
    pub(crate) placement: Placement,
}

/// The dialog for a path, with the command that uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct PathDialog {
    /// Purpose of the path.
    pub purpose: Purpose,
    /// The typed path.
    pub text: String,
    /// True while the desktop's file dialog is open.
    pub browsing: bool,
    /// The command to execute once the file is written.
    pub then: Option<Command>,
    /// True once the field has had the focus.
    pub focused: bool,
    /// Number of the dialog: each has a field with a cursor of its own.
    pub number: u64,
    /// The question about the typed path, which the next click answers.
    pub question: Option<PathQuestion>,
    /// The path whose completions were requested last.
    pub(crate) completed: Option<String>,
    /// Paths that begin as the typed one.
    pub completions: Vec<String>,
}

/// A question about a path before something is created or replaced there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathQuestion {
    /// The path that was typed.
    pub path: PathBuf,
    /// The condition, as a whole sentence.
    pub words: String,
    /// Label of the button that goes ahead.
    pub verb: &'static str,
}

impl PathQuestion {
    /// Returns the question about a path to write to, if there is one; `own` is the file that the
    /// session has already.
    pub(crate) fn of(path: &std::path::Path, own: Option<&std::path::Path>) -> Option<Self> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let (words, verb) = match folder.filter(|folder| !folder.exists()) {
            Some(folder) => (
                format!("The folder {} does not exist.", folder.display()),
                "Create folder and save",
            ),
            None if path.is_dir() => {
                let words = format!("{} is a folder. Add the name of a file.", path.display());
                (words, "Save")
            }
            None if path.exists() && own != Some(path) => {
                (format!("{} exists.", path.display()), "Replace file")
            }
            None => return None,
        };
        Some(Self {
            path: path.to_path_buf(),
            words,
            verb,
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splash_at_the_end_moves_with_the_end() {
        let mut session = Session::empty();
        let placement = |launch, splash| Placement {
            function: "f".into(),
            block: 0,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch,
            splash,
        };
        session.placements = vec![
            placement(0.0, 10.0),
            placement(1.0, 4.0),
            placement(6.0, 8.0),
        ];
        set_duration(&mut session, 20.0);
        assert_eq!(session.placements[0].splash, 20.0);
        assert_eq!(session.placements[1].splash, 4.0);
        set_duration(&mut session, 5.0);
        assert!(session.check().is_ok(), "{:?}", session.check());
    }
}
