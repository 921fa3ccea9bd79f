//! `ilk process`: instruments in a process of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::code::FunctionId;
use gilk_engine::ids::Id;
use gilk_engine::placement::Style;
use gilk_engine::session::Placement;
use gilk_engine::{Error, HookType, Image, Session};
use gilk_instruments::Library;
use gilk_samples::chart::scale;
use gilk_samples::chart::totals::text;
use gilk_samples::collector::Collector;
use gilk_samples::metadata::Clock;
use gilk_samples::output::Contents;
use gilk_samples::recording::Writer;
use gilk_samples::totals::{Total, TotalValue};
use ilk_driver::client::{CpuLosses, TargetInfo, label, metadata, samples, totals};
use ilk_driver::interrupt;
use ilk_driver::note;
use ilk_driver::process::{
    Attached, Client, ObjectChoice, Recorder, Reserved, StartedProgram, Subject, Supervisor, clock,
};
use ilk_driver::script::{Designations, Filter, Script, matches, resolve};

use crate::blocks::SparingCounts;
use crate::output::Force;
use crate::plan::{Planned, Strict, grouped};
use crate::program::exit;
use crate::supervisor;

/// The session's length where none is given: a day.
const UNLIMITED: f64 = 86_400.0;
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
    /// The functions: names or patterns, separated by commas: 'parse_*,main'; of libraries with their names:
    /// 'libc.so.6:malloc'. All of the program and its libraries: '*,*:*'.
    #[arg(required_unless_present_any = ["clean", "supervise", "script"])]
    functions: Option<String>,
    /// A script instead: 'entry:parse { @sizes = hist(arg1) }'; `ilk help probes` and `ilk help language`
    /// have the words.
    #[arg(short = 'e', long = "execute", value_name = "SCRIPT", conflicts_with_all = ["functions", "blocks"])]
    script: Option<String>,
    /// The process.
    #[arg(short = 'p', long, value_name = "PID", required_unless_present_any = ["clean", "supervise", "program"])]
    pid: Option<u32>,
    /// Count every block of the functions, not only their calls.
    #[arg(long)]
    blocks: bool,
    /// With --blocks: put counters only where the counts of the other blocks follow from theirs, since flow is conserved.
    /// A count is then wrong by as many threads as are in the middle of the function at the start or at the end, or
    /// leave it there by a signal.
    #[arg(long, requires = "blocks")]
    sparing: bool,
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
    #[arg(long, conflicts_with_all = ["functions", "script", "blocks", "length", "output", "all"])]
    clean: bool,
    /// Remove what this process, PID:START, leaves when its end of the standard input closes.
    #[arg(long, hide = true, exclusive = true, value_name = "CLIENT")]
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
        if self.clean {
            return supervisor::clean(self.pid);
        }
        let mut goals = self.force.goals();
        if let Some(output) = &self.output {
            goals.goal(output, Contents::Recording)?;
        }
        let work = match (&self.script, &self.functions) {
            (Some(text), _) => {
                let script = Script::parse(text).map_err(|faults| anyhow!("{faults}"))?;
                ensure!(
                    script.terminal().actions().next().is_none(),
                    "In a process the terminal shows totals at the end; leave out what the script prints or \
                     clears."
                );
                Work::Script(script)
            }
            (None, functions) => {
                let functions = functions.as_deref().unwrap_or("*");
                let patterns = functions.split(',').map(str::to_owned).collect();
                match (self.blocks, self.sparing) {
                    (true, true) => Work::SparingBlocks(patterns),
                    (true, false) => Work::Blocks(patterns),
                    (false, _) => Work::Calls(patterns),
                }
            }
        };
        let measurement = Measurement {
            work,
            length: self.length,
            library: Library::builtin()?,
            output: self.output,
            all: self.all,
            strict: self.strict,
        };
        measurement.of(self.pid, &self.program)
    }
}

/// The placements of a measurement.
pub(crate) enum Work {
    /// Counters at the entries of functions, by patterns.
    Calls(Vec<String>),
    /// Counters at all blocks of functions, by patterns.
    Blocks(Vec<String>),
    /// The same counts, with counters at the blocks from which all follow.
    SparingBlocks(Vec<String>),
    Script(Script),
    Session(Session),
}

/// A verified plan of a measurement.
struct ProcessPlan {
    planned: Planned,
    names: CounterNames,
    sparing: SparingCounts,
}

/// A measurement in a process.
pub(crate) struct Measurement {
    pub(crate) work: Work,
    /// Seconds; the session has its own.
    pub(crate) length: Option<f64>,
    pub(crate) library: Library,
    /// The recording.
    pub(crate) output: Option<PathBuf>,
    /// Show places without hits, too.
    pub(crate) all: bool,
    pub(crate) strict: Strict,
}

impl Measurement {
    /// Measures in a process, or in a program that is started, to the end.
    ///
    /// # Errors
    /// The process cannot be instrumented, no placement is possible, or the recording cannot be written.
    pub(crate) fn of(&self, pid: Option<u32>, program: &[String]) -> anyhow::Result<ExitCode> {
        interrupt::watch();
        let mut supervisor = Supervisor::start()?;
        let status = match (pid, program.split_first()) {
            (_, Some((program, arguments))) => {
                let started =
                    StartedProgram::start(program, arguments, |program| supervisor.guard(program));
                let mut started = started?;
                self.instrument(started.pid(), Some((&mut started, &mut supervisor)))?
            }
            (Some(pid), None) => self.instrument(pid, None)?,
            (None, None) => bail!("Name a process with -p, or a program after --."),
        };
        supervisor.dismiss();
        Ok(status)
    }

    /// Instruments a process until the end, which for a started program is its own.
    fn instrument(
        &self,
        pid: u32,
        mut started: Option<(&mut StartedProgram, &mut Supervisor)>,
    ) -> anyhow::Result<ExitCode> {
        let subject = Subject::read(pid, &self.choice())?;
        let (reserved, plan) = self.planned(pid, &subject)?;
        let info = subject.info(&reserved)?;
        let attached = Attached::attach(&subject, reserved, &plan.planned.plan)?;
        note!(
            "{} places in process {} are instrumented; its threads were stopped for {}. Ctrl-C ends.",
            plan.planned.session.placements.len(),
            pid,
            scale::duration(attached.stopped().as_secs_f64())
        );
        if let Some((started, supervisor)) = &mut started {
            started.release()?;
            supervisor.released()?;
        }
        self.count(attached, &plan, &info)?;
        let Some((started, _)) = started else {
            return Ok(ExitCode::SUCCESS);
        };
        let status = started.wait()?;
        writeln!(std::io::stdout(), "The program has ended: {status}.")?;
        match status.success() {
            true => Ok(ExitCode::SUCCESS),
            false => Ok(exit(&status.to_string())),
        }
    }

    /// The objects that the placements are in.
    fn choice(&self) -> ObjectChoice {
        match &self.work {
            Work::Calls(patterns) | Work::Blocks(patterns) | Work::SparingBlocks(patterns) => {
                ObjectChoice::of(patterns.iter().map(String::as_str))
            }
            Work::Script(script) => ObjectChoice::of(script.functions()),
            Work::Session(session) => {
                let placements = session.placements.iter();
                ObjectChoice::of(placements.map(|placement| &*placement.function))
            }
        }
    }

    /// Plans for a process, with as many words as the plan needs.
    fn planned(&self, pid: u32, subject: &Subject) -> anyhow::Result<(Reserved, ProcessPlan)> {
        let image = subject.image();
        let mut sparing = SparingCounts::default();
        let (session, names) = self.session(pid, image, &mut sparing)?;
        let [least, most] = WORDS;
        // A counter is one word; other instruments have more.
        let placements = u32::try_from(session.placements.len()).unwrap_or(most);
        let mut words = placements.saturating_add(least).min(most);
        loop {
            let reserved = subject.reserve(words)?;
            let layout = &reserved.layout;
            let error = match self.strict.planned(image, &session, &self.library, layout) {
                Ok(planned) => {
                    let plan = ProcessPlan {
                        planned,
                        names,
                        sparing,
                    };
                    return Ok((reserved, plan));
                }
                Err(error) => error,
            };
            // The number of words decides the layout.
            match error.downcast_ref() {
                Some(&Error::Full { needed, .. }) if words < most => {
                    let needed = u32::try_from(needed).unwrap_or(most);
                    words = needed.max(words.saturating_mul(4)).min(most);
                }
                _ => return Err(error),
            }
        }
    }

    /// The placements.
    fn session(
        &self,
        pid: u32,
        image: &Image,
        sparing: &mut SparingCounts,
    ) -> anyhow::Result<(Session, CounterNames)> {
        let (mut session, names) = match &self.work {
            Work::Session(session) => return Ok((session.clone(), CounterNames::new())),
            Work::Script(script) => self.of_script(script, image)?,
            Work::Calls(patterns) | Work::Blocks(patterns) | Work::SparingBlocks(patterns) => (
                self.of_functions(patterns, image, sparing)?,
                CounterNames::new(),
            ),
        };
        session.name = format!("process {pid}");
        Ok((session, names))
    }

    fn of_script(&self, script: &Script, image: &Image) -> anyhow::Result<(Session, CounterNames)> {
        let filter = Filter {
            duration: self.length.unwrap_or(UNLIMITED),
            pid: None,
        };
        let query = resolve(script, image, filter, None).map_err(|faults| anyhow!("{faults}"))?;
        let absent = query.absent.iter();
        let absent = absent.map(|one| (one.reason.clone(), one.function.clone()));
        note!("{}", grouped(absent, "Left out", NAMED));
        Ok((query.session, query.counters))
    }

    /// Counters at the entries of functions, or at their blocks.
    fn of_functions(
        &self,
        patterns: &[String],
        image: &Image,
        sparing: &mut SparingCounts,
    ) -> anyhow::Result<Session> {
        let mut session = Session::empty();
        session.duration = self.length.unwrap_or(UNLIMITED);
        let mut chosen = BTreeSet::new();
        for pattern in patterns {
            let functions = image.functions().iter();
            // Those of libraries have their names before a colon.
            let named = functions.filter(|function| {
                matches(pattern, &function.name)
                    && pattern.contains(':') == function.name.contains(':')
            });
            let named: Vec<FunctionId> = named.map(|function| function.id).collect();
            chosen.extend(&named);
            ensure!(
                !named.is_empty(),
                "No function of {} matches {pattern:?}.",
                image.title()
            );
        }
        let designations = Designations::new(image);
        for id in chosen {
            let function = designations.of(&image[id]);
            let blocks = match self.work {
                // A function that cannot be read is refused at its first block.
                Work::Blocks(_) => {
                    let blocks = Cfg::of(image, id).blocks.len().max(1);
                    (0..blocks).map(BlockIndex::new).collect()
                }
                Work::SparingBlocks(_) => sparing.add(image, (id, Arc::clone(&function))),
                Work::Calls(_) | Work::Script(_) | Work::Session(_) => vec![BlockIndex(0)],
            };
            if !matches!(self.work, Work::Calls(_)) {
                // With a counter at every block, jumps to and from each cost more than a copy of the function.
                session.styles.insert(function.to_string(), Style::Auto);
            }
            for block in blocks {
                session.placements.push(Placement {
                    function: Arc::clone(&function),
                    block: block.0,
                    hook: HookType::Pre,
                    instrument: "counter".into(),
                    launch: 0.0,
                    splash: session.duration,
                });
            }
        }
        Ok(session)
    }

    /// Counts until the end; records totals meanwhile.
    fn count(
        &self,
        attached: Attached,
        plan: &ProcessPlan,
        info: &TargetInfo,
    ) -> anyhow::Result<()> {
        let ProcessPlan {
            planned,
            names,
            sparing,
        } = plan;
        let plan = planned.plan.plan();
        let following = sparing.following(plan);
        let started = clock();
        let clock = Clock {
            hz: started.tsc_hz,
            start: started.tsc,
            start_unix_ns: started.unix_ns,
        };
        let mut described = metadata(plan, &planned.session, info, clock)?;
        following.describe(&mut described, &planned.session)?;
        let writer = self
            .output
            .as_ref()
            .map(|output| Writer::create(output, &described));
        let collector = writer.transpose()?.map(Collector::start).transpose()?;
        let mut recorder = Recorder::new(collector, None);
        let length = Duration::from_secs_f64(planned.session.duration);
        let removed = recorder.follow(attached, plan, length, interrupt::arrived)?;
        let hits: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
        let follows = following.counts(&hits);
        let counts: Vec<(u64, u64)> = follows.iter().map(|(id, hits, _)| (*id, *hits)).collect();
        recorder.counts(&counts);
        let losses = recorder.losses();
        let taken: u64 = losses.iter().map(|cpu| cpu.taken).sum();
        let lost: u64 = losses.iter().map(CpuLosses::lost).sum();
        let mut totals = totals(plan, &hits);
        recorder.finish(totals.clone())?;
        let mut lines: Vec<(u64, String)> = Vec::new();
        for planned in plan
            .instruments
            .iter()
            .filter(|planned| planned.counter.is_some())
        {
            // Each counter has a word.
            let hits = hits.get(&planned.id.pack()).copied().unwrap_or_default();
            match names.get(&planned.definition.name) {
                // The recording has it as a counter.
                Some(name) => totals.added_up.push(Total {
                    placement: planned.placement,
                    instrument: planned.definition.name.clone(),
                    name: name.clone(),
                    unit: String::new(),
                    value: TotalValue::Number(hits.into()),
                }),
                None if self.all || hits > 0 => lines.push((hits, label(plan, planned))),
                None => {}
            }
        }
        let shown = follows
            .into_iter()
            .filter(|(_, hits, _)| self.all || *hits > 0);
        lines.extend(shown.map(|(_, hits, label)| (hits, label)));
        lines.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        for (hits, label) in &lines {
            writeln!(std::io::stdout(), "{:>16}  {label}", scale::grouped(*hits))?;
        }
        if plan.instruments.iter().any(samples) {
            writeln!(
                std::io::stdout(),
                "{} samples, {} lost.",
                scale::grouped(taken),
                scale::grouped(lost)
            )?;
        }
        if lines.is_empty() && totals.is_empty() && taken + lost == 0 {
            writeln!(std::io::stdout(), "No place was hit.")?;
        }
        write!(std::io::stdout(), "{}", text(&totals, &described, self.all))?;
        write!(std::io::stdout(), "{}", planned.left_out)?;
        if removed.ended {
            writeln!(std::io::stdout(), "The process has ended.")?;
        }
        write!(std::io::stdout(), "{}", supervisor::text(&removed.cleaned))?;
        writeln!(
            std::io::stdout(),
            "Its threads were stopped for {} at most.",
            scale::duration(removed.cleaned.stopped.as_secs_f64())
        )?;
        Ok(())
    }
}
