//! The events of a run, on their way to the window.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use gilk_engine::{Session, VerifiedPlan};
use gilk_samples::Batch;
use gilk_samples::clocks::Alignment;
use gilk_samples::index::{Index, KEPT, Shared};
use gilk_samples::live_beside::LiveBeside;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::recording::Recording;
use ilk_driver::client::{AggregateSummary, CpuLosses, Event, ProcessEvent, TargetInfo, metadata};

use super::machine_lane::MachineLane;
use super::mail::{Mail, Message, TargetNews};
use super::pair_sink::{KernelSink, ProcessSink};
use crate::Error;
use crate::run::SharedStatus;
use crate::widgets::grouped;

/// The least interval at which the window has the values of aggregates.
const AGGREGATES: Duration = Duration::from_millis(250);

/// Destination of the samples of a run.
pub(crate) enum SampleSink {
    /// An index of its own, for the described target.
    Alone(Shared, Box<TargetInfo>),
    /// An index shared by several machines.
    Shared(MachineLane),
    /// That of a kernel, for the process beside it, too.
    Kernel(Box<KernelSink>),
    /// That of the kernel beside the process.
    Process(ProcessSink),
}

/// The destination of a run's output.
pub(super) struct RunOutput {
    pub(super) recording: PathBuf,
    pub(super) sink: SampleSink,
    pub(super) status: SharedStatus,
    pub(super) plan: Arc<VerifiedPlan>,
    pub(super) session: Session,
}

/// The output of a run up to now.
struct Output<'m> {
    mail: &'m Mail,
    number: u64,
    output: RunOutput,
    /// The clock of a machine that has started, until its first reading.
    started: Option<Clock>,
    /// The description of the run, once it has started, for the processes that are described then.
    described: Option<Metadata>,
    /// The processes of the run, if it has several measurements.
    processes: Option<LiveBeside>,
    /// Lost hits up to now, of each of these.
    lost: BTreeMap<Option<u32>, u64>,
    added_up: BTreeMap<Option<u32>, Instant>,
}

/// Appends samples to the shared index and updates the shared status: neither waits for a window
/// that does not draw.
pub(super) fn pass_on(
    received_events: &Receiver<Event>,
    output: RunOutput,
    mail: &Mail,
    number: u64,
) {
    let mut passed = Output {
        mail,
        number,
        output,
        started: None,
        described: None,
        processes: None,
        lost: BTreeMap::new(),
        added_up: BTreeMap::new(),
    };
    let mut last_size_read = Instant::now();
    for event in received_events {
        match event {
            Event::OfProcess(event) => passed.of_process(*event),
            event => passed.pass(event),
        }
        if last_size_read.elapsed() > Duration::from_millis(300) {
            last_size_read = Instant::now();
            if let Ok(metadata) = std::fs::metadata(&passed.output.recording) {
                let status = &passed.output.status;
                status.change(|live| live.bytes = metadata.len());
            }
        }
    }
}

impl Output<'_> {
    fn send(&self, news: TargetNews) {
        self.mail.send(Message::Target(self.number, news));
    }

    fn pass(&mut self, event: Event) {
        match event {
            Event::Samples(batch) => {
                match &self.output.sink {
                    SampleSink::Alone(index, _) => index.append(&batch),
                    SampleSink::Shared(lane) => lane.append(&batch),
                    SampleSink::Kernel(kernel) => kernel.append(&batch),
                    SampleSink::Process(process) => process.append(&batch),
                }
                self.count(&batch);
            }
            Event::Missed(samples) => self.output.status.change(|live| {
                live.samples += samples;
                live.missed += samples;
            }),
            Event::Started(clock) => self.start(clock),
            Event::Described(described) => {
                if let SampleSink::Alone(index, _) = &self.output.sink {
                    let empty = empty_index(described.clock, self.output.session.duration);
                    index.replace(empty.by_thread_and_level(&described));
                    self.send(TargetNews::Started(Ok(described)));
                }
            }
            Event::Loaded(described) => self.loaded(described),
            // The first reading, which arrives after the start and before all samples.
            Event::Clock(reading) => {
                let duration = self.output.session.duration;
                if let (Some(clock), SampleSink::Shared(lane)) =
                    (self.started.take(), &mut self.output.sink)
                {
                    let alignment = Alignment::new([reading], clock);
                    let ends = [clock.start, clock.tsc(duration)].map(|tsc| alignment.unix_ns(tsc));
                    lane.begin(ends, alignment);
                    self.send(TargetNews::Begun(clock, reading));
                }
            }
            Event::Recorded(path) => {
                // One that is removed meanwhile is followed by the whole.
                if let Ok(recording) = Recording::open(&path) {
                    let (index, _damaged) = Index::of(&recording, |_| ControlFlow::Continue(()));
                    let described = Box::new(recording.metadata().clone());
                    if self.output.session.placements.is_empty() {
                        let blocks = described.instruments.len() as u64;
                        let line = format!("{} blocks were executed so far.", grouped(blocks));
                        self.line(line);
                    }
                    self.send(TargetNews::Recorded(described, index));
                }
            }
            Event::Aggregates(aggregates) => self.add_up(aggregates),
            Event::Stacks(stacks) if !matches!(self.output.sink, SampleSink::Shared(_)) => {
                self.send(TargetNews::Stacks(stacks));
            }
            Event::Switched(switch) => self.output.status.change(|live| {
                live.switched = live.switched.max(switch.batch + 1);
            }),
            Event::Losses(losses) => self.lose(None, &losses),
            Event::Workload(line) => self.line(line),
            Event::Gap(gap) => self.line(gap.to_string()),
            _ => {}
        }
    }

    fn count(&self, batch: &Batch) {
        let status = &self.output.status;
        status.change(|live| live.samples += batch.len() as u64);
        self.mail.wake();
    }

    fn line(&self, line: String) {
        self.output
            .status
            .change(|live| live.last_line = Some(line));
    }

    fn lose(&mut self, of: Option<u32>, losses: &[CpuLosses]) {
        let lost = losses.iter().map(CpuLosses::lost).sum();
        self.lost.insert(of, lost);
        let all = self.lost.values().sum();
        self.output.status.change(|live| live.lost = all);
    }

    fn start(&mut self, clock: Clock) {
        let output = &mut self.output;
        let (plan, session) = (&output.plan, &output.session);
        let described = match &mut output.sink {
            SampleSink::Alone(index, info) => {
                let described = metadata(plan.plan(), session, info, clock);
                let empty = empty_index(clock, session.duration);
                index.replace(match &described {
                    Ok(described) => empty.by_thread_and_level(described),
                    Err(_) => empty,
                });
                described
            }
            SampleSink::Kernel(kernel) => kernel.begin(plan, session, clock),
            SampleSink::Shared(_) => {
                self.started = Some(clock);
                return;
            }
            SampleSink::Process(_) => return,
        };
        self.described = described.as_ref().ok().cloned();
        let described = described.map(Box::new).map_err(Error::from);
        self.send(TargetNews::Started(described));
        // What the process describes later follows.
        if let SampleSink::Kernel(kernel) = &self.output.sink {
            kernel.release(clock);
        }
    }

    fn loaded(&self, described: Box<Metadata>) {
        let described = match &self.output.sink {
            SampleSink::Process(process) => process.described(&described).map(Box::new),
            _ => Ok(described),
        };
        match described {
            Ok(described) => self.send(TargetNews::Loaded(described)),
            // The recording has it at the end.
            Err(error) => self.line(error.to_string()),
        }
    }

    fn is_due(&mut self, of: Option<u32>) -> bool {
        let last = self.added_up.get(&of);
        let is_due = last.is_none_or(|last| last.elapsed() > AGGREGATES);
        if is_due {
            self.added_up.insert(of, Instant::now());
        }
        is_due
    }

    fn add_up(&mut self, aggregates: Vec<AggregateSummary>) {
        if !self.is_due(None) {
            return;
        }
        let send = |all| self.send(TargetNews::Aggregates(all));
        match &self.output.sink {
            SampleSink::Alone(..) => send(aggregates),
            SampleSink::Kernel(kernel) => kernel.sides.add_up(aggregates, send),
            SampleSink::Process(process) => process.sides.add_up(aggregates, send),
            SampleSink::Shared(_) => {}
        }
    }

    /// Passes on an event of one of several processes of the run.
    fn of_process(&mut self, event: ProcessEvent) {
        let ProcessEvent {
            number,
            name,
            event,
        } = event;
        let SampleSink::Alone(index, _) = &self.output.sink else {
            return;
        };
        match event {
            Event::Samples(batch) => {
                let processes = self.processes.as_ref();
                if let Some(batch) = processes.and_then(|all| all.batch(number, &batch)) {
                    index.append(&batch);
                    self.count(&batch);
                }
            }
            Event::Described(described) | Event::Loaded(described) => {
                let run = &self.described;
                let processes = self
                    .processes
                    .get_or_insert_with(|| LiveBeside::new(run.as_ref().unwrap_or(&described)));
                match processes.describe(number, &name, &described) {
                    Ok(all) => {
                        let all = Box::new(all.clone());
                        self.send(TargetNews::Loaded(all));
                    }
                    Err(error) => {
                        let line = format!("{name} is shown at the end of the run: {error}");
                        self.line(line);
                    }
                }
            }
            Event::Aggregates(aggregates) => {
                // Those of a process that has ended come once, and are shown with the next.
                let processes = self.processes.as_mut();
                let all = processes.map(|processes| processes.add_up(number, aggregates));
                if let Some(all) = all.filter(|_| self.is_due(Some(number))) {
                    self.send(TargetNews::Aggregates(all));
                }
            }
            Event::Losses(losses) => self.lose(Some(number), &losses),
            event => self.pass(event),
        }
    }
}

/// Returns an index for the samples of a run.
fn empty_index(clock: Clock, duration: f64) -> Index {
    Index::limited(KEPT, (clock.start, clock.tsc(duration)))
}
