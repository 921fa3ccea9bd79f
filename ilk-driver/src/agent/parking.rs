//! A session whose client was lost, for as long as its grace lasts.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::served::Served;
use super::stream::Stream;
use crate::protocol::{Refusal, RefusalKind};

/// Where there is room for one.
#[derive(Default)]
pub(super) struct Parking {
    place: Mutex<Option<Parked>>,
    changed: Condvar,
}

struct Parked {
    served: Served,
    until: Instant,
}

impl Parking {
    /// Keeps the session of a lost client, if it has a grace, and takes everything out when that is
    /// over. Without one it is over now.
    pub(super) fn park(self: &Arc<Self>, served: Option<Served>) {
        let Some(mut served) = served else {
            return;
        };
        if !served.detach() {
            return;
        }
        let until = Instant::now() + served.grace();
        *self.lock() = Some(Parked { served, until });
        let own = Arc::clone(self);
        let watch = std::thread::Builder::new()
            .name(String::from("grace"))
            .spawn(move || own.watch());
        if watch.is_err() {
            drop(self.lock().take());
        }
    }

    /// Ends what is parked in its time.
    fn watch(&self) {
        let mut place = self.lock();
        while let Some(parked) = &*place {
            let left = parked.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let parked = place.take();
                // Taking everything out may last, and nobody is to wait for the lock meanwhile.
                drop(place);
                drop(parked);
                return;
            }
            let waited = self.changed.wait_timeout(place, left);
            place = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives a client that comes back the session that it means, in place of the new one. One that it
    /// does not mean stays.
    pub(super) fn resume(
        &self,
        new: Served,
        stream: &Arc<Stream>,
        token: u64,
        taken: u64,
    ) -> std::io::Result<Served> {
        let mut place = self.lock();
        let meant = |parked: &mut Parked| parked.served.continues(token, taken);
        let Some(Parked { mut served, .. }) = place.take_if(meant) else {
            drop(place);
            new.refuse(Refusal::new(
                RefusalKind::Request,
                "The session is over, and what it had collected is gone; its grace was too short.",
            ));
            return Ok(new);
        };
        drop(place);
        self.changed.notify_all();
        new.leave();
        served.attach(Arc::clone(stream), taken)?;
        Ok(served)
    }

    /// Why nobody else can be served just now.
    pub(super) fn occupied(&self) -> Option<Refusal> {
        let place = self.lock();
        let left = place
            .as_ref()?
            .until
            .saturating_duration_since(Instant::now());
        Some(Refusal::new(
            RefusalKind::Busy,
            format!(
                "a session whose client was lost goes on for {} s more",
                left.as_secs() + 1
            ),
        ))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Parked>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long nobody must be at a port before its client counts as gone. The news that a client has
/// come travels beside the data, and may arrive after the client's first words.
pub(super) const ALONE: Duration = Duration::from_millis(200);
