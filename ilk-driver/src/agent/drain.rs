//! The way up: rings are emptied as the session's strategy says, counters and losses read, all of it
//! for the client, who may be slow. Then this waits, the rings fill, and the module counts what they
//! lose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gilk_samples::Sample;

use super::abi::CpuState;
use super::counters::Counters;
use super::device::Device;
use super::outbox::{Gone, Outbox};
use super::rhythm::Rhythm;
use super::rings::Rings;
use super::sys;
use crate::protocol::{
    Bytes, CHUNK, Collection, Counter, CpuLosses, Interval, MAX_ITEMS, Message, Strategy,
};

/// The longest that streamed samples are left to gather. Without it the agent would be woken for every
/// few of them, and an instrument of the scheduler would sample mostly the agent.
const GATHER: Duration = Duration::from_millis(20);
/// The part of a ring that wakes the stream before that: 1/8, as a power of two.
const WATERMARK_LOG2: u32 = 3;
/// Counters that can be read ten times a second. Of more, reading and telling would be much of what
/// the target does: they are read the more rarely the more there are.
const FEW: usize = 4096;
const FEW_EVERY: f64 = 0.1;
/// Samples taken from a ring at a time.
const TAKE: usize = CHUNK / 24;
/// How long the last samples are waited for.
const LAST: Duration = Duration::from_secs(5);

/// What is drained, and for whom.
pub(super) struct Drain {
    device: Arc<Device>,
    outbox: Arc<Outbox>,
    collection: Collection,
    counters: Mutex<Counters>,
    /// Every splice is out: what is in the rings now is the last.
    over: Mutex<bool>,
    ended: Condvar,
    sent: AtomicU64,
    /// By CPU, known when its ring was read that overwrites.
    overtaken: Mutex<Vec<u64>>,
}

impl Drain {
    pub(super) fn new(
        device: Arc<Device>,
        outbox: Arc<Outbox>,
        counters: Vec<Counter>,
        collection: Collection,
    ) -> Self {
        Self {
            device,
            outbox,
            collection,
            counters: Mutex::new(Counters::new(counters)),
            over: Mutex::new(false),
            ended: Condvar::new(),
            sent: AtomicU64::new(0),
            overtaken: Mutex::default(),
        }
    }

    /// Has the rings take samples as the session wants it. No splice is in place yet.
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

    /// Held while a batch is done, so that totals are told in the order of their times.
    pub(super) fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the totals that have changed, as those of `tsc`, else of now.
    pub(super) fn tell_totals(
        &self,
        counters: &mut Counters,
        tsc: Option<u64>,
    ) -> std::io::Result<()> {
        let totals = counters.changed(&self.device)?;
        let tsc = tsc.unwrap_or_else(sys::tsc);
        for totals in totals.chunks(MAX_ITEMS) {
            let totals = totals.to_vec();
            self.outbox.tell(&Message::Totals { tsc, totals });
        }
        Ok(())
    }

    pub(super) fn losses(&self) -> std::io::Result<Vec<CpuLosses>> {
        let slots = 1_u64 << self.device.slots_log2();
        let overtaken = self
            .overtaken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of = |(cpu, state): (u16, &CpuState)| {
            // The first sample of a ring has serial number `slots`.
            let taken = state.head.saturating_sub(slots);
            CpuLosses {
                cpu,
                taken,
                full: state.lost_full,
                unmatched: state.lost_unmatched,
                disabled: state.lost_off,
                overwritten: if self.overwrites() {
                    taken.saturating_sub(slots)
                } else {
                    0
                },
                overtaken: overtaken.get(usize::from(cpu)).copied().unwrap_or_default(),
            }
        };
        Ok((0_u16..).zip(&self.device.states()?).map(of).collect())
    }

    /// Samples handed to the outbox.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Every splice is out: [`run`](Self::run) ends when the rings are empty.
    pub(super) fn set_over(&self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }

    /// Waits for the end, at most so long, and says whether it has come.
    fn wait_for_end(&self, time: Duration) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(over, time, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn send(&self, cpu: u16, samples: &[Sample]) -> Result<(), Gone> {
        for samples in samples.chunks(TAKE) {
            self.sent.fetch_add(samples.len() as u64, Ordering::Relaxed);
            let words = samples.iter().flat_map(|s| [s.id, s.value, s.tsc]);
            let records = Bytes(words.flat_map(u64::to_le_bytes).collect());
            self.outbox.send(&Message::Samples { cpu, records })?;
        }
        Ok(())
    }

    /// Empties the rings until the session is over, the client is gone, or the module fails.
    pub(super) fn run(&self, rings: Rings) -> std::io::Result<()> {
        let mut work = Work {
            drain: self,
            rings,
            looks: Rhythm::new(Interval {
                every: self
                    .collection
                    .totals
                    .every
                    .max(FEW_EVERY * (self.counters().count() / FEW) as f64),
                ..self.collection.totals
            }),
            told: 0,
        };
        let there = match self.collection.samples {
            Strategy::Stream => work.stream()?,
            Strategy::Periodic(interval) => work.periodic(interval)?,
            Strategy::Windows(interval, length) => work.windows(interval, length)?,
            Strategy::Oldest | Strategy::Newest => work.keep()?,
        };
        match there {
            Err(Gone) => Ok(()),
            Ok(()) if self.overwrites() => {
                let mut gone = Ok(());
                let overtaken = work.rings.newest(|cpu, samples| {
                    gone = gone.and_then(|()| self.send(cpu, samples));
                })?;
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

/// Whether the client is there.
type There = Result<(), Gone>;

struct Work<'a> {
    drain: &'a Drain,
    rings: Rings,
    looks: Rhythm,
    /// Losses that were last told.
    told: u64,
}

impl Work<'_> {
    fn stream(&mut self) -> std::io::Result<There> {
        while !self.drain.wait_for_end(Duration::ZERO) {
            match self.round()? {
                Err(Gone) => return Ok(Err(Gone)),
                Ok(most) if most >= TAKE => {}
                Ok(_) => self.drain.device.wait(self.looks.left().min(GATHER))?,
            }
        }
        Ok(Ok(()))
    }

    fn periodic(&mut self, interval: Interval) -> std::io::Result<There> {
        let mut rhythm = Rhythm::new(interval);
        while !self.rest(rhythm.left())? {
            rhythm.step();
            if self.empty()?.is_err() {
                return Ok(Err(Gone));
            }
        }
        Ok(Ok(()))
    }

    fn windows(&mut self, interval: Interval, length: f64) -> std::io::Result<There> {
        let mut rhythm = Rhythm::new(interval);
        let length = Duration::from_secs_f64(length);
        loop {
            if self.rest(length)? {
                return Ok(Ok(()));
            }
            self.drain.switch(false)?;
            if self.empty()?.is_err() {
                return Ok(Err(Gone));
            }
            if self.rest(rhythm.left())? {
                return Ok(Ok(()));
            }
            rhythm.step();
            self.drain.switch(true)?;
        }
    }

    fn keep(&mut self) -> std::io::Result<There> {
        while !self.rest(LAST)? {
            if self.drain.outbox.is_closed() {
                return Ok(Err(Gone));
            }
        }
        Ok(Ok(()))
    }

    /// Takes what there is, but not more of any CPU than it takes to send it; returns the most that
    /// one had.
    fn round(&mut self) -> std::io::Result<Result<usize, Gone>> {
        self.look_if_due()?;
        let mut gone = Ok(());
        let most = self.rings.drain(TAKE, |cpu, samples| {
            gone = gone.and_then(|()| self.drain.send(cpu, samples));
        })?;
        Ok(gone.map(|()| most))
    }

    /// Takes all that there is.
    fn empty(&mut self) -> std::io::Result<There> {
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
        let until = Instant::now() + LAST;
        while self.empty()?.is_ok() && !self.rings.is_drained()? && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets time pass, with looks at totals and losses; whether the end has come.
    fn rest(&mut self, time: Duration) -> std::io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            self.look_if_due()?;
            let left = until.saturating_duration_since(Instant::now());
            if self.drain.wait_for_end(left.min(self.looks.left())) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Tells totals, unless a batch is being done, and losses, if there are more than were told.
    fn look_if_due(&mut self) -> std::io::Result<()> {
        if !self.looks.left().is_zero() {
            return Ok(());
        }
        self.looks.step();
        if let Ok(mut counters) = self.drain.counters.try_lock() {
            self.drain.tell_totals(&mut counters, None)?;
        }
        let cpus = self.drain.losses()?;
        let lost = cpus.iter().map(CpuLosses::lost).sum();
        if std::mem::replace(&mut self.told, lost) != lost {
            let tsc = sys::tsc();
            self.drain.outbox.tell(&Message::Losses { tsc, cpus });
        }
        Ok(())
    }
}
