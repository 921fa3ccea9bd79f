//! `ilk process`: instruments in a process of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::code::FunctionId;
use gilk_engine::ids::Id;
use gilk_engine::placement::Style;
use gilk_engine::session::{KernelPart, Placement};
use gilk_engine::{Addr, HookType, Image, Session};
use gilk_instruments::Library;
use gilk_samples::chart::scale;
use gilk_samples::output::{self, Contents};
use ilk_driver::interrupt;
use ilk_driver::note;
use ilk_driver::possible::grouped;
use ilk_driver::process::{
    Children, Client, EarlyWatch, Exec, FollowedLoads, FollowedProcess, LaterPlan, ObjectChoice,
    ObjectLines, Reserved, Scope, StartedProgram, StoppedProgram as _, Subject, Supervisor,
    hint_of_libraries,
};
use ilk_driver::script::{Designations, Filter, Script, TypesWanted, is_pattern, matches, resolve};

use crate::blocks::SparingCounts;
use crate::kernel_side::{KernelSide, KernelWork};
use crate::output::Force;
use crate::plan::{Natives, Strict};
use crate::process_children::OwnChild;
use crate::process_count::{Counted, report};
use crate::process_names::{names_like, note_awaited, note_never_loaded};
use crate::process_replaced::{Replaced, replaced, replacement};
use crate::process_results::{CounterNames, ProcessPlan};
use crate::program::exit;
use crate::supervisor;

/// The session's length where none is given: a day.
const UNLIMITED: f64 = 86_400.0;
/// Names in a line of functions that are left out.
const NAMED: usize = 8;

/// Count the calls of functions of a process on this machine, or run a script in it, without the kernel's module.
///
/// You need the right to trace the process (as for gdb); samples need glibc 2.35 or later in it. Hits are
/// counted exactly, on all threads; those of forked children are added, unless --children clean leaves them out. Ctrl-C, or the end of
/// the process, removes everything and shows the results.
#[derive(Args)]
pub(crate) struct Process {
    /// The functions: names or patterns, separated by commas: 'parse_*,main'; of libraries with their names:
    /// 'libc.so.6:malloc'. All of the program and its libraries: '*,*:*'.
    #[arg(required_unless_present_any = ["clean", "supervise", "script", "replace"])]
    functions: Option<String>,
    /// A script instead: 'entry:parse { @sizes = hist(arg1) }'; `ilk help probes` and `ilk help language`
    /// have the words.
    #[arg(short = 'e', long = "execute", value_name = "SCRIPT", conflicts_with_all = ["functions", "blocks"])]
    script: Option<String>,
    /// The process.
    #[arg(
        short = 'p',
        long,
        value_name = "PID",
        required_unless_present_any = ["clean", "supervise", "program", "executable"]
    )]
    pid: Option<u32>,
    /// Every process that executes this program, a path or a name: those of now, and those that begin meanwhile. Counts
    /// are added; with -o, all are on one timeline.
    #[arg(
        short = 'x',
        long,
        value_name = "PROGRAM",
        conflicts_with_all = ["pid", "program", "kernel", "save", "clean"]
    )]
    executable: Option<PathBuf>,
    /// A script in the kernel at the same time, for hits of the process: 'entry:vfs_write { sample(arg2) }'. It needs the
    /// agent of this machine. With -o, both are on one timeline.
    #[arg(long, value_name = "SCRIPT", conflicts_with = "clean")]
    kernel: Option<String>,
    /// The socket of that agent.
    #[arg(long, value_name = "PATH", requires = "kernel")]
    socket: Option<PathBuf>,
    /// The children that the process forks: `shared`, they count with it; `clean`, everything is removed from each
    /// before it executes an instruction; or `own`, each has counts of its own, and lanes in the recording.
    #[arg(long, value_name = "CHOICE", conflicts_with_all = ["executable", "clean"])]
    children: Option<Children>,
    /// The measurement of a process that executes another program: it `ends`, or `follows`, and is made in that program,
    /// too, once its libraries are loaded.
    #[arg(long, value_name = "CHOICE", conflicts_with_all = ["executable", "clean"])]
    exec: Option<Exec>,
    /// Count every block of the functions, not only their calls.
    #[arg(long)]
    blocks: bool,
    /// With --blocks: put counters only where the counts of the other blocks follow from theirs, since flow is conserved.
    /// A count is then wrong by as many threads as are in the middle of the function at the start or at the end, or
    /// leave it there by a signal.
    #[arg(long, requires = "blocks")]
    sparing: bool,
    /// Replace a function by one of an object file (--native), which may call it: 'libc.so.6:malloc=few-bytes'. The
    /// object file stays in the process.
    #[arg(long, value_name = "FUNCTION=NAME", value_parser = replacement, requires = "files", conflicts_with = "clean")]
    replace: Vec<Replaced>,
    #[command(flatten)]
    natives: Natives,
    /// End after this time: 10s, 2m.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    length: Option<f64>,
    /// Keep the recording in this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the session, with the kernel's part, to this file, for `ilk run` and the window.
    #[arg(long, value_name = "FILE.ron")]
    save: Option<PathBuf>,
    /// Show places without hits, too.
    #[arg(long)]
    all: bool,
    /// Remove what an `ilk process` that was killed, with its supervisor, has left in a process and its
    /// forked children; without -p, in all processes.
    #[arg(long, conflicts_with_all = ["functions", "script", "blocks", "length", "output", "save", "all"])]
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
        for native in self.natives.files() {
            goals = goals.reads(native);
        }
        if let Some(output) = &self.output {
            goals.goal(output, Contents::Recording)?;
        }
        if let Some(save) = &self.save {
            goals.goal(save, Contents::Other)?;
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
                let all = if self.replace.is_empty() {
                    Some("*")
                } else {
                    None
                };
                let functions = functions.as_deref().or(all);
                let patterns = functions.into_iter().flat_map(|all| all.split(','));
                let patterns = patterns.map(str::to_owned).collect();
                match (self.blocks, self.sparing) {
                    (true, true) => Work::SparingBlocks(patterns),
                    (true, false) => Work::Blocks(patterns),
                    (false, _) => Work::Calls(patterns),
                }
            }
        };
        let kernel = self.kernel.map(|text| {
            let script = Script::parse(&text).map_err(|faults| anyhow!("{faults}"))?;
            Ok::<_, anyhow::Error>(KernelSide {
                work: KernelWork::Script(script),
                socket: self.socket,
                library: Library::builtin()?,
            })
        });
        let measurement = Measurement {
            work,
            replaced: self.replace,
            length: self.length,
            library: self.natives.library()?,
            output: self.output,
            save: self.save,
            all: self.all,
            strict: self.strict,
            kernel: kernel.transpose()?,
            children: self.children.unwrap_or_default(),
            exec: self.exec.unwrap_or_default(),
        };
        match &self.executable {
            Some(executable) => measurement.of_every(executable),
            None => measurement.of(self.pid, &self.program),
        }
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

/// The results of a measurement in a process.
pub(crate) struct Measured {
    pub(crate) plan: ProcessPlan,
    pub(crate) counted: Counted,
    /// Its forked children with counts of their own.
    pub(crate) children: Vec<OwnChild>,
    pub(crate) pid: u32,
}

impl Measured {
    /// Prints the results.
    pub(crate) fn print(&self, all: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        write!(
            out,
            "{}",
            report(&self.plan, &[(self.pid, &self.counted)], all)?
        )?;
        for OwnChild { pid, counted, .. } in &self.children {
            let report = report(&self.plan, &[(*pid, counted)], all)?;
            write!(out, "Forked child, process {pid}:\n{report}")?;
        }
        Ok(())
    }
}

/// Prints the end of a started program; returns the exit status of the command.
pub(crate) fn ended(status: Option<ExitStatus>) -> anyhow::Result<ExitCode> {
    let Some(status) = status else {
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(std::io::stdout(), "The program has ended: {status}.")?;
    match status.success() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(exit(&status.to_string())),
    }
}

/// A measurement in a process.
pub(crate) struct Measurement {
    pub(crate) work: Work,
    /// Functions that are replaced, besides those that a session's file replaces.
    pub(crate) replaced: Vec<Replaced>,
    /// Seconds; the session has its own.
    pub(crate) length: Option<f64>,
    pub(crate) library: Library,
    /// The recording.
    pub(crate) output: Option<PathBuf>,
    /// The file that the session is saved in.
    pub(crate) save: Option<PathBuf>,
    /// Show places without hits, too.
    pub(crate) all: bool,
    pub(crate) strict: Strict,
    /// Placements in the kernel at the same time.
    pub(crate) kernel: Option<KernelSide>,
    pub(crate) children: Children,
    pub(crate) exec: Exec,
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
                started.check_registered()?;
                self.instrument(started.pid(), Some((&mut started, &mut supervisor)))?
            }
            (Some(pid), None) => self.instrument(pid, None)?,
            (None, None) => bail!("Name a process with -p, or a program after --."),
        };
        supervisor.dismiss();
        Ok(status)
    }

    /// Instruments a process, and the kernel beside it, until the end, which for a started program is its own.
    fn instrument(
        &self,
        pid: u32,
        mut started: Option<(&mut StartedProgram, &mut Supervisor)>,
    ) -> anyhow::Result<ExitCode> {
        let Some(kernel) = &self.kernel else {
            return self.instrument_alone(pid, started);
        };
        if let Some(why) = self.children.refused_with_kernel() {
            bail!("{why}: leave out --children own.");
        }
        if let Some(why) = self.exec.refused_with_kernel() {
            bail!("{why}: leave out --exec follows.");
        }
        let kernel = kernel.planned(pid, self.length.unwrap_or(UNLIMITED), self.strict)?;
        let recording = kernel.recording_of_process();
        let output = self.output.as_ref().map(|_| recording.as_path());
        let part = kernel.part().clone();
        let (measured, results) = kernel.while_instrumented(|has_ended| {
            let is_over = || interrupt::arrived() || has_ended();
            let program = started
                .as_mut()
                .map(|(started, supervisor)| (&mut **started, &mut **supervisor));
            self.instrument_process(pid, program, Some(part), (output, &is_over))
        })?;
        let status = started.map(|(started, _)| started.wait()).transpose()?;
        if let Some(output) = &self.output {
            results.write(&recording, output)?;
        }
        measured.print(self.all)?;
        let status = ended(status)?;
        results.print(self.all)?;
        Ok(status)
    }

    /// Instruments a process until it is over, `kernel` beside it.
    pub(crate) fn instrument_process(
        &self,
        pid: u32,
        mut started: Option<(&mut StartedProgram, &mut Supervisor)>,
        kernel: Option<KernelPart>,
        (output, is_over): (Option<&Path>, &dyn Fn() -> bool),
    ) -> anyhow::Result<Measured> {
        let choice = self.choice();
        // Before anything else is spliced, so that no child has what is not removed from it.
        let mut forks = self.children.watch(pid, &[])?;
        let watch = EarlyWatch::attach(pid, &choice, &[]);
        let (subject, awaited) = Subject::read_mapped(pid, &choice)?;
        let scope = Scope::at_start(&subject, &choice);
        let (reserved, mut plan) = self.planned(pid, &subject, &scope)?;
        plan.planned.session.kernel = kernel;
        if let Some(file) = &self.save {
            output::write(file, plan.planned.session.to_ron()?.as_bytes())?;
        }
        let info = subject.info(&reserved)?;
        let attached = watch.attach_plan(&subject, &reserved, &plan.planned.plan)?;
        let own = match &mut forks {
            Some(forks) if self.children == Children::Own => {
                Some(forks.instrument_children(&attached))
            }
            _ => None,
        };
        let places = plan.planned.session.placements.len();
        let stopped = scale::duration(attached.stopped().as_secs_f64());
        let process = match choice.has_libraries() {
            true => {
                let later = |subject: &Subject| {
                    let planned = self.later(pid, subject, &choice);
                    planned.map_err(|error| format!("{error:#}"))
                };
                let start = (&subject, plan.planned.plan.plan());
                let loads = FollowedLoads {
                    choice: choice.clone(),
                    planner: Box::new(later),
                    news: Box::new(|_| Ok(())),
                };
                FollowedProcess::follow(attached, watch, start, loads)?
            }
            false => FollowedProcess::alone(attached),
        };
        let process = match forks {
            Some(forks) => {
                for why in forks.unwatched() {
                    note!("Some forked children may not be met: {why}");
                }
                process.with_forks(forks)
            }
            None => process,
        };
        if let Some(why) = process.not_followed() {
            ensure!(
                places > 0,
                "Nothing is instrumented: no object of the process is named {}, and objects that it loads later are \
                 not seen: {why}",
                awaited.join(", ")
            );
            note!("Objects that it loads later are not instrumented: {why}");
        } else {
            note_awaited(pid, &awaited)?;
        }
        for (function, by) in replaced(&plan.planned.session, &self.library) {
            note!("{function} is replaced by {by}.");
        }
        let are = if places == 1 { "is" } else { "are" };
        let places = scale::counted(places as u64, "place");
        note!(
            "{places} in process {pid} {are} instrumented; its threads were stopped for {stopped}. Ctrl-C ends."
        );
        if let Some((started, supervisor)) = &mut started {
            started.release()?;
            supervisor.released()?;
        }
        let (counted, children) = match &own {
            None => {
                let counted = self.count(process, &plan, &info, (output, is_over))?;
                (counted, Vec::new())
            }
            Some(own) => {
                let about = (&plan, &info);
                self.count_with_children(process, about, (output, is_over), own)?
            }
        };
        note_never_loaded(pid, &awaited, &counted.loaded);
        Ok(Measured {
            plan,
            counted,
            children,
            pid,
        })
    }

    /// The objects that the placements are in.
    pub(crate) fn choice(&self) -> ObjectChoice {
        let replaced = self.replaced.iter().map(|one| one.function.as_str());
        match &self.work {
            Work::Calls(patterns) | Work::Blocks(patterns) | Work::SparingBlocks(patterns) => {
                ObjectChoice::of(patterns.iter().map(String::as_str).chain(replaced))
            }
            Work::Script(script) => ObjectChoice::of(script.functions().chain(replaced))
                .with_probes(script.static_probes()),
            Work::Session(session) => ObjectChoice::of_session(session),
        }
    }

    /// Plans for an object that a process has loaded; `None` if no placement is in it.
    pub(crate) fn later(
        &self,
        pid: u32,
        subject: &Subject,
        choice: &ObjectChoice,
    ) -> anyhow::Result<Option<LaterPlan<ProcessPlan>>> {
        let scope = Scope::later(subject, choice);
        let (reserved, kept) = self.planned(pid, subject, &scope)?;
        let is_empty = kept.planned.session.placements.is_empty();
        Ok((!is_empty).then(|| LaterPlan {
            reserved,
            plan: kept.planned.plan.clone(),
            kept,
        }))
    }

    /// Plans for objects of a process, with as many words as the plan needs.
    pub(crate) fn planned(
        &self,
        pid: u32,
        subject: &Subject,
        scope: &Scope,
    ) -> anyhow::Result<(Reserved, ProcessPlan)> {
        let image = subject.image();
        self.read_types(subject)?;
        let mut sparing = SparingCounts::default();
        let (session, names) = self.session((pid, scope), subject, &mut sparing)?;
        let work = (&session, &self.library);
        let (reserved, planned) = self.strict.planned_in(subject, work)?;
        let plan = ProcessPlan {
            planned,
            names,
            sparing,
            probes: self.static_probes(image),
            staying: reserved.staying(),
        };
        Ok((reserved, plan))
    }

    /// Returns the titles of the static probes that the script may stand on.
    fn static_probes(&self, image: &Image) -> BTreeMap<Addr, String> {
        match &self.work {
            Work::Script(script) if script.names_static_probes() => {
                let probes = image.probes().iter();
                probes.map(|probe| (probe.at, probe.title())).collect()
            }
            _ => BTreeMap::new(),
        }
    }

    /// Reads the types that the instruments name, in the objects' debug information.
    fn read_types(&self, subject: &Subject) -> anyhow::Result<()> {
        let wanted = match &self.work {
            Work::Script(script) => TypesWanted::of_script(script, subject.image()),
            Work::Session(session) => TypesWanted::of_session(session, subject.image()),
            Work::Calls(_) | Work::Blocks(_) | Work::SparingBlocks(_) => TypesWanted::default(),
        };
        if !wanted.is_empty() {
            for why in subject.read_types(&wanted, &|_| !interrupt::arrived())? {
                note!("Types are not read: {why}");
            }
        }
        Ok(())
    }

    /// The placements in some objects.
    fn session(
        &self,
        (pid, scope): (u32, &Scope),
        subject: &Subject,
        sparing: &mut SparingCounts,
    ) -> anyhow::Result<(Session, CounterNames)> {
        let image = subject.image();
        let (mut session, names) = match &self.work {
            Work::Session(session) => {
                return Ok((scope.within(session), CounterNames::new()));
            }
            Work::Script(script) => {
                let script = script.within(|pattern| scope.has(pattern), scope.is_start);
                self.of_script(&script, (pid, subject))?
            }
            Work::Calls(patterns) | Work::Blocks(patterns) | Work::SparingBlocks(patterns) => (
                self.of_functions((patterns, pid, scope), image, sparing)?,
                CounterNames::new(),
            ),
        };
        // Calls are counted before, and those of the function by its replacement are not.
        for one in self.replaced.iter().filter(|one| scope.has(&one.function)) {
            session.placements.push(one.placement(session.duration));
        }
        session.name = format!("process {pid}");
        Ok((session, names))
    }

    fn of_script(
        &self,
        script: &Script,
        (pid, subject): (u32, &Subject),
    ) -> anyhow::Result<(Session, CounterNames)> {
        let filter = Filter {
            duration: self.length.unwrap_or(UNLIMITED),
            pid: None,
        };
        let known = match script.names_lines() {
            true => ObjectLines::read(subject, &|_| !interrupt::arrived())?,
            false => None,
        };
        let lines = |at| known.as_ref().and_then(|known| known.line(at));
        let lines = known.is_some().then_some(&lines as _);
        let query = resolve(script, subject.image(), filter, lines).map_err(|faults| {
            // Of a function that the program has not.
            let functions_of = subject.image().functions();
            let functions = script.functions().filter(|function| {
                !function.contains(':')
                    && !is_pattern(function)
                    && !functions_of.iter().any(|one| one.name == *function)
            });
            let hints: BTreeSet<String> = functions
                .map(|function| hint_of_libraries(pid, function))
                .filter(|hint| !hint.is_empty())
                .map(|hint| format!("\n    {hint}"))
                .collect();
            anyhow!("{faults}{}", hints.into_iter().collect::<String>())
        })?;
        let absent = query.absent.iter();
        let absent = absent.map(|one| (one.reason.clone(), one.function.clone()));
        note!("{}", grouped(absent, "Left out", NAMED));
        Ok((query.session, query.counters))
    }

    /// Counters at the entries of functions, or at their blocks.
    fn of_functions(
        &self,
        (patterns, pid, scope): (&[String], u32, &Scope),
        image: &Image,
        sparing: &mut SparingCounts,
    ) -> anyhow::Result<Session> {
        let mut session = Session::empty();
        session.duration = self.length.unwrap_or(UNLIMITED);
        let mut chosen = BTreeSet::new();
        for pattern in patterns.iter().filter(|pattern| scope.has(pattern)) {
            let functions = image.functions().iter();
            // Those of libraries have their names before a colon.
            let named = functions.filter(|function| {
                matches(pattern, &function.name)
                    && pattern.contains(':') == function.name.contains(':')
            });
            let named: Vec<FunctionId> = named.map(|function| function.id).collect();
            chosen.extend(&named);
            ensure!(
                !named.is_empty() || !scope.is_start,
                "No function of {} matches {pattern:?}.{}",
                image.title(),
                names_like(pid, image, pattern)
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
}
