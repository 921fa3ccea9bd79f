//! Recordings of instruments in the code cache that are followed while they grow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::Metadata;
use gilk_samples::recording::{Appended, GrowingRecording, Loss, Recording};

use super::announced::Announced;
use super::listener::{Listener, Listeners};
use crate::client::{CpuLosses, Event};
use crate::{Error, Result};

/// Interval at which samples are passed on that the recording has.
const FOLLOWED: Duration = Duration::from_millis(100);

/// The recording of a run's instruments, whose samples are passed on as they are written: those of instruments that it had
/// at its start. Others are of objects that were loaded later, which the totals up to now and the finished recording describe.
pub(super) struct FollowedRecording {
    listener: Listener,
    path: PathBuf,
    growing: GrowingRecording,
    /// The identifiers of instruments that are described.
    described: BTreeSet<u64>,
    next: Instant,
    sent: u64,
    losses: BTreeMap<u16, CpuLosses>,
    /// Hits without a stack that were reported.
    lost_stacks: u64,
}

/// Opens a recording up to now; nothing if it is removed already, since the end has the last totals.
fn up_to_now(live: &Path) -> Result<Option<Recording>> {
    match Recording::open(live) {
        Ok(recording) => Ok(Some(recording)),
        Err(_) if !live.exists() => Ok(None),
        Err(source) => Err(Error::Recording { source }),
    }
}

impl FollowedRecording {
    /// Opens the recording, and passes its metadata on.
    pub(super) fn begin(path: &Path, listener: Listener) -> Result<Self> {
        let growing = GrowingRecording::open(path);
        let growing = growing.map_err(|source| Error::Recording { source })?;
        let metadata = Box::new(growing.metadata().clone());
        let described = identifiers(&metadata);
        listener.send(Event::Described(metadata));
        Ok(Self {
            listener,
            path: path.to_path_buf(),
            growing,
            described,
            next: Instant::now() + FOLLOWED,
            sent: 0,
            losses: BTreeMap::new(),
            lost_stacks: 0,
        })
    }

    /// Passes on the totals up to now, and a description, if objects were loaded since the last one.
    pub(super) fn totals_up_to_now(&mut self) -> Result<()> {
        let live = self.path.with_added_extension("live");
        if let Some(recording) = up_to_now(&live)? {
            self.describe(&recording);
        }
        Ok(())
    }

    fn describe(&mut self, recording: &Recording) {
        let described = identifiers(recording.metadata());
        if described.len() > self.described.len() {
            self.described = described;
            let now = Box::new(recording.metadata().clone());
            self.listener.send(Event::Loaded(now));
        }
        let totals = recording.totals().clone();
        if !totals.stacks.is_empty() {
            let lost = std::mem::replace(&mut self.lost_stacks, totals.stacks.lost);
            self.listener.send(Event::Stacks(KeptStacks {
                lost: totals.stacks.lost.saturating_sub(lost),
                ..totals.stacks
            }));
        }
        if !totals.added_up.is_empty() {
            self.listener.send(Event::Aggregates(totals.added_up));
        }
    }

    /// Passes on what was written, after a while.
    pub(super) fn poll(&mut self) -> Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        self.end()?;
        self.next = Instant::now() + FOLLOWED;
        Ok(())
    }

    /// Passes on what was written; returns the number of all samples that were.
    pub(super) fn end(&mut self) -> Result<u64> {
        let appended = self.growing.read_on();
        let Appended { batches, losses } =
            appended.map_err(|source| Error::Recording { source })?;
        for mut batch in batches {
            batch
                .samples
                .retain(|sample| self.described.contains(&sample.id));
            if batch.samples.is_empty() {
                continue;
            }
            self.sent += batch.len() as u64;
            self.listener.send(Event::Samples(Arc::new(batch)));
        }
        if losses.is_empty() {
            return Ok(self.sent);
        }
        add_by_cpu(&mut self.losses, &losses);
        let losses = self.losses.values().copied().collect();
        self.listener.send(Event::Losses(losses));
        Ok(self.sent)
    }
}

/// The identifiers of the instruments that a recording describes.
fn identifiers(metadata: &Metadata) -> BTreeSet<u64> {
    metadata.instruments.iter().map(|one| one.id).collect()
}

/// The recordings of the processes of a run, each under its process.
pub(super) struct FollowedRecordings<'e> {
    listeners: Listeners<'e>,
    followed: BTreeMap<u32, FollowedRecording>,
    /// Samples of those that have ended.
    sent: u64,
}

impl<'e> FollowedRecordings<'e> {
    pub(super) fn new(listeners: Listeners<'e>) -> Self {
        Self {
            listeners,
            followed: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Follows a recording that has begun, or passes on the rest of one that has ended.
    pub(super) fn take(&mut self, announced: Announced) {
        match announced {
            Announced::Begun { number, name, file } => {
                let listener = self.listeners.named(number, name);
                match FollowedRecording::begin(&file, listener.clone()) {
                    Ok(followed) => {
                        self.followed.insert(number, followed);
                    }
                    // They are removed when all have ended.
                    Err(_) if !file.exists() => {}
                    Err(error) => shown_later(&listener, &error),
                }
            }
            Announced::Ended { number } => {
                let Some(mut followed) = self.followed.remove(&number) else {
                    return;
                };
                let whole = up_to_now(&followed.path);
                let ended = whole.and_then(|whole| {
                    if let Some(whole) = whole {
                        followed.describe(&whole);
                    }
                    followed.end()
                });
                match ended {
                    Ok(sent) => self.sent += sent,
                    Err(error) => shown_later(&followed.listener, &error),
                }
            }
        }
    }

    /// Passes on the totals up to now.
    pub(super) fn totals_up_to_now(&mut self) {
        self.each(FollowedRecording::totals_up_to_now);
    }

    /// Passes on what was written, after a while.
    pub(super) fn poll(&mut self) {
        self.each(FollowedRecording::poll);
    }

    /// Follows those no further that cannot be read.
    fn each(&mut self, read: impl Fn(&mut FollowedRecording) -> Result<()>) {
        let Self { followed, sent, .. } = self;
        followed.retain(|_, one| match read(one) {
            Ok(()) => true,
            Err(error) => {
                shown_later(&one.listener, &error);
                *sent += one.sent;
                false
            }
        });
    }

    /// Returns the number of samples that were passed on.
    pub(super) fn sent(&self) -> u64 {
        let followed = self.followed.values().map(|one| one.sent);
        self.sent + followed.sum::<u64>()
    }
}

/// Reports that a recording is not followed any more.
fn shown_later(listener: &Listener, error: &Error) {
    let why = format!("What a process measures is shown at the end: {error}");
    listener.send(Event::Workload(why));
}

/// Adds losses of rings by CPU.
pub(super) fn add_by_cpu(all: &mut BTreeMap<u16, CpuLosses>, losses: &[Loss]) {
    for &Loss {
        cpu, cause, count, ..
    } in losses
    {
        let losses = all.entry(cpu).or_insert_with(|| CpuLosses {
            cpu,
            ..CpuLosses::default()
        });
        losses.add(cause, count);
    }
}
