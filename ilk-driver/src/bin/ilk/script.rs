//! `ilk -e`: a question in one line, and the recipes over it.

mod screen;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use crossbeam_channel::unbounded;
use gilk_engine::session::Workload;
use gilk_engine::{Image, plan};
use gilk_instruments::Library;
use gilk_samples::input;
use gilk_samples::output::{self, Contents};
use gilk_samples::totals::Total;
use ilk_driver::client::{StopFlag, Summary};
use ilk_driver::interrupt;
use ilk_driver::note;
use ilk_driver::possible::grouped;
use ilk_driver::script::{Filter, Script, resolve};
use ilk_driver::sources::Sources;

use crate::output::Force;
use crate::plan::Strict;
use crate::{target, tools};
use screen::{Form, Screen};

/// Seconds of a session that only Ctrl-C or its program ends.
const UNLIMITED: f64 = 86_400.0;
/// Names in a line of functions that are left out.
const NAMED: usize = 8;

/// Run a script: `ilk -e 'entry:vfs_* { @hits = count() }'`.
#[derive(Args)]
pub(crate) struct ScriptCommand {
    /// The script: probes and their statements; `ilk help probes` and `ilk help language` have the words.
    #[arg(short = 'e', long = "execute", value_name = "SCRIPT")]
    script: Option<String>,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Restrictions of a question, and its output.
#[derive(Args)]
pub(crate) struct ScriptOptions {
    /// Run this program in the target, and end with it, with its exit status. On this machine it runs as yourself, unless
    /// the agent runs programs (`--allow-run`).
    #[arg(short = 'c', value_name = "COMMAND")]
    command: Option<String>,
    /// Only hits of this process of the target.
    #[arg(short = 'p', value_name = "PID")]
    pid: Option<u32>,
    /// End after this time: 10s, 2m. Default: at Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    length: Option<f64>,
    /// Save the session to this file, for `ilk run` and the window.
    #[arg(long, value_name = "FILE.ron")]
    save: Option<PathBuf>,
    /// Keep the recording in this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Find source lines in this vmlinux with debug information. Default: where debug packages install it.
    #[arg(long, value_name = "VMLINUX")]
    debug: Option<PathBuf>,
    /// Show the plan before the answer.
    #[arg(short, long)]
    verbose: bool,
    /// Show places without hits, too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    target: target::TargetArgs,
}

fn time(text: &str) -> Result<f64, String> {
    let seconds = ilk_driver::script::seconds(text).filter(|seconds| *seconds <= UNLIMITED);
    seconds.ok_or_else(|| String::from("write a time such as 10s, 250ms or 2m, at most 24h"))
}

/// Run a script in a file, or one of the tools that are built in: opensnoop, runqlat, ….
#[derive(Args)]
pub(crate) struct ScriptFile {
    /// The file, or the name of a tool. Without it the tools are listed.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the script instead.
    #[arg(long, requires = "file")]
    print: bool,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Count the calls of functions.
#[derive(Args)]
pub(crate) struct Count {
    /// The functions: names, or patterns such as 'vfs_*'.
    #[arg(required = true, value_name = "FUNCTION")]
    functions: Vec<String>,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Show which functions are called most, once a second.
#[derive(Args)]
pub(crate) struct Top {
    /// The functions. Default: all system calls.
    #[arg(default_value = "__x64_sys_*", value_name = "FUNCTION")]
    functions: Vec<String>,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Print a line for each call of functions.
#[derive(Args)]
pub(crate) struct Trace {
    /// The functions: names, or patterns such as 'vfs_*'.
    #[arg(required = true, value_name = "FUNCTION")]
    functions: Vec<String>,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Show how long the calls of functions take.
#[derive(Args)]
pub(crate) struct Latency {
    /// The functions: names, or patterns such as 'vfs_*'.
    #[arg(required = true, value_name = "FUNCTION")]
    functions: Vec<String>,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Show from where functions are called.
#[derive(Args)]
pub(crate) struct Callers {
    /// The functions: names, or patterns such as 'vfs_*'.
    #[arg(required = true, value_name = "FUNCTION")]
    functions: Vec<String>,
    #[command(flatten)]
    options: ScriptOptions,
}

impl ScriptCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let script = self.script.context(
            "A command or a script is missing; write -e 'entry:vfs_* { @calls = count() }', or `ilk help`",
        )?;
        self.options.run(&script, Form::Plain)
    }
}

impl ScriptFile {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(file) = &self.file else {
            write!(std::io::stdout(), "{}", tools::list())?;
            return Ok(ExitCode::SUCCESS);
        };
        let name = file.to_str().filter(|_| !file.exists());
        let text = match name {
            Some(name) => tools::find(name)?.text.to_owned(),
            None => input::text(file)?,
        };
        if self.print {
            write!(std::io::stdout(), "{text}")?;
            return Ok(ExitCode::SUCCESS);
        }
        self.options.run(&text, Form::Plain)
    }
}

/// Turns patterns, each of which may be several with commas between, into attach points.
fn points(event: &str, functions: &[String]) -> String {
    let patterns = functions.iter().flat_map(|patterns| patterns.split(','));
    let patterns = patterns
        .map(str::trim)
        .filter(|pattern| !pattern.is_empty());
    let points = patterns.map(|pattern| format!("{event}:{pattern}"));
    points.collect::<Vec<_>>().join(",")
}

impl Count {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let script = format!(
            "{} {{ @calls = count() }}",
            points("entry", &self.functions)
        );
        self.options.run(&script, Form::Plain)
    }
}

impl Top {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let script = format!(
            "{} {{ @calls = count() }}",
            points("entry", &self.functions)
        );
        self.options.run(&script, Form::Rates)
    }
}

impl Trace {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let script = format!(
            "{} {{ printf(\"%s[%d]\", comm, tid) }}",
            points("entry", &self.functions)
        );
        self.options.run(&script, Form::Calls)
    }
}

impl Latency {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let script = format!(
            "call @start; {} {{ @start = nsecs }} {} / @start != 0 / {{ @time = hist(nsecs - @start) }}",
            points("entry", &self.functions),
            points("return", &self.functions)
        );
        self.options.run(&script, Form::Times)
    }
}

impl Callers {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let script = format!(
            "{} {{ @callers = values(*(u64 *)reg(\"sp\"), 1024) }}",
            points("entry", &self.functions)
        );
        self.options.run(&script, Form::Plain)
    }
}

/// The file of the recording; a temporary one is removed with its folder.
pub(crate) struct RecordingFile {
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl RecordingFile {
    /// The file at a path, or a temporary one.
    pub(crate) fn new(requested: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(path) = requested {
            return Ok(Self {
                path,
                temporary: None,
            });
        }
        let folder = std::env::temp_dir().join(format!("ilk-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| {
            format!(
                "{} cannot be created for the samples; set TMPDIR to another folder",
                folder.display()
            )
        })?;
        Ok(Self {
            path: folder.join("samples.arrow"),
            temporary: Some(folder),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RecordingFile {
    fn drop(&mut self) {
        if let Some(folder) = &self.temporary {
            // What is left in the folder for temporary files harms nothing.
            let _left = std::fs::remove_dir_all(folder);
        }
    }
}

impl ScriptOptions {
    fn run(self, text: &str, form: Form) -> anyhow::Result<ExitCode> {
        let script = Script::parse(text).map_err(|faults| anyhow!("{faults}"))?;
        let workload = self.command.as_deref().map(workload).transpose()?;
        let mut goals = self.force.goals();
        if let Some(file) = &self.debug {
            goals = goals.reads(file);
        }
        if let Some(file) = &self.save {
            goals.goal(file, Contents::Other)?;
        }
        if let Some(file) = &self.output {
            goals.goal(file, Contents::Recording)?;
        }
        let recording = RecordingFile::new(self.output.clone())?;
        interrupt::watch();
        let mut connected = self.target.connect()?;
        let connection = &mut connected.connection;
        let (parts, modules) = target::read(connection)?;
        let layout = connection.info().layout.clone();
        let image = Arc::new(Image::with_modules(&parts, &modules)?.on(&layout));
        drop((parts, modules));
        connection.name_addresses(Arc::clone(&image));
        let filter = Filter {
            duration: self.length.unwrap_or(UNLIMITED),
            pid: self.pid,
        };
        let running = |_| !interrupt::arrived();
        let sources = match (script.names_lines(), &self.debug) {
            (false, _) => None,
            (true, Some(file)) => Sources::open(file, &image, &running)?,
            (true, None) => Sources::find(&image, &running)?,
        };
        let lines = |at| sources.as_ref().and_then(|sources| sources.line(at));
        let lines = sources.is_some().then_some(&lines as _);
        let mut query =
            resolve(&script, &image, filter, lines).map_err(|faults| anyhow!("{faults}"))?;
        let absent = query.absent.iter();
        let absent = absent.map(|one| (one.reason.clone(), one.function.clone()));
        let absent = grouped(absent, "Left out", NAMED);
        if self.strict.is_on() && !absent.is_empty() {
            bail!("Not all of the script has its code:\n{}", absent.trim_end());
        }
        query.session.workload = workload;
        // The terminal shows totals at these intervals.
        let intervals = script.terminal().intervals.iter();
        let shortest = intervals.map(|(seconds, _)| *seconds).fold(1.0, f64::min);
        query.session.collection.totals.every = shortest / 2.0;
        let planned = self
            .strict
            .planned(&image, &query.session, &Library::builtin()?, &layout)?;
        if self.verbose {
            note!("{}", plan::report::report(&image, planned.plan.plan()));
        }
        if let Some(file) = &self.save {
            output::write(file, planned.session.to_ron()?.as_bytes())?;
        }
        for note in &planned.plan.plan().notes {
            note!("Note: {note}.");
        }
        let (sender, events) = unbounded();
        let stop = StopFlag::new();
        if self.strict.unknown_kernel() {
            connection.insist_on_unknown_kernel();
        }
        connection.report_aggregates(!script.terminal().intervals.is_empty());
        let mut screen = Screen::new(&image, (&query, &planned), (&script, form), &stop);
        screen.all = self.all;
        let summary = std::thread::scope(|scope| {
            let (plan, session) = (&planned.plan, &planned.session);
            let path = &recording.path;
            let stop = &stop;
            let runner = scope.spawn(move || {
                let sender = sender;
                connection.run(plan, session, path, &sender, stop)
            });
            screen.watch(&events);
            runner
                .join()
                .map_err(|_| anyhow!("The run ended by a bug in gilk."))
        })??;
        screen.finish(&summary)?;
        if let Some(pid) = self.pid
            && saw_nothing(&summary)
        {
            note!("Nothing was of process {pid}. Is it running there?");
        }
        note!("{}{absent}", planned.left_out);
        screen.status(&summary, &recording.path, self.output.is_some())
    }
}

/// Returns whether no instrument has counted, sampled or added up anything.
fn saw_nothing(summary: &Summary) -> bool {
    let mut counted = summary.instruments.iter();
    let mut added_up = summary.aggregates.iter();
    summary.taken == 0
        && counted.all(|one| one.total.unwrap_or(0) == 0)
        && added_up.all(Total::is_idle)
}

/// Splits a command into words, or passes it to the shell if it uses more of the shell than words.
fn workload(command: &str) -> anyhow::Result<Workload> {
    if command.contains(|c: char| "|&;<>()$`\\\"'*?[]#~=%!{}\n".contains(c)) {
        return Ok(Workload {
            program: String::from("/bin/sh"),
            arguments: vec![String::from("-c"), command.to_owned()],
            start: 0.0,
        });
    }
    let mut words = command.split_whitespace().map(str::to_owned);
    let program = words
        .next()
        .context("The command is empty; write -c 'ls /'.")?;
    Ok(Workload {
        program,
        arguments: words.collect(),
        start: 0.0,
    })
}
