//! Runs jobs concurrently: each starts when the jobs that it depends on have ended and cores are free for it.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::fail::{Fail, Result};
use crate::log::Log;
use crate::stages::{cpu_seconds, seconds};

/// Lines of a failed job's log that are printed.
const TAIL: usize = 120;

/// Time that one test took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timed {
    /// Its binary and its path in it.
    pub(crate) name: String,
    /// Its duration.
    pub(crate) time: Duration,
    /// Processor time of its program and of what that started, meanwhile.
    pub(crate) processor: Duration,
}

/// Further jobs, and the tests that have been run.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) jobs: Vec<Job>,
    pub(crate) tests: Vec<Timed>,
    /// The reason why this machine cannot do the job, if it has not been done.
    pub(crate) omitted: Option<String>,
}

/// The work of a job; what it adds to the run can start before it has ended.
type Work = Box<dyn FnOnce(&Log, &Adder) -> Result<Outcome> + Send>;

/// Adds jobs to a run from a job of it.
pub(crate) struct Adder(Sender<Event>);

impl Adder {
    /// Adds jobs, which start as soon as others would.
    pub(crate) fn add(&self, jobs: Vec<Job>) {
        // The receiver lives until every job has ended.
        let _ = self.0.send(Event::Added(jobs));
    }
}

/// One program to run, or several in order.
pub(crate) struct Job {
    name: String,
    after: Vec<&'static str>,
    cores: usize,
    rank: f32,
    on_terminal: bool,
    work: Work,
}

impl Job {
    /// A job that keeps one core busy.
    pub(crate) fn new(
        name: impl Into<String>,
        work: impl FnOnce(&Log) -> Result<Outcome> + Send + 'static,
    ) -> Self {
        Self::adding(name, |log, _| work(log))
    }

    /// A job that adds others while it runs.
    pub(crate) fn adding(
        name: impl Into<String>,
        work: impl FnOnce(&Log, &Adder) -> Result<Outcome> + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            after: Vec::new(),
            cores: 1,
            rank: 0.0,
            on_terminal: false,
            work: Box::new(work),
        }
    }

    /// A job that runs no tests and adds no jobs.
    pub(crate) fn step(
        name: impl Into<String>,
        work: impl FnOnce(&Log) -> Result<()> + Send + 'static,
    ) -> Self {
        Self::new(name, |log| work(log).map(|()| Outcome::default()))
    }

    /// Starts it only when the named jobs have succeeded.
    pub(crate) fn after(mut self, names: &[&'static str]) -> Self {
        self.after.extend(names);
        self
    }

    /// The number of cores that it keeps busy; 0 for a job that waits for the network or the disk.
    pub(crate) fn cores(mut self, cores: usize) -> Self {
        self.cores = cores;
        self
    }

    /// Sets its priority among the jobs that can start: seconds until the end of everything that depends on it.
    pub(crate) fn rank(mut self, rank: f32) -> Self {
        self.rank = rank;
        self
    }

    /// Prints to the terminal instead of a log.
    pub(crate) fn on_terminal(mut self) -> Self {
        self.on_terminal = true;
        self
    }
}

/// State of a job that is not waiting any more.
enum State {
    Running,
    Passed,
    /// Not done, for a reason that is no failure.
    Omitted,
    Failed,
    Skipped,
}

/// A row of the final table.
struct Row {
    name: String,
    begin: Duration,
    time: Duration,
    state: State,
}

/// A message of a job's thread.
enum Event {
    Added(Vec<Job>),
    Ended(Ended),
}

/// A job's end.
struct Ended {
    row: usize,
    cores: usize,
    outcome: Result<Outcome>,
    log: Log,
}

/// A run of jobs, its rows and its tests so far.
pub(crate) struct Graph<'a> {
    logs: &'a Path,
    cores: usize,
    free: usize,
    begin: Instant,
    waiting: Vec<Job>,
    rows: Vec<Row>,
    tests: Vec<Timed>,
    failures: Vec<String>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl<'a> Graph<'a> {
    /// A run of so many jobs of one core at a time, which writes logs to a folder.
    pub(crate) fn new(logs: &'a Path, cores: usize, jobs: Vec<Job>) -> Self {
        let (sender, events) = mpsc::channel();
        Self {
            logs,
            cores,
            free: cores,
            begin: Instant::now(),
            waiting: jobs,
            rows: Vec::new(),
            tests: Vec::new(),
            failures: Vec::new(),
            sender,
            events,
        }
    }

    /// Runs all jobs. A failed job stops only the jobs that depend on it. Returns the tests' times too.
    pub(crate) fn run(mut self) -> (Vec<Timed>, Result<()>) {
        let outcome = self.finish();
        (self.tests, outcome)
    }

    fn finish(&mut self) -> Result<()> {
        loop {
            self.skip();
            while let Some(job) = self.next() {
                self.start(job)?;
            }
            let running = self
                .rows
                .iter()
                .any(|row| matches!(row.state, State::Running));
            if !running {
                break;
            }
            match self.events.recv() {
                Ok(event) => self.take(event),
                Err(error) => {
                    return Err(Fail::new(format!("no job is left to wait for: {error}")));
                }
            }
        }
        self.report();
        if let Some(job) = self.waiting.first() {
            let needs = job.after.join(", ");
            return Err(Fail::new(format!(
                "\"{}\" depends on jobs that do not exist: {needs}",
                job.name
            )));
        }
        if self.failures.is_empty() {
            return Ok(());
        }
        Err(Fail::new(format!(
            "{} failed: {}",
            self.failures.len(),
            self.failures.join(", ")
        )))
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Added(jobs) => self.waiting.extend(jobs),
            Event::Ended(ended) => self.end(ended),
        }
    }

    fn state(&self, name: &str) -> Option<&State> {
        self.rows
            .iter()
            .find(|row| row.name == name)
            .map(|row| &row.state)
    }

    /// Drops the jobs that depend on a failed one.
    fn skip(&mut self) {
        let is_lost = |graph: &Self, job: &Job| {
            let mut needs = job.after.iter();
            needs.any(|name| matches!(graph.state(name), Some(State::Failed | State::Skipped)))
        };
        while let Some(index) = self.waiting.iter().position(|job| is_lost(self, job)) {
            let job = self.waiting.remove(index);
            let begin = self.begin.elapsed();
            self.say(&format!("skipped  {}", job.name));
            self.rows.push(Row {
                name: job.name,
                begin,
                time: Duration::ZERO,
                state: State::Skipped,
            });
        }
    }

    /// Removes the job that starts now, if any can.
    fn next(&mut self) -> Option<Job> {
        let is_ready = |job: &Job| {
            job.cores.min(self.cores) <= self.free
                && job
                    .after
                    .iter()
                    .all(|name| matches!(self.state(name), Some(State::Passed | State::Omitted)))
        };
        let ready = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, job)| is_ready(job));
        let (index, _) =
            ready.max_by(|(_, first), (_, second)| first.rank.total_cmp(&second.rank))?;
        Some(self.waiting.remove(index))
    }

    fn start(&mut self, job: Job) -> Result<()> {
        let cores = job.cores.min(self.cores);
        self.free -= cores;
        let row = self.rows.len();
        self.rows.push(Row {
            name: job.name.clone(),
            begin: self.begin.elapsed(),
            time: Duration::ZERO,
            state: State::Running,
        });
        let log = if job.on_terminal {
            self.say(&format!("started  {}", job.name));
            Log::terminal()
        } else {
            Log::file(self.logs.join(format!("{}.log", file_name(&job.name))))?
        };
        let (sender, work) = (self.sender.clone(), job.work);
        thread::spawn(move || {
            let panicked = || Fail::new("its thread panicked");
            let adder = Adder(sender);
            let work = std::panic::AssertUnwindSafe(|| work(&log, &adder));
            let outcome = std::panic::catch_unwind(work).unwrap_or_else(|_| Err(panicked()));
            // The receiver lives until every job has ended.
            let _ = adder.0.send(Event::Ended(Ended {
                row,
                cores,
                outcome,
                log,
            }));
        });
        Ok(())
    }

    fn end(&mut self, ended: Ended) {
        self.free += ended.cores;
        let now = self.begin.elapsed();
        let Some(row) = self.rows.get_mut(ended.row) else {
            unreachable!("row {} of a job that was started", ended.row);
        };
        row.time = now.saturating_sub(row.begin);
        let (name, time) = (row.name.clone(), seconds(row.time));
        match ended.outcome {
            Ok(outcome) => {
                let count = outcome.tests.len();
                let tests = if count == 0 {
                    String::new()
                } else {
                    format!(", {count} tests")
                };
                let line = if let Some(reason) = outcome.omitted {
                    row.state = State::Omitted;
                    format!("omitted  {name}: {reason}")
                } else {
                    row.state = State::Passed;
                    format!("passed   {name} ({time}{tests})")
                };
                self.waiting.extend(outcome.jobs);
                self.tests.extend(outcome.tests);
                self.say(&line);
            }
            Err(fail) => {
                row.state = State::Failed;
                self.failures.push(name.clone());
                self.say(&format!("FAILED   {name} ({time}): {fail}"));
                if let Some(tail) = ended.log.tail(TAIL) {
                    println!("{tail}\n");
                }
            }
        }
    }

    fn say(&self, line: &str) {
        let done = self
            .rows
            .iter()
            .filter(|row| !matches!(row.state, State::Running))
            .count();
        let all = self.rows.len() + self.waiting.len();
        let dim = if io::stdout().is_terminal() {
            "\u{1b}[2m"
        } else {
            ""
        };
        let plain = if dim.is_empty() { "" } else { "\u{1b}[0m" };
        println!(
            "{dim}{:>10} {done:>3}/{all}{plain}  {line}",
            seconds(self.begin.elapsed())
        );
        let _ = io::stdout().flush();
    }

    /// Prints the table of jobs.
    fn report(&self) {
        println!("\n     begin       time  stage");
        for row in &self.rows {
            let state = match row.state {
                State::Running | State::Passed => "",
                State::Omitted => "  omitted",
                State::Failed => "  FAILED",
                State::Skipped => "  skipped",
            };
            println!(
                "{:>10} {:>10}  {}{state}",
                seconds(row.begin),
                seconds(row.time),
                row.name
            );
        }
        let (wall, cpu) = (self.begin.elapsed(), cpu_seconds());
        println!(
            "{:>10} {:>10}  in all, {:.0} s of processor time",
            "",
            seconds(wall),
            cpu
        );
    }
}

/// A job's name without what a path cannot have.
fn file_name(name: &str) -> String {
    let allowed = |letter: char| {
        if letter.is_alphanumeric() || "-.".contains(letter) {
            letter
        } else {
            '-'
        }
    };
    name.chars().map(allowed).collect()
}

/// Prints the slowest tests, and the programs that take most of the processors.
pub(crate) fn slowest(tests: &[Timed], count: usize) {
    let mut sorted: Vec<&Timed> = tests.iter().collect();
    sorted.sort_by_key(|test| std::cmp::Reverse(test.time));
    println!(
        "\nThe slowest of {} tests, with their processor time:",
        tests.len()
    );
    for test in sorted.iter().take(count) {
        print_times(test.time, test.processor, &test.name);
    }
    let mut programs: BTreeMap<&str, (Duration, Duration)> = BTreeMap::new();
    for test in tests {
        let program = test.name.split("::").next().unwrap_or_default();
        let (time, processor) = programs.entry(program).or_default();
        *time += test.time;
        *processor += test.processor;
    }
    let mut programs: Vec<_> = programs.into_iter().collect();
    programs.sort_by_key(|&(_, (_, processor))| std::cmp::Reverse(processor));
    println!("\nThe test programs with most processor time:");
    for (program, (time, processor)) in programs.into_iter().take(count) {
        print_times(time, processor, program);
    }
}

fn print_times(time: Duration, processor: Duration, name: &str) {
    println!("{:>10} {:>10}  {name}", seconds(time), seconds(processor));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(jobs: Vec<Job>, cores: usize) -> (Vec<String>, bool) {
        let logs = std::env::temp_dir().join(format!("gilk-jobs-{}", std::process::id()));
        std::fs::create_dir_all(&logs).unwrap();
        let mut graph = Graph::new(&logs, cores, jobs);
        let mut order = Vec::new();
        loop {
            graph.skip();
            while let Some(job) = graph.next() {
                order.push(job.name.clone());
                graph.start(job).unwrap();
            }
            if !graph
                .rows
                .iter()
                .any(|row| matches!(row.state, State::Running))
            {
                break;
            }
            let event = graph.events.recv().unwrap();
            graph.take(event);
        }
        (order, graph.failures.is_empty())
    }

    #[test]
    fn an_omitted_job_stops_no_other_and_counts_as_no_success() {
        let omitted = |_: &Log| {
            Ok(Outcome {
                omitted: Some("no kernel".to_owned()),
                ..Outcome::default()
            })
        };
        let logs = std::env::temp_dir().join(format!("gilk-omitted-{}", std::process::id()));
        std::fs::create_dir_all(&logs).unwrap();
        let after = Job::step("after", |_| Ok(())).after(&["none"]);
        let mut graph = Graph::new(&logs, 1, vec![Job::new("none", omitted), after]);
        graph.finish().unwrap();
        let states: Vec<_> = graph
            .rows
            .iter()
            .map(|row| (row.name.as_str(), matches!(row.state, State::Omitted)))
            .collect();
        assert_eq!(states, [("none", true), ("after", false)]);
        std::fs::remove_dir_all(&logs).unwrap();
    }

    #[test]
    fn a_job_that_is_added_starts_before_the_job_that_adds_it_has_ended() {
        let (started, starts) = mpsc::channel();
        let adds = move |_: &Log, adder: &Adder| {
            let early = Job::step("early", move |_| {
                started
                    .send(())
                    .map_err(|error| Fail::new(error.to_string()))
            });
            adder.add(vec![early]);
            // Nothing else could send: without the early start this is an error, and the job fails.
            starts
                .recv_timeout(Duration::from_secs(60))
                .map_err(|error| Fail::new(error.to_string()))?;
            Ok(Outcome::default())
        };
        let jobs = vec![Job::adding("adds", adds)];
        let expected = ["adds", "early"].map(str::to_owned).to_vec();
        assert_eq!(names(jobs, 2), (expected, true));
    }

    #[test]
    fn a_job_waits_for_its_dependencies_and_the_highest_rank_starts_first() {
        let job = |name: &str| Job::step(name, |_| Ok(()));
        let jobs = vec![
            job("low"),
            job("last").after(&["high"]).rank(9.0),
            job("high").rank(5.0),
        ];
        assert_eq!(
            names(jobs, 1),
            (["high", "last", "low"].map(str::to_owned).to_vec(), true)
        );
    }

    #[test]
    fn a_failed_job_stops_its_dependents_alone_and_a_job_can_add_jobs() {
        let adds = |_: &Log| {
            let jobs = vec![Job::step("added", |_| Ok(()))];
            Ok(Outcome {
                jobs,
                ..Outcome::default()
            })
        };
        let jobs = vec![
            Job::step("fails", |_| Err(Fail::new("because"))).rank(2.0),
            Job::step("never", |_| Ok(())).after(&["fails"]),
            Job::new("adds", adds).rank(1.0),
        ];
        assert_eq!(
            names(jobs, 1),
            (
                ["fails", "adds", "added"].map(str::to_owned).to_vec(),
                false
            )
        );
    }
}
