//! The application: the state of the window, its workers, and its connections. `frame` draws it,
//! `execute` executes its commands, `inbox` handles messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Receiver;
use egui::Context;
use gilk_engine::cfg::BlockIndex;
use gilk_instruments::Library;

use crate::args::Start;
use crate::command::Command;
use crate::derived::Derived;
use crate::graph::marks::Hooked;
use crate::input_hold::InputHold;
use crate::screenshot::{PictureRequest, Shot};
use crate::state::State;
use crate::state_saver::StateSaver;
use crate::theme;
use crate::widget_dump::WidgetDump;
use crate::worker::searcher::SearchKey;
use crate::worker::target::{END_LIMIT, Target};
use crate::worker::{Message, Workers, files};

/// The application.
pub struct App {
    pub(crate) state: State,
    pub(crate) workers: Workers,
    pub(crate) inbox: Receiver<Message>,
    pub(crate) target: Option<Target>,
    /// The connections to additional machines, by number.
    pub(crate) machine_threads: BTreeMap<u64, Target>,
    /// Count of additional machines so far; the source of their numbers.
    pub(crate) machines: u64,
    /// Count of plans requested for additional machines.
    pub(crate) machine_plans: u64,
    /// Count of targets so far; the source of their numbers.
    pub(crate) targets: u64,
    /// The function to open as soon as an image is loaded.
    pub(crate) first: Option<(String, Option<BlockIndex>)>,
    /// The document, revision and target of the last plan request.
    pub(crate) planned: Option<(u64, u64, u64)>,
    /// The process that the last planned session is hit by alone.
    pub(crate) within: Option<u32>,
    /// True while a change waits for the pause of a drag before it is planned.
    pub(crate) plan_waits: bool,
    /// The document and revision seen last, and the time of the change to it.
    pub(crate) edited: ((u64, u64), Instant),
    /// The sources of `own_instruments`.
    pub(crate) own_sources: BTreeMap<String, String>,
    /// The marks of hooks, by the hooks of the session and the target.
    pub(crate) marks: Derived<(u64, u64), Arc<Hooked>>,
    /// Count of sessions so far: a new session may have the same revision as the last one.
    pub(crate) documents: u64,
    /// The last search request.
    pub(crate) searched: Option<SearchKey>,
    pub(crate) shot: Option<Shot>,
    /// A picture requested by the user.
    pub(crate) picture_request: Option<PictureRequest>,
    /// The reason why a picture could not be made.
    pub(crate) failure: std::sync::Arc<std::sync::Mutex<Option<crate::Error>>>,
    /// The widget that has the keyboard focus.
    pub(crate) focus: Option<egui::Id>,
    /// True if a text field had the focus at the end of the last frame.
    pub(crate) typed: bool,
    pub(crate) leaving: bool,
    /// Count of searches so far.
    pub(crate) searches: u64,
    /// The command to execute once the session is saved.
    pub(crate) after_saving: Option<Command>,
    pub(crate) state_saver: StateSaver,
}

impl App {
    /// Creates the application as the arguments specify.
    #[must_use]
    pub fn new(ctx: &Context, start: Start, library: Library) -> Self {
        let (workers, inbox) = Workers::start(ctx);
        ctx.add_plugin(InputHold::default());
        if let Some(path) = start.widgets.clone() {
            ctx.add_plugin(WidgetDump::at(path));
        }
        let mut app = Self {
            state: State::new(library),
            workers,
            inbox,
            target: None,
            machine_threads: BTreeMap::new(),
            machines: 0,
            machine_plans: 0,
            targets: 0,
            first: start
                .function
                .clone()
                .map(|name| (name, start.block.map(BlockIndex))),
            planned: None,
            within: None,
            plan_waits: false,
            edited: ((0, 0), Instant::now()),
            own_sources: BTreeMap::new(),
            marks: Derived::default(),
            documents: 0,
            searched: None,
            shot: start.screenshot.clone().map(|path| Shot::new(path, &start)),
            picture_request: None,
            failure: std::sync::Arc::default(),
            focus: None,
            typed: false,
            leaving: false,
            searches: 0,
            after_saving: None,
            state_saver: StateSaver::default(),
        };
        if let Some(folder) = start.state.clone() {
            app.restore(folder, start.session.is_some());
        }
        if start.source().is_some()
            || !start.target.is_empty()
            || start.session.is_some()
            || start.recording.is_some()
        {
            // The tour starts from an empty window.
            app.state.tour = None;
        }
        if let Some(theme) = start.theme {
            app.state.look = theme.into();
        }
        theme::install(ctx, app.state.look);
        if let Some(source) = start.source() {
            app.connect(source);
        }
        if !start.target.is_empty() {
            app.add_machines(start.target);
        }
        if let Some(path) = start.session {
            files::read_session(app.workers.mail(), path);
        }
        if let Some(path) = start.recording {
            app.read_recording(path);
        }
        app
    }

    /// Returns the state that the window shows.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the state that the window shows, mutably.
    pub const fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Returns the slot for the reason why a requested picture could not be made.
    #[must_use]
    pub fn failure(&self) -> std::sync::Arc<std::sync::Mutex<Option<crate::Error>>> {
        std::sync::Arc::clone(&self.failure)
    }

    /// Ends the program: stops the running session and removes all splices from the target.
    pub fn end(&mut self) {
        self.remove_unsaved_session();
        let machines = std::mem::take(&mut self.machine_threads).into_values();
        let mut targets: Vec<Target> = machines.chain(self.target.take()).collect();
        // All of them end at the same time.
        targets.iter_mut().for_each(Target::cancel);
        let deadline = Instant::now() + END_LIMIT;
        for target in &mut targets {
            target.end(deadline);
        }
    }
}
