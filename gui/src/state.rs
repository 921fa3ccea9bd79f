//! Everything the window shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use gilk_engine::cfg::BlockIndex;
use gilk_engine::image::FunctionId;
use gilk_engine::placement::Comparison;
use gilk_engine::plan::Note;
use gilk_engine::session::Placement;
use gilk_engine::{HookType, Session, VerifiedPlan};
use gilk_instruments::{Definition, Library, Program};
use gilk_samples::export::Progress;
use ilk_driver::client::{StopFlag, TargetInfo};

use crate::args::Source;
use crate::calls::Calls;
use crate::catalogue::Catalogue;
use crate::command::Command;
use crate::desk::Desk;
use crate::document::Document;
use crate::editor::Editor;
use crate::functions::Functions;
use crate::graph::marks::Hooked;
use crate::graph::{Graph, Metrics};
use crate::history::History;
use crate::machines::Machines;
use crate::natives::Natives;
use crate::palette::Palette;
use crate::paths::Ways;
use crate::run::Run;
use crate::schedule::Schedule;
use crate::sources::Lines;
use crate::theme::Colours;
use crate::timeline::Timeline;
use crate::tour::Tour;
use crate::worker::files::Purpose;

/// Everything the window shows; panels draw it, commands and messages change it.
#[derive(Debug)]
pub struct State {
    /// Where the kernel is, as it was last asked for.
    pub source: Option<Source>,
    /// How far the target is.
    pub target: TargetState,
    /// The machines beside it.
    pub machines: Machines,
    /// The kernel, once it is loaded.
    pub catalogue: Option<Arc<Catalogue>>,
    /// What the lab's kernel has said, by line.
    pub console: Vec<String>,
    /// The functions whose entries can be hooked, once somebody has asked.
    pub(crate) hookable: Option<Arc<BTreeSet<FunctionId>>>,
    /// Who calls whom in it, once that was asked.
    pub calls: Option<Arc<Calls>>,
    /// Which lines of source code comes from.
    pub lines: Lines,
    /// The paths through the open function.
    pub ways: Ways,
    /// The list of functions.
    pub functions: Functions,
    /// The graph of the open function.
    pub graph: Graph,
    /// The function that is being made ready.
    pub opening: Option<FunctionId>,
    /// Places to go back to.
    pub history: History,
    /// The session.
    pub document: Document,
    /// The instrument that the inspector would add.
    pub draft: Draft,
    /// The instruments there are.
    pub library: Arc<Library>,
    /// The session's own, that are written as they should be.
    pub own: Vec<Definition>,
    /// What was typed to find one.
    pub wanted_instrument: String,
    /// The one that is being written.
    pub editor: Editor,
    /// Whether the session can be carried out.
    pub plan: PlanState,
    /// Which hooks the session has instruments at.
    pub hooked: Hooked,
    /// The session that runs, and the last that did.
    pub run: Run,
    /// The samples.
    pub timeline: Timeline,
    /// The recording that is being read.
    pub reading: Option<Reading>,
    /// The recording that is being written for other programs.
    pub exporting: Option<Exporting>,
    /// What went wrong or is worth knowing.
    pub notices: Vec<Notice>,
    /// A path that is asked for.
    pub dialog: Option<PathDialog>,
    /// What is to be done once a person has said what becomes of unsaved changes.
    pub guard: Option<Command>,
    /// Instruments of an object file that wait for a person's word.
    pub natives: Option<Natives>,
    /// Whether the sheet of shortcuts is open.
    pub shortcuts: bool,
    /// How far the tour is, while it is shown.
    pub tour: Option<Tour>,
    /// Whether the manual is open.
    pub manual: bool,
    /// The palette of commands, or the question where to go, while it is open.
    pub palette: Option<Palette>,
    /// Where the panes stand.
    pub desk: Desk,
    /// Which colours are wanted.
    pub look: Colours,
    /// The schedule pane.
    pub schedule: Schedule,
    /// What would be written if the inspector's instrument were added.
    pub preview: Preview,
    /// The inspector's instrument by itself, where it is pointed at: whether it can be had there.
    pub offer: Preview,
    /// How large the code font is.
    pub metrics: Option<Metrics>,
}

impl State {
    /// With nothing in it.
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
            ways: Ways::default(),
            functions: Functions::default(),
            graph: Graph::default(),
            opening: None,
            history: History::default(),
            draft: Draft::new(document.session(), &library),
            document,
            library: Arc::new(library),
            own: Vec::new(),
            wanted_instrument: String::new(),
            editor: Editor::default(),
            plan: PlanState::default(),
            hooked: Hooked::default(),
            run: Run::default(),
            timeline: Timeline::default(),
            reading: None,
            exporting: None,
            notices: Vec::new(),
            dialog: None,
            guard: None,
            natives: None,
            shortcuts: false,
            tour: None,
            manual: false,
            palette: None,
            desk: Desk::default(),
            look: Colours::default(),
            schedule: Schedule::default(),
            preview: Preview::default(),
            offer: Preview::default(),
            metrics: None,
        }
    }

    /// Why the session cannot be run now, as a whole sentence; `None` if it can.
    #[must_use]
    pub fn run_hindrance(&self) -> Option<String> {
        if let Some(hindrance) = self.target_hindrance() {
            return Some(hindrance);
        }
        if self.document.session().placements.is_empty() {
            return Some("The session has no instruments; choose a block and add one.".to_owned());
        }
        match &self.plan.outcome {
            Some(Ok(_)) if !self.plan.pending() => self.machines.hindrance(),
            Some(Err(wrong)) if !self.plan.pending() => {
                Some(wrong.first().cloned().unwrap_or_default())
            }
            _ => Some("The session is being planned.".to_owned()),
        }
    }

    /// Why the target can run nothing now, if it cannot.
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

    /// The instruments that can be placed: the session's own, which hide the library's of their names,
    /// and the library's.
    pub fn offered(&self) -> impl Iterator<Item = &Definition> {
        let hidden = |one: &Definition| self.own.iter().any(|own| own.name == one.name);
        let ready = self.library.iter().filter(move |one| !hidden(one));
        self.own.iter().chain(ready)
    }

    /// The instrument of a name.
    #[must_use]
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.offered().find(|one| one.name == name)
    }

    /// Tells a person something.
    pub fn tell(&mut self, kind: NoticeKind, words: impl Into<String>) {
        let words = words.into();
        // What went well is of interest until something else does.
        self.notices.retain(|notice| {
            notice.words != words && (kind, notice.kind) != (NoticeKind::Good, NoticeKind::Good)
        });
        self.notices.push(Notice { kind, words });
        if self.notices.len() > 4 {
            self.notices.remove(0);
        }
    }

    /// The placement that the inspector would add at a hook of the open function.
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
            timer: if draft.timed(&self.library) {
                draft.timer
            } else {
                0
            },
        })
    }
}

/// A recording that is being read.
#[derive(Debug)]
pub struct Reading {
    /// Samples so far.
    pub done: u64,
    /// Samples that it has; 0 until that is known.
    pub all: u64,
    /// Ends it.
    pub stop: StopFlag,
}

/// A recording that is being written for other programs.
#[derive(Debug)]
pub struct Exporting {
    /// Where.
    pub path: PathBuf,
    /// How far that is.
    pub progress: Progress,
    /// Ends it.
    pub stop: StopFlag,
}

/// How far the target is.
#[derive(Debug)]
pub enum TargetState {
    /// None was asked for.
    None,
    /// Being made ready.
    Busy(crate::worker::Progress),
    /// A saved image: to look at only.
    Offline,
    /// Ready to run sessions.
    Ready(TargetInfo),
    /// It could not be had, or is gone: why.
    Lost(String),
}

/// The instrument that the inspector would add.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Before or after the block.
    pub hook: HookType,
    /// Its name in the library.
    pub instrument: String,
    /// Seconds from the start.
    pub launch: f64,
    /// Seconds from the start.
    pub splash: f64,
    /// The thread's timer, if it is one that times.
    pub timer: u8,
}

impl Draft {
    fn new(session: &Session, library: &Library) -> Self {
        let instrument = library
            .get("timestamp")
            .ok()
            .or_else(|| library.iter().next())
            .map(|first| first.name.clone());
        Self {
            hook: HookType::Pre,
            instrument: instrument.unwrap_or_default(),
            launch: 0.0,
            splash: session.duration,
            timer: 0,
        }
    }

    /// Whether the instrument starts or stops a timer.
    #[must_use]
    pub fn timed(&self, library: &Library) -> bool {
        library
            .get(&self.instrument)
            .is_ok_and(|found| matches!(found.program, Program::StartTimer | Program::StopTimer))
    }

    /// Keeps its times inside a session whose duration changed.
    pub fn fit(&mut self, before: f64, duration: f64) {
        if self.splash == before || self.splash > duration {
            self.splash = duration;
        }
        if self.launch >= self.splash {
            self.launch = 0.0;
        }
    }
}

/// Changes a session's duration. What lasted to the end still does; what would last longer ends then.
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

/// Whether the session can be carried out.
#[derive(Debug, Default)]
pub struct PlanState {
    /// The number of the last planning that was asked for.
    pub asked: u64,
    /// The number of the last that was answered.
    pub answered: u64,
    /// The plan, or what is wrong with the session.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
    /// What the instruments of each function cost in place and whole, by the session's name for it.
    pub compared: BTreeMap<String, Comparison>,
}

impl PlanState {
    /// What a person should know of the plan.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        match &self.outcome {
            Some(Ok(plan)) => &plan.plan().notes,
            _ => &[],
        }
    }

    /// Whether an answer is still to come.
    #[must_use]
    pub const fn pending(&self) -> bool {
        self.asked != self.answered
    }
}

/// What would be written if the inspector's instrument were added where it stands.
#[derive(Debug, Default)]
pub struct Preview {
    /// What it was last asked for: session, block, draft.
    pub(crate) asked: Option<Previewed>,
    /// The number of the last question.
    pub(crate) number: u64,
    /// The plan, or why there is none.
    pub outcome: Option<Result<Arc<VerifiedPlan>, Vec<String>>>,
}

impl Preview {
    /// Why it cannot be had, if that is known.
    #[must_use]
    pub fn refused(&self) -> Option<&[String]> {
        self.outcome.as_ref()?.as_ref().err().map(Vec::as_slice)
    }

    /// Asks anew, if that is not what was asked last: the number of the question.
    pub(crate) fn ask(&mut self, wanted: Option<Previewed>) -> Option<(u64, Placement)> {
        if wanted == self.asked {
            return None;
        }
        self.asked = wanted;
        self.number += 1;
        self.outcome = None;
        let asked = self.asked.as_ref()?;
        Some((self.number, asked.placement.clone()))
    }
}

/// What a preview was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Previewed {
    pub(crate) plan: u64,
    pub(crate) placement: Placement,
}

/// Something a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How bad it is.
    pub kind: NoticeKind,
    /// Whole sentences: what happened, and what to do.
    pub words: String,
}

/// How bad a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Something went as wanted.
    Good,
    /// Something to look at.
    Warning,
    /// Something did not work.
    Bad,
}

/// A path that is asked for, with the desktop's dialog beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct PathDialog {
    /// What it is for.
    pub purpose: Purpose,
    /// What was typed.
    pub text: String,
    /// Whether the desktop's dialog is open.
    pub browsing: bool,
    /// What is to be done when the file is written.
    pub then: Option<Command>,
    /// Whether the field has had the cursor.
    pub focused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_to_the_end_still_does_when_the_end_moves() {
        let mut session = Session::empty();
        let placement = |launch, splash| Placement {
            function: "f".into(),
            block: 0,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch,
            splash,
            timer: 0,
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
