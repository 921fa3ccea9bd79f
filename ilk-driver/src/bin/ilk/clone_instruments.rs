//! Instruments of `ilk clone`: a script or a session, planned as for `ilk process` and run in the code cache.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, anyhow, ensure};
use gilk_engine::Session;
use gilk_instruments::Library;
use gilk_samples::collector::Collector;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::process_end::READS_ENDED;
use gilk_samples::recording::Writer;
use ilk_driver::client::{CpuLosses, TargetInfo, append_metadata, samples};
use ilk_driver::note;
use ilk_driver::process::{
    CacheInstrumentation, Children, CloneInstruments, CloneReport, Exec, LaterInstruments,
    LaterPlan, LiveInstruments, LoadedPart, Recorder, Scope, Subject, clock,
};
use ilk_driver::script::Script;

use crate::plan::{Strict, open, without_program};
use crate::process::{Measurement, Work};
use crate::process_count::{Counted, LaterResults, report};
use crate::process_lines::LinePrinter;
use crate::process_names::{note_awaited, note_never_loaded};
use crate::process_results::ProcessPlan;

/// The instruments of a command.
pub(crate) struct CacheWork {
    measurement: Measurement,
}

/// The instruments of a process, which are ready to run.
pub(crate) struct CacheSession<'w> {
    instruments: CloneInstruments,
    later: Option<LaterInstruments<'w>>,
    results: CacheResults,
}

/// Plans for objects that were loaded later, by the numbers that the execution has for them.
type LaterPlans = Arc<Mutex<Vec<ProcessPlan>>>;

impl CacheWork {
    /// Reads a script, or a session's file; `None` if there is neither.
    pub(crate) fn of(
        script: Option<&str>,
        session: Option<&Path>,
        length: Option<f64>,
    ) -> anyhow::Result<Option<Self>> {
        let (work, length) = match (script, session) {
            (Some(text), _) => (Work::Script(of_cache(text)?), length),
            (None, Some(file)) => {
                let mut session = open(file)?;
                ensure!(
                    session.kernel.is_none(),
                    "{} has a part of the kernel, which is not in the code cache: run it by `ilk run`.",
                    file.display()
                );
                ensure!(
                    !session.tracepoints,
                    "{} switches static probes on, which are not in the code cache: run it by `ilk run`.",
                    file.display()
                );
                without_program(&session, file)?;
                shorten(&mut session, length);
                let length = Some(session.duration);
                (Work::Session(session), length)
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Self {
            measurement: Measurement {
                work,
                replaced: Vec::new(),
                length,
                library: Library::builtin()?,
                output: None,
                save: None,
                all: false,
                strict: Strict::LENIENT,
                kernel: None,
                children: Children::default(),
                exec: Exec::default(),
            },
        }))
    }

    /// Seconds after which the process is let go, if the command or the session says so.
    pub(crate) fn length(&self) -> Option<f64> {
        self.measurement.length
    }

    /// Plans for a process, and begins the recording, if there is one.
    pub(crate) fn begin(
        &self,
        pid: u32,
        output: Option<&Path>,
    ) -> anyhow::Result<CacheSession<'_>> {
        let measurement = &self.measurement;
        let choice = measurement.choice();
        let (subject, awaited) = Subject::read_steady(pid, &choice)?;
        note_awaited(pid, &awaited)?;
        let scope = Scope::at_start(&subject, &choice);
        let (reserved, plan) = measurement.planned(pid, &subject, &scope)?;
        let info = subject.info(&reserved)?;
        let planned = &plan.planned;
        let instruments =
            CloneInstruments::new(subject, &reserved, &planned.plan, &planned.session)?;
        let clock = Clock::from(clock());
        let described = plan.described(&info, clock)?;
        let writer = output.map(|output| Writer::create(output, &described));
        let collector = writer.transpose()?.map(Collector::start).transpose()?;
        let printed = match output {
            Some(_) => None,
            None => LinePrinter::begin(&described, choice.has_libraries()),
        };
        let (listener, printer) = printed.unzip();
        let plans = LaterPlans::default();
        let later = choice.has_libraries().then(|| LaterInstruments {
            choice: choice.clone(),
            planner: {
                let plans = Arc::clone(&plans);
                Box::new(move |subject: &Subject| {
                    let planned = measurement.later(pid, subject, &choice);
                    let planned = planned.map_err(|error| format!("{error:#}"))?;
                    Ok(planned.map(|planned| numbered(planned, &plans)))
                })
            },
        });
        let results = CacheResults {
            awaited,
            plan,
            later: plans,
            info,
            described,
            recorder: Recorder::new(collector, listener),
            printer,
        };
        Ok(CacheSession {
            instruments,
            later,
            results,
        })
    }
}

/// Keeps a plan under a number.
fn numbered(planned: LaterPlan<ProcessPlan>, plans: &LaterPlans) -> LaterPlan<usize> {
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    plans.push(planned.kept);
    LaterPlan {
        reserved: planned.reserved,
        plan: planned.plan,
        kept: plans.len() - 1,
    }
}

impl<'w> CacheSession<'w> {
    /// Splits it into what the execution takes, and what its results need.
    pub(crate) fn split(self) -> (Instrumented<'w>, CacheResults) {
        ((self.instruments, self.later), self.results)
    }
}

/// Instruments of the objects from the start, and of later ones.
pub(crate) type Instrumented<'w> = (CloneInstruments, Option<LaterInstruments<'w>>);

/// The results of instruments in the cache.
pub(crate) struct CacheResults {
    /// Patterns of objects that were not mapped at the start.
    awaited: Vec<String>,
    plan: ProcessPlan,
    later: LaterPlans,
    info: TargetInfo,
    described: Metadata,
    recorder: Recorder,
    printer: Option<LinePrinter>,
}

impl CacheResults {
    /// Returns what an execution takes.
    pub(crate) fn taking<'r>(
        &'r mut self,
        (instruments, later): Instrumented<'r>,
    ) -> CacheInstrumentation<'r> {
        let (plan, later_plans) = (&self.plan, &self.later);
        let (info, described) = (&self.info, &self.described);
        let describe = move |parts: &[(usize, u32)]| {
            let plans = later_plans.lock().unwrap_or_else(PoisonError::into_inner);
            let with = with_parts(described, info, &plans, parts);
            with.map_err(|error| format!("{error:#}"))
        };
        CacheInstrumentation {
            instruments,
            later,
            recorder: &mut self.recorder,
            live: LiveInstruments {
                plan: plan.planned.plan.plan(),
                describe: Box::new(describe),
            },
        }
    }

    /// Ends the recording, and shows the results.
    pub(crate) fn finish(mut self, clone: &mut CloneReport, all: bool) -> anyhow::Result<()> {
        let words: BTreeMap<u64, u64> = clone.counts.iter().copied().collect();
        let results = self
            .plan
            .results((&words, std::slice::from_ref(&words)), all);
        let mut recorded = results.recorded;
        let mut plans = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plans: BTreeMap<usize, ProcessPlan> = plans.drain(..).enumerate().collect();
        let parts = std::mem::take(&mut clone.parts).into_iter();
        let parts = parts.filter_map(|part| {
            let plan = plans.remove(&part.kept)?;
            Some(part.keeping(|_| plan))
        });
        let parts: Vec<LoadedPart<ProcessPlan>> = parts.collect();
        let later = LaterResults::of(
            &parts,
            (&self.info, self.described.clock),
            (&mut self.recorder, &mut recorded, self.described.clone()),
            all,
        )?;
        recorded.cache = Some(clone.numbers);
        recorded.ends = vec![clone.process_end()];
        let losses = self.recorder.losses();
        self.recorder.finish(recorded)?;
        let stacks = self.recorder.kept_stacks().clone();
        drop(self.recorder);
        if let Some(printer) = self.printer {
            printer.end();
        }
        let taken: u64 = losses.iter().map(|cpu| cpu.taken).sum();
        let lost: u64 = losses.iter().map(CpuLosses::lost).sum();
        let plans = parts.iter().map(|part| part.plan.plan());
        let plans = std::iter::once(self.plan.planned.plan.plan()).chain(plans);
        let mut instruments = plans.flat_map(|plan| &plan.instruments);
        let sampled = instruments.any(samples).then_some((taken, lost));
        let mut notes = self.plan.planned.left_out.clone();
        let loaded = later.loaded(&clone.not_instrumented);
        notes += &later.notes(&clone.not_instrumented)?;
        if clone.reads_ended {
            writeln!(notes, "{READS_ENDED}")?;
        }
        let sampled = (sampled, stacks);
        let counted = Counted::in_cache(words, self.described, sampled, later.results, notes);
        let text = report(&self.plan, &[(clone.pid, &counted)], all)?;
        note!("{}", text.trim_end());
        note_never_loaded(clone.pid, &self.awaited, &loaded);
        Ok(())
    }
}

/// Describes a recording with objects that were loaded later: the numbers of their plans, and of their first functions.
fn with_parts(
    described: &Metadata,
    info: &TargetInfo,
    plans: &[ProcessPlan],
    parts: &[(usize, u32)],
) -> anyhow::Result<Metadata> {
    let mut all = described.clone();
    for &(number, first_major) in parts {
        let plan = plans.get(number).context("an object has no plan")?;
        let further = plan.described(info, described.clock)?;
        append_metadata(&mut all, &further, first_major)?;
    }
    Ok(all)
}

/// Reads a script for the cache.
fn of_cache(text: &str) -> anyhow::Result<Script> {
    let script = Script::parse(text).map_err(|faults| anyhow!("{faults}"))?;
    ensure!(
        script.terminal().actions().next().is_none(),
        "In the code cache the terminal shows totals at the end; leave out what the script prints or clears."
    );
    ensure!(
        !script.names_static_probes(),
        "Static probes are not switched on in the code cache; instrument them by `ilk process`."
    );
    Ok(script)
}

/// Ends a session earlier, with all of its instruments.
fn shorten(session: &mut Session, length: Option<f64>) {
    let Some(length) = length.filter(|length| *length < session.duration) else {
        return;
    };
    for placement in &mut session.placements {
        placement.splash = placement.splash.min(length);
    }
    session.duration = length;
}
