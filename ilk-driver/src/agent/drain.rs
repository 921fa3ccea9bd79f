//! The flow from rings to the client: empties the rings by the session's strategy, and reads
//! counters and losses. If the client is slow, the drain waits, the rings fill, and the module
//! counts the losses (back-pressure).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gilk_samples::Sample;

use super::abi::{IlkCpuState, IlkStack};
use super::counters::Counters;
use super::device::Device;
use super::outbox::{Gone, Outbox};
use super::planning::StacksRead;
use super::rings::Rings;
use super::ticker::Ticker;
use crate::process::names::ProcessNames;
use crate::processor;
use crate::protocol::{
    Bytes, CHUNK, Collection, CpuLosses, Interval, MAX_ITEMS, Message, NumberedStack, StackFrames,
    Strategy,
};
use crate::writes::Counter;

/// Longest time for which streamed samples accumulate. Without it a few samples would wake the
/// agent each time, and an instrument of the scheduler would mostly sample the agent.
const GATHER: Duration = Duration::from_millis(20);
/// Fill level of a ring that wakes the stream earlier: 1/8, as a power of two.
const WATERMARK_LOG2: u32 = 3;
/// Number of counters that can be read ten times a second. With more of them the interval grows in
/// proportion, because reading and reporting would dominate the target's load.
const FAST_COUNTERS: usize = 4096;
const FAST_INTERVAL: f64 = 0.1;
/// Limit on the samples taken from a ring at a time.
const TAKE: usize = CHUNK / 24;
/// Time limit for the last samples.
const LAST_SAMPLES: Duration = Duration::from_secs(5);

/// The stacks of a session that were reported.
struct ReportedStacks {
    /// Number of stacks.
    count: u32,
    /// Hits without one at the last report.
    lost: u64,
    read: StacksRead,
    processes: ProcessNames,
}

impl ReportedStacks {
    fn of(read: StacksRead) -> Self {
        Self {
            count: 0,
            lost: 0,
            read,
            processes: ProcessNames::default(),
        }
    }

    /// Names the frames of a process, which may have ended when the client has the stack.
    fn named(&mut self, stack: &IlkStack) -> NumberedStack {
        let count = usize::try_from(stack.count).unwrap_or(usize::MAX);
        let frames = stack.frames.iter().copied();
        let frames: Vec<u64> = frames.take(count).collect();
        NumberedStack {
            number: stack.id,
            frames: match stack.user {
                0 => StackFrames::Kernel(frames),
                _ => {
                    // Numbers of processes have 22 bits.
                    let pid = u32::try_from(stack.pid).unwrap_or(0);
                    StackFrames::Process(self.processes.frames(pid, &frames))
                }
            },
        }
    }
}

/// The parts of a session that the drain shares with the scheduler.
pub(super) struct Drain {
    device: Arc<Device>,
    outbox: Arc<Outbox>,
    collection: Collection,
    counters: Mutex<Counters>,
    /// Every splice is removed: the rings hold the last samples.
    over: Mutex<bool>,
    ended: Condvar,
    sent: AtomicU64,
    /// Stacks that were reported; `None` if no program reads stacks.
    stacks: Option<Mutex<ReportedStacks>>,
    /// Overtaken samples by CPU, determined when an overwriting ring is read.
    overtaken: Mutex<Vec<u64>>,
}

impl Drain {
    pub(super) fn new(
        device: Arc<Device>,
        outbox: Arc<Outbox>,
        (counters, stacks): (Vec<Counter>, Option<StacksRead>),
        collection: Collection,
    ) -> Self {
        Self {
            device,
            outbox,
            collection,
            counters: Mutex::new(Counters::new(counters)),
            stacks: stacks.map(|read| Mutex::new(ReportedStacks::of(read))),
            over: Mutex::new(false),
            ended: Condvar::new(),
            sent: AtomicU64::new(0),
            overtaken: Mutex::default(),
        }
    }

    /// Enables the rings as the session's strategy requires. No splice is installed yet.
    pub(super) fn prepare(&self) -> std::io::Result<()> {
        self.switch(true)
    }

    fn switch(&self, on: bool) -> std::io::Result<()> {
        let watermark = 1_u32 << self.device.slots_log2().saturating_sub(WATERMARK_LOG2);
        self.device.set_rings(self.overwrites(), on, watermark)
    }

    fn overwrites(&self) -> bool {
        self.collection.samples == Strategy::Newest
    }

    /// Locks the counters. The lock is held during a batch, so that totals are reported in the
    /// order of their times.
    pub(super) fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the totals that have changed, with time `tsc` or the current time; while the client
    /// is slow, nothing: totals are running sums, so a later report replaces this one.
    pub(super) fn report_totals(
        &self,
        counters: &mut Counters,
        tsc: Option<u64>,
    ) -> std::io::Result<()> {
        if self.outbox.is_full() {
            return Ok(());
        }
        self.report_all_totals(counters, tsc)
    }

    /// Reports the totals that have changed even if the client is slow: once, at the end.
    pub(super) fn report_last_totals(&self) -> std::io::Result<()> {
        self.report_stacks()?;
        let mut counters = self.counters();
        self.report_all_totals(&mut counters, None)
    }

    /// Keeps the mappings of a process from now on, for names of its addresses after its end, if there will be any.
    pub(super) fn watch(&self, pid: u32) {
        if let Some(reported) = &self.stacks {
            let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
            if reported.read == StacksRead::Processes {
                reported.processes.watch(pid);
            }
        }
    }

    /// Reports the stacks that are new since the last call.
    fn report_stacks(&self) -> std::io::Result<()> {
        let Some(reported) = &self.stacks else {
            return Ok(());
        };
        let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.processes.begin();
        loop {
            let (stacks, lost) = self.device.stacks(reported.count)?;
            if stacks.is_empty() && lost == reported.lost {
                return Ok(());
            }
            let count = u32::try_from(stacks.len()).unwrap_or(u32::MAX);
            reported.count = reported.count.saturating_add(count);
            reported.lost = lost;
            let stacks = stacks.iter().map(|stack| reported.named(stack)).collect();
            self.outbox.post(&Message::Stacks { stacks, lost });
        }
    }

    fn report_all_totals(&self, counters: &mut Counters, tsc: Option<u64>) -> std::io::Result<()> {
        let totals = counters.changed(&self.device)?;
        let tsc = tsc.unwrap_or_else(processor::tsc);
        for totals in totals.chunks(MAX_ITEMS) {
            let totals = totals.to_vec();
            self.outbox.post(&Message::Totals { tsc, totals });
        }
        Ok(())
    }

    pub(super) fn losses(&self) -> std::io::Result<Vec<CpuLosses>> {
        let slots = 1_u64 << self.device.slots_log2();
        let overtaken = self
            .overtaken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of = |(cpu, state): (u16, &IlkCpuState)| {
            // The first sample of a ring has serial number `slots`.
            let taken = state.head.saturating_sub(slots);
            CpuLosses {
                cpu,
                taken,
                full: state.lost_full,
                disabled: state.lost_off,
                overwritten: if self.overwrites() {
                    taken.saturating_sub(slots)
                } else {
                    0
                },
                // Empty until the rings were read for the last time.
                overtaken: overtaken.get(usize::from(cpu)).copied().unwrap_or_default(),
                unfinished: 0,
            }
        };
        Ok((0_u16..).zip(&self.device.states()?).map(of).collect())
    }

    /// Returns the number of samples handed to the outbox.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Marks that every splice is removed: [`run`](Self::run) ends when the rings are empty.
    pub(super) fn set_over(&self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }

    /// Waits up to `time` for the end, and returns whether it has come.
    fn wait_for_end(&self, time: Duration) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(over, time, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends samples after their stacks, which are in the table since before the samples were in their ring.
    fn send(&self, cpu: u16, samples: &[Sample]) -> std::io::Result<Connected> {
        self.report_stacks()?;
        for samples in samples.chunks(TAKE) {
            self.sent.fetch_add(samples.len() as u64, Ordering::Relaxed);
            let words = samples.iter().flat_map(|s| [s.id, s.value, s.tsc]);
            let records = Bytes::from(words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
            if self
                .outbox
                .send(&Message::Samples { cpu, records })
                .is_err()
            {
                return Ok(Err(Gone));
            }
        }
        Ok(Ok(()))
    }

    /// Empties the rings until the session is over, the client is gone, or the module fails.
    pub(super) fn run(&self, rings: Rings) -> std::io::Result<()> {
        let mut work = DrainLoop {
            drain: self,
            rings,
            reports: Ticker::new(Interval {
                every: self
                    .collection
                    .totals
                    .every
                    .max(FAST_INTERVAL * (self.counters().count() / FAST_COUNTERS) as f64),
                ..self.collection.totals
            }),
            reported: 0,
        };
        let connected = match self.collection.samples {
            Strategy::Stream => work.stream()?,
            Strategy::Periodic(interval) => work.periodic(interval)?,
            Strategy::Windows(interval, length) => work.windows(interval, length)?,
            Strategy::Oldest | Strategy::Newest => work.keep()?,
        };
        match connected {
            Err(Gone) => Ok(()),
            Ok(()) if self.overwrites() => {
                let mut sent: std::io::Result<Connected> = Ok(Ok(()));
                let overtaken = work.rings.newest(|cpu, samples| {
                    if matches!(sent, Ok(Ok(()))) {
                        sent = self.send(cpu, samples);
                    }
                })?;
                // A client that is gone is noticed elsewhere.
                let _gone = sent?;
                *self
                    .overtaken
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = overtaken;
                Ok(())
            }
            Ok(()) => work.last(),
        }
    }
}

/// `Err` if the client is gone.
type Connected = Result<(), Gone>;

struct DrainLoop<'a> {
    drain: &'a Drain,
    rings: Rings,
    reports: Ticker,
    /// Losses at the last report.
    reported: u64,
}

impl DrainLoop<'_> {
    fn stream(&mut self) -> std::io::Result<Connected> {
        while !self.drain.wait_for_end(Duration::ZERO) {
            match self.round()? {
                Err(Gone) => return Ok(Err(Gone)),
                Ok(most) if most >= TAKE => {}
                Ok(_) => {
                    self.drain
                        .device
                        .wait(self.reports.remaining().min(GATHER))?;
                    // Processes are named while they live.
                    self.drain.report_stacks()?;
                }
            }
        }
        Ok(Ok(()))
    }

    fn periodic(&mut self, interval: Interval) -> std::io::Result<Connected> {
        let mut ticker = Ticker::new(interval);
        while !self.rest(ticker.remaining())? {
            ticker.advance();
            if self.empty()?.is_err() {
                return Ok(Err(Gone));
            }
        }
        Ok(Ok(()))
    }

    fn windows(&mut self, interval: Interval, length: f64) -> std::io::Result<Connected> {
        let mut ticker = Ticker::new(interval);
        let length = Duration::from_secs_f64(length);
        loop {
            if self.rest(length)? {
                return Ok(Ok(()));
            }
            self.drain.switch(false)?;
            if self.empty()?.is_err() {
                return Ok(Err(Gone));
            }
            if self.rest(ticker.remaining())? {
                return Ok(Ok(()));
            }
            ticker.advance();
            self.drain.switch(true)?;
        }
    }

    fn keep(&mut self) -> std::io::Result<Connected> {
        while !self.rest(LAST_SAMPLES)? {
            if self.drain.outbox.is_closed() {
                return Ok(Err(Gone));
            }
        }
        Ok(Ok(()))
    }

    /// Takes samples from each CPU's ring, but not more than one message's worth; returns the
    /// largest count of a CPU.
    fn round(&mut self) -> std::io::Result<Result<usize, Gone>> {
        self.report_if_due()?;
        let mut sent: std::io::Result<Connected> = Ok(Ok(()));
        let most = self.rings.drain(TAKE, |cpu, samples| {
            if matches!(sent, Ok(Ok(()))) {
                sent = self.drain.send(cpu, samples);
            }
        })?;
        Ok(sent?.map(|()| most))
    }

    /// Empties the rings.
    fn empty(&mut self) -> std::io::Result<Connected> {
        loop {
            match self.round()? {
                Err(Gone) => return Ok(Err(Gone)),
                Ok(most) if most < TAKE => return Ok(Ok(())),
                Ok(_) => {}
            }
        }
    }

    /// Empties the rings for the last time.
    fn last(mut self) -> std::io::Result<()> {
        let until = Instant::now() + LAST_SAMPLES;
        while self.empty()?.is_ok() && !self.rings.is_drained()? && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits for `time` while reporting totals and losses; returns whether the end has come.
    fn rest(&mut self, time: Duration) -> std::io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            self.report_if_due()?;
            let remaining = until.saturating_duration_since(Instant::now());
            if self
                .drain
                .wait_for_end(remaining.min(self.reports.remaining()))
            {
                return Ok(true);
            }
            if remaining.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Reports totals, unless a batch is in progress, and losses, if they have changed.
    fn report_if_due(&mut self) -> std::io::Result<()> {
        if !self.reports.remaining().is_zero() {
            return Ok(());
        }
        self.reports.advance();
        self.drain.report_stacks()?;
        if let Ok(mut counters) = self.drain.counters.try_lock() {
            self.drain.report_totals(&mut counters, None)?;
        }
        if self.drain.outbox.is_full() {
            return Ok(());
        }
        let cpus = self.drain.losses()?;
        let lost = cpus.iter().map(CpuLosses::lost).sum();
        if std::mem::replace(&mut self.reported, lost) != lost {
            let tsc = processor::tsc();
            self.drain.outbox.post(&Message::Losses { tsc, cpus });
        }
        Ok(())
    }
}
