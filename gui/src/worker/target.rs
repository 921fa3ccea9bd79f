//! Thread of a target: boots the lab, connects, loads symbols and text, and runs sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use gilk_engine::{Image, VerifiedPlan};
use gilk_instruments::Library;
use ilk_driver::client::{Connection, Seat, StopFlag};
use ilk_driver::lab::{self, Lab};
use ilk_driver::process::{CloneThreads, EveryTarget, ProcessChoices, ProcessTarget};
use ilk_driver::saved;
use ilk_driver::ssh::Tunnel;

use super::mail::{Mail, Message, Progress, TargetNews};
use super::pair_sink::PairSeat;
use super::run_output::{RunOutput, SampleSink, pass_on};
use super::runner::{CachedProcess, RunOrder, Runner};
use crate::args::Source;
use crate::catalogue::Catalogue;
use crate::document::EditedSession;
use crate::run::SharedStatus;
use crate::threads::guarded;
use crate::{Error, Result};

/// Time limit from the end of the lab's boot to the agent's first reply, for a machine with much other work.
const FIRST_ANSWER: Duration = Duration::from_secs(60);
/// Interval at which an idle target is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for all targets to end when the window closes.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(10);

/// A session to run.
pub(crate) struct Order {
    pub(crate) plan: Arc<VerifiedPlan>,
    pub(crate) session: EditedSession,
    pub(crate) recording: PathBuf,
    pub(crate) stop: StopFlag,
    /// Destination of its samples.
    pub(crate) sink: SampleSink,
    /// Status shared with the window.
    pub(crate) status: SharedStatus,
    /// For a run on several machines: its seat, and the machine's name.
    pub(crate) together: Option<(Seat, String)>,
    /// For a run in a process and its kernel.
    pub(crate) pair: Option<PairSeat>,
    /// For a run in the code cache: the threads that are in it.
    pub(crate) threads: CloneThreads,
    /// For a run in a process: the fate of what it starts.
    pub(crate) choices: ProcessChoices,
    /// The instruments.
    pub(crate) library: Arc<Library>,
}

/// A request to a target's thread.
enum Request {
    Run(Box<Order>),
    /// Show the functions of a library that the process has not loaded yet.
    Library(PathBuf),
}

/// A target's thread. Dropping it ends its run, removes every splice, and ends the lab.
pub(crate) struct Target {
    requests: Option<Sender<Request>>,
    cancel: Arc<AtomicBool>,
    running: Option<StopFlag>,
    ended: Receiver<()>,
    /// Unique number of the target.
    pub(crate) number: u64,
}

/// Cause for the end of a target's thread.
enum End {
    Cancelled,
    Failed(Error),
    /// The end of the run has reported the loss.
    Reported(Error),
}

impl<E: Into<Error>> From<E> for End {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Target {
    /// Starts to connect to a target; messages from its thread have `number`.
    pub(crate) fn start(source: Source, number: u64, mail: &Mail) -> Self {
        let (requests, received) = unbounded();
        let (over, ended) = unbounded::<()>();
        let cancel = Arc::new(AtomicBool::new(false));
        let reporter = Reporter {
            mail: mail.clone(),
            number,
            cancel: Arc::clone(&cancel),
        };
        mail.spawn("target", move |mail| {
            let _dropped_at_the_end = over;
            let served = guarded(mail.context(), "target", || {
                serve(&source, &reporter, &received)
            });
            reporter.send(match served {
                Some(Ok(()) | Err(End::Cancelled)) => TargetNews::Cancelled,
                Some(Err(End::Failed(error))) => TargetNews::Failed(error),
                Some(Err(End::Reported(error))) => TargetNews::Lost(error),
                // The fault is reported.
                None => TargetNews::Lost(lost()),
            });
        });
        Self {
            requests: Some(requests),
            cancel,
            running: None,
            ended,
            number,
        }
    }

    /// Starts a session.
    pub(crate) fn run(&mut self, order: Order) {
        self.running = Some(order.stop.clone());
        self.request(Request::Run(Box::new(order)));
    }

    /// Shows the functions of a library that the process has not loaded yet.
    pub(crate) fn open_library(&self, path: PathBuf) {
        self.request(Request::Library(path));
    }

    fn request(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // A thread that has ended has reported the loss of its target.
            let _ended = requests.send(request);
        }
    }

    /// Stops the running session.
    pub(crate) fn stop(&self) {
        if let Some(running) = &self.running {
            running.stop();
        }
    }

    /// Ends the target without waiting for it.
    pub(crate) fn cancel(&mut self) {
        self.cancel.store(true, Ordering::Release);
        self.stop();
        self.requests = None;
    }

    /// Ends the target, and waits until its splices are removed and its lab has ended, or until
    /// `deadline`.
    pub(crate) fn end(&mut self, deadline: Instant) {
        self.cancel();
        let _closed_or_late = self.ended.recv_deadline(deadline);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.cancel();
    }
}

struct Reporter {
    mail: Mail,
    number: u64,
    cancel: Arc<AtomicBool>,
}

impl Reporter {
    fn send(&self, news: TargetNews) {
        self.mail.send(Message::Target(self.number, news));
    }

    fn step(&self, name: &str, detail: &str, overall: f32) {
        self.send(TargetNews::Step(Progress {
            name: name.to_owned(),
            detail: detail.to_owned(),
            overall,
        }));
    }

    fn check_cancelled(&self) -> Result<(), End> {
        if self.cancel.load(Ordering::Acquire) {
            Err(End::Cancelled)
        } else {
            Ok(())
        }
    }
}

fn serve(source: &Source, reporter: &Reporter, requests: &Receiver<Request>) -> Result<(), End> {
    match source {
        Source::Image(path) => {
            reporter.step("image", &format!("reading {}", path.display()), 0.1);
            let image = saved::open(path)?;
            reporter.check_cancelled()?;
            reporter.step("image", "analyzing every function", 0.6);
            reporter.send(TargetNews::Image(catalogue(image)));
            // Sessions cannot run on an image; the thread keeps the target alive.
            while requests.recv().is_ok() {}
            Ok(())
        }
        Source::Socket(socket) => {
            reporter.step("connect", &format!("to {}", socket.display()), 0.05);
            run_connection(&mut Connection::connect(socket)?, reporter, requests, 0.1)
        }
        Source::Ssh(host) => {
            reporter.step("connect", &format!("to {host} with ssh"), 0.02);
            let tunnel = Tunnel::open(host, &|| reporter.check_cancelled().is_ok())?;
            reporter.check_cancelled()?;
            reporter.step("connect", &format!("to the agent on {host}"), 0.05);
            run_connection(
                &mut Connection::connect(&tunnel.socket())?,
                reporter,
                requests,
                0.1,
            )
        }
        Source::Process(pid) => {
            reporter.step("process", &format!("reading process {pid}"), 0.1);
            run_process(ProcessTarget::open(*pid)?, reporter, requests)
        }
        Source::Program(line) => {
            let program = start(line, reporter, ProcessTarget::start)?;
            run_process(program, reporter, requests)
        }
        Source::Every(program) => {
            let step = format!("reading a process of {program}");
            reporter.step("process", &step, 0.1);
            let processes = EveryTarget::open(Path::new(program))?;
            run_process(processes, reporter, requests)
        }
        Source::ProcessInCache(pid) => {
            reporter.step("process", &format!("reading process {pid}"), 0.1);
            let process = ProcessTarget::open_for_cache(*pid)?;
            run_process(CachedProcess(process), reporter, requests)
        }
        Source::ProgramInCache(line) => {
            let program = start(line, reporter, ProcessTarget::start_for_cache)?;
            run_process(CachedProcess(program), reporter, requests)
        }
        Source::Lab => in_the_lab(&lab::Options::default(), reporter, requests),
        Source::LabOf(kernel) => in_the_lab(&with_kernel(kernel), reporter, requests),
    }
}

/// Starts a program with its arguments.
fn start(
    line: &str,
    reporter: &Reporter,
    start: fn(&str, &[String]) -> ilk_driver::Result<ProcessTarget>,
) -> Result<ProcessTarget, End> {
    reporter.step("process", &format!("starting {line}"), 0.1);
    let mut words = line.split_whitespace().map(str::to_owned);
    let program = words.next().unwrap_or_default();
    let arguments: Vec<String> = words.collect();
    Ok(start(&program, &arguments)?)
}

/// Returns the lab's options for a kernel: the paths of a vmlinuz and its headers, or a Debian
/// series and flavour.
fn with_kernel(words: &str) -> lab::Options {
    let mut options = lab::Options::default();
    let (first, second) = words.trim().split_once(' ').unwrap_or((words.trim(), ""));
    let second = (!second.trim().is_empty()).then(|| second.trim());
    if first.contains('/') {
        options.kernel = Some(first.into());
        options.headers = second.map(PathBuf::from);
    } else {
        options.series = Some(first.to_owned());
        options.flavour = second.map(str::to_owned).or(options.flavour);
    }
    options
}

fn in_the_lab(
    options: &lab::Options,
    reporter: &Reporter,
    requests: &Receiver<Request>,
) -> Result<(), End> {
    let lab = boot(options, reporter)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| follow_console(&lab, reporter, &over));
        let served = first_answer(&lab, reporter)
            .and_then(|mut agent| run_connection(&mut agent, reporter, requests, 0.8));
        over.store(true, Ordering::Release);
        served
    })
}

/// Sends console output as it grows.
fn follow_console(lab: &Lab, reporter: &Reporter, over: &AtomicBool) {
    let mut cursor = 0;
    while !over.load(Ordering::Acquire) {
        // A failed read is retried; other code watches the lab itself.
        if let Ok(lines) = lab.console_since(&mut cursor)
            && !lines.is_empty()
        {
            reporter.send(TargetNews::Console(lines));
        }
        std::thread::sleep(POLL_INTERVAL / 4);
    }
}

/// Boots the lab. Its six steps are the first four fifths of the progress; loading symbols and text
/// is the rest.
fn boot(options: &lab::Options, reporter: &Reporter) -> Result<Lab, End> {
    let mut watch = |step: &lab::Step| {
        reporter.step(step.name, &step.detail, 0.8 * step.overall());
    };
    let prepared = lab::prepare(options, &mut watch)?;
    reporter.check_cancelled()?;
    let lab = Lab::boot(&prepared, &mut watch)?;
    reporter.check_cancelled()?;
    Ok(lab)
}

/// Connects to the agent, which starts at the end of the boot, so the first attempts may fail.
fn first_answer(lab: &Lab, reporter: &Reporter) -> Result<Connection, End> {
    let began = Instant::now();
    loop {
        match Connection::connect_within(lab.socket(), FIRST_ANSWER) {
            Ok(connection) => return Ok(connection),
            Err(error) if began.elapsed() > FIRST_ANSWER => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
        reporter.check_cancelled()?;
    }
}

fn run_connection(
    connection: &mut Connection,
    reporter: &Reporter,
    requests: &Receiver<Request>,
    done: f32,
) -> Result<(), End> {
    let parts = connection.live_parts(&mut |share, what| {
        reporter.step(
            "load",
            &format!("reading {what}"),
            done + (0.95 - done) * share,
        );
    })?;
    reporter.check_cancelled()?;
    connection.report_aggregates(true);
    reporter.step("load", "analyzing every function", 0.96);
    let image = Image::with_modules(&parts, &connection.modules()?)?.on(&connection.info().layout);
    reporter.send(TargetNews::Image(catalogue(image)));
    reporter.send(TargetNews::Connected(Box::new(connection.info().clone())));
    run_orders(connection, reporter, requests)
}

/// Shows a process, and runs sessions in it.
fn run_process(
    mut runner: impl Runner,
    reporter: &Reporter,
    requests: &Receiver<Request>,
) -> Result<(), End> {
    reporter.check_cancelled()?;
    if let Some(process) = runner.process() {
        show(process, reporter)?;
    }
    run_orders(&mut runner, reporter, requests)
}

/// Shows what was read of a process.
fn show(process: &ProcessTarget, reporter: &Reporter) -> Result<()> {
    reporter.send(TargetNews::Process(Box::new(process.layouts().clone())));
    reporter.step("process", "analyzing every function", 0.6);
    reporter.send(TargetNews::Image(catalogue(process.shown()?)));
    reporter.send(TargetNews::Connected(Box::new(process.info().clone())));
    Ok(())
}

/// Shows the functions of a process after `read` has read it again, unless that returns that nothing has changed. An error
/// is reported, and what was shown stays.
fn show_again(
    runner: &mut impl Runner,
    reporter: &Reporter,
    read: impl FnOnce(&mut ProcessTarget) -> ilk_driver::Result<bool>,
) {
    let Some(process) = runner.process() else {
        return;
    };
    let shown = match read(process) {
        Ok(true) => show(process, reporter),
        Ok(false) => Ok(()),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = shown {
        reporter.send(TargetNews::NotRead(error));
        reporter.send(TargetNews::Connected(Box::new(process.info().clone())));
    }
}

/// Runs sessions until the target is left or lost.
fn run_orders(
    runner: &mut impl Runner,
    reporter: &Reporter,
    requests: &Receiver<Request>,
) -> Result<(), End> {
    loop {
        let order = match requests.recv_timeout(POLL_INTERVAL) {
            Ok(Request::Run(order)) => *order,
            Ok(Request::Library(path)) => {
                let step = format!("reading {}", path.display());
                reporter.step("process", &step, 0.1);
                show_again(runner, reporter, |process| {
                    process.open_library(&path).map(|()| true)
                });
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                // Detects a lost target while it is idle.
                runner.check()?;
                continue;
            }
        };
        let session = match order.pair.as_ref().map(|pair| pair.session(&order.session)) {
            None => order.session.shown(),
            Some(Ok(session)) => session,
            Some(Err(error)) => {
                reporter.send(TargetNews::Ended(Err(error)));
                continue;
            }
        };
        let (events, received_events) = unbounded();
        if let Some(folder) = order
            .recording
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            && let Err(source) = std::fs::create_dir_all(folder)
        {
            let hint = "Choose another place to record to.";
            reporter.send(TargetNews::Ended(Err(Error::Io {
                path: folder.to_path_buf(),
                source,
                hint,
            })));
            continue;
        }
        let output = RunOutput {
            recording: order.recording.clone(),
            sink: order.sink,
            status: order.status,
            plan: Arc::clone(&order.plan),
            session: session.clone(),
        };
        let (drained, all_sent) = unbounded::<()>();
        let number = reporter.number;
        reporter.mail.spawn("events", move |mail| {
            let _dropped_at_the_end = drained;
            pass_on(&received_events, output, mail, number);
        });
        let begins = order
            .pair
            .as_ref()
            .map_or(Ok(()), |pair| pair.wait(&order.stop));
        let summary = begins.and_then(|()| {
            runner.run(RunOrder {
                plan: &order.plan,
                session: &session,
                recording: &order.recording,
                events: &events,
                stop: &order.stop,
                together: order.together,
                threads: &order.threads,
                choices: order.choices,
                library: &order.library,
            })
        });
        drop(events);
        // The end of one side ends the other.
        if let Some(pair) = &order.pair {
            pair.other.stop();
        }
        // Sends the end after all earlier messages of the run.
        let _closed = all_sent.recv();
        let is_lost = matches!(
            &summary,
            Err(ilk_driver::Error::Lost { .. } | ilk_driver::Error::LostRecording { .. })
        );
        reporter.send(TargetNews::Ended(
            summary.map(Box::new).map_err(Error::from),
        ));
        if is_lost {
            return Err(End::Reported(lost()));
        }
        reporter.check_cancelled()?;
        // One that has ended is noticed by the next check.
        if runner.check().is_ok() {
            show_again(runner, reporter, ProcessTarget::refresh);
        }
    }
}

/// Returns the state of a target whose loss is reported.
fn lost() -> Error {
    let words = "The connection to the target is lost; choose Reconnect in the Target menu.";
    Error::Driver(ilk_driver::Error::Target(words.to_owned()))
}

fn catalogue(image: Image) -> Arc<Catalogue> {
    // Builds the index of types now rather than at the first lookup, in the middle of a frame.
    let _indexed = image.types();
    Arc::new(Catalogue::new(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_kernels_are_a_series_or_two_paths() {
        let series = with_kernel("6.12 rt");
        assert_eq!(series.series.as_deref(), Some("6.12"));
        assert_eq!(series.flavour.as_deref(), Some("rt"));
        let own = with_kernel(" /boot/vmlinuz-6.1 /usr/src/linux-headers-6.1 ");
        assert_eq!(own.kernel, Some("/boot/vmlinuz-6.1".into()));
        assert_eq!(own.headers, Some("/usr/src/linux-headers-6.1".into()));
        assert_eq!(with_kernel("/boot/vmlinuz").headers, None);
    }
}
