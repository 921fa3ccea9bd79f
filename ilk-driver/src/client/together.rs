//! One session on several machines, begun at the same moment.
//!
//! A thread per machine loads the plan and reads the target's clock. When all machines are ready,
//! second 0 is set slightly ahead on the client's clock, and each agent receives it in ticks of its
//! own TSC. So they begin together with the precision of the clock readings, regardless of the
//! latency of the connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;
use gilk_engine::{Session, VerifiedPlan};
use gilk_samples::clocks::Reading;

use super::clock;
use super::connection::Connection;
use super::event::{Event, StopFlag, Summary};
use crate::{Error, Result};

/// Distance of second 0 in nanoseconds: longer than the latency of a message.
const AHEAD: u64 = 500_000_000;
/// Interval at which a waiting machine checks for a stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A machine that takes part in a session.
pub struct Participant<'a> {
    /// The connection to it.
    pub connection: &'a mut Connection,
    /// The session's plan for its kernel.
    pub plan: &'a VerifiedPlan,
    /// The file of its recording.
    pub recording: PathBuf,
    /// The listener to its events.
    pub events: Sender<Event>,
}

/// Runs a session on all of these machines, with a common second 0. Blocks until it has ended on
/// each, or `stop` is set. If one machine cannot begin, none does; one that is lost later does not
/// end the others.
///
/// The results are in the order of the machines, and as those of [`Connection::run`];
/// [`Error::NotTogether`] for a machine that did not begin because of another.
pub fn together(
    machines: Vec<Participant<'_>>,
    session: &Session,
    stop: &StopFlag,
) -> Vec<Result<Summary>> {
    let seats = Seat::for_all(machines.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = machines
            .into_iter()
            .zip(seats)
            .map(|(machine, seat)| scope.spawn(move || run(machine, session, stop, seat)))
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn run(
    machine: Participant<'_>,
    session: &Session,
    stop: &StopFlag,
    seat: Seat,
) -> Result<Summary> {
    let Participant {
        connection,
        plan,
        recording,
        events,
    } = machine;
    connection.run_together(plan, session, &recording, &events, stop, seat)
}

impl Connection {
    /// Runs a session as [`run`](Self::run) does, but begins when the holders of all seats are
    /// ready; for machines whose connections belong to threads of their own.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`Error::NotTogether`] if another seat was dropped before all were
    /// ready.
    pub fn run_together(
        &mut self,
        plan: &VerifiedPlan,
        session: &Session,
        recording: &Path,
        events: &Sender<Event>,
        stop: &StopFlag,
        seat: Seat,
    ) -> Result<Summary> {
        let hz = self.info().tsc_hz;
        self.run_when(plan, session, recording, events, stop, |reading| {
            let start = seat.take(stop)?;
            Ok(Some(tsc_at(start, reading, hz)))
        })
    }
}

/// Returns the target's TSC at time `unix_ns` of the client's clock.
fn tsc_at(unix_ns: u64, reading: &Reading, hz: u64) -> u64 {
    let ahead = u128::from(unix_ns.saturating_sub(reading.unix_ns));
    let ticks = ahead * u128::from(hz) / 1_000_000_000;
    reading
        .tsc
        .saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
}

/// The barrier at which machines wait for each other.
#[derive(Debug)]
struct StartBarrier {
    state: Mutex<BarrierState>,
    changed: Condvar,
}

#[derive(Debug)]
struct BarrierState {
    missing: usize,
    cancelled: bool,
    /// Second 0 on the client's clock, valid when no machine is missing.
    start: u64,
}

impl StartBarrier {
    fn new(machines: usize) -> Self {
        Self {
            state: Mutex::new(BarrierState {
                missing: machines,
                cancelled: false,
                start: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits for all others, and returns second 0.
    fn pass(&self, stop: &StopFlag) -> Result<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            state.start = clock::now().saturating_add(AHEAD);
            self.changed.notify_all();
        }
        loop {
            if state.cancelled {
                return Err(Error::NotTogether);
            }
            if state.missing == 0 {
                return Ok(state.start);
            }
            if stop.is_stopped() {
                return Err(Error::NotBegun);
            }
            let waited = self.changed.wait_timeout(state, STOP_POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// One machine's place at the start barrier. Dropping it cancels the start of all machines.
#[derive(Debug)]
pub struct Seat {
    barrier: Arc<StartBarrier>,
    /// The machine has passed the barrier.
    passed: bool,
}

impl Seat {
    /// Creates a seat for each machine.
    #[must_use]
    pub fn for_all(machines: usize) -> Vec<Self> {
        let barrier = Arc::new(StartBarrier::new(machines));
        let seat = || Self {
            barrier: Arc::clone(&barrier),
            passed: false,
        };
        std::iter::repeat_with(seat).take(machines).collect()
    }

    /// Waits for all others, and returns second 0 on the client's clock.
    fn take(mut self, stop: &StopFlag) -> Result<u64> {
        let start = self.barrier.pass(stop)?;
        self.passed = true;
        Ok(start)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.passed {
            return;
        }
        let state = self.barrier.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).cancelled = true;
        self.barrier.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_machines_pass_the_barrier_together_or_none_does() {
        let stop = StopFlag::new();
        let begun = clock::now();
        let passed: Vec<u64> = std::thread::scope(|scope| {
            let waiting: Vec<_> = Seat::for_all(3)
                .into_iter()
                .map(|seat| scope.spawn(|| seat.take(&stop).unwrap()))
                .collect();
            waiting
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(
            passed[0] >= begun + AHEAD && passed.iter().all(|at| *at == passed[0]),
            "{passed:?}"
        );

        let mut seats = Seat::for_all(2);
        std::thread::scope(|scope| {
            let dropped = seats.pop();
            let waiting = seats.pop().unwrap();
            let waiting = scope.spawn(|| waiting.take(&stop));
            drop(dropped);
            assert!(matches!(waiting.join().unwrap(), Err(Error::NotTogether)));
        });

        let mut seats = Seat::for_all(2);
        stop.stop();
        let waiting = seats.pop().unwrap();
        assert!(matches!(waiting.take(&stop), Err(Error::NotBegun)));
    }

    #[test]
    fn second_0_is_converted_to_ticks_of_the_target() {
        let reading = Reading {
            tsc: 1000,
            unix_ns: 5_000_000_000,
            error_ns: 1,
        };
        assert_eq!(
            tsc_at(5_500_000_000, &reading, 3_000_000_000),
            1000 + 1_500_000_000
        );
        assert_eq!(tsc_at(1, &reading, 3_000_000_000), 1000);
    }
}
