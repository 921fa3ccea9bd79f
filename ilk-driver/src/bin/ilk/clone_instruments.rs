//! Instruments of `ilk clone`: a script or a session, planned as for `ilk process` and run in the code cache.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, ensure};
use gilk_engine::Session;
use gilk_instruments::Library;
use gilk_samples::collector::Collector;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::recording::Writer;
use ilk_driver::client::{CpuLosses, samples};
use ilk_driver::note;
use ilk_driver::process::{
    Children, CloneInstruments, CloneReport, Exec, Recorder, Scope, Subject, clock,
};
use ilk_driver::script::Script;

use crate::plan::{Strict, open};
use crate::process::{Measurement, Work};
use crate::process_count::{Counted, READS_ENDED, report};
use crate::process_lines::LinePrinter;
use crate::process_results::ProcessPlan;

/// The instruments of a command.
pub(crate) struct CacheWork {
    measurement: Measurement,
}

/// The instruments of a process, which are ready to run.
pub(crate) struct CacheSession {
    plan: ProcessPlan,
    described: Metadata,
    pub(crate) instruments: CloneInstruments,
    pub(crate) recorder: Recorder,
    printer: Option<LinePrinter>,
}

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
    pub(crate) fn begin(&self, pid: u32, output: Option<&PathBuf>) -> anyhow::Result<CacheSession> {
        let measurement = &self.measurement;
        let choice = measurement.choice();
        let (subject, awaited) = Subject::read_mapped(pid, &choice)?;
        ensure!(
            awaited.is_empty(),
            "It has not mapped {}, and libraries that are loaded later have no instruments in the code cache.",
            awaited.join(", ")
        );
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
            None => LinePrinter::begin(&described),
        };
        let (listener, printer) = printed.unzip();
        Ok(CacheSession {
            plan,
            described,
            instruments,
            recorder: Recorder::new(collector, listener),
            printer,
        })
    }
}

impl CacheSession {
    /// Splits it into what the execution takes, and what its results need.
    pub(crate) fn split(self) -> (CloneInstruments, CacheResults) {
        let Self {
            plan,
            described,
            instruments,
            recorder,
            printer,
        } = self;
        let results = CacheResults {
            plan,
            described,
            recorder,
            printer,
        };
        (instruments, results)
    }
}

/// The results of instruments in the cache.
pub(crate) struct CacheResults {
    plan: ProcessPlan,
    described: Metadata,
    pub(crate) recorder: Recorder,
    printer: Option<LinePrinter>,
}

impl CacheResults {
    /// Ends the recording, and shows the results.
    pub(crate) fn finish(mut self, clone: &CloneReport, all: bool) -> anyhow::Result<()> {
        let words: BTreeMap<u64, u64> = clone.counts.iter().copied().collect();
        let results = self
            .plan
            .results((&words, std::slice::from_ref(&words)), all);
        let mut recorded = results.recorded;
        recorded.cache = Some(clone.numbers);
        recorded.ended = clone.end.sentence();
        if clone.reads_ended {
            recorded.ended = format!("{} {READS_ENDED}", recorded.ended);
        }
        let losses = self.recorder.losses();
        self.recorder.finish(recorded)?;
        let stacks = self.recorder.kept_stacks().clone();
        drop(self.recorder);
        if let Some(printer) = self.printer {
            printer.end();
        }
        let taken: u64 = losses.iter().map(|cpu| cpu.taken).sum();
        let lost: u64 = losses.iter().map(CpuLosses::lost).sum();
        let mut instruments = self.plan.planned.plan.plan().instruments.iter();
        let sampled = instruments.any(samples).then_some((taken, lost));
        let mut notes = self.plan.planned.left_out.clone();
        if clone.reads_ended {
            writeln!(notes, "{READS_ENDED}")?;
        }
        let counted = Counted::in_cache(words, self.described, (sampled, stacks), notes);
        let text = report(&self.plan, &[(clone.pid, &counted)], all)?;
        note!("{}", text.trim_end());
        Ok(())
    }
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
