//! Sessions that run in a process to the end: beside the children that it forks, and in the programs that it executes one
//! after the other, by choice.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gilk_engine::plan::PlannedInstrument;
use gilk_engine::{Plan, Session, VerifiedPlan};
use gilk_instruments::Library;
use gilk_samples::collector::Collector;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::recording::{Recording, Writer};

use super::forks::ForkWatch;
use super::launched::StoppedProgram as _;
use super::listener::{Listener, Listeners};
use super::loads::{
    KeptPlan, LoadedDescription, LoadedSession, append_totals, awaited, nothing, watch,
};
use super::{
    Attached, Children, Client, EarlyWatch, Exec, FollowedProcess, ProcessChoices, ProcessTarget,
    Recorder, Scope, Subject, clock, executions, process_label, refused, with_children,
    write_beside,
};
use crate::client::{
    CpuLosses, Event, InstrumentSummary, StopFlag, Summary, TargetInfo, label, metadata, totals,
};
use crate::possible::PossiblePlan;
use crate::{Error, Result};

/// A run of a session in a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRun<'r> {
    /// The plan for the objects of the process.
    pub plan: &'r VerifiedPlan,
    /// The session of the plan.
    pub session: &'r Session,
    /// The instruments, for programs that it executes.
    pub library: &'r Library,
    /// The fate of what it starts.
    pub choices: ProcessChoices,
    /// The file of the recording.
    pub recording: &'r Path,
    /// The receiver of events: of several measurements each as [`Event::OfProcess`].
    pub events: &'r Sender<Event>,
    /// Ends the run.
    pub stop: &'r StopFlag,
}

impl<'r> ProcessRun<'r> {
    /// Its session, for objects that are loaded.
    fn loaded(&self) -> LoadedSession<'r> {
        LoadedSession {
            session: self.session,
            library: self.library,
        }
    }
}

/// A session that is planned for a program of the process.
#[derive(Clone, Copy)]
struct PlannedPart<'p> {
    subject: &'p Subject,
    plan: &'p VerifiedPlan,
    /// The placements of the plan: those in objects that are mapped at the start.
    session: &'p Session,
    info: &'p TargetInfo,
    /// A sentence about each object file of replacements.
    staying: &'p [String],
}

/// The measurement of a process in one program, or of a forked child.
pub(super) struct RecordedProcess {
    pub(super) pid: u32,
    recording: PathBuf,
    /// The process had ended, or executed another program.
    ended: bool,
    /// Sentences about the course and the end.
    notes: Vec<String>,
    summary: Summary,
}

/// The measurements of a run.
pub(super) struct Measured {
    /// The process, in the program that it executes at the start.
    pub(super) first: RecordedProcess,
    /// Its children, and the programs that it executes then with theirs; or other processes.
    pub(super) others: Vec<RecordedProcess>,
}

impl Measured {
    /// Adds those of another program or process.
    pub(super) fn add(&mut self, Self { first, others }: Self) {
        self.others.push(first);
        self.others.extend(others);
    }
}

/// The course of a run.
pub(super) struct Course<'c> {
    pub(super) run: ProcessRun<'c>,
    pub(super) is_over: &'c (dyn Fn() -> bool + Sync),
    /// Set if splices could not be removed.
    pub(super) leaves: &'c AtomicBool,
    /// The receivers of the events of its measurements.
    pub(super) listeners: &'c Listeners<'c>,
}

impl ProcessTarget {
    /// Runs a session: writes its plan, records until its end, the end of the process or `stop`, and removes all.
    ///
    /// # Errors
    /// As [`Children::watch`] and [`Attached::attach`]; [`Error::Recording`] if the recording cannot be written;
    /// [`Error::Process`] if the process cannot be stopped for the removal.
    pub fn run(&mut self, run: ProcessRun<'_>) -> Result<Summary> {
        let ProcessRun {
            plan,
            session,
            recording,
            ..
        } = run;
        // An error in creating the file must show before the first splice.
        let described = metadata(plan.plan(), session, &self.info, Clock::default())?;
        Writer::check(recording, &described).map_err(|source| Error::Recording { source })?;
        let summary = match run.choices.is_one() {
            true => self.measured(run, recording)?.first.summary,
            false => in_parts(recording, |folder| {
                let measured = self.measured(run, &folder.join("0.arrow"))?;
                merged(measured, recording)
            })?,
        };
        // A listener that has ended needs no events.
        let _no_listener = run.events.send(Event::Finished(Box::new(summary.clone())));
        Ok(summary)
    }

    /// Runs a session; returns all measurements, the process's in its first program first. The recordings of others stand in
    /// the folder of its.
    fn measured(&mut self, run: ProcessRun<'_>, recording: &Path) -> Result<Measured> {
        let pid = self.pid();
        let process = Client::of(pid)?;
        let begun = Instant::now();
        let length = Duration::from_secs_f64(run.session.duration);
        let is_over = || run.stop.is_stopped() || begun.elapsed() >= length;
        let leaves = AtomicBool::new(false);
        let listeners = Listeners::new(run.events, !run.choices.is_one());
        let course = Course {
            run,
            is_over: &is_over,
            leaves: &leaves,
            listeners: &listeners,
        };
        // Nothing is mapped there by what is watched, either.
        let taken = self.layouts.free(run.session, run.library)?;
        let forks = run.choices.children.watch(pid, &taken)?;
        let loads = EarlyWatch::attach(pid, &run.loaded().choice(), &taken);
        let subject = &*self.layouts.subject;
        let scope = Scope::at_start(subject, &run.loaded().choice()).still_mapped(subject)?;
        let session = match scope.has_all(run.session) {
            true => Cow::Borrowed(run.session),
            false => Cow::Owned(scope.within(run.session)),
        };
        let session = &*session;
        let reserved = self.layouts.reserved(session, run.library)?;
        // Object files may have other addresses than when the plan was made, and objects that were read are not mapped.
        let is_same = reserved.layout == run.plan.plan().layout
            && session.placements.len() == run.session.placements.len()
            && self.opened.is_empty();
        let planned_again = (!is_same).then(|| {
            let target = (self.image(), &reserved.layout);
            PossiblePlan::of(target, (session, run.library), true, &mut watch(&is_over))
        });
        let planned_again = planned_again.transpose()?;
        let plan = planned_again
            .as_ref()
            .map_or(run.plan, |planned| &planned.plan);
        if let Some(forks) = &forks {
            forks.refuse_overlap(plan.plan(), self.image())?;
        }
        let staying = reserved.staying();
        let attached = loads.attach_plan(subject, &reserved, plan)?;
        let part = PlannedPart {
            subject,
            plan,
            session,
            info: &self.info,
            staying: &staying,
        };
        let (program, supervisor) = (&mut self.program, &mut self.supervisor);
        let begins = |clock| {
            // A listener that has ended needs no events.
            let _no_listener = run.events.send(Event::Started(clock));
            match program.as_mut().filter(|program| !program.executes) {
                Some(program) => {
                    program.started.release()?;
                    program.executes = true;
                    supervisor.released()
                }
                None => Ok(()),
            }
        };
        let first = course.measured(part, (attached, forks, loads), recording, begins);
        let measured = first.map(|first| match run.choices.exec {
            Exec::Ends => first,
            Exec::Follows => course.follow(process, first, recording),
        });
        self.leaves |= leaves.into_inner();
        let mut measured = measured?;
        let has_ended = match run.choices.exec {
            Exec::Ends => measured.first.ended,
            Exec::Follows => !process.is_alive(),
        };
        if has_ended {
            measured.first.summary.workload = Some(self.end()?);
        }
        Ok(measured)
    }
}

impl Course<'_> {
    /// Measures in the programs that the process executes after its first.
    fn follow(&self, process: Client, first: Measured, recording: &Path) -> Measured {
        let mut all = first;
        let next = executions(
            process,
            self.is_over,
            |number| {
                let recording = recording.with_file_name(format!("{number}.arrow"));
                self.measured_next(process.pid, &recording)
            },
            |error: Error| {
                let pid = process.pid;
                let line = format!(
                    "Process {pid} is not instrumented in the program that it executes now: {error}"
                );
                let _no_listener = self.run.events.send(Event::Workload(line));
            },
        );
        for next in next {
            all.add(next);
        }
        all
    }

    /// Plans the session for the program that a process executes now, and measures in it.
    pub(super) fn measured_next(&self, pid: u32, recording: &Path) -> Result<Measured> {
        let ProcessRun {
            session, library, ..
        } = self.run;
        let forks = self.run.choices.children.watch(pid, &[])?;
        let choice = self.run.loaded().choice();
        let loads = EarlyWatch::attach(pid, &choice, &[]);
        let (subject, awaited) = Subject::read_mapped(pid, &choice)?;
        let session = Scope::at_start(&subject, &choice).within(session);
        if session.placements.is_empty() && awaited.is_empty() {
            return Err(refused(pid, "it has no object that the session is of"));
        }
        subject.read_wanted_types(&session, self.is_over)?;
        let watch = &mut watch(self.is_over);
        let (reserved, planned) = subject.planned((&session, library), false, watch)?;
        let info = subject.info(&reserved)?;
        let staying = reserved.staying();
        let attached = loads.attach_plan(&subject, &reserved, &planned.plan)?;
        let part = PlannedPart {
            subject: &subject,
            plan: &planned.plan,
            session: &planned.session,
            info: &info,
            staying: &staying,
        };
        self.measured(part, (attached, forks, loads), recording, |_| Ok(()))
    }

    /// Measures in an instrumented process, which begins to execute then, and in its children if they have counts of their
    /// own.
    fn measured(
        &self,
        part: PlannedPart<'_>,
        (attached, mut forks, loads): (Attached, Option<ForkWatch>, EarlyWatch),
        recording: &Path,
        begins: impl FnOnce(Clock) -> Result<()>,
    ) -> Result<Measured> {
        let own = match &mut forks {
            Some(forks) if self.run.choices.children == Children::Own => {
                Some(forks.instrument_children(&attached))
            }
            _ => None,
        };
        let unwatched = forks.iter().flat_map(ForkWatch::unwatched);
        let mut notes: Vec<String> = unwatched
            .map(|why| format!("Some forked children may not be met: {why}"))
            .collect();
        let listener = self.listeners.next(attached.pid());
        let (clock, recorder, described) = begin(part, recording, listener.clone())?;
        let description = RefCell::new(LoadedDescription::new(part.info, described));
        let process = match self.run.loaded().choice().has_libraries() {
            true => {
                let start = (part.subject, part.plan.plan());
                let chosen = self.run.loaded().loads(&description, self.is_over);
                FollowedProcess::follow(attached, loads, start, chosen)?
            }
            false => FollowedProcess::alone(attached),
        };
        let process = match forks {
            Some(forks) => process.with_forks(forks),
            None => process,
        };
        let awaited = awaited(self.run.session, part.session);
        nothing(
            process.pid(),
            &awaited,
            (part.session, process.not_followed()),
        )?;
        notes.extend(process.not_followed().map(|why| {
            let why = why.trim_end_matches('.');
            format!("Objects that it loaded during the run were not instrumented: {why}.")
        }));
        begins(clock)?;
        description.borrow_mut().begin(listener);
        let loaded = || description.borrow().loaded();
        let measure = || {
            let recording = (clock, recorder, recording);
            self.recorded(part, process, recording, (&loaded, self.is_over))
        };
        let (mut first, others) = match own {
            None => (measure()?, Vec::new()),
            Some(children) => with_children(&children, measure, |child, number, is_left| {
                let stem = recording.file_stem().unwrap_or_default().display();
                let recording = recording.with_file_name(format!("{stem}-{number}.arrow"));
                let listener = self.listeners.next(child.pid());
                let (clock, recorder, described) = begin(part, &recording, listener.clone())?;
                listener.describe(&described);
                let child = FollowedProcess::alone(child);
                let recording = (clock, recorder, recording.as_path());
                self.recorded(part, child, recording, (&|| None, is_left))
            })?,
        };
        notes.append(&mut first.notes);
        first.notes = notes;
        first.summary.ended = text(&first.notes, first.ended);
        Ok(Measured { first, others })
    }

    /// Records an instrumented process until it ends or `is_over`.
    fn recorded(
        &self,
        PlannedPart {
            plan,
            session,
            staying,
            ..
        }: PlannedPart<'_>,
        process: FollowedProcess<'_, KeptPlan>,
        (clock, mut recorder, path): (Clock, Recorder, &Path),
        (loaded, is_over): (&dyn Fn() -> Option<Metadata>, &dyn Fn() -> bool),
    ) -> Result<RecordedProcess> {
        let pid = process.pid();
        let plan = plan.plan();
        let length = Duration::from_secs_f64(session.duration);
        let is_followed = process.is_followed();
        let end = recorder.follow(process, plan, length, is_over);
        if end.is_err() {
            self.leaves.store(true, Ordering::Release);
        }
        let end = end?;
        let mut notes = match is_followed {
            true => self.run.loaded().notes_of_loads(session, &end),
            false => Vec::new(),
        };
        let (removed, children, parts) = (end.removed, end.children, end.parts);
        let hits: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
        let mut totals = totals(plan, &hits);
        append_totals(&mut totals, &parts);
        if let Some(described) = loaded() {
            recorder.describe(described);
        }
        if removed.reads_ended && !removed.ended {
            notes.push(
                "The process was about to filter its system calls, or may have been: its memory was not read after that, nor were `pid`, `comm` and callers."
                    .to_owned(),
            );
        }
        let children = children.map(|children| children.to_string());
        let children = children.iter().flat_map(|text| text.lines());
        notes.extend(children.map(str::to_owned));
        if !removed.ended {
            notes.extend_from_slice(staying);
        }
        totals.ended = text(&notes, removed.ended);
        totals.stacks.clone_from(recorder.kept_stacks());
        let recording = recorder.finish(totals.clone())?.unwrap_or_default();
        let losses = recorder.losses();
        let mut instruments = instruments(plan, (&recorder, &|id| id), &hits);
        for part in &parts {
            let number = |id| part.recorded(id);
            instruments.extend(self::instruments(
                part.plan.plan(),
                (&recorder, &number),
                &part.hits(),
            ));
        }
        Ok(RecordedProcess {
            pid,
            recording: path.to_path_buf(),
            ended: removed.ended,
            notes,
            summary: Summary {
                recording,
                clock,
                stopped: self.run.stop.is_stopped(),
                taken: losses.iter().map(|cpu| cpu.taken).sum(),
                missing: 0,
                losses,
                instruments,
                aggregates: totals.added_up,
                cache: None,
                ended: totals.ended,
                symbols: totals.symbols,
                failed_reads: totals.failed_reads,
                no_room: totals.no_room,
                stacks: totals.stacks,
                cost: None,
                gaps: Vec::new(),
                switches: Vec::new(),
                workload: None,
                retired: 0,
            },
        })
    }
}

/// Returns sentences about the course of a measurement, and one about its end.
fn text(notes: &[String], has_ended: bool) -> String {
    let ended = has_ended.then_some("The process has ended.");
    let notes = notes.iter().map(String::as_str);
    notes.chain(ended).collect::<Vec<_>>().join(" ")
}

/// Runs a session of several measurements, whose recordings stand in a folder until they are one.
pub(super) fn in_parts(
    recording: &Path,
    run: impl FnOnce(&Path) -> Result<Summary>,
) -> Result<Summary> {
    let folder = recording.with_extension("parts");
    let hint = "It is for the recordings of the process and what it starts; remove it, or record to another file.";
    std::fs::create_dir(&folder).map_err(Error::io(&folder, hint))?;
    match run(&folder) {
        Ok(whole) => {
            let hint = "The recording of all processes is whole; remove this folder.";
            std::fs::remove_dir_all(&folder).map_err(Error::io(&folder, hint))?;
            Ok(whole)
        }
        // A folder with recordings stays.
        Err(error) if std::fs::remove_dir(&folder).is_ok() => Err(error),
        Err(error) => Err(Error::Target(format!(
            "{error} What was recorded of each process is in {}.",
            folder.display()
        ))),
    }
}

/// Begins a recording.
fn begin(
    PlannedPart {
        plan,
        session,
        info,
        ..
    }: PlannedPart<'_>,
    recording: &Path,
    listener: Listener,
) -> Result<(Clock, Recorder, Metadata)> {
    let clock = Clock::from(clock());
    let described = metadata(plan.plan(), session, info, clock)?;
    let collector = Writer::create(recording, &described).and_then(Collector::start);
    let collector = collector.map_err(|source| Error::Recording { source })?;
    let mut recorder = Recorder::new(Some(collector), None);
    recorder.listen(listener);
    recorder.report_aggregates(true);
    Ok((clock, recorder, described))
}

/// Writes the recordings of all measurements as one, and returns its summary.
pub(super) fn merged(Measured { first, others }: Measured, recording: &Path) -> Result<Summary> {
    let all = || std::iter::once(&first).chain(&others);
    let written = write_beside(
        all().map(|one| (process_label(one.pid), one.recording.as_path())),
        recording,
    )?;
    let whole = Recording::open(recording).map_err(|source| Error::Recording { source })?;
    let mut losses: BTreeMap<u16, CpuLosses> = BTreeMap::new();
    for one in all().flat_map(|one| &one.summary.losses) {
        let sum = losses.entry(one.cpu).or_insert(CpuLosses {
            cpu: one.cpu,
            ..CpuLosses::default()
        });
        sum.taken += one.taken;
        sum.full += one.full;
        sum.disabled += one.disabled;
        sum.unfinished += one.unfinished;
    }
    // They are described in the order of their recordings.
    let instruments = all().flat_map(|one| &one.summary.instruments);
    let described = whole.metadata().instruments.iter();
    let instruments = described
        .zip(instruments)
        .map(|(info, one)| InstrumentSummary {
            id: info.id,
            label: info.label.clone(),
            ..one.clone()
        });
    let instruments = instruments.collect();
    let taken = all().map(|one| one.summary.taken).sum();
    let totals = whole.totals();
    // The recording has the words about each child, too.
    let process = || all().filter(|one| one.pid == first.pid);
    let mut notes: Vec<String> = process().flat_map(|one| one.notes.clone()).collect();
    match process().count() - 1 {
        0 => {}
        1 => {
            notes.push("The process executed another program, which was measured, too.".to_owned());
        }
        more => notes.push(format!(
            "The process executed {more} other programs, which were measured, too."
        )),
    }
    let ended = text(&notes, process().next_back().is_some_and(|last| last.ended));
    Ok(Summary {
        recording: written,
        taken,
        losses: losses.into_values().collect(),
        instruments,
        aggregates: totals.added_up.clone(),
        ended,
        symbols: totals.symbols.clone(),
        failed_reads: totals.failed_reads.clone(),
        no_room: totals.no_room.clone(),
        stacks: totals.stacks.clone(),
        ..first.summary
    })
}

/// The results of all instruments of a plan, by recorded identifier.
fn instruments(
    plan: &Plan,
    (recorder, recorded): (&Recorder, &dyn Fn(u64) -> u64),
    hits: &BTreeMap<u64, u64>,
) -> Vec<InstrumentSummary> {
    let summary = |one: &PlannedInstrument| {
        let id = one.id.pack();
        InstrumentSummary {
            id: recorded(id),
            label: label(plan, one),
            samples: recorder.samples_of(recorded(id)),
            total: hits.get(&id).copied(),
        }
    };
    plan.instruments.iter().map(summary).collect()
}
