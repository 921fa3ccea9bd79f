//! `ilk process`: instruments in a process of this machine.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use clap::Args;
use gilk_engine::cfg::Cfg;
use gilk_engine::code::Function;
use gilk_engine::patch::Probed;
use gilk_engine::plan::PlannedInstrument;
use gilk_engine::session::Placement;
use gilk_engine::{Error, HookType, Image, Session};
use gilk_instruments::Library;
use gilk_instruments::program::ActionKind;
use gilk_samples::chart::scale;
use gilk_samples::chart::totals::text;
use gilk_samples::collector::Collector;
use gilk_samples::metadata::Clock;
use gilk_samples::output::Contents;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::Writer;
use gilk_samples::totals::{Total, TotalValue};
use gilk_samples::{Batch, Sample};
use ilk_driver::client::{TargetInfo, is_aggregate_word, label, metadata, totals};
use ilk_driver::interrupt;
use ilk_driver::process::{Attached, Client, SampleRings, StartedProgram, Subject, clock, tsc};
use ilk_driver::script::{Filter, Script, matches, resolve};

use crate::output::Force;
use crate::plan::{Planned, Strict, grouped};
use crate::program::exit;
use crate::supervisor::{self, Supervisor};

/// The session's length where none is given: a day.
const UNLIMITED: f64 = 86_400.0;
/// Interval at which totals are recorded, and Ctrl-C is polled.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which rings are emptied.
const DRAINED: Duration = Duration::from_millis(5);
/// Words of each CPU that a process is given at first, and at most.
const WORDS: [u32; 2] = [64, 1 << 20];
/// Names of the aggregates of a script's instruments that only count, by instrument.
type CounterNames = BTreeMap<String, String>;

/// Names in a line of functions that are left out.
const NAMED: usize = 8;

/// Count the calls of functions of a process on this machine, or run a script in it, without the kernel's module.
///
/// The process needs glibc 2.35 or later, and you the right to trace it (as for gdb). Hits are
/// counted exactly, on all threads; those of forked children are added. Ctrl-C, or the end of
/// the process, removes everything and shows the results.
#[derive(Args)]
pub(crate) struct Process {
    /// The functions: names or patterns, separated by commas: 'malloc,free', 'parse_*'.
    #[arg(required_unless_present_any = ["clean", "supervise", "script"])]
    functions: Option<String>,
    /// A script instead: 'entry:parse { @sizes = hist(arg1) }'; `ilk help probes` and `ilk help language`
    /// have the words.
    #[arg(short = 'e', long = "execute", value_name = "SCRIPT", conflicts_with_all = ["functions", "blocks"])]
    script: Option<String>,
    /// The process.
    #[arg(short = 'p', long, value_name = "PID", required_unless_present_any = ["clean", "supervise", "program"])]
    pid: Option<u32>,
    /// A library of the process, such as libc.so.6. Default: its program.
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    /// Count every block of the functions, not only their calls.
    #[arg(long)]
    blocks: bool,
    /// End after this time: 10s, 2m.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    length: Option<f64>,
    /// Keep the recording in this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show places without hits, too.
    #[arg(long)]
    all: bool,
    /// Remove what an `ilk process` that was killed, with its supervisor, has left in a process and its
    /// forked children; without -p, in all processes.
    #[arg(long, conflicts_with_all = ["functions", "script", "object", "blocks", "length", "output", "all"])]
    clean: bool,
    /// Remove what this process, PID:START, leaves when its end of the standard input closes.
    #[arg(long, hide = true, exclusive = true, value_name = "CLIENT", value_parser = supervisor::client)]
    supervise: Option<Client>,
    /// Start this program with its arguments instead, instrumented from its entry on, and end with it and its exit
    /// status.
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["pid", "clean"])]
    program: Vec<String>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    strict: Strict,
}

pub(crate) fn time(text: &str) -> Result<f64, String> {
    let seconds = ilk_driver::script::seconds(text).filter(|seconds| *seconds <= UNLIMITED);
    seconds.ok_or_else(|| String::from("write a time such as 10s, 250ms or 2m, at most 24h"))
}

impl Process {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(client) = self.supervise {
            return supervisor::supervise(client);
        }
        match (self.pid, self.program.split_first()) {
            (_, Some((program, arguments))) => {
                let mut launched = StartedProgram::start(program, arguments)?;
                self.instrument(launched.pid(), Some(&mut launched))
            }
            (Some(pid), None) if !self.clean => self.instrument(pid, None),
            (pid, None) => supervisor::clean(pid),
        }
    }

    /// Instruments a process until the end, which for a launched program is its own.
    fn instrument(
        &self,
        pid: u32,
        mut launched: Option<&mut StartedProgram>,
    ) -> anyhow::Result<ExitCode> {
        let mut goals = self.force.goals();
        if let Some(output) = &self.output {
            goals.goal(output, Contents::Recording)?;
        }
        interrupt::watch();
        let (subject, planned, names) = self.planned(pid)?;
        let info = info(pid, &subject)?;
        let supervisor = Supervisor::start()?;
        let attached = Attached::attach(subject, &planned.plan)?;
        eprintln!(
            "{} places in process {} are instrumented; its threads were stopped for {}. Ctrl-C ends.",
            planned.session.placements.len(),
            pid,
            scale::duration(attached.stopped().as_secs_f64())
        );
        if let Some(launched) = &mut launched {
            launched.release()?;
        }
        self.count(attached, &planned, &names, &info)?;
        supervisor.dismiss()?;
        let Some(launched) = launched else {
            return Ok(ExitCode::SUCCESS);
        };
        let status = launched.wait()?;
        println!("The program has ended: {status}.");
        match status.success() {
            true => Ok(ExitCode::SUCCESS),
            false => Ok(exit(&status.to_string())),
        }
    }

    /// Reads the process and plans for it, with as many words as the plan needs.
    fn planned(&self, pid: u32) -> anyhow::Result<(Subject, Planned, CounterNames)> {
        let library = Library::builtin()?;
        let [mut words, most] = WORDS;
        loop {
            let subject = Subject::read(pid, self.object.as_deref(), words)?;
            let (session, names) = self.session(pid, subject.image())?;
            let (image, layout) = (subject.image(), subject.layout());
            let error = match self.strict.planned(image, &session, &library, layout) {
                Ok(planned) => return Ok((subject, planned, names)),
                Err(error) => error,
            };
            // The number of words decides the layout, so the object is read again.
            match error.downcast_ref() {
                Some(&Error::Full { needed, .. }) if words < most => {
                    let needed = u32::try_from(needed).unwrap_or(most);
                    words = needed.max(words.saturating_mul(4)).min(most);
                }
                _ => return Err(error),
            }
        }
    }

    /// The placements of the script, or those of counters.
    fn session(&self, pid: u32, image: &Image) -> anyhow::Result<(Session, CounterNames)> {
        let (mut session, names) = match (&self.script, &self.functions) {
            (Some(script), _) => self.of_script(script, image)?,
            (None, functions) => {
                let functions = functions.as_deref().unwrap_or("*");
                (self.of_functions(functions, image)?, CounterNames::new())
            }
        };
        session.name = format!("process {pid}");
        Ok((session, names))
    }

    fn of_script(&self, text: &str, image: &Image) -> anyhow::Result<(Session, CounterNames)> {
        let script = Script::parse(text).map_err(|faults| anyhow!("{faults}"))?;
        ensure!(
            script.terminal().actions().next().is_none(),
            "In a process the terminal shows totals at the end; leave out what the script prints or clears."
        );
        let filter = Filter {
            duration: self.length.unwrap_or(UNLIMITED),
            pid: None,
        };
        let query = resolve(&script, image, filter, None).map_err(|faults| anyhow!("{faults}"))?;
        let absent = query.absent.iter();
        let absent = absent.map(|one| (one.reason.clone(), one.function.clone()));
        eprint!("{}", grouped(absent, "Left out", NAMED));
        Ok((query.session, query.counters))
    }

    /// The placements: the entries of functions, or all of their blocks.
    fn of_functions(&self, functions: &str, image: &Image) -> anyhow::Result<Session> {
        let mut session = Session::empty();
        session.duration = self.length.unwrap_or(UNLIMITED);
        for pattern in functions.split(',') {
            let is_named = |function: &&Function| matches(pattern, &function.name);
            let found: Vec<&Function> = image.functions().iter().filter(is_named).collect();
            ensure!(
                !found.is_empty(),
                "No function of {} matches {pattern:?}.",
                image.title()
            );
            for function in found {
                let blocks = match self.blocks {
                    true => Cfg::of(image, function.id).blocks.len().max(1),
                    false => 1,
                };
                for block in 0..blocks {
                    session.placements.push(Placement {
                        function: function.name.as_str().into(),
                        block: u32::try_from(block)?,
                        hook: HookType::Pre,
                        instrument: "counter".into(),
                        launch: 0.0,
                        splash: session.duration,
                    });
                }
            }
        }
        Ok(session)
    }

    /// Counts until the end; records totals meanwhile.
    fn count(
        &self,
        mut attached: Attached,
        planned: &Planned,
        names: &CounterNames,
        info: &TargetInfo,
    ) -> anyhow::Result<()> {
        let plan = planned.plan.plan();
        let started = clock();
        let clock = Clock {
            hz: started.tsc_hz,
            start: started.tsc,
            start_unix_ns: started.unix_ns,
        };
        let described = metadata(plan, &planned.session, info, clock)?;
        let writer = self
            .output
            .as_ref()
            .map(|output| Writer::create(output, &described));
        let mut recorder = Recorder {
            collector: writer.transpose()?.map(Collector::start).transpose()?,
            last: HashMap::new(),
            taken: 0,
            lost: 0,
        };
        let mut rings = attached.take_rings();
        let samples = plan.instruments.iter().any(samples);
        let interval = if samples { DRAINED } else { INTERVAL };
        let mut due = Instant::now();
        let begun = Instant::now();
        let length = Duration::from_secs_f64(planned.session.duration);
        let failed = |recorder: &Recorder| {
            let collector = recorder.collector.as_ref();
            collector.is_some_and(Collector::has_failed)
        };
        while !interrupt::arrived()
            && begun.elapsed() < length
            && !attached.has_ended()
            && !failed(&recorder)
        {
            std::thread::sleep(interval.min(length.saturating_sub(begun.elapsed())));
            recorder.drain(&mut rings)?;
            if due.elapsed() >= INTERVAL {
                due = Instant::now();
                recorder.record(&attached.counts()?)?;
            }
        }
        let removed = attached.remove()?;
        recorder.drain(&mut rings)?;
        recorder.record(&removed.counts)?;
        let (taken, lost) = (recorder.taken, recorder.lost);
        let hits: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
        let mut totals = totals(plan, &hits);
        if let Some(collector) = recorder.collector {
            collector.totals(totals.clone());
            collector.finish()?;
        }
        let mut lines: Vec<(u64, String)> = Vec::new();
        for one in plan.instruments.iter().filter(|one| one.counter.is_some()) {
            // Each counter has a word.
            let hits = hits.get(&one.id.pack()).copied().unwrap_or_default();
            match names.get(&one.definition.name) {
                // The recording has it as a counter.
                Some(name) => totals.added_up.push(Total {
                    placement: one.placement,
                    instrument: one.definition.name.clone(),
                    name: name.clone(),
                    unit: String::new(),
                    value: TotalValue::Number(hits.into()),
                }),
                None if self.all || hits > 0 => lines.push((hits, label(plan, one))),
                None => {}
            }
        }
        lines.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        for (hits, label) in &lines {
            println!("{:>16}  {label}", scale::grouped(*hits));
        }
        if samples {
            println!(
                "{} samples, {} lost.",
                scale::grouped(taken),
                scale::grouped(lost)
            );
        }
        if lines.is_empty() && totals.is_empty() && taken + lost == 0 {
            println!("No place was hit.");
        }
        print!("{}", text(&totals, &described, self.all));
        print!("{}", planned.left_out);
        if removed.ended {
            println!("The process has ended.");
        }
        print!("{}", supervisor::text(&removed.cleaned));
        println!(
            "Its threads were stopped for {} at most.",
            scale::duration(removed.cleaned.stopped.as_secs_f64())
        );
        Ok(())
    }
}

/// Returns whether an instrument delivers samples.
fn samples(instrument: &PlannedInstrument) -> bool {
    let probed = instrument.probe.as_deref();
    let probe = probed.and_then(Probed::probe);
    let mut actions = probe.iter().flat_map(|probe| &probe.actions);
    actions.any(|action| matches!(action.kind, ActionKind::Sample(_)))
}

/// Writes samples and changed totals to a recording.
struct Recorder {
    /// Writes in a thread of its own, so that the disk does not delay the reading of rings.
    collector: Option<Collector>,
    /// The last totals that were written.
    last: HashMap<u64, u64>,
    /// Numbers of samples, and of hits without one.
    taken: u64,
    lost: u64,
}

impl Recorder {
    fn drain(&mut self, rings: &mut Option<SampleRings>) -> anyhow::Result<()> {
        let Some(rings) = rings else {
            return Ok(());
        };
        let drained = rings.drain()?;
        for batch in &drained.batches {
            self.taken += batch.samples.len() as u64;
        }
        self.lost += drained.losses.iter().map(|loss| loss.count).sum::<u64>();
        if let Some(collector) = &self.collector {
            for batch in drained.batches {
                collector.samples(&Arc::new(batch));
            }
            if !drained.losses.is_empty() {
                collector.losses(drained.losses);
            }
        }
        Ok(())
    }

    fn record(&mut self, counts: &[(u64, u64)]) -> anyhow::Result<()> {
        let Some(collector) = &self.collector else {
            return Ok(());
        };
        let tsc = tsc();
        let last = &mut self.last;
        let changed = counts
            .iter()
            .filter(|(id, _)| !is_aggregate_word(*id))
            .filter(|&&(id, value)| last.insert(id, value) != Some(value));
        let samples: Vec<Sample> = changed
            .map(|&(id, value)| Sample { id, value, tsc })
            .collect();
        if !samples.is_empty() {
            let cpu = ALL_CPUS;
            collector.samples(&Arc::new(Batch { cpu, samples }));
        }
        Ok(())
    }
}

/// The machine and the process, as recordings describe them.
fn info(pid: u32, subject: &Subject) -> anyhow::Result<TargetInfo> {
    let line = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
    Ok(TargetInfo {
        host: line("/proc/sys/kernel/hostname")?,
        release: format!("{} of process {pid}", subject.image().title()),
        cpus: subject.cpus(),
        tsc_hz: clock().tsc_hz,
        runs_programs: false,
        layout: subject.layout().clone(),
    })
}
