//! How a session is held on to: what came is told to be safe once it is, and a connection that breaks is
//! made anew as long as the session's grace lasts.
//!
//! Safe is what the recording's file has, with a note beside it ([`mod@super::resume`]) that says how much
//! that is: so whoever comes after this process can go on from there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::wire::{Wire, unguessable};
use crate::protocol::{Message, Request};
use crate::{Error, Result};

/// Messages, and time, after which a note is due: the agent keeps what came since the last.
const MANY: u64 = 64;
const OFTEN: Duration = Duration::from_millis(500);
/// Notes may take this share of the time.
const SHARE: u32 = 20;
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(100);
/// How long an agent may take to answer a client that is back.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was written, told by the thread that writes.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// So many messages are safe.
    pub(super) safe: AtomicU64,
    /// How long the last note took, in microseconds.
    pub(super) cost: AtomicU64,
}

/// One session's.
pub(super) struct Hold {
    pub(super) token: u64,
    pub(super) grace: Duration,
    /// Messages of the session that came.
    pub(super) taken: u64,
    /// How many of them the last note is about.
    noted: u64,
    when: Instant,
    told: u64,
    pub(super) written: Arc<Written>,
}

impl Hold {
    pub(super) fn new(grace: f64) -> Self {
        Self::from(unguessable(), Duration::from_secs_f64(grace), 0)
    }

    /// Goes on where another one was: `taken` messages are safe.
    pub(super) fn from(token: u64, grace: Duration, taken: u64) -> Self {
        let written = Written::default();
        written.safe.store(taken, Ordering::Release);
        Self {
            token,
            grace,
            taken,
            noted: taken,
            when: Instant::now(),
            told: taken,
            written: Arc::new(written),
        }
    }

    /// A message was taken in.
    pub(super) fn took(&mut self, message: &Message) {
        self.taken += u64::from(message.is_of_session());
    }

    /// Whether a note is to be made of how far it has come; if so, it is taken for made.
    pub(super) fn is_due(&mut self) -> bool {
        let passed = self.when.elapsed();
        let cost = Duration::from_micros(self.written.cost.load(Ordering::Acquire));
        let due = !self.grace.is_zero()
            && self.written.safe.load(Ordering::Acquire) == self.noted
            && passed >= cost * SHARE
            && self.taken > self.noted
            && (self.noted == 0 || self.taken - self.noted >= MANY || passed >= OFTEN);
        if due {
            (self.noted, self.when) = (self.taken, Instant::now());
        }
        due
    }

    /// Tells the agent what is safe, so that it need not keep it.
    pub(super) fn confirm(&mut self, wire: &mut Wire) {
        let safe = self.written.safe.load(Ordering::Acquire);
        if safe > self.told {
            self.told = safe;
            // If it is lost, so is the connection, which is found out next.
            let _lost = wire.send(&Request::Taken(safe));
        }
    }

    /// Everything is safe: the recording is finished.
    pub(super) fn finish(&mut self, wire: &mut Wire) {
        self.written.safe.store(self.taken, Ordering::Release);
        if !self.grace.is_zero() {
            self.confirm(wire);
        }
    }

    /// Finds the session again over a new connection.
    ///
    /// # Errors
    /// What had gone wrong, if it is no connection that broke, or cannot be had again in time.
    pub(super) fn regain(&mut self, wire: &mut Wire, lost: Error) -> Result<()> {
        if self.grace.is_zero() || !matches!(lost, Error::Lost { .. }) {
            return Err(lost);
        }
        let until = Instant::now() + self.grace;
        while Instant::now() < until {
            match wire.reopen(PATIENCE).and_then(|()| self.resume(wire)) {
                Ok(()) => return Ok(()),
                // It is over there.
                Err(Error::Refused(_)) => return Err(lost),
                // Nobody is there for now, or the agent has not noticed yet that we were lost.
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
        Err(lost)
    }

    /// Finds the session of a process that is gone.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is over; why nobody could be reached, if not in time.
    pub(super) fn find(&mut self, socket: &std::path::Path) -> Result<Wire> {
        let until = Instant::now() + self.grace;
        loop {
            let found = Wire::open(socket, PATIENCE, true)
                .and_then(|mut wire| self.resume(&mut wire).map(|()| wire));
            match found {
                Err(error) if !matches!(error, Error::Refused(_)) && Instant::now() < until => {
                    std::thread::sleep(AGAIN);
                }
                found => return found,
            }
        }
    }

    /// Names the session, and what is there of it already.
    fn resume(&self, wire: &mut Wire) -> Result<()> {
        wire.ask(
            &Request::Resume {
                token: self.token,
                taken: self.taken,
            },
            "while the session was resumed",
        )
    }
}
