//! The execution of a session, from upload to recording.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use gilk_engine::{Addr, Image, Plan, Session, VerifiedPlan};
use gilk_samples::Batch;
use gilk_samples::clocks::Reading;
use gilk_samples::collector::Collector;
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::Clock;
use gilk_samples::recording::Writer;
use gilk_samples::texts::{LineReader, SampleTexts};
use gilk_samples::totals::{SessionCost, Totals};

use super::clock::{self, Pinger};
use super::connection::Connection;
use super::event::{AggregateSummary, Event, InstrumentSummary, StopFlag, Summary};
use super::feed::EventFeed;
use super::lease::Lease;
use super::own_workload::OwnWorkload;
use super::prediction::{Prediction, RunHits};
use super::sidecar::SidecarWriter;
use super::tally::{Outline, Tally};
use super::wire::{Wire, unexpected};
use super::{describe, upload};
use crate::protocol::{Finished, Message, PlanOutline, Request, StackFrames, WorkloadEvent};
use crate::writes::Writes;
use crate::{Error, Result};

const DOING: &str = "in the middle of the session";

impl Connection {
    /// Executes a plan: the agent plans the same session on the kernel as it is now and must arrive
    /// at the same plan; then starts the agent's clock, writes everything to `recording` and
    /// sends it to `events`; the recording never waits for the listener ([`Event::Missed`]). Blocks
    /// until the session ends or `stop` is set.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan is for another target, or the agent's plan differs; [`Error::Refused`] if the agent or the
    /// module refuses it; [`Error::Recording`] if the file cannot be written (every splice is
    /// removed then); [`Error::LostRecording`] if the target is lost for longer than the session's
    /// grace: the recording is complete up to that point.
    pub fn run(
        &mut self,
        plan: &VerifiedPlan,
        session: &Session,
        recording: &Path,
        events: &Sender<Event>,
        stop: &StopFlag,
    ) -> Result<Summary> {
        self.run_when(plan, session, recording, events, stop, |_| Ok(None))
    }

    /// Executes a plan as [`run`](Self::run) does. When everything is loaded and the clocks are
    /// compared, `when` returns the target's TSC at second 0, or `None` for now.
    pub(super) fn run_when(
        &mut self,
        plan: &VerifiedPlan,
        session: &Session,
        recording: &Path,
        events: &Sender<Event>,
        stop: &StopFlag,
        when: impl FnOnce(&Reading) -> Result<Option<u64>>,
    ) -> Result<Summary> {
        self.load(plan, session, stop)?;
        let plan = plan.plan();
        // An error in creating the file must show before the first splice.
        Writer::check(
            recording,
            &describe::metadata(plan, session, &self.info, Clock::default())?,
        )
        .map_err(|source| Error::Recording { source })?;
        let mut lease = Lease::new(session.collection.grace);
        let reading = clock::read(&mut self.wire)?;
        let batches = plan.batches.iter().map(|batch| batch.at);
        let own_workload = OwnWorkload::of(session, batches, &self.info);
        let is_theirs = own_workload.is_none();
        let schedule = upload::schedule(session, is_theirs, when(&reading)?, lease.token);
        self.wire.send(&Request::Start(schedule))?;
        let answer = self.wire.answer("at the start of the session")?;
        let Message::Started(started) = answer else {
            return Err(unexpected(&answer));
        };
        let clock = Clock::from(started);
        lease.count(&answer);
        let writer = Writer::create(
            recording,
            &describe::metadata(plan, session, &self.info, clock)?,
        );
        let _no_listener = events.send(Event::Started(clock));
        let outline = Outline::of(plan);
        let mut run = SessionRun {
            tally: Tally::new(clock),
            labels: Labels::Planned(plan),
            collector: None,
            failure: None,
            feed: EventFeed::new(events),
            sidecar: SidecarWriter::new(recording, self.wire.socket(), &lease, &outline)?,
            lines: LineAddresses::new(describe::texts(plan)),
            outline,
            lease,
            reports_aggregates: self.reports_aggregates,
            image: self.image.clone(),
            prediction: self.prediction.take(),
            own_workload,
        };
        match writer.and_then(Collector::start) {
            Ok(collector) => run.collector = Some(collector),
            Err(source) => run.failure = Some(Error::Recording { source }),
        }
        run.clock_reading(reading);
        run.execute(&mut self.wire, stop)
    }
}

impl Connection {
    /// Loads the session of a plan into the agent, which plans it too, and compares the plans.
    fn load(&mut self, verified: &VerifiedPlan, session: &Session, stop: &StopFlag) -> Result<()> {
        let plan = verified.plan();
        upload::check_target(plan, &self.info)?;
        for request in upload::requests(plan, session)? {
            self.wire
                .request(&request, "while the session was loaded")?;
        }
        let options = upload::options(plan, session, self);
        self.wire.send(&Request::Plan(options))?;
        // The agent plans meanwhile.
        let outline = Writes::of(verified)?.outline(plan)?;
        let theirs = loop {
            match self.wire.answer("while the session was planned")? {
                Message::Planning if stop.is_stopped() => return Err(Error::NotBegun),
                Message::Planning => {}
                Message::Planned(theirs) => break theirs,
                other => return Err(unexpected(&other)),
            }
        };
        if outline == theirs {
            return Ok(());
        }
        Err(Error::Plan {
            reason: format!(
                "the agent, which reads the kernel as it is now, plans {}, and this program planned {}",
                described(theirs),
                described(outline)
            ),
        })
    }
}

fn described(plan: PlanOutline) -> String {
    let PlanOutline {
        instruments,
        sites,
        patches,
        batches,
        pokes,
        checksum,
    } = plan;
    format!(
        "{instruments} instruments with {sites} sites, {patches} patches and {pokes} writes in \
         {batches} batches (checksum {checksum:08x})"
    )
}

/// The labels of instruments.
pub(super) enum Labels<'a> {
    Planned(&'a Plan),
    Recorded(Vec<(u64, String)>),
}

/// The addresses that lines of text show as symbols.
pub(super) struct LineAddresses {
    texts: SampleTexts,
    reader: LineReader,
    addresses: BTreeSet<u64>,
}

impl LineAddresses {
    /// Most addresses that are named.
    const MOST: usize = 1 << 16;

    pub(super) fn new(texts: SampleTexts) -> Self {
        Self {
            texts,
            reader: LineReader::default(),
            addresses: BTreeSet::new(),
        }
    }

    fn add(&mut self, batch: &Batch) {
        if self.texts.is_empty() {
            return;
        }
        for sample in &batch.samples {
            let line = self.reader.next(batch.cpu, sample, &self.texts);
            if let Some((sample, words)) = line
                && self.addresses.len() < Self::MOST
            {
                let addresses = self.texts.addresses(&sample, &words);
                self.addresses.extend(addresses);
            }
        }
    }
}

/// A session in execution.
pub(super) struct SessionRun<'a> {
    pub(super) tally: Tally,
    pub(super) outline: Outline,
    pub(super) labels: Labels<'a>,
    /// Writes the recording in a thread of its own, so that neither the disk nor compression blocks
    /// the wire. `None` after a failure to write.
    pub(super) collector: Option<Collector>,
    pub(super) failure: Option<Error>,
    pub(super) feed: EventFeed<'a>,
    pub(super) lease: Lease,
    pub(super) reports_aggregates: bool,
    pub(super) image: Option<Arc<Image>>,
    pub(super) lines: LineAddresses,
    pub(super) prediction: Option<Prediction>,
    /// The workload, if this program runs it.
    pub(super) own_workload: Option<OwnWorkload>,
    /// Declared after the collector, whose thread writes its sidecars.
    pub(super) sidecar: Option<SidecarWriter>,
}

impl SessionRun<'_> {
    pub(super) fn execute(mut self, wire: &mut Wire, stop: &StopFlag) -> Result<Summary> {
        match self.listen(wire, stop) {
            Ok(finished) => {
                // Without the last reading, times are slightly less exact.
                if let Ok(reading) = clock::read(wire) {
                    self.clock_reading(reading);
                }
                self.finish(wire, &finished)
            }
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Processes messages until the agent has finished, with reconnections.
    fn listen(&mut self, wire: &mut Wire, stop: &StopFlag) -> Result<Finished> {
        loop {
            match self.listen_on(wire, stop) {
                Err(lost) => self.lease.regain(wire, lost)?,
                finished => return finished,
            }
        }
    }

    fn listen_on(&mut self, wire: &mut Wire, stop: &StopFlag) -> Result<Finished> {
        let mut stop_requested = false;
        let (mut received, mut pinger) = (Instant::now(), Pinger::new());
        loop {
            self.own_workload();
            if !stop_requested && (stop.is_stopped() || self.failure.is_some()) {
                stop_requested = true;
                wire.send(&Request::Stop)?;
            }
            if pinger.is_due(received) {
                wire.send(&pinger.ping())?;
            }
            let message = wire.poll(DOING)?;
            match message {
                Some(message) => {
                    received = Instant::now();
                    self.lease.count(&message);
                    match message {
                        Message::Finished(finished) => {
                            self.end_own_workload();
                            return Ok(finished);
                        }
                        Message::Pong { number, tsc } => {
                            if let Some(reading) = pinger.reading(number, tsc) {
                                self.clock_reading(reading);
                            }
                        }
                        message => self.take(message)?,
                    }
                }
                None => {
                    self.notice_failure();
                    if received.elapsed() > wire.patience {
                        return Err(wire.silent(wire.patience));
                    }
                }
            }
            self.confirm(wire)?;
        }
    }

    /// Writes a sidecar if one is due, and confirms stored messages to the agent.
    fn confirm(&mut self, wire: &mut Wire) -> Result<()> {
        if let (Some(sidecar), Some(collector)) = (&self.sidecar, &self.collector)
            && self.lease.is_sidecar_due()
        {
            sidecar.write_after(&self.lease, &self.tally, collector)?;
        }
        self.lease.confirm(wire);
        Ok(())
    }

    /// Records a comparison of the clocks.
    fn clock_reading(&mut self, reading: Reading) {
        self.record(|collector| collector.marks(vec![reading.into()]));
        self.feed.send(Event::Clock(reading));
    }

    fn take(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Samples { cpu, records } => {
                let whole = self.tally.samples(cpu, &records);
                let batch = whole.ok_or_else(|| Error::Protocol {
                    what: String::from("a part of a sample"),
                })?;
                self.samples(batch);
            }
            Message::Totals { tsc, totals } => {
                let batch = self.tally.totals(tsc, &totals);
                self.samples(batch);
                if self.reports_aggregates {
                    let aggregates = self.tally.aggregates(&self.outline);
                    self.feed.send(Event::Aggregates(aggregates));
                }
            }
            Message::Stacks { stacks, lost } => {
                let named = stacks
                    .iter()
                    .map(|stack| (stack.number, self.frames(&stack.frames)));
                let of_process = stacks
                    .iter()
                    .filter(|stack| matches!(stack.frames, StackFrames::Process(_)));
                let named = KeptStacks {
                    frames: named.collect(),
                    of_processes: of_process.map(|stack| stack.number).collect(),
                    lost,
                    ..KeptStacks::default()
                };
                self.tally.stacks.extend(named.clone());
                self.feed.send(Event::Stacks(named));
            }
            Message::Switched(switched) if switched.refused.is_none() => {
                if let Some(own) = &mut self.own_workload {
                    own.batch_applied();
                }
                let (switch, marks) = self.tally.switched(&self.outline, &switched);
                self.record(|collector| collector.marks(marks));
                self.feed.send(Event::Switched(switch));
            }
            // `Finished` contains the reason.
            Message::Switched(_) => {}
            Message::Retired { splices, .. } => self.tally.retired += u64::from(splices),
            Message::Out(outage) => {
                let (gap, marks) = self.tally.out(&outage);
                self.record(|collector| collector.marks(marks));
                self.feed.send(Event::Gap(gap));
            }
            Message::Back(back) => {
                let known = self.tally.back(&self.outline, &back);
                let (gap, marks) = known.ok_or_else(|| Error::Protocol {
                    what: String::from("the end of a gap that has not begun"),
                })?;
                self.record(|collector| collector.marks(marks));
                self.feed.send(Event::Gap(gap));
            }
            Message::Losses { tsc, cpus } => self.losses(tsc, &cpus),
            Message::Workload(event) => self.workload(event),
            Message::Refused(refusal) => return Err(Error::Refused(refusal)),
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    fn samples(&mut self, batch: Batch) {
        self.lines.add(&batch);
        let batch = Arc::new(batch);
        self.record(|collector| collector.samples(&batch));
        self.feed.send(Event::Samples(batch));
    }

    fn losses(&mut self, tsc: u64, losses: &[crate::protocol::CpuLosses]) {
        let new_losses = self.tally.losses(tsc, losses);
        self.record(|collector| collector.losses(new_losses));
        self.feed.send(Event::Losses(losses.to_vec()));
    }

    /// Starts the workload if this program runs it and it is time, and reports what has happened to it.
    fn own_workload(&mut self) {
        let own = self.own_workload.as_mut();
        let events = own.map(|own| own.events(&self.tally.clock));
        for event in events.into_iter().flatten() {
            self.workload(event);
        }
    }

    fn end_own_workload(&mut self) {
        let rest = self.own_workload.take().map(OwnWorkload::end);
        for event in rest.into_iter().flatten() {
            self.workload(event);
        }
    }

    fn workload(&mut self, event: WorkloadEvent) {
        let at = |tsc| self.tally.clock.seconds(tsc);
        let ended = match &event {
            WorkloadEvent::Ended {
                status, success, ..
            } => Some((*success, status.clone())),
            WorkloadEvent::Failed(why) => Some((false, why.trim_end_matches('.').to_owned())),
            WorkloadEvent::Started { .. } | WorkloadEvent::Line(_) => None,
        };
        let (line, state) = match event {
            WorkloadEvent::Started { tsc, pid } => (
                format!("started at {:.3} s as process {pid}", at(tsc)),
                Some("it was killed at the end of the session"),
            ),
            WorkloadEvent::Line(line) => (line, None),
            WorkloadEvent::Ended { tsc, status, .. } => {
                (format!("ended at {:.3} s: {status}", at(tsc)), Some(""))
            }
            WorkloadEvent::Failed(why) => (why.trim_end_matches('.').to_owned(), Some("")),
        };
        if let Some(state) = state {
            self.tally.workload = Some(if state.is_empty() {
                line.clone()
            } else {
                state.to_owned()
            });
        }
        self.feed.send(Event::Workload(line));
        if let Some((success, status)) = ended {
            self.feed.send(Event::WorkloadEnded { success, status });
        }
    }

    /// Passes data to the recording.
    fn record(&mut self, write: impl FnOnce(&Collector)) {
        if let Some(collector) = &self.collector {
            write(collector);
        }
        self.notice_failure();
    }

    /// Detects a failed recording, which stops the session and removes every splice.
    fn notice_failure(&mut self) {
        let has_failed = |collector: &mut Collector| collector.has_failed();
        if let Some(collector) = self.collector.take_if(has_failed)
            && let Err(source) = collector.finish()
        {
            self.failure = Some(Error::Recording { source });
        }
    }

    fn finish(mut self, wire: &mut Wire, finished: &Finished) -> Result<Summary> {
        self.losses(finished.tsc, &finished.losses);
        let added_up = self.tally.aggregates(&self.outline);
        let instruments = self.instruments();
        let losses = || finished.losses.iter();
        let slots = losses().map(|cpu| cpu.taken).sum::<u64>();
        let taken = slots.saturating_sub(self.tally.words);
        let hits = RunHits {
            instruments: &instruments,
            taken,
            lost: losses().map(crate::protocol::CpuLosses::lost).sum(),
            seconds: self.tally.clock.seconds(finished.tsc),
        };
        let totals = Totals {
            symbols: self.symbols(&added_up),
            stacks: self.tally.stacks.clone(),
            added_up,
            failed_reads: self.tally.failed_reads(&self.outline),
            no_room: self.tally.no_room(&self.outline),
            ended: finished
                .failed
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            ends: Vec::new(),
            gaps: self.tally.gaps.clone(),
            cost: self.cost(&hits),
            cache: None,
        };
        self.record(|collector| collector.totals(totals.clone()));
        let recording = match (self.failure.take(), self.collector.take()) {
            (None, Some(collector)) => collector
                .finish()
                .map_err(|source| Error::Recording { source })?,
            (Some(failure), _) => return Err(failure),
            (None, None) => {
                debug_assert!(false, "a recording without a collector has failed");
                gilk_samples::recording::Summary::default()
            }
        };
        self.lease.finish(wire);
        if let Some(refusal) = &finished.failed {
            return Err(Error::Refused(refusal.clone()));
        }
        let gone = losses().map(crate::protocol::CpuLosses::gone).sum::<u64>();
        let summary = Summary {
            recording,
            clock: self.tally.clock,
            stopped: finished.stopped,
            taken,
            missing: slots.saturating_sub(gone + self.tally.received),
            losses: finished.losses.clone(),
            instruments,
            aggregates: totals.added_up,
            symbols: totals.symbols,
            stacks: totals.stacks,
            failed_reads: totals.failed_reads,
            no_room: totals.no_room,
            cost: totals.cost,
            cache: totals.cache,
            ended: totals.ended,
            gaps: totals.gaps,
            switches: self.tally.switches.clone(),
            workload: self.tally.workload.clone(),
            retired: self.tally.retired,
        };
        self.feed.send(Event::Finished(Box::new(summary.clone())));
        Ok(summary)
    }

    /// Compares the prediction of the session, if there is one, with its hits.
    fn cost(&self, hits: &RunHits<'_>) -> Option<SessionCost> {
        match (&self.prediction, &self.labels) {
            (Some(prediction), Labels::Planned(plan)) => Some(prediction.compare(plan, hits)),
            // A resumed session has no plan.
            _ => None,
        }
    }

    /// Returns the names of addresses of the target's code among values, keys and lines.
    fn symbols(&self, totals: &[AggregateSummary]) -> BTreeMap<u64, String> {
        let image = self.image.iter();
        let named = image.flat_map(|image| {
            let numbers = totals.iter().flat_map(AggregateSummary::numbers);
            let addresses = numbers.filter_map(|number| u64::try_from(number).ok());
            let addresses = addresses.chain(self.lines.addresses.iter().copied());
            addresses.filter_map(|address| Some((address, image.named(Addr(address))?)))
        });
        named.collect()
    }

    /// Returns the names of the frames of a stack.
    fn frames(&self, frames: &StackFrames) -> Vec<String> {
        let image = self.image.as_deref();
        match frames {
            StackFrames::Kernel(addresses) => addresses
                .iter()
                .map(|&address| describe::frame(image, address))
                .collect(),
            StackFrames::Process(names) => names.clone(),
        }
    }

    fn instruments(&self) -> Vec<InstrumentSummary> {
        match &self.labels {
            Labels::Planned(plan) => {
                let instruments = plan.instruments.iter();
                let labels = instruments
                    .map(|instrument| (instrument.id.pack(), describe::label(plan, instrument)));
                self.tally.instruments(&self.outline, labels)
            }
            Labels::Recorded(labels) => {
                let labels = labels.iter().cloned();
                self.tally.instruments(&self.outline, labels)
            }
        }
    }

    /// Completes the recording up to the failure, and returns an error that names it.
    fn lost(mut self, error: Error) -> Error {
        self.feed.catch_up();
        if let Some(failure) = self.failure.take() {
            return failure;
        }
        let Some(collector) = self.collector.take() else {
            return error;
        };
        let finished = collector.finish();
        let reason = match error {
            Error::Lost { reason, .. } => reason,
            Error::Silent { seconds, .. } => format!("it sent nothing for {seconds} s"),
            other => return other,
        };
        match finished {
            Ok(recording) => Error::LostRecording {
                path: recording.path,
                samples: recording.samples,
                reason,
            },
            Err(source) => Error::Recording { source },
        }
    }
}
