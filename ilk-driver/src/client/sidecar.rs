//! The sidecar of a recording, from which another process can resume the session.
//!
//! A session with a grace has a file `<recording>.resume` next to its recording: the session's
//! token, the number of messages contained in the recording's first so many bytes, and the totals
//! up to there. Each sidecar replaces its predecessor atomically, so recording and sidecar are
//! consistent whenever the process ends. The agent keeps all later messages.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gilk_samples::collector::Collector;
use serde::{Deserialize, Serialize};

use super::lease::{Lease, StoredProgress};
use super::tally::{Outline, Tally};
use crate::{Error, Result};

/// First bytes of a sidecar, with the version of its format.
const MAGIC: &[u8; 8] = b"GILKRES2";

/// The constant part of a session's sidecars.
#[derive(Serialize, Deserialize)]
pub(super) struct SidecarHeader {
    pub(super) socket: PathBuf,
    pub(super) token: u64,
    pub(super) grace: Duration,
    pub(super) outline: Outline,
}

/// The progress of a session.
#[derive(Serialize, Deserialize)]
pub(super) struct SidecarState {
    pub(super) received: u64,
    pub(super) tally: Tally,
}

/// Writes sidecars. Dropping it removes the last one.
pub(super) struct SidecarWriter {
    path: PathBuf,
    header: Arc<Vec<u8>>,
}

impl SidecarWriter {
    /// Creates a writer for a session with a grace; returns `None` for one without.
    pub(super) fn new(
        recording: &Path,
        socket: &Path,
        lease: &Lease,
        outline: &Outline,
    ) -> Result<Option<Self>> {
        let path = path_of(recording);
        if lease.grace.is_zero() {
            // A sidecar of an earlier session does not fit this recording.
            let _none = fs::remove_file(path);
            return Ok(None);
        }
        let header = encode(&SidecarHeader {
            socket: socket.to_owned(),
            token: lease.token,
            grace: lease.grace,
            outline: outline.clone(),
        })?;
        Ok(Some(Self {
            path,
            header: Arc::new(header),
        }))
    }

    /// Schedules a sidecar for when all data passed to the recording so far are written.
    pub(super) fn write_after(
        &self,
        lease: &Lease,
        tally: &Tally,
        collector: &Collector,
    ) -> Result<()> {
        let received = lease.received;
        let state = encode(&SidecarState {
            received,
            tally: tally.clone(),
        })?;
        let (path, header) = (self.path.clone(), Arc::clone(&self.header));
        let stored = Arc::clone(&lease.stored);
        collector.when_written(move |bytes| {
            let begun = Instant::now();
            write(&path, &header, bytes, &state)
                .map_err(|error| gilk_samples::Error::io(&path, error))?;
            record_cost(&stored, begun.elapsed());
            stored.messages.store(received, Ordering::Release);
            Ok(())
        });
        Ok(())
    }
}

impl Drop for SidecarWriter {
    fn drop(&mut self) {
        // A session that has ended cannot be resumed.
        let _best_effort = fs::remove_file(&self.path);
    }
}

fn record_cost(stored: &StoredProgress, cost: Duration) {
    let cost = u64::try_from(cost.as_micros()).unwrap_or(u64::MAX);
    stored.cost_us.store(cost, Ordering::Release);
}

fn path_of(recording: &Path) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(".resume");
    PathBuf::from(name)
}

fn encode<T: Serialize>(part: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(part).map_err(|error| Error::Protocol {
        what: format!("data that cannot be saved for a resumption ({error})"),
    })
}

fn write(path: &Path, header: &[u8], bytes: u64, state: &[u8]) -> std::io::Result<()> {
    let part = path.with_extension("resume-part");
    fs::write(
        &part,
        [MAGIC.as_slice(), &bytes.to_le_bytes(), header, state].concat(),
    )?;
    fs::rename(part, path)
}

/// Reads the sidecar of a recording: the number of bytes of the recording that it covers, the
/// header, and the state.
pub(super) fn read(recording: &Path) -> Result<(u64, SidecarHeader, SidecarState)> {
    let path = path_of(recording);
    let nothing = |reason: &str| Error::NothingToResume {
        path: recording.to_owned(),
        reason: reason.to_owned(),
    };
    let text = fs::read(&path).map_err(|error| nothing(&format!("{}: {error}", path.display())))?;
    let decode = || {
        let (bytes, rest) = text.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
        let (header, rest) = postcard::take_from_bytes(rest).ok()?;
        Some((
            u64::from_le_bytes(*bytes),
            header,
            postcard::from_bytes(rest).ok()?,
        ))
    };
    decode().ok_or_else(|| nothing(&format!("{} is not of this version", path.display())))
}
