//! One target: boots the lab, connects, loads symbols and text, and runs sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use gilk_engine::{Image, Session, VerifiedPlan};
use gilk_samples::clocks::Alignment;
use gilk_samples::index::{Index, KEPT, Shared};
use gilk_samples::metadata::Clock;
use ilk_driver::client::{Connection, CpuLosses, Event, Seat, StopFlag, TargetInfo, metadata};
use ilk_driver::lab::{self, Lab};
use ilk_driver::saved;
use ilk_driver::ssh::Tunnel;

use super::lane::Lane;
use super::{Mail, Message, Progress, TargetNews, spawn};
use crate::args::Source;
use crate::catalogue::Catalogue;
use crate::run::Going;
use crate::{Error, Result};

/// How long the lab's agent may take from the end of the boot to its first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(20);
/// How often a target is asked whether it is there while nothing runs.
const LOOK: Duration = Duration::from_secs(1);
/// How long a target may take to end when the window closes.
const FAREWELL: Duration = Duration::from_secs(10);

/// A session to run.
pub(crate) struct Order {
    pub(crate) plan: Arc<VerifiedPlan>,
    pub(crate) session: Session,
    pub(crate) recording: PathBuf,
    pub(crate) stop: StopFlag,
    /// Where its samples are added.
    pub(crate) to: To,
    /// Where it tells how it is going.
    pub(crate) going: Going,
    /// With other machines: its seat among them, and what it is called there.
    pub(crate) together: Option<(Seat, String)>,
}

/// Where samples of a run are added.
pub(crate) enum To {
    /// To an index of their own, of a target that is described so.
    Alone(Shared, TargetInfo),
    /// To one that several machines share.
    Beside(Lane),
}

/// A target's thread. Dropping it ends whatever it does, takes every splice out, and ends the lab.
pub(crate) struct Target {
    orders: Option<Sender<Order>>,
    cancel: Arc<AtomicBool>,
    running: Option<StopFlag>,
    ended: Receiver<()>,
    /// Told apart from those before it.
    pub(crate) number: u64,
}

/// Why a target's thread ends.
enum End {
    Cancelled,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for End {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Target {
    /// Starts getting a target ready; news come as messages with `number`.
    pub(crate) fn start(source: Source, number: u64, mail: &Mail) -> Self {
        let (orders, received) = unbounded();
        let (over, ended) = unbounded::<()>();
        let cancel = Arc::new(AtomicBool::new(false));
        let told = Teller {
            mail: mail.clone(),
            number,
            cancel: Arc::clone(&cancel),
        };
        spawn("target", move || {
            let _dropped_at_the_end = over;
            match serve(&source, &told, &received) {
                Ok(()) | Err(End::Cancelled) => told.tell(TargetNews::Cancelled),
                Err(End::Failed(error)) => told.tell(TargetNews::Failed(error)),
            }
        });
        Self {
            orders: Some(orders),
            cancel,
            running: None,
            ended,
            number,
        }
    }

    /// Runs a session.
    pub(crate) fn run(&mut self, order: Order) {
        self.running = Some(order.stop.clone());
        if let Some(orders) = &self.orders {
            let _ended = orders.send(order);
        }
    }

    /// Ends the session that runs.
    pub(crate) fn stop(&self) {
        if let Some(running) = &self.running {
            running.stop();
        }
    }

    /// Ends the target, without waiting for it.
    pub(crate) fn cancel(&mut self) {
        self.cancel.store(true, Ordering::Release);
        self.stop();
        self.orders = None;
    }

    /// Ends the target, and waits until its splices are out and its lab has ended.
    pub(crate) fn end(&mut self) {
        self.cancel();
        let _closed_or_late = self.ended.recv_timeout(FAREWELL);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.cancel();
    }
}

struct Teller {
    mail: Mail,
    number: u64,
    cancel: Arc<AtomicBool>,
}

impl Teller {
    fn tell(&self, news: TargetNews) {
        self.mail.send(Message::Target(self.number, news));
    }

    fn step(&self, name: &str, step: (usize, usize), detail: &str, overall: f32) {
        self.tell(TargetNews::Step(Progress {
            name: name.to_owned(),
            step,
            detail: detail.to_owned(),
            overall,
        }));
    }

    fn go_on(&self) -> Result<(), End> {
        if self.cancel.load(Ordering::Acquire) {
            Err(End::Cancelled)
        } else {
            Ok(())
        }
    }
}

fn serve(source: &Source, told: &Teller, orders: &Receiver<Order>) -> Result<(), End> {
    match source {
        Source::Image(path) => {
            told.step("image", (0, 2), &format!("reading {}", path.display()), 0.1);
            let image = saved::open(path)?;
            told.go_on()?;
            told.step("image", (1, 2), "looking at every function", 0.6);
            told.tell(TargetNews::Image(catalogue(image)));
            // Nothing to run on; the thread stays, so that the target does.
            while orders.recv().is_ok() {}
            Ok(())
        }
        Source::Socket(socket) => {
            told.step("connect", (0, 2), &format!("to {}", socket.display()), 0.05);
            converse(&mut Connection::connect(socket)?, told, orders, (1, 2), 0.1)
        }
        Source::Ssh(host) => {
            told.step("connect", (0, 3), &format!("to {host} with ssh"), 0.02);
            let tunnel = Tunnel::open(host, &|| told.go_on().is_ok())?;
            told.go_on()?;
            told.step("connect", (1, 3), &format!("to the agent on {host}"), 0.05);
            converse(
                &mut Connection::connect(&tunnel.socket())?,
                told,
                orders,
                (2, 3),
                0.1,
            )
        }
        Source::Lab => in_the_lab(&lab::Options::default(), told, orders),
        Source::LabOf(kernel) => in_the_lab(&with_kernel(kernel), told, orders),
    }
}

/// The lab with a kernel that a person named: the path of a vmlinuz and that of its headers, or a series
/// of Debian's kernels, and a flavour.
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

fn in_the_lab(options: &lab::Options, told: &Teller, orders: &Receiver<Order>) -> Result<(), End> {
    let lab = boot(options, told)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| follow_console(&lab, told, &over));
        let steps = lab::STEPS.len();
        let served = first_answer(&lab, told)
            .and_then(|mut agent| converse(&mut agent, told, orders, (steps, steps + 1), 0.8));
        over.store(true, Ordering::Release);
        served
    })
}

/// Tells what the kernel says on its console, as it grows.
fn follow_console(lab: &Lab, told: &Teller, over: &AtomicBool) {
    let mut seen = 0;
    while !over.load(Ordering::Acquire) {
        // A console that cannot be read now may be later; the lab itself is watched elsewhere.
        if let Ok(lines) = lab.console_since(&mut seen)
            && !lines.is_empty()
        {
            told.tell(TargetNews::Console(lines));
        }
        std::thread::sleep(LOOK / 4);
    }
}

/// The lab's six steps are the first four fifths of the bar; loading symbols and text is the rest.
fn boot(options: &lab::Options, told: &Teller) -> Result<Lab, End> {
    let mut watch = |step: &lab::Step| {
        told.step(
            step.name,
            (step.index, step.of + 1),
            &step.detail,
            0.8 * step.overall(),
        );
    };
    let prepared = lab::prepare(options, &mut watch)?;
    told.go_on()?;
    let lab = Lab::boot(&prepared, &mut watch)?;
    told.go_on()?;
    Ok(lab)
}

/// The agent is started when the boot is over: its first answer may need another try.
fn first_answer(lab: &Lab, told: &Teller) -> Result<Connection, End> {
    let began = Instant::now();
    loop {
        match Connection::connect_within(lab.socket(), FIRST_ANSWER) {
            Ok(connection) => return Ok(connection),
            Err(error) if began.elapsed() > FIRST_ANSWER => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
        told.go_on()?;
    }
}

fn converse(
    connection: &mut Connection,
    told: &Teller,
    orders: &Receiver<Order>,
    step: (usize, usize),
    done: f32,
) -> Result<(), End> {
    let parts = connection.live_parts(&mut |share, what| {
        told.step(
            "load",
            step,
            &format!("reading {what}"),
            done + (0.95 - done) * share,
        );
    })?;
    told.go_on()?;
    told.step("load", step, "looking at every function", 0.96);
    let image = Image::with_modules(&parts, &connection.modules()?)?.on(&connection.info().layout);
    told.tell(TargetNews::Image(catalogue(image)));
    told.tell(TargetNews::Connected(connection.info().clone()));
    loop {
        let order = match orders.recv_timeout(LOOK) {
            Ok(order) => order,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                // Nothing runs: a target that is gone is noticed all the same.
                connection.alive()?;
                continue;
            }
        };
        let (events, heard) = unbounded();
        if let Some(folder) = order
            .recording
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            && let Err(source) = std::fs::create_dir_all(folder)
        {
            let hint = "Choose another place to record to.";
            told.tell(TargetNews::Ended(Err(Error::Io {
                path: folder.to_path_buf(),
                source,
                hint,
            })));
            continue;
        }
        let (mail, number) = (told.mail.clone(), told.number);
        let into = Kept {
            recording: order.recording.clone(),
            to: order.to,
            going: order.going,
            plan: Arc::clone(&order.plan),
            session: order.session.clone(),
        };
        let (drained, all_told) = unbounded::<()>();
        spawn("events", move || {
            let _dropped_at_the_end = drained;
            pass_on(&heard, into, &mail, number);
        });
        let (plan, session, recording) = (&order.plan, &order.session, &order.recording);
        let summary = match order.together {
            None => connection.run(plan, session, recording, &events, &order.stop),
            Some((seat, name)) => {
                connection.call(&name);
                connection.run_together(plan, session, recording, &events, &order.stop, seat)
            }
        };
        drop(events);
        // The end is told after everything before it.
        let _closed = all_told.recv();
        let lost = matches!(
            &summary,
            Err(ilk_driver::Error::Lost { .. } | ilk_driver::Error::LostRecording { .. })
        );
        told.tell(TargetNews::Ended(
            summary.map(Box::new).map_err(Error::from),
        ));
        if lost {
            return Err(End::Failed(Error::Driver(ilk_driver::Error::Target(
                "The connection to the target is gone; choose Connect again in the Target menu."
                    .to_owned(),
            ))));
        }
        told.go_on()?;
    }
}

/// Where what a run delivers goes.
struct Kept {
    recording: PathBuf,
    to: To,
    going: Going,
    plan: Arc<VerifiedPlan>,
    session: Session,
}

/// Adds samples to the index, which the window only looks at, and keeps how the run is going where the
/// window looks: nothing waits for a window that does not draw.
fn pass_on(heard: &Receiver<Event>, into: Kept, mail: &Mail, number: u64) {
    let tell = |news| mail.send(Message::Target(number, news));
    let Kept {
        recording,
        mut to,
        going,
        plan,
        session,
    } = into;
    let duration = session.duration;
    let mut looked = Instant::now();
    let mut begun: Option<Clock> = None;
    for event in heard {
        match event {
            Event::Samples(batch) => {
                match &to {
                    To::Alone(index, _) => index.append(&batch),
                    To::Beside(lane) => lane.append(&batch),
                }
                going.change(|live| live.samples += batch.samples.len() as u64);
                mail.wake();
            }
            Event::Missed(samples) => going.change(|live| {
                live.samples += samples;
                live.missed += samples;
            }),
            Event::Started(clock) => match &to {
                To::Alone(index, info) => {
                    let empty = Index::limited(KEPT, (clock.start, clock.tsc(duration)));
                    let described = metadata(plan.plan(), &session, info, clock);
                    index.replace(match &described {
                        Ok(described) => empty.by_thread_and_level(described),
                        Err(_) => empty,
                    });
                    let described = described.map(Box::new).map_err(Error::from);
                    tell(TargetNews::Started(described));
                }
                To::Beside(_) => begun = Some(clock),
            },
            // The first, which comes behind the start and before all samples.
            Event::Clock(reading) => {
                if let (Some(clock), To::Beside(lane)) = (begun.take(), &mut to) {
                    let alignment = Alignment::new([reading], clock);
                    let ends = [clock.start, clock.tsc(duration)].map(|tsc| alignment.unix_ns(tsc));
                    lane.begin(ends, alignment);
                    tell(TargetNews::Begun(clock, reading));
                }
            }
            Event::Switched(switch) => going.change(|live| {
                live.switched = live.switched.max(switch.batch + 1);
            }),
            Event::Losses(losses) => going.change(|live| {
                let unmatched = losses.iter().map(|cpu| cpu.unmatched).sum();
                let lost: u64 = losses.iter().map(CpuLosses::lost).sum();
                live.lost = (lost - unmatched, unmatched);
            }),
            Event::Workload(line) => going.change(|live| live.said = Some(line)),
            _ => {}
        }
        if looked.elapsed() > Duration::from_millis(300) {
            looked = Instant::now();
            if let Ok(metadata) = std::fs::metadata(&recording) {
                going.change(|live| live.bytes = metadata.len());
            }
        }
    }
}

fn catalogue(image: Image) -> Arc<Catalogue> {
    // They are indexed at the first question, which would be in the middle of a frame.
    let _indexed = image.types();
    Arc::new(Catalogue::new(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_for_the_lab_is_a_series_or_two_paths() {
        let series = with_kernel("6.12 rt");
        assert_eq!(series.series.as_deref(), Some("6.12"));
        assert_eq!(series.flavour.as_deref(), Some("rt"));
        let own = with_kernel(" /boot/vmlinuz-6.1 /usr/src/linux-headers-6.1 ");
        assert_eq!(own.kernel, Some("/boot/vmlinuz-6.1".into()));
        assert_eq!(own.headers, Some("/usr/src/linux-headers-6.1".into()));
        assert_eq!(with_kernel("/boot/vmlinuz").headers, None);
    }
}
