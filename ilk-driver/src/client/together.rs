//! One session on several machines, begun at the same moment.
//!
//! Each machine is loaded, and its clock read, by a thread of its own. When all are ready, second 0
//! is set a little ahead on our clock, and each agent is told it in ticks of its own: so they begin
//! together as exactly as clocks could be read, however long the ways are.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;
use gilk_engine::{Session, VerifiedPlan};
use gilk_samples::clocks::Reading;

use super::event::{Event, StopFlag, Summary};
use super::{Connection, clock};
use crate::{Error, Result};

/// How far ahead second 0 is set, in nanoseconds: longer than any message is under way.
const AHEAD: u64 = 500_000_000;
/// How often whoever waits looks whether the session was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// A machine that takes part.
pub struct Machine<'a> {
    /// The way to it.
    pub connection: &'a mut Connection,
    /// The session, planned for its kernel.
    pub plan: &'a VerifiedPlan,
    /// Where its samples are recorded.
    pub recording: PathBuf,
    /// What is told of it.
    pub events: Sender<Event>,
}

/// Runs a session on all of these machines, with one second 0. Blocks until it has ended on each, or
/// `stop` is set. If one cannot begin, none does; one that is lost later does not end the others.
///
/// The results are in the order of the machines, and as those of [`Connection::run`];
/// [`Error::NotTogether`] for a machine that had to stay behind because of another.
pub fn together(
    machines: Vec<Machine<'_>>,
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
        let broken = |_| Err(Error::NotTogether);
        let joined = threads.into_iter();
        joined
            .map(|thread| thread.join().unwrap_or_else(broken))
            .collect()
    })
}

fn run(machine: Machine<'_>, session: &Session, stop: &StopFlag, seat: Seat) -> Result<Summary> {
    let Machine {
        connection,
        plan,
        recording,
        events,
    } = machine;
    connection.run_together(plan, session, &recording, &events, stop, seat)
}

impl Connection {
    /// Runs a session as [`run`](Self::run) does, beginning when everybody is ready who has a seat at the
    /// same table; for machines whose connections belong to threads of their own.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`Error::NotTogether`] if another's seat was left before all were ready.
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

/// What the target's TSC will show when our clock is at `unix_ns`.
fn tsc_at(unix_ns: u64, reading: &Reading, hz: u64) -> u64 {
    let ahead = u128::from(unix_ns.saturating_sub(reading.unix_ns));
    let ticks = ahead * u128::from(hz) / 1_000_000_000;
    reading
        .tsc
        .saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
}

/// Where machines wait for each other.
#[derive(Debug)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    missing: usize,
    gone: bool,
    /// Second 0 on our clock, once it is known.
    start: u64,
}

impl Gate {
    fn new(machines: usize) -> Self {
        Self {
            state: Mutex::new(State {
                missing: machines,
                gone: false,
                start: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits for all others, and tells second 0.
    fn pass(&self, stop: &StopFlag) -> Result<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            state.start = clock::now().saturating_add(AHEAD);
            self.changed.notify_all();
        }
        loop {
            if state.gone {
                return Err(Error::NotTogether);
            }
            if state.missing == 0 {
                return Ok(state.start);
            }
            if stop.is_stopped() {
                return Err(Error::NotBegun);
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// One machine's place among those that begin together. The others wait for it; dropping it tells them
/// not to, and none begins.
#[derive(Debug)]
pub struct Seat {
    gate: Arc<Gate>,
    /// Whether it is no longer missed by the others.
    taken: bool,
}

impl Seat {
    /// As many as there are machines.
    #[must_use]
    pub fn for_all(machines: usize) -> Vec<Self> {
        let gate = Arc::new(Gate::new(machines));
        let seat = || Self {
            gate: Arc::clone(&gate),
            taken: false,
        };
        std::iter::repeat_with(seat).take(machines).collect()
    }

    /// Waits for all others, and tells second 0 on our clock.
    fn take(mut self, stop: &StopFlag) -> Result<u64> {
        let start = self.gate.pass(stop)?;
        self.taken = true;
        Ok(start)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let state = self.gate.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).gone = true;
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pass_at_once_or_none_does() {
        let stop = StopFlag::new();
        let passed: Vec<u64> = std::thread::scope(|scope| {
            let waiting: Vec<_> = Seat::for_all(3)
                .into_iter()
                .map(|seat| scope.spawn(|| seat.take(&stop).unwrap()))
                .collect();
            waiting.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(
            passed[0] > clock::now() && passed.iter().all(|at| *at == passed[0]),
            "{passed:?}"
        );

        let mut seats = Seat::for_all(2);
        std::thread::scope(|scope| {
            let left = seats.pop();
            let waiting = seats.pop().unwrap();
            let waiting = scope.spawn(|| waiting.take(&stop));
            drop(left);
            assert!(matches!(waiting.join().unwrap(), Err(Error::NotTogether)));
        });

        let mut seats = Seat::for_all(2);
        stop.stop();
        let waiting = seats.pop().unwrap();
        assert!(matches!(waiting.take(&stop), Err(Error::NotBegun)));
    }

    #[test]
    fn second_0_is_told_in_ticks_of_the_target() {
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
