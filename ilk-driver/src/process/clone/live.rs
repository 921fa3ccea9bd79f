//! The recording of an execution in the cache up to now, while threads execute.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gilk_samples::recording::sidecar_path;
use gilk_samples::totals::Totals;

use super::POLLED;
use super::moments::CountedMoments;
use super::progress::{CloneNews, Progress};
use super::recording::{CacheRecorder, CountedSoFar};
use crate::process::names::ProcessNames;
use crate::{Error, Result};

/// Interval of the recordings, if writing one takes no longer than a quarter of it.
const EVERY: Duration = Duration::from_secs(1);
/// The pause after a recording is at least so many times as long as its writing, without the reading of objects that are
/// new in it.
const PAUSE: u32 = 4;

/// Writes the recording again and again until the execution has ended, and removes it then. Returns its recorder, which
/// has read the objects of the process, if the execution has begun.
pub(super) fn keep(
    pid: u32,
    path: &Path,
    progress: &Progress,
    moments: &Mutex<CountedMoments>,
    news: &(dyn Fn(CloneNews<'_>) + Sync),
) -> Option<CacheRecorder> {
    let mut recorder = None;
    let part = path.with_added_extension("part");
    let written = written(&mut recorder, pid, (path, &part), progress, moments, news);
    for file in [path, &part] {
        for file in [file, &sidecar_path(file)] {
            // There is none if the first was not written, or the last was written whole.
            let _none = std::fs::remove_file(file);
        }
    }
    if let Err(error) = written {
        news(CloneNews::NotRecorded(&error));
    }
    recorder
}

fn written(
    recorder: &mut Option<CacheRecorder>,
    pid: u32,
    (path, part): (&Path, &Path),
    progress: &Progress,
    moments: &Mutex<CountedMoments>,
    news: &(dyn Fn(CloneNews<'_>) + Sync),
) -> Result<()> {
    let mut names = ProcessNames::default();
    let mut next = Instant::now();
    while !progress.has_ended() {
        std::thread::sleep(POLLED);
        let (Some(begin), Some(counters)) = (progress.begin.get(), progress.counters.get()) else {
            continue;
        };
        let begun = Instant::now();
        if begun < next {
            continue;
        }
        let moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = moments.kept().to_vec();
        drop(moments);
        let counted = CountedSoFar {
            blocks: &counters.all(),
            moments: &kept,
            ticks: (begin.at.tsc, super::super::tsc()),
        };
        // After the counts, so that no block was executed in what was mapped since. Without mappings, the process ends.
        if !names.watch(pid) {
            continue;
        }
        let recorder = recorder.get_or_insert_with(|| CacheRecorder::new(pid, *begin));
        let read = recorder.reading();
        recorder.write(part, &mut names, &counted, Totals::default())?;
        let reading = recorder.reading() - read;
        for (from, to) in [(part, path), (&sidecar_path(part), &sidecar_path(path))] {
            std::fs::rename(from, to).map_err(Error::io(to, "Its folder must be writable."))?;
        }
        news(CloneNews::Recorded(path));
        let writing = begun.elapsed().saturating_sub(reading);
        next = Instant::now() + EVERY.max(PAUSE * writing);
    }
    Ok(())
}
