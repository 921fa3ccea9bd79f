//! Execution of commands.

use std::path::PathBuf;
use std::sync::Arc;

use egui::{Context, Theme, ViewportCommand};
use gilk_engine::VerifiedPlan;
use gilk_engine::placement::Style;
use gilk_samples::index::Shared;
use ilk_driver::client::StopFlag;
use ilk_driver::process::ProcessChoices;

use crate::app::App;
use crate::args::Source;
use crate::availability::possible;
use crate::cached_work::cached_work;
use crate::command::{Command, Destination};
use crate::desk::{Desk, Pane, filter_field};
use crate::document::{Document, EditedSession};
use crate::graph::find::Find;
use crate::graph::view::Look;
use crate::manual::Manual;
use crate::palette::CommandPalette;
use crate::process_dialog::ProcessDialog;
use crate::processes;
use crate::purpose::Purpose;
use crate::run::{Active, SharedStatus};
use crate::session_panel::pulsar;
use crate::state::{NoticeKind, TargetState, Tour};
use crate::theme::{self, Colours};
use crate::timeline::SampleSearch;
use crate::worker::run_output::SampleSink;
use crate::worker::target::{Order, Target};

impl App {
    /// Executes a command. A command that is not possible now has no effect; menus and buttons show
    /// it as disabled.
    pub(crate) fn execute(&mut self, command: Command, ctx: &Context) {
        if matches!(
            command,
            Command::NewSession
                | Command::OpenSession
                | Command::SaveSession
                | Command::SaveSessionAs
                | Command::Quit
        ) {
            self.state.finish_note();
        }
        match command {
            Command::NewSession | Command::OpenSession | Command::Quit | Command::Question(_)
                if self.state.document.unsaved() =>
            {
                self.state.guard = Some(command);
            }
            Command::NewSession | Command::OpenSession | Command::Quit | Command::Question(_) => {
                self.leave_session(command, ctx);
            }
            Command::OpenRecording => self.request_path(Purpose::OpenRecording, None),
            Command::CompareRecording => self.request_path(Purpose::CompareRecording, None),
            Command::StopComparing => self.state.statistics.comparison = None,
            Command::ShowLane => {
                self.state.desk.show(Pane::Timeline);
                self.state.timeline.reveal_chosen = true;
            }
            Command::SaveSession => self.save(None),
            Command::SaveSessionAs => self.request_path(Purpose::SaveSession, None),
            // The changes are gone only once another session is open or the window is closed: the
            // file that is chosen next may be unreadable.
            Command::DiscardAnd(then) => self.leave_session(*then, ctx),
            Command::SaveAnd(then) => self.save(Some(*then)),
            Command::UsePath(purpose, path, then) => {
                self.use_path(purpose, path, then.map(|then| *then));
            }
            Command::Undo => {
                self.state.document.undo();
            }
            Command::Redo => {
                self.state.document.redo();
            }
            Command::Run => self.run(),
            Command::Stop => {
                if let Some(active) = &self.state.run.active {
                    active.stop.stop();
                }
                let others = self.machine_threads.values();
                self.target.iter().chain(others).for_each(Target::stop);
            }
            Command::Find => self.find(ctx),
            Command::FocusFilter => self.state.functions.focus = true,
            Command::FitGraph => self.state.graph.wanted = Some(Look::Fit),
            Command::ActualSize => self.state.graph.wanted = Some(Look::Natural),
            Command::ZoomIn => self.state.graph.zoom(true),
            Command::ZoomOut => self.state.graph.zoom(false),
            Command::MoveGraph(side) => self.state.graph.shift(side),
            Command::Back if self.state.graph.find.is_some() => self.state.graph.find = None,
            Command::Back => {
                let here = self.here();
                if let Some(place) = self.state.history.back(here) {
                    self.go(place);
                }
            }
            Command::Forward => {
                let here = self.here();
                if let Some(place) = self.state.history.forward(here) {
                    self.go(place);
                }
            }
            Command::NextBlock => self.step(1),
            Command::PreviousBlock => self.step(-1),
            Command::FollowTaken => self.follow(true),
            Command::FollowNotTaken => self.follow(false),
            Command::Hook(hook) => {
                self.state.draft.hook = hook;
                self.state.graph.hook = self.state.graph.selected.map(|_| hook);
            }
            Command::AddInstrument => {
                if let Some(why) = self.state.offer.refused() {
                    let why = why.join(" ");
                    self.state.notify(NoticeKind::Warning, why);
                } else if let Some(block) = self.state.graph.selected {
                    self.put_draft(Destination::Hook(block, self.state.draft.hook));
                }
            }
            Command::AddToEveryBlock => {
                self.put_draft(Destination::EveryBlock(self.state.draft.hook));
            }
            Command::FitTimeline => self.state.timeline.fit(),
            Command::MarkA if self.state.timeline.record.is_some() => self.state.timeline.mark(0),
            Command::MarkB if self.state.timeline.record.is_some() => self.state.timeline.mark(1),
            Command::Annotate if self.state.timeline.record.is_some() => {
                self.state.timeline.annotate();
            }
            Command::MarkA | Command::MarkB | Command::Annotate => {}
            Command::WriteNote(place, note) => self.state.document.write_note(place, note),
            Command::RemoveNote(place) => self.state.document.remove_note(place),
            Command::ShowSamples => self.show_samples(),
            Command::ClearMarkers => self.state.timeline.markers = [None; 2],
            Command::CountPaths => self.count_paths(),
            Command::CountFirst => self.count_first(),
            Command::Stack(stack) => self.state.timeline.stack_by(stack),
            Command::SortLanes(sort) => self.state.timeline.view.change(|view| view.sort = sort),
            Command::LaneAxis(axis) => self.state.timeline.draw_on(axis),
            Command::HideEmptyLanes => {
                let view = &mut self.state.timeline.view;
                view.change(|view| view.hide_empty = !view.hide_empty);
            }
            Command::PinLane => self.state.timeline.pin_chosen(),
            Command::FilterLanes => {
                self.state.desk.show(Pane::Timeline);
                ctx.memory_mut(|memory| memory.request_focus(egui::Id::unique("lane filter")));
            }
            Command::FindSample => {
                self.state.desk.show(Pane::Timeline);
                self.state.timeline.find = Some(SampleSearch::default());
            }
            Command::NextSample | Command::PreviousSample => {
                self.state.desk.show(Pane::Timeline);
                self.state.timeline.step = Some(command == Command::PreviousSample);
            }
            Command::RecordThreads => self.record_threads(),
            Command::FollowLive => self.state.timeline.follow = true,
            Command::ToggleTheme => {
                let next = self.state.look.next(ctx.theme() == Theme::Dark);
                self.dress(next, ctx);
            }
            Command::Theme(look) => self.dress(look, ctx),
            Command::TogglePane(pane) => self.state.desk.toggle(pane),
            Command::NextPane => self.state.focus.step(&self.state.desk, 1),
            Command::PreviousPane => self.state.focus.step(&self.state.desk, -1),
            Command::TileLayout => self.state.desk = Desk::tiled(),
            Command::ResetLayout => self.state.desk = Desk::default(),
            Command::ShowPalette => self.state.palette = Some(CommandPalette::commands()),
            Command::GoTo => self.state.palette = Some(CommandPalette::places()),
            Command::References => self.references(),
            Command::FindInGraph => self.state.graph.find = Some(Find::default()),
            Command::FoldBlock => {
                let block = self.state.graph.selected;
                self.fold(&block.into_iter().collect());
            }
            Command::FoldAll => {
                let scene = self.state.graph.scene.as_ref();
                let all = scene.map(|scene| scene.cfg.blocks.iter().map(|block| block.index));
                self.fold(&all.into_iter().flatten().collect());
            }
            Command::ToggleListing => {
                self.state.graph.listed = !self.state.graph.listed;
                self.state.desk.show(Pane::Graph);
            }
            Command::FoldCold => {
                let graph = &mut self.state.graph;
                graph.fold_cold = Some(!graph.folds_cold());
                graph.opened.clear();
            }
            Command::OpenRegion(block) => {
                self.leave();
                self.open_region(block);
            }
            Command::ExportGraph => self.request_path(Purpose::ExportGraph, None),
            Command::ExportRecording => self.request_path(Purpose::ExportRecording, None),
            Command::StopExport => {
                if let Some(export) = &self.state.exporting {
                    export.stop.stop();
                }
            }
            Command::StopSources => self.stop_sources(),
            Command::StopReading => self.stop_reading(),
            Command::SavePicture => self.request_path(Purpose::Picture, None),
            Command::Put(at, name) => self.put(at, &name),
            Command::Replace(name) => self.replace_function(name.as_deref()),
            Command::AddToEntry => self.put_draft(Destination::Entry),
            Command::AddToReturns => self.put_draft(Destination::Returns),
            Command::NewInstrument => self.edit_instrument(None),
            Command::EditInstrument(name) => self.edit_instrument(Some(&name)),
            Command::OpenInstrument => self.request_path(Purpose::OpenInstrument, None),
            Command::OpenNatives => self.request_path(Purpose::Natives, None),
            Command::UseNatives => self.use_natives(),
            Command::SaveInstrument => self.request_path(Purpose::SaveInstrument, None),
            Command::UseInstrument => self.use_instrument(),
            Command::FormatInstrument => self.format_instrument(),
            Command::AddToMatching => self.put_draft(Destination::Matching),
            Command::RemoveHere => match self.state.timeline.hovered_note {
                Some(note) => self.state.document.remove_note(note),
                None => self.remove_here(),
            },
            Command::MovePlacement(from, to) => {
                self.state.document.edit("order", |session| {
                    if to < session.placements.len()
                        && let Some(moved) = session.placements.remove(from)
                    {
                        session.placements.insert(to, moved);
                    }
                });
                self.state.document.close_step();
            }
            Command::ShowShortcuts => self.state.shortcuts = !self.state.shortcuts,
            Command::ConnectHere => {
                self.connect(Source::Socket(ilk_driver::agent::SOCKET.into()));
            }
            Command::ConnectSocket => self.request_path(Purpose::Socket, None),
            Command::ConnectSsh => self.request_path(Purpose::Machine, None),
            Command::AddMachines => self.request_path(Purpose::Machines, None),
            Command::AddKernel => self.add_typed("here"),
            Command::ShowBeside => self.show_beside(),
            Command::ConnectMachine(number) => self.connect_machine(number),
            Command::LeaveMachine(number) => self.leave_machine(number),
            Command::OpenKernel => self.request_path(Purpose::Kernel, None),
            Command::OpenLibrary => self.request_path(Purpose::Library, None),
            Command::OpenDebugInfo => self.request_path(Purpose::DebugInfo, None),
            Command::OpenSource(line) => self.open_source(&line, ctx),
            Command::Tour => self.state.tour = Some(Tour::default()),
            Command::RunProgram => {
                self.state.document.edit("workload", |session| {
                    session.workload.get_or_insert_with(pulsar);
                });
                self.state.document.close_step();
                self.state.desk.show(Pane::Session);
            }
            Command::Manual => {
                self.state.manual = match self.state.manual.take() {
                    Some(_) => None,
                    None => Some(Manual::default()),
                };
            }
            Command::StartLabWith => self.request_path(Purpose::LabKernel, None),
            Command::ChooseProcess | Command::ChooseProcessInCache => {
                self.state.processes = Some(ProcessDialog {
                    in_cache: command == Command::ChooseProcessInCache,
                    ..ProcessDialog::default()
                });
                processes::list(self.workers.mail());
            }
            Command::OpenProcess(pid) => self.connect(Source::Process(pid)),
            Command::OpenProcessInCache(pid) => self.connect(Source::ProcessInCache(pid)),
            Command::StartProgram => self.request_path(Purpose::Program, None),
            Command::ChooseEvery => self.request_path(Purpose::Every, None),
            Command::StartProgramInCache => self.request_path(Purpose::ProgramInCache, None),
            Command::StartLab => self.connect(Source::Lab),
            Command::Reconnect => {
                if let Some(source) = self.state.source.clone() {
                    self.connect(source);
                }
            }
            Command::Disconnect => self.disconnect(),
            Command::GoToAddress(at) => self.go_to(at),
            Command::OpenFunction(function) => {
                self.leave();
                self.open(function, None);
            }
            Command::OpenNamed(name, block) => {
                let shown = self
                    .state
                    .graph
                    .scene
                    .as_ref()
                    .is_some_and(|scene| scene.name == name);
                self.leave();
                match block {
                    Some(block) if shown => self.state.graph.select(block),
                    None if shown => {}
                    _ => self.open_named(&name, block),
                }
            }
            Command::SelectBlock(block) => {
                if self.state.graph.selected != Some(block) {
                    if self.state.graph.selected.is_some() {
                        self.leave();
                    }
                    self.choose(block);
                }
            }
            Command::RemovePlacement(place) => self.remove_placement(place),
            Command::RemovePaths(function) => self.remove_paths(&function),
            Command::RemoveAll => self.remove_all(),
            Command::Style(style) => self.style(style),
            Command::Copy(text, what) => {
                ctx.copy_text(text.to_string());
                self.state
                    .notify(NoticeKind::Good, format!("Copied {what}."));
            }
            Command::Dismiss(place) => self.state.dismiss(place),
        }
    }

    /// Searches the pane in use; a pane without anything to search leaves the list of functions.
    fn find(&mut self, ctx: &Context) {
        let pane = self.state.focus.in_use(&self.state.desk);
        let command = match pane {
            Some(Pane::Timeline) => Command::FindSample,
            Some(Pane::Graph) => Command::FindInGraph,
            _ => Command::FocusFilter,
        };
        match pane {
            Some(pane @ (Pane::Statistics | Pane::Calls | Pane::Instruments)) => {
                ctx.memory_mut(|memory| memory.request_focus(filter_field(pane)));
            }
            _ if possible(&self.state, &command) => self.execute(command, ctx),
            _ => self.execute(Command::FocusFilter, ctx),
        }
    }

    /// Executes a command that replaces the session, without a question about unsaved changes.
    fn leave_session(&mut self, command: Command, ctx: &Context) {
        match command {
            Command::NewSession => {
                self.replace_document(Document::new());
                if self.state.run.active.is_none() {
                    // The recording belongs to the session before; its file remains.
                    self.state.timeline.close();
                    self.state.statistics.comparison = None;
                }
            }
            Command::Question(question) => self.pose(question),
            Command::OpenSession => self.request_path(Purpose::OpenSession, None),
            Command::Quit => {
                self.leaving = true;
                ctx.send_viewport_cmd(ViewportCommand::Close);
            }
            other => self.execute(other, ctx),
        }
    }

    fn dress(&mut self, look: Colours, ctx: &Context) {
        self.state.look = look;
        theme::install(ctx, look);
    }

    /// Connects to a target in place of the current one.
    pub(crate) fn connect(&mut self, source: Source) {
        self.disconnect();
        self.targets += 1;
        self.state.source = Some(source.clone());
        self.state.console.clear();
        self.state.target = TargetState::Busy(crate::worker::Progress::default());
        self.target = Some(Target::start(source, self.targets, self.workers.mail()));
    }

    fn disconnect(&mut self) {
        // Dropping the target stops its run and removes every splice; its thread ends by itself.
        match self.target.take().map(|target| target.number) {
            Some(number) if self.is_in_pair(number) => {
                self.pair_failed(number, "It was disconnected.");
            }
            Some(number) if self.is_member(number) => self.member_left(number),
            _ => self.not_running(),
        }
        if !self.state.is_pair() {
            self.state.machines.process = None;
        }
        self.state.target = TargetState::None;
        self.state.machines.first = None;
    }

    fn run(&mut self) {
        if let Some(hindrance) = self.state.run_hindrance() {
            self.state.notify(NoticeKind::Warning, hindrance);
            return;
        }
        if self.state.counts_in_cache() {
            return self.run_in_cache();
        }
        let Some(plan) = &self.state.plan.start else {
            return;
        };
        let plan = Arc::clone(plan);
        if self.state.is_pair() {
            return self.run_pair(&plan);
        }
        if !self.state.machines.others.is_empty() {
            return self.run_together(&plan);
        }
        let session = self.state.document.session().clone();
        let recording = self.state.run.recording_path(&session.name);
        self.begin(&plan, session, recording);
    }

    /// Starts a session on the target.
    pub(crate) fn begin(
        &mut self,
        plan: &Arc<VerifiedPlan>,
        session: EditedSession,
        recording: PathBuf,
    ) {
        let threads = match self.state.threads_in_cache() {
            Ok(threads) => threads,
            // It was typed while the plan was made.
            Err(why) => return self.state.notify(NoticeKind::Bad, why),
        };
        let (Some(target), TargetState::Ready(info)) = (&mut self.target, &self.state.target)
        else {
            return;
        };
        let info = info.as_ref().clone();
        let source = self.state.source.as_ref();
        let choices = self.state.document.choices();
        let (choices, is_one) = match source {
            Some(source) if source.is_process() => (choices, choices.is_one()),
            Some(source) if source.is_in_cache() => {
                let cached = cached_work(&session);
                let choices = ProcessChoices { cached, ..choices };
                (choices, choices.is_one_in_cache())
            }
            _ => (ProcessChoices::default(), true),
        };
        let (stop, index) = (StopFlag::new(), Shared::default());
        let status = SharedStatus::default();
        self.state.machines.together = None;
        self.state.run.last = None;
        self.state.run.active = Some(Active {
            stop: stop.clone(),
            is_several: !is_one || self.state.has_every(),
            index: index.clone(),
            status: status.clone(),
            ..Active::new(plan, session.clone(), recording.clone())
        });
        target.run(Order {
            plan: Arc::clone(plan),
            session,
            recording,
            stop,
            sink: SampleSink::Alone(index, Box::new(info)),
            status,
            together: None,
            pair: None,
            threads,
            choices,
            library: Arc::clone(&self.state.library),
        });
    }

    fn style(&mut self, style: Style) {
        let Some(scene) = self.state.graph.scene.clone() else {
            return;
        };
        self.state.document.edit("style", |session| {
            if style == Style::default() {
                session.styles.remove(&scene.name);
            } else {
                session.styles.insert(scene.name.clone(), style);
            }
        });
        self.state.document.close_step();
    }
}
