//! A process as the target of sessions: its objects are read once, and each session instruments it and leaves it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crossbeam_channel::Sender;
use gilk_engine::plan::PlannedInstrument;
use gilk_engine::{Image, Plan, Session, VerifiedPlan};
use gilk_samples::collector::Collector;
use gilk_samples::metadata::Clock;
use gilk_samples::recording::Writer;

use super::record::text_of;
use super::recorder::Recorder;
use super::supervisor::Supervisor;
use super::{Attached, FollowedProcess, ObjectChoice, Reserved, StartedProgram, Subject, clock};
use crate::client::{
    Event, InstrumentSummary, StopFlag, Summary, TargetInfo, label, metadata, totals,
};
use crate::{Error, Result};

/// Words of each CPU for the counters of a session.
const WORDS: u32 = 1 << 14;
/// Patterns of all functions of the program and of its libraries.
const ALL: [&str; 2] = ["*", "*:*"];

/// A process with all of its objects.
#[derive(Debug)]
pub struct ProcessTarget {
    pub(super) subject: Subject,
    reserved: Reserved,
    info: TargetInfo,
    /// A program that was started for its sessions.
    pub(super) program: Option<LaunchedProgram>,
    /// Removes what this leaves in the process, should this program be killed.
    pub(super) supervisor: Supervisor,
    /// A session's splices could not be removed: the supervisor tries again.
    leaves: bool,
}

#[derive(Debug)]
pub(super) struct LaunchedProgram {
    pub(super) started: StartedProgram,
    /// A session has begun, and released it.
    pub(super) executes: bool,
}

impl ProcessTarget {
    /// Reads a process, which continues until a session instruments it.
    ///
    /// # Errors
    /// [`Error::Process`] as [`Subject::read`] and [`Subject::reserve`], and if the supervisor does not start.
    pub fn open(pid: u32) -> Result<Self> {
        Self::read(pid, None, Supervisor::start()?)
    }

    /// Starts a program, which executes its own first instruction when a session has instrumented it. It is killed if
    /// this is dropped before.
    ///
    /// # Errors
    /// As [`StartedProgram::start`] and [`Self::open`].
    pub fn start(program: &str, arguments: &[String]) -> Result<Self> {
        let mut supervisor = Supervisor::start()?;
        let guard = |program| supervisor.guard(program);
        let started = StartedProgram::start(program, arguments, guard)?;
        started.check_registered()?;
        Self::read(started.pid(), Some(started), supervisor)
    }

    fn read(pid: u32, started: Option<StartedProgram>, supervisor: Supervisor) -> Result<Self> {
        let subject = Subject::read(pid, &ObjectChoice::of(ALL.into_iter()))?;
        let reserved = subject.reserve(WORDS)?;
        let info = subject.info(&reserved)?;
        Ok(Self {
            subject,
            reserved,
            info,
            program: started.map(|started| LaunchedProgram {
                started,
                executes: false,
            }),
            supervisor,
            leaves: false,
        })
    }

    /// Returns the number of the process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.subject.pid
    }

    /// The objects, with their bytes in the process.
    #[must_use]
    pub fn image(&self) -> &Image {
        self.subject.image()
    }

    /// The machine and the process, as recordings describe them, and the layout that plans have.
    #[must_use]
    pub fn info(&self) -> &TargetInfo {
        &self.info
    }

    /// Returns the reason why a plan cannot be written into any process, if there is one.
    #[must_use]
    pub fn refusal(plan: &Plan) -> Option<String> {
        text_of(plan).err().map(|error| error.to_string())
    }

    /// Checks that the process executes the program still that was read.
    ///
    /// # Errors
    /// [`Error::Target`] if it does not.
    pub fn check(&self) -> Result<()> {
        let ended = |_| {
            let pid = self.subject.pid;
            let what = format!(
                "Process {pid} has ended, or executed another program; choose it or start it again."
            );
            Error::Target(what)
        };
        self.subject.is_still_mapped().map_err(ended)
    }

    /// Runs a session: writes its plan, records until its end, the end of the process or `stop`, and removes all.
    ///
    /// # Errors
    /// As [`Attached::attach`]; [`Error::Recording`] if the recording cannot be written; [`Error::Process`] if the
    /// process cannot be stopped for the removal.
    pub fn run(
        &mut self,
        plan: &VerifiedPlan,
        session: &Session,
        recording: &Path,
        events: &Sender<Event>,
        stop: &StopFlag,
    ) -> Result<Summary> {
        let failed = |source| Error::Recording { source };
        // An error in creating the file must show before the first splice.
        let described = metadata(plan.plan(), session, &self.info, Clock::default())?;
        Writer::check(recording, &described).map_err(failed)?;
        let attached = Attached::attach(
            &self.subject,
            self.reserved.clone().for_session(session),
            plan,
        )?;
        let started = clock();
        let clock = Clock {
            hz: started.tsc_hz,
            start: started.tsc,
            start_unix_ns: started.unix_ns,
        };
        let described = metadata(plan.plan(), session, &self.info, clock)?;
        let collector = Writer::create(recording, &described).and_then(Collector::start);
        let mut recorder = Recorder::new(Some(collector.map_err(failed)?), Some(events.clone()));
        // A listener that has ended needs no events.
        let _no_listener = events.send(Event::Started(clock));
        if let Some(program) = self.program.as_mut().filter(|program| !program.executes) {
            program.started.release()?;
            program.executes = true;
            self.supervisor.released()?;
        }
        let length = Duration::from_secs_f64(session.duration);
        let process = FollowedProcess::<()>::alone(attached);
        let end = recorder.follow(process, plan.plan(), length, || stop.is_stopped());
        self.leaves |= end.is_err();
        let removed = end?.removed;
        let hits: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
        let mut totals = totals(plan.plan(), &hits);
        if removed.ended {
            "The process has ended.".clone_into(&mut totals.ended);
        } else if removed.reads_ended {
            "The process was about to filter its system calls, or may have been: its memory was not read after that."
                .clone_into(&mut totals.ended);
        }
        let recording = recorder.finish(totals.clone())?.unwrap_or_default();
        let losses = recorder.losses();
        let summary = Summary {
            recording,
            clock,
            stopped: stop.is_stopped(),
            taken: losses.iter().map(|cpu| cpu.taken).sum(),
            missing: 0,
            losses,
            instruments: instruments(plan.plan(), &recorder, &hits),
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
            workload: removed.ended.then(|| self.end()).transpose()?,
            retired: 0,
        };
        let _no_listener = events.send(Event::Finished(Box::new(summary.clone())));
        Ok(summary)
    }

    /// Describes the end of the process.
    pub(super) fn end(&mut self) -> Result<String> {
        match self.program.take() {
            Some(mut program) => {
                let status = program.started.wait()?;
                Ok(format!("The program has ended: {status}"))
            }
            None => Ok("The process has ended".to_owned()),
        }
    }
}

impl AsRef<Self> for ProcessTarget {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Drop for ProcessTarget {
    fn drop(&mut self) {
        // A supervisor that is not dismissed takes the end of its pipe for that of its client.
        if !self.leaves {
            self.supervisor.dismiss();
        }
    }
}

/// The results of all instruments.
fn instruments(
    plan: &Plan,
    recorder: &Recorder,
    hits: &BTreeMap<u64, u64>,
) -> Vec<InstrumentSummary> {
    let summary = |one: &PlannedInstrument| {
        let id = one.id.pack();
        InstrumentSummary {
            id,
            label: label(plan, one),
            samples: recorder.samples_of(id),
            total: hits.get(&id).copied(),
        }
    };
    plan.instruments.iter().map(summary).collect()
}
