//! `ilk -e`: a question in one line, and the recipes over it.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use gilk_engine::session::Workload;
use gilk_engine::{Image, VerifiedPlan, plan};
use gilk_instruments::Library;
use gilk_samples::Batch;
use gilk_samples::metadata::Clock;
use gilk_samples::output::{self, Contents};
use gilk_samples::record::ALL_CPUS;
use gilk_samples::totals::{Total, TotalBucket, TotalValue};
use ilk_driver::client::{Event, StopFlag, Summary};
use ilk_driver::interrupt;
use ilk_driver::script::{Filter, Place, Query, Script, Terminal, TerminalAction, resolve};
use ilk_driver::sources::Sources;

use crate::answer::{Answer, Printer, Row};
use crate::output::Force;
use crate::plan::{Planned, Strict, grouped};
use crate::progress::Progress;
use crate::{program, target};

/// Interval at which Ctrl-C is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Seconds of a session that only Ctrl-C or its program ends.
const UNLIMITED: f64 = 86_400.0;
/// Rows of `ilk top`.
const TOP: usize = 20;
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
    /// Run this program in the target, and end with it, with its exit status.
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

/// Count the calls of functions.
#[derive(Args)]
pub(crate) struct Count {
    /// The functions: a name, or a pattern such as 'vfs_*'.
    functions: String,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Show which functions are called most, once a second.
#[derive(Args)]
pub(crate) struct Top {
    /// The functions. Default: all system calls.
    #[arg(default_value = "__x64_sys_*")]
    functions: String,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Print a line for each call of functions.
#[derive(Args)]
pub(crate) struct Trace {
    /// The functions: a name, or a pattern such as 'vfs_*'.
    functions: String,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Show how long the calls of functions take.
#[derive(Args)]
pub(crate) struct Latency {
    /// The functions: a name, or a pattern such as 'vfs_*'.
    functions: String,
    #[command(flatten)]
    options: ScriptOptions,
}

/// Show from where a function is called.
#[derive(Args)]
pub(crate) struct Callers {
    /// A name, or a pattern.
    function: String,
    #[command(flatten)]
    options: ScriptOptions,
}

/// The form of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    /// Rates, refreshed.
    Rates,
    /// Times in nanoseconds.
    Times,
    /// Samples are threads.
    Threads,
}

impl ScriptCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let script = self.script.context(
            "A command or a script is missing; write -e 'entry:vfs_* { @calls = count() }', or `ilk help`",
        )?;
        self.options.run(&script, Form::Plain)
    }
}

/// Turns a list of patterns into attach points.
fn points(event: &str, functions: &str) -> String {
    let points = functions.split(',').map(|one| format!("{event}:{one}"));
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
        let script = format!("{} {{ sample(tid) }}", points("entry", &self.functions));
        self.options.run(&script, Form::Threads)
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
            points("entry", &self.function)
        );
        self.options.run(&script, Form::Plain)
    }
}

/// The file of the recording; a temporary one is removed with its folder.
struct RecordingFile {
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl RecordingFile {
    fn new(requested: Option<PathBuf>) -> anyhow::Result<Self> {
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
        let image = Image::with_modules(&parts, &modules)?.on(&layout);
        drop((parts, modules));
        let filter = Filter {
            duration: self.length.unwrap_or(UNLIMITED),
            pid: self.pid,
        };
        let sources = match script.names_lines() {
            true => Sources::find(&image, &|_| !interrupt::arrived())?,
            false => None,
        };
        let lines = |at| sources.as_ref().and_then(|sources| sources.line(at));
        let lines = sources.is_some().then_some(&lines as _);
        let mut query =
            resolve(&script, &image, filter, lines).map_err(|faults| anyhow!("{faults}"))?;
        query.session.workload = workload;
        // The terminal shows totals at these intervals.
        let intervals = script.terminal().intervals.iter();
        let shortest = intervals.map(|(seconds, _)| *seconds).fold(1.0, f64::min);
        query.session.collection.totals.every = shortest / 2.0;
        let planned = self
            .strict
            .planned(&image, &query.session, &Library::builtin()?, &layout)?;
        if self.verbose {
            eprint!("{}", plan::report::report(&image, planned.plan.plan()));
        }
        if let Some(file) = &self.save {
            output::write(file, planned.session.to_ron()?.as_bytes())?;
        }
        for note in &planned.plan.plan().notes {
            eprintln!("Note: {note}.");
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
        let absent = query.absent.iter();
        let absent = absent.map(|one| (one.reason.clone(), one.function.clone()));
        eprint!("{}{}", planned.left_out, grouped(absent, "Left out", NAMED));
        screen.status(&summary, &recording.path, self.output.is_some())
    }
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

/// The totals of a question, and their printing.
struct Screen<'a> {
    image: &'a Image,
    plan: &'a VerifiedPlan,
    terminal: &'a Terminal,
    form: Form,
    stop: &'a StopFlag,
    all: bool,
    /// Places by placement of the plan's session.
    places: Vec<&'a Place>,
    /// Places and aggregates of instruments that only count, by packed identifier.
    counters: BTreeMap<u64, (&'a Place, &'a str)>,
    /// Places of instruments that deliver samples.
    samples: BTreeMap<u64, &'a Place>,
    /// The last totals of counters.
    totals: BTreeMap<u64, u64>,
    aggregates: Vec<Total>,
    /// Values at the last `clear`, by aggregate and place.
    cleared: BTreeMap<(String, Place), TotalValue>,
    clock: Option<Clock>,
    missed: u64,
    /// Start of the program's measurement, and of the last interval of rates.
    begun: Option<Instant>,
    program: Option<(bool, String)>,
    progress: Progress,
}

impl<'a> Screen<'a> {
    fn new(
        image: &'a Image,
        (query, planned): (&'a Query, &'a Planned),
        (script, form): (&'a Script, Form),
        stop: &'a StopFlag,
    ) -> Self {
        let kept = planned.kept.iter();
        let places: Vec<&Place> = kept.filter_map(|&index| query.places.get(index)).collect();
        let mut counters = BTreeMap::new();
        let mut samples = BTreeMap::new();
        for instrument in &planned.plan.plan().instruments {
            let Some(&place) = places.get(instrument.placement) else {
                debug_assert!(false, "an instrument has no place");
                continue;
            };
            match query.counters.get(&instrument.definition.name) {
                Some(name) if instrument.counter.is_some() => {
                    counters.insert(instrument.id.pack(), (place, name.as_str()));
                }
                _ => {
                    samples.insert(instrument.id.pack(), place);
                }
            }
        }
        Self {
            image,
            plan: &planned.plan,
            terminal: script.terminal(),
            form,
            stop,
            all: false,
            places,
            counters,
            samples,
            totals: BTreeMap::new(),
            aggregates: Vec::new(),
            cleared: BTreeMap::new(),
            clock: None,
            missed: 0,
            begun: None,
            program: None,
            progress: Progress::new(),
        }
    }

    /// Handles events until the run has ended.
    fn watch(&mut self, events: &Receiver<Event>) {
        let seconds = self.terminal.intervals.iter();
        let mut due: Vec<(f64, Instant)> = seconds
            .map(|&(seconds, _)| (seconds, Instant::now()))
            .collect();
        let mut rates_due = Instant::now();
        loop {
            if interrupt::arrived() && !self.stop.is_stopped() {
                self.stop.stop();
            }
            match events.recv_timeout(POLL_INTERVAL) {
                Ok(event) => {
                    if self.event(event) {
                        let now = Instant::now();
                        rates_due = now + Duration::from_secs(1);
                        for (seconds, at) in &mut due {
                            *at = now + Duration::from_secs_f64(*seconds);
                        }
                        let terminal = self.terminal;
                        self.act(&terminal.begin);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.begun.is_none() || self.stop.is_stopped() {
                continue;
            }
            let now = Instant::now();
            let terminal = self.terminal;
            for ((seconds, at), (_, actions)) in due.iter_mut().zip(&terminal.intervals) {
                if now >= *at {
                    *at += Duration::from_secs_f64(*seconds);
                    self.act(actions);
                }
            }
            if self.form == Form::Rates && now >= rates_due && std::io::stdout().is_terminal() {
                rates_due += Duration::from_secs(1);
                self.refresh();
            }
        }
    }

    /// Handles an event; returns whether it is the first after which everything is in place.
    fn event(&mut self, event: Event) -> bool {
        match event {
            Event::Started(clock) => self.clock = Some(clock),
            Event::Switched(_) if self.begun.is_none() => {
                self.begun = Some(Instant::now());
                let plan = self.plan.plan();
                let (places, functions) = (self.places.len(), plan.functions.len());
                let noun = |count, noun: &str| match count {
                    1 => format!("1 {noun}"),
                    count => format!("{count} {noun}s"),
                };
                let (places, functions) = (noun(places, "placement"), noun(functions, "function"));
                self.progress
                    .print(&format!("{places} in {functions}. Ctrl-C ends and prints."));
                return true;
            }
            Event::Samples(batch) if batch.cpu == ALL_CPUS => {
                for sample in &batch.samples {
                    self.totals.insert(sample.id, sample.value);
                }
            }
            Event::Samples(batch) => self.print_samples(&batch),
            Event::Missed(samples) => self.missed += samples,
            Event::Aggregates(aggregates) => self.aggregates = aggregates,
            Event::Workload(line) => self.progress.print(&format!("program: {line}")),
            Event::WorkloadEnded { success, status } => {
                self.program = Some((success, status));
                self.stop.stop();
            }
            _ => {}
        }
        false
    }

    fn print_samples(&self, batch: &Batch) {
        let Some(clock) = self.clock else {
            debug_assert!(false, "samples came before the clock");
            return;
        };
        let mut out = std::io::stdout().lock();
        let printer = self.printer(None);
        for sample in &batch.samples {
            let Some(place) = self.samples.get(&sample.id) else {
                debug_assert!(false, "a sample is of no instrument");
                continue;
            };
            let value = match self.form {
                Form::Threads => format!("thread {}", sample.value),
                _ => printer.value(sample.value.cast_signed().into()),
            };
            let (at, cpu) = (clock.seconds(sample.tsc), batch.cpu);
            // A closed pipe ends the run, as Ctrl-C does.
            if writeln!(out, "{at:>12.6}  cpu {cpu:<3} {place:<32} {value}").is_err() {
                self.stop.stop();
                return;
            }
        }
    }

    fn printer(&self, per: Option<f64>) -> Printer<'_> {
        Printer {
            image: self.image,
            all: self.all,
            per,
            unit: if self.form == Form::Times { "ns" } else { "" },
        }
    }

    /// Returns all aggregates by name.
    fn answer(&self) -> Answer {
        let mut answer = Answer::new();
        for (id, (place, name)) in &self.counters {
            // A counter without a total is still zero: only changes are reported.
            let total = self.totals.get(id).copied().unwrap_or(0);
            let row = Row {
                place: (*place).clone(),
                value: TotalValue::Number(total.into()),
            };
            answer.entry((*name).to_owned()).or_default().push(row);
        }
        for total in &self.aggregates {
            let Some(&place) = self.places.get(total.placement) else {
                debug_assert!(false, "an aggregate is of no placement");
                continue;
            };
            let row = Row {
                place: place.clone(),
                value: total.value.clone(),
            };
            answer.entry(total.name.clone()).or_default().push(row);
        }
        answer
    }

    /// Returns the aggregates since they were cleared.
    fn since_cleared(&self) -> Answer {
        let mut answer = self.answer();
        for (name, rows) in &mut answer {
            for row in rows {
                if let Some(base) = self.cleared.get(&(name.clone(), row.place.clone())) {
                    row.value = difference(&row.value, base);
                }
            }
        }
        answer
    }

    fn act(&mut self, actions: &[TerminalAction]) {
        for action in actions {
            match action {
                TerminalAction::Text(text) => {
                    print!("{text}");
                    if !text.ends_with('\n') {
                        println!();
                    }
                }
                TerminalAction::Print(name) => {
                    let answer = self.since_cleared();
                    let rows = answer.get(name).map(Vec::as_slice).unwrap_or_default();
                    print!("{}", self.printer(None).aggregate(name, rows));
                }
                TerminalAction::Clear(name) => {
                    for (of, rows) in self.answer() {
                        if of == *name {
                            let rows = rows.into_iter();
                            let rows = rows.map(|row| ((of.clone(), row.place), row.value));
                            self.cleared.extend(rows);
                        }
                    }
                }
                TerminalAction::Exit => self.stop.stop(),
            }
        }
    }

    /// Shows the rates of the last second.
    fn refresh(&mut self) {
        let seconds = self
            .begun
            .map_or(1.0, |begun| begun.elapsed().as_secs_f64());
        let mut answer = self.since_cleared();
        for rows in answer.values_mut() {
            rows.sort_by_key(|row| match row.value {
                TotalValue::Number(number) => std::cmp::Reverse(number),
                _ => std::cmp::Reverse(0),
            });
            rows.truncate(TOP);
        }
        let text = self.printer(Some(seconds)).text(&answer);
        self.begun = Some(Instant::now());
        let clear = TerminalAction::Clear("calls".to_owned());
        self.act(&[clear]);
        print!("\x1b[H\x1b[2J{text}");
        // A closed terminal must not stop the measurement.
        let _closed = std::io::stdout().flush();
    }

    /// Prints the answer.
    fn finish(&mut self, summary: &Summary) -> anyhow::Result<()> {
        self.progress.clear();
        for instrument in &summary.instruments {
            if let Some(total) = instrument.total {
                self.totals.insert(instrument.id, total);
            }
        }
        self.aggregates.clone_from(&summary.aggregates);
        let terminal = self.terminal;
        if terminal.has_end {
            self.act(&terminal.end);
        } else if self.form == Form::Rates {
            let switches = &summary.switches;
            let begun = switches.first().map_or(0.0, |switch| switch.done);
            let ended = switches.last().map_or(0.0, |switch| switch.begun);
            self.cleared.clear();
            let per = (ended > begun).then_some(ended - begun);
            print!("{}", self.printer(per).text(&self.answer()));
        } else if terminal.intervals.is_empty() {
            print!("{}", self.printer(None).text(&self.answer()));
        }
        Ok(std::io::stdout().flush()?)
    }

    /// Reports losses and the end of the program; returns the exit status.
    fn status(&self, summary: &Summary, recording: &Path, keeps: bool) -> anyhow::Result<ExitCode> {
        let lost = summary.lost_by_cause().lost();
        let failed: u64 = summary.failed_reads.iter().map(|one| one.count).sum();
        let full: u64 = summary.no_room.iter().map(|one| one.count).sum();
        for (count, what) in [
            (lost, "hits were lost, because a buffer was full"),
            (
                self.missed,
                "samples were too fast to be printed; keep them with -o",
            ),
            (failed, "reads of memory failed and yielded 0"),
            (
                full,
                "values of variables were lost, because their table was full",
            ),
            (
                summary.missing,
                "samples did not arrive, which is a bug in gilk",
            ),
        ] {
            if count > 0 {
                eprintln!("{count} {what}.");
            }
        }
        if keeps {
            eprintln!("The recording is {}.", recording.display());
        }
        match (&self.program, &summary.workload) {
            (Some((true, _)), _) | (None, None) => Ok(ExitCode::SUCCESS),
            (Some((false, status)), _) => {
                eprintln!("The program ended: {status}.");
                Ok(program::exit(status))
            }
            (None, Some(state)) => {
                eprintln!("The program: {state}.");
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Returns the part of a running total that was added after `base`.
fn difference(value: &TotalValue, base: &TotalValue) -> TotalValue {
    match (value, base) {
        (TotalValue::Number(now), TotalValue::Number(base)) => TotalValue::Number(now - base),
        (TotalValue::Buckets(now), TotalValue::Buckets(base)) => {
            let buckets = now.iter().zip(base).map(|(now, base)| TotalBucket {
                count: now.count.saturating_sub(base.count),
                ..*now
            });
            TotalValue::Buckets(buckets.collect())
        }
        (TotalValue::Values(now, others), TotalValue::Values(base, base_others)) => {
            let base: BTreeMap<i128, u64> = base.iter().copied().collect();
            let values = now.iter().map(|&(value, count)| {
                let before = base.get(&value).copied().unwrap_or(0);
                (value, count.saturating_sub(before))
            });
            let values = values.filter(|&(_, count)| count > 0).collect();
            TotalValue::Values(values, others.saturating_sub(*base_others))
        }
        // Parsing refuses to clear the others.
        (value, _) => value.clone(),
    }
}
