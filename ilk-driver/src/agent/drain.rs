//! The way up: rings are emptied, counters and losses read, all of it for the client, who may be
//! slow. Then this waits, the rings fill, and the module counts what they lose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::abi::CpuState;
use super::counters::Counters;
use super::device::Device;
use super::outbox::{Gone, Outbox};
use super::rings::Rings;
use super::sys;
use crate::protocol::{Bytes, CHUNK, Counter, CpuLosses, MAX_ITEMS, Message};

/// How long samples are left to gather. Without it the agent would be woken for every few of them,
/// and an instrument of the scheduler would sample mostly the agent. A ring holds far more.
const GATHER: Duration = Duration::from_millis(4);
/// Between two looks at losses, and at counters unless there are more of them than [`FEW`].
const LOOK: Duration = Duration::from_millis(100);
/// Counters that can be read at every look. Of more, reading and telling would be much of what the
/// target does: they are read the more rarely the more there are.
const FEW: usize = 4096;
/// Samples taken from a ring at a time.
const TAKE: usize = CHUNK / 24;
/// How long the last samples are waited for.
const LAST: Duration = Duration::from_secs(5);

/// What is drained, and for whom.
pub(super) struct Drain {
    device: Arc<Device>,
    outbox: Arc<Outbox>,
    counters: Mutex<Counters>,
    /// Every splice is out: what is in the rings now is the last.
    over: AtomicBool,
    sent: AtomicU64,
}

impl Drain {
    pub(super) fn new(device: Arc<Device>, outbox: Arc<Outbox>, counters: Vec<Counter>) -> Self {
        Self {
            device,
            outbox,
            counters: Mutex::new(Counters::new(counters)),
            over: AtomicBool::new(false),
            sent: AtomicU64::new(0),
        }
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
        let first = 1_u64 << self.device.slots_log2();
        let of = |(cpu, state): (u16, &CpuState)| CpuLosses {
            cpu,
            taken: state.head.saturating_sub(first),
            full: state.lost_full,
            unmatched: state.lost_unmatched,
        };
        Ok((0_u16..).zip(&self.device.states()?).map(of).collect())
    }

    /// Samples handed to the outbox.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Every splice is out: [`run`](Self::run) ends when the rings are empty.
    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Empties the rings until the session is over, the client is gone, or the module fails.
    pub(super) fn run(&self, mut rings: Rings) -> std::io::Result<()> {
        let mut looked = Instant::now();
        let mut told = (0, 0);
        let looks_until_read = 1 + self.counters().count() / FEW;
        let mut looks = 0;
        let mut until: Option<Instant> = None;
        loop {
            let over = self.over.load(Ordering::Acquire);
            let mut gone = Ok(());
            let most = rings.drain(TAKE, |cpu, samples| {
                self.sent.fetch_add(samples.len() as u64, Ordering::Relaxed);
                let words = samples.iter().flat_map(|s| [s.id, s.value, s.tsc]);
                let records = Bytes(words.flat_map(u64::to_le_bytes).collect());
                gone = gone.and_then(|()| self.outbox.send(&Message::Samples { cpu, records }));
            })?;
            if gone == Err(Gone) {
                return Ok(());
            }
            if over && most == 0 {
                let until = *until.get_or_insert_with(|| Instant::now() + LAST);
                if rings.is_drained()? || until < Instant::now() {
                    return Ok(());
                }
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                looks = (looks + 1) % looks_until_read;
                self.look(looks == 0, &mut told)?;
            }
            if most < TAKE {
                self.device.wait(LOOK.saturating_sub(looked.elapsed()))?;
                std::thread::sleep(GATHER);
            }
        }
    }

    /// Tells totals, if they are to be read and no batch is being done, and losses, if there are more
    /// than were `told`.
    fn look(&self, totals: bool, told: &mut (u64, u64)) -> std::io::Result<()> {
        if totals && let Ok(mut counters) = self.counters.try_lock() {
            self.tell_totals(&mut counters, None)?;
        }
        let cpus = self.losses()?;
        let sum = |of: fn(&CpuLosses) -> u64| cpus.iter().map(of).sum();
        let lost = (sum(|cpu| cpu.full), sum(|cpu| cpu.unmatched));
        if std::mem::replace(told, lost) != lost {
            let tsc = sys::tsc();
            self.outbox.tell(&Message::Losses { tsc, cpus });
        }
        Ok(())
    }
}
