//! A session from its upload to its recording.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use gilk_engine::{Plan, Session, VerifiedPlan};
use gilk_samples::clocks::Reading;
use gilk_samples::collector::Collector;
use gilk_samples::metadata::Clock;
use gilk_samples::recording::Writer;
use gilk_samples::totals::Totals;

use super::clock::{self, Question};
use super::event::{Event, InstrumentSummary, StopFlag, Summary};
use super::hold::Hold;
use super::outlet::Outlet;
use super::resume::Keeper;
use super::tally::{Outline, Tally};
use super::wire::{Wire, unexpected};
use super::{Connection, PATIENCE, describe, label, upload};
use crate::protocol::{Finished, Message, Request, WorkloadEvent};
use crate::{Error, Result};

const DOING: &str = "in the middle of the session";

impl Connection {
    /// Carries a plan out: loads it, starts the agent's clock, records everything to `recording` and
    /// passes it on to `events`, as far as they are taken there: the recording waits for nobody
    /// ([`Event::Missed`]). Blocks until the session ends or `stop` is set.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan is for another target; [`Error::Refused`] if the agent or the
    /// module refuses it; [`Error::Recording`] if the file cannot be written (every splice is out
    /// then); [`Error::LostRecording`] if the target is lost meanwhile, and for longer than the session's
    /// grace: the recording is whole up to that point.
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

    /// As [`run`](Self::run), asking `when` with everything loaded and the clocks compared: at which TSC of
    /// the target second 0 is to be, if not at once.
    pub(super) fn run_when(
        &mut self,
        plan: &VerifiedPlan,
        session: &Session,
        recording: &Path,
        events: &Sender<Event>,
        stop: &StopFlag,
        when: impl FnOnce(&Reading) -> Result<Option<u64>>,
    ) -> Result<Summary> {
        let retirements = upload::retirements(plan);
        let plan = plan.plan();
        for request in upload::requests(plan, &self.info)?
            .iter()
            .chain(&retirements)
        {
            self.wire.ask(request, "while the plan was loaded")?;
        }
        // A file that cannot be made is found out before anything is spliced.
        drop(
            Writer::create(
                recording,
                &describe::metadata(plan, session, &self.info, Clock::default())?,
            )
            .map_err(|source| Error::Recording { source })?,
        );
        let mut hold = Hold::new(session.collection.grace);
        let reading = clock::read(&mut self.wire)?;
        let mut schedule = upload::schedule(plan, session, when(&reading)?, hold.token);
        if self.supposed {
            schedule.events.clear();
        }
        self.wire.send(&Request::Start(schedule))?;
        let answer = self.wire.answer(PATIENCE, "at the start of the session")?;
        let Message::Started(started) = answer else {
            return Err(unexpected(&answer));
        };
        let clock = Clock {
            hz: started.tsc_hz,
            start: started.tsc,
            start_unix_ns: started.unix_ns,
        };
        hold.took(&answer);
        let writer = Writer::create(
            recording,
            &describe::metadata(plan, session, &self.info, clock)?,
        );
        let _nobody_listens = events.send(Event::Started(clock));
        let outline = Outline::of(plan);
        let mut run = Run {
            tally: Tally::new(clock),
            names: Names::Planned(plan),
            collector: None,
            trouble: None,
            outlet: Outlet::new(events),
            keeper: Keeper::new(recording, self.wire.socket(), &hold, &outline)?,
            outline,
            hold,
        };
        match writer.and_then(Collector::start) {
            Ok(collector) => run.collector = Some(collector),
            Err(source) => run.trouble = Some(Error::Recording { source }),
        }
        run.read(reading);
        run.carry_out(&mut self.wire, stop)
    }
}

/// What instruments are called.
pub(super) enum Names<'a> {
    Planned(&'a Plan),
    Kept(Vec<(u64, String)>),
}

pub(super) struct Run<'a> {
    pub(super) tally: Tally,
    pub(super) outline: Outline,
    pub(super) names: Names<'a>,
    /// A thread of its own, so that neither the disk nor compression keeps the wire waiting. Gone when
    /// it could not write.
    pub(super) collector: Option<Collector>,
    pub(super) trouble: Option<Error>,
    pub(super) outlet: Outlet<'a>,
    pub(super) hold: Hold,
    /// Behind the collector, which writes its notes.
    pub(super) keeper: Option<Keeper>,
}

impl Run<'_> {
    pub(super) fn carry_out(mut self, wire: &mut Wire, stop: &StopFlag) -> Result<Summary> {
        match self.listen(wire, stop) {
            Ok(finished) => {
                // Without it times are a little less exact.
                if let Ok(reading) = clock::read(wire) {
                    self.read(reading);
                }
                self.finish(wire, &finished)
            }
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Takes in everything until the agent has finished, over one connection after the other.
    fn listen(&mut self, wire: &mut Wire, stop: &StopFlag) -> Result<Finished> {
        loop {
            match self.listen_on(wire, stop) {
                Err(lost) => self.hold.regain(wire, lost)?,
                finished => return finished,
            }
        }
    }

    fn listen_on(&mut self, wire: &mut Wire, stop: &StopFlag) -> Result<Finished> {
        let mut asked_to_stop = false;
        let (mut heard, mut question) = (Instant::now(), Question::new());
        loop {
            if !asked_to_stop && (stop.is_stopped() || self.trouble.is_some()) {
                asked_to_stop = true;
                wire.send(&Request::Stop)?;
            }
            if question.is_due(heard) {
                wire.send(&question.ask())?;
            }
            let message = wire.glance(DOING)?;
            match message {
                Some(message) => {
                    heard = Instant::now();
                    self.hold.took(&message);
                    match message {
                        Message::Finished(finished) => return Ok(finished),
                        Message::Pong { number, tsc } => {
                            let reading = question.answered(number, tsc);
                            reading.into_iter().for_each(|reading| self.read(reading));
                        }
                        message => self.take(message)?,
                    }
                }
                None => {
                    self.notice_failure();
                    if heard.elapsed() > PATIENCE {
                        return Err(wire.silent(PATIENCE));
                    }
                }
            }
            self.keep(wire)?;
        }
    }

    /// Notes how far it has come, now and then, and tells the agent what is safe.
    fn keep(&mut self, wire: &mut Wire) -> Result<()> {
        if let (Some(keeper), Some(collector)) = (&self.keeper, &self.collector)
            && self.hold.is_due()
        {
            keeper.note(&self.hold, &self.tally, collector)?;
        }
        self.hold.confirm(wire);
        Ok(())
    }

    /// Records what the clocks show, the target's and ours.
    fn read(&mut self, reading: Reading) {
        self.record(|collector| collector.marks(vec![reading.into()]));
        self.tell(Event::Clock(reading));
    }

    fn take(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Samples { cpu, records } => {
                let whole = self.tally.samples(cpu, &records.0);
                let batch = whole.ok_or_else(|| Error::Protocol {
                    what: String::from("a piece of a sample"),
                })?;
                self.samples(batch);
            }
            Message::Totals { tsc, totals } => {
                let batch = self.tally.totals(tsc, &totals);
                self.samples(batch);
            }
            Message::Switched(switched) if switched.refused.is_none() => {
                let (switch, marks) = self.tally.switched(&self.outline, &switched);
                self.record(|collector| collector.marks(marks));
                self.tell(Event::Switched(switch));
            }
            // The end says why.
            Message::Switched(_) => {}
            Message::Retired { splices, .. } => self.tally.retired += u64::from(splices),
            Message::Losses { tsc, cpus } => self.losses(tsc, &cpus),
            Message::Workload(event) => self.workload(event),
            Message::Refused(refusal) => return Err(Error::Refused(refusal)),
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    fn samples(&mut self, batch: gilk_samples::Batch) {
        let batch = Arc::new(batch);
        self.record(|collector| collector.samples(&batch));
        self.tell(Event::Samples(batch));
    }

    fn losses(&mut self, tsc: u64, losses: &[crate::protocol::CpuLosses]) {
        let news = self.tally.losses(tsc, losses);
        self.record(|collector| collector.losses(news));
        self.tell(Event::Losses(losses.to_vec()));
    }

    fn workload(&mut self, event: WorkloadEvent) {
        let at = |tsc| self.tally.clock.seconds(tsc);
        let (line, state) = match event {
            WorkloadEvent::Started { tsc, pid } => (
                format!("started at {:.3} s as process {pid}", at(tsc)),
                Some("it was ended with the session"),
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
        self.tell(Event::Workload(line));
    }

    /// Hands something to the recording.
    fn record(&mut self, what: impl FnOnce(&Collector)) {
        if let Some(collector) = &self.collector {
            what(collector);
        }
        self.notice_failure();
    }

    /// A recording that failed stops the session, so that every splice comes out.
    fn notice_failure(&mut self) {
        let failed = Collector::has_failed;
        if let Some(collector) = self.collector.take_if(|collector| failed(collector))
            && let Err(source) = collector.finish()
        {
            self.trouble = Some(Error::Recording { source });
        }
    }

    fn tell(&mut self, event: Event) {
        self.outlet.tell(event);
    }

    fn finish(mut self, wire: &mut Wire, finished: &Finished) -> Result<Summary> {
        self.losses(finished.tsc, &finished.losses);
        let totals = Totals {
            added_up: self.tally.aggregates(&self.outline),
            failed_reads: self.tally.failed_reads(&self.outline),
            no_room: self.tally.no_room(&self.outline),
        };
        self.record(|collector| collector.totals(totals.clone()));
        let recording = match (self.trouble.take(), self.collector.take()) {
            (None, Some(collector)) => collector
                .finish()
                .map_err(|source| Error::Recording { source })?,
            (Some(trouble), _) => return Err(trouble),
            (None, None) => gilk_samples::recording::Summary::default(),
        };
        self.hold.finish(wire);
        if let Some(refusal) = &finished.failed {
            return Err(Error::Refused(refusal.clone()));
        }
        let losses = || finished.losses.iter();
        let taken = losses().map(|cpu| cpu.taken).sum::<u64>();
        let gone = losses().map(crate::protocol::CpuLosses::gone).sum::<u64>();
        let summary = Summary {
            recording,
            clock: self.tally.clock,
            stopped: finished.stopped,
            taken,
            missing: taken.saturating_sub(gone + self.tally.received),
            losses: finished.losses.clone(),
            instruments: self.instruments(),
            aggregates: totals.added_up,
            failed_reads: totals.failed_reads,
            no_room: totals.no_room,
            switches: self.tally.switches.clone(),
            workload: self.tally.workload.clone(),
            retired: self.tally.retired,
        };
        self.tell(Event::Finished(Box::new(summary.clone())));
        Ok(summary)
    }

    fn instruments(&self) -> Vec<InstrumentSummary> {
        match &self.names {
            Names::Planned(plan) => {
                let named = plan.instruments.iter();
                let named = named.map(|one| (one.id.pack(), label(plan, one)));
                self.tally.instruments(&self.outline, named)
            }
            Names::Kept(names) => {
                let named = names.iter().cloned();
                self.tally.instruments(&self.outline, named)
            }
        }
    }

    /// The recording as far as it goes, and an error that says so.
    fn lost(mut self, error: Error) -> Error {
        self.outlet.catch_up();
        if let Some(trouble) = self.trouble.take() {
            return trouble;
        }
        let Some(collector) = self.collector.take() else {
            return error;
        };
        let finished = collector.finish();
        let reason = match error {
            Error::Lost { reason, .. } => reason,
            Error::Silent { seconds, .. } => format!("it said nothing for {seconds} s"),
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
