//! Messages from workers and their effects.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egui::Context;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use gilk_samples::cache_numbers::CacheNumbers;
use gilk_samples::index::Index;
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::Metadata;
use ilk_driver::client::{AggregateSummary, Summary};

use crate::Error;
use crate::app::App;
use crate::catalogue::Catalogue;
use crate::console_pane;
use crate::derived::Derived;
use crate::desk::Pane;
use crate::document::{Document, Edited};
use crate::graph::Scene;
use crate::purpose::Purpose;
use crate::state::{Natives, NoticeKind, TargetState};
use crate::timeline::Record;
use crate::worker::{Analysis, Message, TargetNews, discard, files};

/// Maximum time that a frame spends on messages; the rest waits for the next frame.
const TIME_LIMIT: Duration = Duration::from_millis(6);

impl App {
    /// Handles the messages that workers have sent.
    pub(crate) fn listen(&mut self, ctx: &Context) {
        let began = Instant::now();
        while let Ok(message) = self.inbox.try_recv() {
            self.take(message, ctx);
            if began.elapsed() > TIME_LIMIT {
                ctx.request_repaint();
                break;
            }
        }
        if let (Some(active), Some(record)) =
            (&mut self.state.run.active, &mut self.state.timeline.record)
            && record.now.is_some()
        {
            active.live = active.status.look();
            record.now = Some(active.elapsed());
        }
        self.listen_together();
        self.listen_pair();
        if let (Some(active), Some(record)) =
            (&self.state.run.active, &mut self.state.timeline.record)
            && record.now.is_some()
        {
            record.bytes = active.live.bytes;
            record.lost_so_far(active.live.lost);
        }
        self.state.timeline.count_hits(ctx);
    }

    fn take(&mut self, message: Message, ctx: &Context) {
        match message {
            Message::Target(number, news)
                if self
                    .target
                    .as_ref()
                    .is_some_and(|target| target.number == number) =>
            {
                self.news(number, news);
            }
            Message::Target(number, news) => self.machine_message(number, news),
            Message::PlannedForMachine(number, revision, outcome) => {
                self.machine_planned(number, revision, outcome);
            }
            Message::Found(number, filter, found) => {
                // Numbers of functions belong to the image that was searched.
                if number == self.searches && filter == self.state.functions.filter {
                    let plain = filter.trim().is_empty();
                    self.state.functions.answer(filter, found);
                    if let Some(scene) = self.state.graph.scene.as_ref().filter(|_| plain) {
                        self.state.functions.reveal(scene.function());
                    }
                }
            }
            Message::Scene(function, scene, block) => self.opened(function, scene, block),
            Message::Planned(number, reply) => {
                if number == self.state.plan.requested {
                    self.state.plan.answer(reply);
                }
            }
            Message::Previewed(number, outcome, hit_ns) => {
                if number == self.state.preview.number {
                    self.state.preview.answer(outcome, hit_ns);
                }
            }
            Message::Offered(number, outcome) => {
                if number == self.state.offer.number {
                    self.state.offer.outcome = Some(outcome);
                }
            }
            Message::Compiled(number, outcome) => {
                if number == self.state.editor.number {
                    self.state.editor.outcome = Some(outcome);
                }
            }
            Message::SourceRead(path, Ok(text)) => {
                self.state.editor.open(text, Some(path));
                self.state.desk.show(Pane::Editor);
            }
            Message::Natives(path, Ok(definitions)) => {
                self.state.natives = Some(Natives { path, definitions });
            }
            Message::Natives(_, Err(error)) => {
                self.state.notify(NoticeKind::Bad, error.to_string());
            }
            Message::SourceWritten(path, Ok(())) => {
                let words = format!("{} is written.", path.display());
                self.state.notify(NoticeKind::Good, words);
                self.state.editor.path = Some(path);
            }
            Message::SourceRead(_, Err(error)) | Message::SourceWritten(_, Err(error)) => {
                self.state.notify(NoticeKind::Bad, error.to_string());
            }
            Message::Exporting(progress) => {
                if let Some(export) = &mut self.state.exporting {
                    export.progress = progress;
                }
            }
            Message::Exported(path, Ok(())) => {
                self.exported(&path);
                let words = format!("{} is written.", path.display());
                self.state.notify(NoticeKind::Good, words);
            }
            Message::CallGraph(number, calls) => {
                if number == self.targets {
                    self.state.calls = Some(calls);
                }
            }
            Message::Hookable(number, hookable) => {
                if number == self.targets {
                    self.state.functions.looking = false;
                    self.state.hookable = Some(hookable);
                }
            }
            Message::Sources(number, opened) => {
                if number == self.targets {
                    self.sources_read(opened);
                }
            }
            Message::Listing(number, listing) => {
                if number == self.targets {
                    self.state.lines.listing = *listing;
                }
            }
            Message::SourceFiles(number, files) => {
                if number == self.targets {
                    self.state.lines.reading = None;
                    self.state.lines.files = files.or(self.state.lines.files.take());
                }
            }
            Message::SourcesProgress(number, share) => {
                if let Some(reading) = &mut self.state.lines.reading
                    && number == self.targets
                {
                    reading.share = Some(share);
                }
            }
            Message::Counting(session, planned) => self.counting(session, planned),
            Message::Question(target, question, made) => {
                if target == self.targets {
                    self.posed(question, made);
                }
            }
            Message::Exported(path, Err(error)) => {
                self.exported(&path);
                self.state.notify(NoticeKind::Bad, error.to_string());
            }
            Message::NotSaved(error) => self.state.notify(NoticeKind::Warning, error.to_string()),
            Message::SessionRead(path, session, sidecar) => {
                let mut sidecar = sidecar.map(|sidecar| *sidecar).unwrap_or_default();
                if session.is_ok()
                    && let Some(desk) = sidecar.desk()
                {
                    self.state.desk = desk;
                }
                let session = session.map(|session| {
                    let notes = std::mem::take(&mut sidecar.notes);
                    let document = Document::of(session, notes, Some(path.clone()));
                    document.with_choices(sidecar.choices)
                });
                self.session_read(&path, session);
            }
            Message::SessionWritten(path, edited, written) => {
                self.session_written(path, edited, written, ctx);
            }
            Message::RecordingProgress(done, all) => {
                if let Some(reading) = &mut self.state.reading {
                    (reading.done, reading.all) = (done, all);
                }
            }
            Message::Statistics(key, rows) => {
                let table = &mut self.state.statistics;
                if table.requested.take().as_ref() == Some(&key) {
                    table.answer(key, rows);
                }
            }
            Message::Calls(key, read) => self.state.call_tree.answer(key, read),
            Message::Compared(Ok(runs)) => {
                self.state.statistics.comparison = Some(*runs);
                self.state.desk.show(Pane::Statistics);
            }
            Message::Compared(Err(error)) => {
                self.state.notify(NoticeKind::Bad, error.to_string());
            }
            Message::Measured(path, Ok((losses, measured))) => {
                self.state.timeline.measured(&path, losses, *measured);
            }
            Message::Measured(_, Err(error)) => {
                self.state.notify(NoticeKind::Warning, error.to_string());
            }
            Message::PairMerged(path, merged) => self.pair_merged(path, merged),
            Message::Recording(path, opened) => self.recording_read(&path, opened),
            Message::Processes(listed) => {
                if let Some(dialog) = &mut self.state.processes {
                    dialog.answer(listed);
                }
            }
            Message::Picked(path) => self.picked(path),
            Message::Completed(number, typed, found) => {
                let dialog = self.state.dialog.as_mut();
                if let Some(dialog) = dialog.filter(|one| one.number == number)
                    && dialog.text == typed
                {
                    dialog.completions = found;
                }
            }
            Message::Pictured(written) => {
                if let Err(error) = written {
                    self.note_failure(error);
                }
                self.leaving = true;
                ctx.send_viewport_cmd(egui::ViewportCommand::Close);
            }
        }
    }

    fn news(&mut self, number: u64, news: TargetNews) {
        match news {
            TargetNews::Step(progress) => self.state.target = TargetState::Busy(progress),
            TargetNews::Image(catalogue) => self.loaded(catalogue),
            TargetNews::Console(lines) => console_pane::append(&mut self.state.console, lines),
            TargetNews::Connected(mut info) => {
                if let Some(name) = &self.state.machines.first {
                    info.host.clone_from(name);
                }
                info.host = self.name_for(number, &info.host);
                self.state.target = TargetState::Ready(info);
                self.pose_waiting();
            }
            TargetNews::Failed(error) => {
                self.state.notify(NoticeKind::Bad, error.to_string());
                self.target_lost(number, error);
            }
            TargetNews::Lost(error) => self.target_lost(number, error),
            TargetNews::Cancelled => {
                self.state.target = TargetState::None;
                self.state.question = None;
                self.target = None;
                self.pair_failed(number, "It was disconnected.");
                match self.is_member(number) {
                    true => self.member_left(number),
                    false => self.not_running_alone(),
                }
            }
            TargetNews::Started(described) => self.started(described),
            TargetNews::Loaded(metadata) => self.described_further(*metadata),
            TargetNews::NotRead(error) => self.state.notify(NoticeKind::Bad, error.to_string()),
            TargetNews::Recorded(metadata, index) => self.recorded(*metadata, index),
            TargetNews::Aggregates(totals) => self.added_up(totals),
            TargetNews::Stacks(stacks) => self.stacks_kept(stacks),
            TargetNews::Begun(clock, reading) => self.member_started(number, clock, reading),
            TargetNews::Process(process) => self.state.machines.process = Some(*process),
            TargetNews::Ended(summary) if self.is_in_pair(number) => {
                self.pair_ended(number, summary);
            }
            TargetNews::Ended(summary) if self.is_member(number) => {
                self.member_ended(number, summary);
            }
            TargetNews::Ended(summary) => self.ended(summary),
        }
    }

    fn target_lost(&mut self, number: u64, error: Error) {
        self.state.target = TargetState::Lost(error.to_string());
        self.state.question = None;
        self.target = None;
        self.pair_failed(number, &error.to_string());
        match self.is_member(number) {
            true => self.member_ended(number, Err(error)),
            false => self.not_running_alone(),
        }
    }

    pub(crate) fn loaded(&mut self, catalogue: Arc<Catalogue>) {
        if let TargetState::Busy(_) = self.state.target {
            self.state.target = TargetState::Offline;
        }
        // Replies about the image before are ignored: they number its functions.
        self.targets += 1;
        self.state.lines.clear();
        self.state.catalogue = Some(catalogue);
        self.read_sources(None);
        self.state.calls = None;
        self.state.hookable = None;
        self.state.functions.looking = false;
        self.state.functions.clear();
        // Both were made with the image before.
        (self.searched, self.planned) = (None, None);
        self.marks = Derived::default();
        self.searches += 1;
        // The open function is looked up by name in the new image.
        let open = self
            .state
            .graph
            .scene
            .as_ref()
            .map(|scene| (scene.name.clone(), self.state.graph.selected));
        self.state.graph.clear();
        self.state.history = crate::history::History::default();
        if let Some((name, block)) = self.first.take().or(open) {
            self.open_named(&name, block);
        }
    }

    fn opened(
        &mut self,
        function: FunctionId,
        scene: Option<Arc<Scene>>,
        block: Option<BlockIndex>,
    ) {
        if self.state.opening != Some(function) {
            return;
        }
        self.state.opening = None;
        if let Some(scene) = scene {
            self.state.functions.reveal(scene.function());
            self.state.graph.open(scene, block);
        }
    }

    pub(crate) fn started(&mut self, described: Result<Box<Metadata>, Error>) {
        let Some(active) = &mut self.state.run.active else {
            return;
        };
        active.started = Some(Instant::now());
        // Found again even if this window does not live until the run's end.
        let recent = &mut self.state.recent_paths;
        recent.add(Purpose::OpenRecording, &active.recording);
        match described {
            Ok(metadata) => {
                let mut record = Record::live(active.recording.clone(), *metadata, active.duration);
                record.index = active.index.clone();
                self.state.timeline.open(record);
            }
            Err(error) => self.state.notify(NoticeKind::Bad, error.to_string()),
        }
    }

    /// The recording of the running session; none when it has ended, whose own totals are the last.
    fn running(&mut self) -> Option<&mut Record> {
        let record = self.state.timeline.record.as_mut();
        record.filter(|record| record.now.is_some() && self.state.run.active.is_some())
    }

    /// Shows the totals of the running session up to now.
    pub(crate) fn added_up(&mut self, totals: Vec<AggregateSummary>) {
        if let Some(record) = self.running() {
            record.add_up(totals);
        }
    }

    /// Keeps stacks that the running session has numbered.
    pub(crate) fn stacks_kept(&mut self, stacks: KeptStacks) {
        if let Some(record) = self.running() {
            record.keep_stacks(stacks);
        }
    }

    /// Shows all samples of the running session up to now.
    fn recorded(&mut self, metadata: Metadata, index: Index) {
        // What arrives after the end is not as much as the recording has.
        if let (Some(active), Some(record)) =
            (&mut self.state.run.active, &mut self.state.timeline.record)
        {
            record.metadata = Arc::new(metadata);
            record.index = index.into();
            active.index = record.index.clone();
        }
    }

    fn ended(&mut self, summary: Result<Box<Summary>, Error>) {
        let now = self.state.timeline.record.as_ref().and_then(|one| one.now);
        let active = self.state.run.active.as_ref();
        let is_idle = active.is_some_and(|active| active.session.workload.is_none())
            && !self.state.has_process()
            && !self.state.is_in_cache();
        let measures = active.is_none_or(|active| {
            let mut instruments = active.plan.plan().instruments.iter();
            instruments.any(|one| !one.definition.replaces())
        });
        let missed = active.filter(|active| {
            let is_whole = !active.is_several && active.status.look().missed == 0;
            !is_whole && active.recording.exists()
        });
        if let Some(path) = missed.map(|active| active.recording.clone()) {
            // The recording also has the samples that were dropped from the screen, and those of other processes.
            self.read_recording(path);
        }
        self.not_running();
        match summary {
            Ok(summary) => {
                if let Some(now) = now.filter(|_| summary.stopped) {
                    self.state.timeline.stopped_at(now);
                }
                let lost = summary.lost_by_cause();
                let lost = lost.lost();
                if let Some(record) = &mut self.state.timeline.record {
                    (record.bytes, record.lost) = (summary.recording.bytes, lost);
                    let path = summary.recording.path.clone();
                    files::read_measured(self.workers.mail(), path);
                    record.add_up(summary.aggregates.clone());
                    record.named.stacks.clone_from(&summary.stacks);
                    (record.cost, record.cache) = (summary.cost, summary.cache);
                }
                let how = if summary.stopped {
                    "stopped"
                } else {
                    "finished"
                };
                let recording = &summary.recording.path;
                self.state
                    .recent_paths
                    .add(Purpose::OpenRecording, recording);
                let path = recording.display();
                if summary.missing > 0 {
                    let words = format!(
                        "The session {how}, but {} samples did not arrive; the rest are in {path}.",
                        crate::widgets::grouped(summary.missing)
                    );
                    self.state.notify(NoticeKind::Bad, words);
                } else if lost > 0 {
                    let words = format!(
                        "The session {how}. {} hits were lost because the CPU's ring was full.",
                        crate::widgets::grouped(lost)
                    );
                    self.state.notify(NoticeKind::Warning, words);
                } else if let Some(cache) = summary.cache.as_ref().filter(|_| !measures) {
                    let (kind, words) = counted(&summary, cache, &path.to_string());
                    self.state.notify(kind, words);
                } else if summary.gone() > 0 {
                    let words = format!(
                        "The session {how}. A module was unloaded during the run, together with its splices: {} later writes in modules were skipped. Reconnect to see the current modules.",
                        summary.gone()
                    );
                    self.state.notify(NoticeKind::Warning, words);
                } else {
                    let (kind, words) = match measures {
                        true => measured(&summary, is_idle),
                        false => (NoticeKind::Good, ".".to_owned()),
                    };
                    let words = format!("The session {how}{words} {}", summary.ended);
                    let words = words.trim_end().to_owned();
                    let kind = match (&summary.cache, kind) {
                        (Some(_), NoticeKind::Good) => end_kind(&summary),
                        _ => kind,
                    };
                    self.state.notify(kind, words);
                }
                self.state.run.last = Some(summary);
            }
            Err(error) => self.state.notify(NoticeKind::Bad, error.to_string()),
        }
    }

    /// Marks the run as ended, unless it continues on other machines.
    fn not_running_alone(&mut self) {
        let machines = &self.state.machines;
        let together = machines.together.as_ref();
        let together = together.is_some_and(crate::machines::Together::is_running);
        if !together && machines.pair.is_none() {
            self.not_running();
        }
    }

    /// Marks the run as ended; its recording stays open.
    pub(crate) fn not_running(&mut self) {
        self.state.run.active = None;
        if let Some(record) = &mut self.state.timeline.record {
            record.now = None;
        }
    }

    fn session_read(&mut self, path: &Path, document: Result<Document, Error>) {
        match document {
            Ok(document) => self.replace_document(document),
            Err(error) => {
                self.fail_shot(&error);
                let (path, why) = (path.display().to_string(), error.to_string());
                // Most errors name the file.
                let name = if why.contains(&path) {
                    "The session"
                } else {
                    &path
                };
                let words = format!("{name} could not be opened. {why}");
                self.state.notify(NoticeKind::Bad, words);
            }
        }
    }

    pub(crate) fn replace_document(&mut self, document: Document) {
        discard(std::mem::replace(&mut self.state.document, document));
        self.state
            .draft
            .reset(self.state.document.session().duration);
        self.documents += 1;
    }

    fn session_written(
        &mut self,
        path: PathBuf,
        edited: Edited,
        written: Result<(), Error>,
        ctx: &Context,
    ) {
        let then = self.after_saving.take();
        match written {
            Ok(()) => {
                self.state.document.saved_as(edited, path);
                if let Some(then) = then {
                    self.execute(then, ctx);
                }
            }
            Err(error) => self.state.notify(NoticeKind::Bad, error.to_string()),
        }
    }

    fn picked(&mut self, path: Option<PathBuf>) {
        if let Some(dialog) = &mut self.state.dialog {
            dialog.browsing = false;
            dialog.focused = false;
            if let Some(path) = path {
                dialog.text = path.display().to_string();
            }
        }
    }

    /// Requests the graph of a function, which appears once it is laid out.
    pub(crate) fn open(&mut self, function: FunctionId, block: Option<BlockIndex>) {
        let (Some(catalogue), Some(metrics)) = (self.state.catalogue.clone(), self.state.metrics)
        else {
            return;
        };
        self.state.opening = Some(function);
        self.workers.analyse(Analysis {
            catalogue,
            function,
            block,
            metrics,
        });
    }

    /// Opens a function by name.
    pub(crate) fn open_named(&mut self, name: &str, block: Option<BlockIndex>) {
        let Some(catalogue) = &self.state.catalogue else {
            let words = format!(
                "{name} cannot be shown while no process or kernel is open. Open the one that was measured from the Target menu."
            );
            self.state.notify(NoticeKind::Warning, words);
            return;
        };
        match catalogue
            .image()
            .function_named(name)
            .map(|function| function.id)
        {
            Ok(function) => self.open(function, block),
            Err(_) if let Some(library) = self.state.awaited(name) => {
                let words = format!(
                    "{library} is not loaded yet. Open library… in the Target menu shows its functions before."
                );
                self.state.notify(NoticeKind::Warning, words);
            }
            Err(error) => {
                let error = Error::from(error);
                self.fail_shot(&error);
                self.state.notify(NoticeKind::Bad, error.to_string());
            }
        }
    }
}

/// Returns the kind of a message about a run in the code cache: a process that was let go by a rule is worth a warning.
fn end_kind(summary: &Summary) -> NoticeKind {
    match summary.workload.is_some() || summary.ended.is_empty() {
        true => NoticeKind::Good,
        false => NoticeKind::Warning,
    }
}

/// Returns what a run in the code cache has counted, and the reason of its end, if it was not requested.
fn counted(summary: &Summary, cache: &CacheNumbers, path: &str) -> (NoticeKind, String) {
    let blocks = crate::widgets::grouped(summary.instruments.len() as u64);
    let translated = crate::widgets::grouped(cache.blocks);
    let kind = end_kind(summary);
    let words = format!(
        "{} {blocks} blocks of {translated} in the code cache were executed; their counts are in {path}.",
        summary.ended
    );
    (kind, words.trim_start().to_owned())
}

/// Returns what a run has measured, as the end of a sentence; `is_idle` if the session had no program.
fn measured(summary: &Summary, is_idle: bool) -> (NoticeKind, String) {
    let path = summary.recording.path.display();
    let samples = summary.recording.samples;
    let hits = |total: &AggregateSummary| total.value.hits();
    let counts = summary.aggregates.iter().any(|total| hits(total) > 0);
    if samples > 0 {
        let samples = crate::widgets::grouped(samples);
        let words = format!(": {samples} samples are in {path}.");
        return (NoticeKind::Good, words);
    }
    if counts {
        let words = format!("; its totals are in {path}.");
        return (NoticeKind::Good, words);
    }
    let advice = if is_idle {
        " Tick \u{201c}run\u{201d} in the session to give the kernel work."
    } else {
        ""
    };
    let words = format!(" without samples: no instrument was hit.{advice}");
    (NoticeKind::Warning, words)
}
