//! A session whose client's process is gone, and another one that goes on with it.
//!
//! Beside the recording of a session with a grace stands a note, `<recording>.resume`: which session it is,
//! how many of its messages the recording has in its first so many bytes, and what was counted until
//! then. Each takes the place of the one before at once, so whenever the process ends, the two
//! fit together. The agent keeps what came later.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gilk_samples::collector::Collector;
use gilk_samples::recording::{Recording, Writer};
use serde::{Deserialize, Serialize};

use super::event::{Event, StopFlag, Summary};
use super::hold::{Hold, Written};
use super::outlet::Outlet;
use super::run::{Names, Run};
use super::tally::{Outline, Tally};
use crate::{Error, Result};

/// What the file begins with; the number is the version of what follows.
const MAGIC: &[u8; 8] = b"GILKRES1";

/// What does not change.
#[derive(Serialize, Deserialize)]
struct Known {
    socket: PathBuf,
    token: u64,
    grace: Duration,
    outline: Outline,
}

/// What does, beside the recording's bytes.
#[derive(Serialize, Deserialize)]
struct State {
    taken: u64,
    tally: Tally,
}

/// Writes notes. The last goes with it.
pub(super) struct Keeper {
    path: PathBuf,
    known: Arc<Vec<u8>>,
}

impl Keeper {
    /// Of a session with a grace.
    pub(super) fn new(
        recording: &Path,
        socket: &Path,
        hold: &Hold,
        outline: &Outline,
    ) -> Result<Option<Self>> {
        let path = note_of(recording);
        if hold.grace.is_zero() {
            // One that an earlier session has left would lead astray.
            let _none = fs::remove_file(path);
            return Ok(None);
        }
        let known = encoded(&Known {
            socket: socket.to_owned(),
            token: hold.token,
            grace: hold.grace,
            outline: outline.clone(),
        })?;
        Ok(Some(Self {
            path,
            known: Arc::new(known),
        }))
    }

    /// Has a note made when all that was handed to the recording is written.
    pub(super) fn note(&self, hold: &Hold, tally: &Tally, collector: &Collector) -> Result<()> {
        let taken = hold.taken;
        let state = encoded(&State {
            taken,
            tally: tally.clone(),
        })?;
        let (path, known) = (self.path.clone(), Arc::clone(&self.known));
        let written = Arc::clone(&hold.written);
        collector.when_written(move |bytes| {
            let begun = Instant::now();
            write(&path, &known, bytes, &state)
                .map_err(|error| gilk_samples::Error::io(&path, error))?;
            note_cost(&written, begun.elapsed());
            written.safe.store(taken, Ordering::Release);
            Ok(())
        });
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Nothing is to be gone on with.
        let _left = fs::remove_file(&self.path);
    }
}

fn note_cost(written: &Written, cost: Duration) {
    let cost = u64::try_from(cost.as_micros()).unwrap_or(u64::MAX);
    written.cost.store(cost, Ordering::Release);
}

fn note_of(recording: &Path) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(".resume");
    PathBuf::from(name)
}

fn encoded<T: Serialize>(what: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(what).map_err(|error| Error::Protocol {
        what: format!("something that cannot be noted ({error})"),
    })
}

fn write(path: &Path, known: &[u8], bytes: u64, state: &[u8]) -> std::io::Result<()> {
    let part = path.with_extension("resume-part");
    fs::write(
        &part,
        [MAGIC.as_slice(), &bytes.to_le_bytes(), known, state].concat(),
    )?;
    fs::rename(part, path)
}

fn read(recording: &Path) -> Result<(u64, Known, State)> {
    let path = note_of(recording);
    let nothing = |reason: &str| Error::NothingToResume {
        path: recording.to_owned(),
        reason: reason.to_owned(),
    };
    let text = fs::read(&path).map_err(|error| nothing(&format!("{}: {error}", path.display())))?;
    let decode = || {
        let (bytes, rest) = text.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
        let (known, rest) = postcard::take_from_bytes(rest).ok()?;
        Some((
            u64::from_le_bytes(*bytes),
            known,
            postcard::from_bytes(rest).ok()?,
        ))
    };
    decode().ok_or_else(|| nothing(&format!("{} is not one of this version", path.display())))
}

/// Goes on with a session whose client's process has ended in the midst of it, killed for instance: finds it at
/// its agent, and completes `recording`. Everything is as with
/// [`Connection::run`](super::Connection::run), which had begun it.
///
/// `socket` is the agent's, if it is not the one that it was.
///
/// # Errors
/// [`Error::NothingToResume`] if the session had no grace or was over; [`Error::Refused`] if its grace
/// is over; and as for `run`.
pub fn resume(
    recording: &Path,
    socket: Option<&Path>,
    events: &Sender<Event>,
    stop: &StopFlag,
) -> Result<Summary> {
    let (bytes, known, state) = read(recording)?;
    let socket = socket.unwrap_or(&known.socket);
    let mut hold = Hold::from(known.token, known.grace, state.taken);
    let mut wire = hold.find(socket)?;
    let metadata = Recording::open(recording)?.metadata().clone();
    let collector = Collector::start(Writer::resume(recording, bytes)?)?;
    let keeper = Keeper::new(recording, socket, &hold, &known.outline)?;
    let _nobody_listens = events.send(Event::Started(state.tally.clock));
    let named = metadata.instruments.into_iter();
    let run = Run {
        tally: state.tally,
        outline: known.outline,
        names: Names::Kept(named.map(|one| (one.id, one.label)).collect()),
        collector: Some(collector),
        trouble: None,
        outlet: Outlet::new(events),
        hold,
        keeper,
    };
    run.carry_out(&mut wire, stop)
}
