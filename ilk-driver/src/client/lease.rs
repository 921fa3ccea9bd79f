//! The lease on a session: confirms stored messages to the agent, and reconnects a broken
//! connection within the session's grace.
//!
//! A message is stored when it is in the recording's file and the sidecar next to it
//! ([`mod@super::sidecar`]) counts it, so that a later process can resume after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::wire::{Wire, random_number};
use crate::protocol::{Message, Request};
use crate::{Error, Result};

/// Number of messages, and time, after which a sidecar is due: the agent keeps the messages since
/// the last one.
const SIDECAR_MESSAGES: u64 = 64;
const SIDECAR_INTERVAL: Duration = Duration::from_millis(500);
/// Sidecars may take one part in so many of the time.
const SIDECAR_SHARE: u32 = 20;
/// Interval of attempts to reconnect.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for an agent to answer a reconnecting client.
const PATIENCE: Duration = Duration::from_secs(5);

/// The progress of the thread that writes the recording and its sidecar.
#[derive(Debug, Default)]
pub(super) struct StoredProgress {
    /// Number of stored messages.
    pub(super) messages: AtomicU64,
    /// Duration of the last write of a sidecar, in microseconds.
    pub(super) cost_us: AtomicU64,
}

/// The client's hold on a running session.
pub(super) struct Lease {
    pub(super) token: u64,
    pub(super) grace: Duration,
    /// Number of received messages of the session.
    pub(super) received: u64,
    /// Number of messages counted by the last sidecar, and the time of that sidecar.
    noted: u64,
    noted_at: Instant,
    /// Number of messages confirmed to the agent.
    confirmed: u64,
    pub(super) stored: Arc<StoredProgress>,
}

impl Lease {
    pub(super) fn new(grace: f64) -> Self {
        Self::from(random_number(), Duration::from_secs_f64(grace), 0)
    }

    /// Takes over another client's session, of which `received` messages are stored.
    pub(super) fn from(token: u64, grace: Duration, received: u64) -> Self {
        let stored = StoredProgress::default();
        stored.messages.store(received, Ordering::Release);
        Self {
            token,
            grace,
            received,
            noted: received,
            noted_at: Instant::now(),
            confirmed: received,
            stored: Arc::new(stored),
        }
    }

    /// Counts a received message.
    pub(super) fn count(&mut self, message: &Message) {
        self.received += u64::from(message.is_of_session());
    }

    /// Returns whether a sidecar is due; if so, it counts as written.
    pub(super) fn is_sidecar_due(&mut self) -> bool {
        let passed = self.noted_at.elapsed();
        let cost = Duration::from_micros(self.stored.cost_us.load(Ordering::Acquire));
        let due = !self.grace.is_zero()
            && self.stored.messages.load(Ordering::Acquire) == self.noted
            && passed >= cost * SIDECAR_SHARE
            && self.received > self.noted
            && (self.noted == 0
                || self.received - self.noted >= SIDECAR_MESSAGES
                || passed >= SIDECAR_INTERVAL);
        if due {
            (self.noted, self.noted_at) = (self.received, Instant::now());
        }
        due
    }

    /// Confirms stored messages to the agent, which then drops them.
    pub(super) fn confirm(&mut self, wire: &mut Wire) {
        let stored = self.stored.messages.load(Ordering::Acquire);
        if stored > self.confirmed {
            self.confirmed = stored;
            // A failure means that the connection is lost, which the next read reports.
            let _lost = wire.send(&Request::Confirm(stored));
        }
    }

    /// Confirms everything: the recording is finished.
    pub(super) fn finish(&mut self, wire: &mut Wire) {
        self.stored.messages.store(self.received, Ordering::Release);
        if !self.grace.is_zero() {
            self.confirm(wire);
        }
    }

    /// Reconnects to the session after a failure.
    ///
    /// # Errors
    /// The failure `lost` if it is not a broken connection, or if no reconnection succeeds in time.
    pub(super) fn regain(&mut self, wire: &mut Wire, lost: Error) -> Result<()> {
        if self.grace.is_zero() || !matches!(lost, Error::Lost { .. }) {
            return Err(lost);
        }
        let until = Instant::now() + self.grace;
        while Instant::now() < until {
            match wire.reopen(PATIENCE).and_then(|()| self.resume(wire)) {
                Ok(()) => return Ok(()),
                // The session is over.
                Err(Error::Refused(_)) => return Err(lost),
                // No agent listens yet, or it has not detected the loss of this client.
                Err(_) => std::thread::sleep(RETRY_INTERVAL),
            }
        }
        Err(lost)
    }

    /// Connects to the session of an earlier process.
    ///
    /// # Errors
    /// [`Error::Refused`] if the session is over; otherwise the last failure to connect in time.
    pub(super) fn find(&mut self, socket: &std::path::Path) -> Result<Wire> {
        let until = Instant::now() + self.grace;
        loop {
            let opened = Wire::open(socket, PATIENCE, true)
                .and_then(|mut wire| self.resume(&mut wire).map(|()| wire));
            match opened {
                Err(error) if !matches!(error, Error::Refused(_)) && Instant::now() < until => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                opened => return opened,
            }
        }
    }

    /// Resumes the session after the messages that were received.
    fn resume(&self, wire: &mut Wire) -> Result<()> {
        wire.request(
            &Request::Resume {
                token: self.token,
                confirmed: self.received,
            },
            "while the session was resumed",
        )
    }
}
