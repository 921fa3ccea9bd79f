//! The window: owns the state, listens to workers, carries commands out, and draws the panels.

use std::collections::BTreeMap;

use crossbeam_channel::Receiver;
use egui::{Context, Ui, ViewportCommand};
use gilk_engine::cfg::BlockIndex;
use gilk_instruments::Library;

use crate::args::Start;
use crate::command::{self, Command};
use crate::follow::Searched;
use crate::graph::view::metrics;
use crate::keep::Keeper;
use crate::screenshot::{Shot, Wanted};
use crate::seen::Seen;
use crate::state::State;
use crate::still::Still;
use crate::worker::target::Target;
use crate::worker::{Message, Workers, files};
use crate::{palette, panels, theme, tour};

/// The program.
pub struct App {
    pub(crate) state: State,
    pub(crate) workers: Workers,
    pub(crate) inbox: Receiver<Message>,
    pub(crate) target: Option<Target>,
    /// The threads of machines beside the target, by number.
    pub(crate) beside: BTreeMap<u64, Target>,
    /// Machines beside a target there have been.
    pub(crate) machines: u64,
    /// How often sessions were planned for them.
    pub(crate) plans_beside: u64,
    /// Targets there have been.
    pub(crate) targets: u64,
    /// The function to open as soon as there is a kernel.
    pub(crate) first: Option<(String, Option<BlockIndex>)>,
    /// What the plan was last asked for.
    pub(crate) planned: Option<(u64, u64, u64)>,
    /// Sessions there have been: a new one may have the same revision as the last.
    pub(crate) documents: u64,
    /// The filter that was last searched for.
    pub(crate) searched: Option<Searched>,
    pub(crate) shot: Option<Shot>,
    /// A picture that a person asked for.
    pub(crate) wanted: Option<Wanted>,
    /// What a picture failed with.
    pub(crate) failed: std::sync::Arc<std::sync::Mutex<Option<crate::Error>>>,
    /// What has the cursor.
    pub(crate) focus: Option<egui::Id>,
    pub(crate) leaving: bool,
    /// What is to be done when the session is written.
    pub(crate) after_saving: Option<Command>,
    pub(crate) keeper: Keeper,
}

impl App {
    /// A window that begins as the arguments say.
    #[must_use]
    pub fn new(ctx: &Context, start: Start, library: Library) -> Self {
        let (workers, inbox) = Workers::start(ctx);
        ctx.add_plugin(Still::default());
        if let Some(path) = start.seen.clone() {
            ctx.add_plugin(Seen::at(path));
        }
        let mut app = Self {
            state: State::new(library),
            workers,
            inbox,
            target: None,
            beside: BTreeMap::new(),
            machines: 0,
            plans_beside: 0,
            targets: 0,
            first: start
                .function
                .clone()
                .map(|name| (name, start.block.map(BlockIndex))),
            planned: None,
            documents: 0,
            searched: None,
            shot: start.screenshot.clone().map(|path| Shot::new(path, &start)),
            wanted: None,
            failed: std::sync::Arc::default(),
            focus: None,
            leaving: false,
            after_saving: None,
            keeper: Keeper::default(),
        };
        if let Some(folder) = start.state.clone() {
            app.take_up(folder, start.session.is_some());
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

    /// What the window shows.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// What the window shows, to change.
    pub const fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Where the reason is noted if a picture that was asked for could not be made.
    #[must_use]
    pub fn failure(&self) -> std::sync::Arc<std::sync::Mutex<Option<crate::Error>>> {
        std::sync::Arc::clone(&self.failed)
    }

    /// Ends the program: the session that runs is stopped, and the target's splices are out.
    pub fn end(&mut self) {
        self.keep_no_session();
        let mut beside = std::mem::take(&mut self.beside);
        beside.values_mut().for_each(Target::cancel);
        if let Some(mut target) = self.target.take() {
            target.end();
        }
        beside.values_mut().for_each(Target::end);
    }

    /// One frame.
    pub fn frame(&mut self, ui: &mut Ui) {
        if self.state.metrics.is_none() {
            self.state.metrics = Some(metrics(ui));
        }
        self.listen(ui.ctx());
        self.keep_up();
        let asking = self.state.dialog.is_some()
            || self.state.guard.is_some()
            || self.state.natives.is_some()
            || self.state.palette.is_some();
        let mut said = if !asking {
            command::pressed(ui.ctx())
        } else {
            Vec::new()
        };
        self.state.timeline.over = None;
        panels::show(ui, &mut self.state, &mut said);
        crate::dialogs::show(ui.ctx(), &mut self.state, self.workers.mail(), &mut said);
        palette::show(ui.ctx(), &mut self.state, &mut said);
        tour::show(ui.ctx(), &mut self.state, &mut said);
        tour::manual(ui.ctx(), &mut self.state);
        for command in said {
            self.execute(command, ui.ctx());
        }
        self.end_step(ui.ctx());
        self.guard_closing(ui.ctx());
        self.keep_up();
        self.title(ui.ctx());
        self.keep(ui.ctx());
        if let Some(mut shot) = self.shot.take() {
            shot.frame(ui.ctx(), self);
            self.shot = Some(shot);
        }
        self.take_picture(ui.ctx());
        if self.state.run.active.is_some() {
            // The clock moves though nothing else does.
            ui.ctx()
                .request_repaint_after(std::time::Duration::from_millis(33));
        }
    }

    /// A step to undo ends when the mouse lets go, or the cursor goes elsewhere: one drag is one step, and so
    /// is what is typed in one go.
    fn end_step(&mut self, ctx: &Context) {
        let focus = ctx.memory(|memory| memory.focused());
        let released = ctx.input(|input| input.pointer.any_released());
        if released || focus != self.focus {
            self.focus = focus;
            self.state.document.close_step();
        }
    }

    fn guard_closing(&mut self, ctx: &Context) {
        if ctx.input(|input| input.viewport().close_requested()) && !self.leaving {
            self.state.finish_note();
            if self.state.document.unsaved() {
                ctx.send_viewport_cmd(ViewportCommand::CancelClose);
                self.execute(Command::Quit, ctx);
            } else {
                self.leaving = true;
            }
        }
    }

    fn title(&self, ctx: &Context) {
        let session = &self.state.document.session().name;
        let mark = if self.state.document.unsaved() {
            "● "
        } else {
            ""
        };
        let title = format!("{mark}{session} – GILK");
        let id = egui::Id::unique("window title");
        if ctx.data(|data| data.get_temp::<String>(id)).as_ref() != Some(&title) {
            ctx.send_viewport_cmd(ViewportCommand::Title(title.clone()));
            ctx.data_mut(|data| data.insert_temp(id, title));
        }
    }
}

impl eframe::App for App {
    fn raw_input_hook(&mut self, _ctx: &Context, input: &mut egui::RawInput) {
        if self.shot.is_some() {
            // Wherever the pointer happens to rest is no part of the picture.
            input.events.retain(|event| {
                !matches!(
                    event,
                    egui::Event::PointerMoved(_) | egui::Event::MouseMoved(_)
                )
            });
        }
    }

    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.frame(ui);
    }

    fn on_exit(&mut self, _gl: Option<&eframe::glow::Context>) {
        self.end();
    }
}
