//! One session on several machines, begun at the same moment.
//!
//! Each machine is loaded, and its clock read, by a thread of its own. When all are ready, second 0
//! is set a little ahead on our clock, and each agent is told it in ticks of its own: so they begin
//! together as exactly as clocks could be read, however long the ways are.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
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
    let gate = Gate::new(machines.len());
    std::thread::scope(|scope| {
        let gate = &gate;
        let threads: Vec<_> = machines
            .into_iter()
            .map(|machine| scope.spawn(move || run(machine, session, stop, gate)))
            .collect();
        let broken = |_| Err(Error::NotTogether);
        let joined = threads.into_iter();
        joined
            .map(|thread| thread.join().unwrap_or_else(broken))
            .collect()
    })
}

fn run(machine: Machine<'_>, session: &Session, stop: &StopFlag, gate: &Gate) -> Result<Summary> {
    let Machine {
        connection,
        plan,
        recording,
        events,
    } = machine;
    let hz = connection.info().tsc_hz;
    let place = Place(gate);
    connection.run_when(plan, session, &recording, &events, stop, |reading| {
        let start = gate.pass(stop)?;
        // From here on it is no longer missed by the others.
        std::mem::forget(place);
        Ok(Some(tsc_at(start, reading, hz)))
    })
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
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

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

/// A machine that the others wait for. Dropping it tells them not to.
struct Place<'a>(&'a Gate);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.gone = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pass_at_once_or_none_does() {
        let (gate, stop) = (Gate::new(3), StopFlag::new());
        let passed: Vec<u64> = std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| gate.pass(&stop).unwrap()))
                .collect();
            waiting.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(
            passed[0] > clock::now() && passed.iter().all(|at| *at == passed[0]),
            "{passed:?}"
        );

        let gate = Gate::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass(&stop));
            drop(Place(&gate));
            assert!(matches!(waiting.join().unwrap(), Err(Error::NotTogether)));
        });

        let gate = Gate::new(2);
        stop.stop();
        assert!(matches!(gate.pass(&stop), Err(Error::NotBegun)));
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
