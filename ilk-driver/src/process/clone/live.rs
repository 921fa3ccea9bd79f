//! The recording of an execution in the cache up to now, while threads execute.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gilk_samples::recording::sidecar_path;
use gilk_samples::totals::Totals;

use super::live_instruments::{LiveInstruments, LiveRequest};
use super::moments::CountedMoments;
use super::progress::{CloneNews, POLLED, Progress};
use super::recording::{CacheRecorder, CountedSoFar};
use crate::process::names::ProcessNames;
use crate::{Error, Result};

/// Interval of the recordings, if writing one takes no longer than a quarter of it.
const EVERY: Duration = Duration::from_secs(1);
/// The pause after a recording is at least so many times as long as its writing, without the reading of objects that are
/// new in it.
const PAUSE: u32 = 4;

/// The file of a recording up to now.
pub(super) struct LiveFile<'f> {
    pub(super) path: &'f Path,
    /// It is not removed at the end.
    pub(super) stays: bool,
}

/// Writes the executions of blocks again and again until the execution has ended, and removes the recording then. Returns
/// its recorder, which has read the objects of the process, if the execution has begun.
pub(super) fn keep_blocks(
    pid: u32,
    file: &LiveFile<'_>,
    progress: &Progress,
    moments: &Mutex<CountedMoments>,
    news: &(dyn Fn(CloneNews<'_>) + Sync),
) -> Option<CacheRecorder> {
    let mut recorder = None;
    let mut names = ProcessNames::default();
    keep(file, progress, news, |part| {
        let (Some(begin), Some(counters)) = (progress.begin.get(), progress.counters.get()) else {
            return Ok(None);
        };
        let moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = moments.kept().to_vec();
        drop(moments);
        let counted = CountedSoFar {
            blocks: &counters.all(),
            moments: &kept,
            ticks: (begin.at.tsc, super::super::tsc()),
        };
        // After the counts, so that no block was executed in what was mapped since. Without the tables, the process has ended,
        // or executes another program.
        let is_inside = names.watch(pid)
            && names
                .mapped(pid)
                .iter()
                .any(|one| one.span.contains(begin.tables));
        if !is_inside {
            return Ok(None);
        }
        let recorder = recorder.get_or_insert_with(|| CacheRecorder::new(pid, *begin));
        let read = recorder.reading();
        recorder.write(part, &mut names, &counted, Totals::default())?;
        Ok(Some(recorder.reading() - read))
    });
    recorder
}

/// Writes the counts and totals of instruments again and again until the execution has ended, and removes the recording
/// then.
pub(super) fn keep_instruments(
    file: &LiveFile<'_>,
    (live, request): (&LiveInstruments<'_>, &LiveRequest),
    progress: &Progress,
    news: &(dyn Fn(CloneNews<'_>) + Sync),
) {
    keep(file, progress, news, |part| match request.take() {
        Some(now) => live.write(part, now).map(|()| Some(Duration::ZERO)),
        None => Ok(None),
    });
}

/// Has a recording written again and again until the execution has ended, and removes it then. `write` returns the time of
/// it that does not count, or nothing if there is nothing to record yet.
fn keep(
    &LiveFile { path, stays }: &LiveFile<'_>,
    progress: &Progress,
    news: &(dyn Fn(CloneNews<'_>) + Sync),
    write: impl FnMut(&Path) -> Result<Option<Duration>>,
) {
    let part = path.with_added_extension("part");
    let written = written((path, &part), progress, news, write);
    let (part_sidecar, live) = (sidecar_path(&part), (!stays).then_some(path));
    for file in [&*part, &*part_sidecar].into_iter().chain(live) {
        // There is none if the last was written whole.
        let _none = std::fs::remove_file(file);
    }
    if let Err(error) = written {
        news(CloneNews::NotRecorded(&error));
    }
}

/// The pause after a recording up to now, by the time that its writing took.
#[must_use]
pub fn pause(writing: Duration) -> Duration {
    EVERY.max(PAUSE * writing)
}

/// Gives a recording its name, in the place of another one. It has no sidecar: a reader could find that of the other one.
///
/// # Errors
/// [`Error::Io`] if the folder cannot be written.
pub fn replace(new: &Path, path: &Path) -> Result<()> {
    let hint = "Its folder must be writable.";
    let sidecar = sidecar_path(new);
    std::fs::remove_file(&sidecar).map_err(Error::io(&sidecar, hint))?;
    std::fs::rename(new, path).map_err(Error::io(path, hint))
}

fn written(
    (path, part): (&Path, &Path),
    progress: &Progress,
    news: &(dyn Fn(CloneNews<'_>) + Sync),
    mut write: impl FnMut(&Path) -> Result<Option<Duration>>,
) -> Result<()> {
    let mut next = Instant::now();
    while !progress.has_ended() {
        std::thread::sleep(POLLED);
        let begun = Instant::now();
        if begun < next {
            continue;
        }
        let Some(apart) = write(part)? else {
            continue;
        };
        replace(part, path)?;
        news(CloneNews::Recorded(path));
        let writing = begun.elapsed().saturating_sub(apart);
        next = Instant::now() + pause(writing);
    }
    Ok(())
}
