//! Sessions whose client was lost, kept for their grace.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection::ClientConnection;
use super::stream::Stream;
use super::sys::Peer;
use crate::protocol::{Refusal, RefusalKind};

/// A place for at most one such session.
#[derive(Default)]
pub(super) struct Parking {
    parked: Mutex<Option<Parked>>,
    changed: Condvar,
}

struct Parked {
    connection: ClientConnection,
    until: Instant,
}

impl Parking {
    /// Keeps the session of a lost client for its grace, then removes its splices. A session
    /// without a grace ends now.
    pub(super) fn park(self: &Arc<Self>, connection: Option<ClientConnection>) {
        let Some(mut connection) = connection else {
            return;
        };
        if !connection.detach() {
            return;
        }
        let until = Instant::now() + connection.grace();
        *self.lock() = Some(Parked { connection, until });
        let parking = Arc::clone(self);
        let watch = std::thread::Builder::new()
            .name(String::from("grace"))
            .spawn(move || parking.watch());
        if watch.is_err() {
            drop(self.lock().take());
        }
    }

    /// Ends the parked session when its grace is over.
    fn watch(&self) {
        let mut slot = self.lock();
        while let Some(parked) = &*slot {
            let remaining = parked.until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                // Until the splices are removed the device is held: other clients wait for the lock.
                drop(slot.take());
                return;
            }
            let waited = self.changed.wait_timeout(slot, remaining);
            slot = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Exchanges the new connection of a returned client for the parked one with its session. A
    /// session with another token stays parked.
    pub(super) fn resume(
        &self,
        new: ClientConnection,
        stream: &Arc<Stream>,
        token: u64,
        confirmed: u64,
    ) -> std::io::Result<ClientConnection> {
        let mut slot = self.lock();
        let matches = |parked: &mut Parked| parked.connection.can_resume(token, confirmed);
        let Some(Parked { mut connection, .. }) = slot.take_if(matches) else {
            drop(slot);
            new.refuse(Refusal::new(
                RefusalKind::Request,
                "The session is over, and the samples that it kept were discarded; its grace was too short.",
            ));
            return Ok(new);
        };
        drop(slot);
        self.changed.notify_all();
        new.leave();
        connection.attach(Arc::clone(stream), confirmed)?;
        Ok(connection)
    }

    /// Ends the parked session, if its user or root requests it.
    pub(super) fn end(&self, by: Option<Peer>) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal::new(RefusalKind::Request, text));
        let mut slot = self.lock();
        let Some(parked) = &*slot else {
            return refuse(String::from(
                "No session without a client continues here; there is nothing to end.",
            ));
        };
        let owner = parked.connection.peer();
        // At a port both are unknown: the machine that emulates it owns this one.
        if by.is_some_and(|by| by.user != 0 && Some(by.user) != owner.map(|owner| owner.user)) {
            let user =
                owner.map_or_else(|| String::from("another"), |owner| owner.user.to_string());
            return refuse(format!(
                "The session belongs to user {user}; only that user and root may end it."
            ));
        }
        // Until the splices are removed the device is held: other clients wait for the lock.
        drop(slot.take());
        drop(slot);
        self.changed.notify_all();
        Ok(())
    }

    /// Returns the seconds for which a parked session continues.
    pub(super) fn remaining(&self) -> Option<u64> {
        let slot = self.lock();
        let until = slot.as_ref()?.until;
        Some(until.saturating_duration_since(Instant::now()).as_secs() + 1)
    }

    /// Returns a refusal for other clients while a session is parked.
    pub(super) fn occupied(&self) -> Option<Refusal> {
        let seconds = self.remaining()?;
        Some(Refusal::new(
            RefusalKind::Busy,
            format!(
                "a session whose client was lost continues for {seconds} s; `ilk resume` continues \
                 its recording, and `ilk stop` ends it"
            ),
        ))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Parked>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time after which a disconnected port means that the client is gone. A port's notification of a
/// new client travels separately from its data, and may arrive after the first bytes.
pub(super) const DISCONNECT_DELAY: Duration = Duration::from_millis(200);
