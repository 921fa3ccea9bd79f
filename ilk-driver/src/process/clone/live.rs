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
use super::report::{blocks_path, with_blocks};
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

/// The executions of blocks of a process, and its objects, each of which is read once.
pub(super) struct LiveBlocks<'p> {
    pid: u32,
    progress: &'p Progress,
    moments: &'p Mutex<CountedMoments>,
    recorder: Option<CacheRecorder>,
    names: ProcessNames,
}

impl<'p> LiveBlocks<'p> {
    pub(super) fn new(
        pid: u32,
        progress: &'p Progress,
        moments: &'p Mutex<CountedMoments>,
    ) -> Self {
        Self {
            pid,
            progress,
            moments,
            recorder: None,
            names: ProcessNames::default(),
        }
    }

    /// Writes a recording. Returns the time of the reading of objects; nothing if there is nothing to record.
    fn write(&mut self, path: &Path) -> Result<Option<Duration>> {
        let (begin, counters) = (self.progress.begin.get(), self.progress.counters.get());
        let (Some(begin), Some(counters)) = (begin, counters) else {
            return Ok(None);
        };
        let moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = moments.kept().to_vec();
        drop(moments);
        let counted = CountedSoFar {
            blocks: &counters.all(),
            moments: &kept,
            ticks: (begin.at.tsc, super::super::tsc()),
        };
        // After the counts, so that no block was executed in what was mapped since. Without the tables, the process has ended,
        // or executes another program.
        let is_inside = self.names.watch(self.pid)
            && self
                .names
                .mapped(self.pid)
                .iter()
                .any(|one| one.span.contains(begin.tables));
        if !is_inside {
            return Ok(None);
        }
        let recorder = self
            .recorder
            .get_or_insert_with(|| CacheRecorder::new(self.pid, *begin));
        let read = recorder.reading();
        recorder.write(path, (&mut self.names, None), &counted, Totals::default())?;
        Ok(Some(recorder.reading() - read))
    }
}

/// The measurements of a recording up to now.
pub(super) struct LiveMeasured<'p, 'i> {
    /// Every block is counted.
    pub(super) blocks: Option<LiveBlocks<'p>>,
    /// Instruments run, whose counts and totals are read on request.
    pub(super) instruments: Option<(&'p LiveInstruments<'i>, &'p LiveRequest)>,
}

impl LiveMeasured<'_, '_> {
    /// Writes them again and again until the execution has ended, and removes the recording then. Returns the recorder of
    /// blocks, which has read the objects of the process, if the execution has begun.
    pub(super) fn keep(
        mut self,
        file: &LiveFile<'_>,
        progress: &Progress,
        news: &(dyn Fn(CloneNews<'_>) + Sync),
    ) -> Option<CacheRecorder> {
        keep(file, progress, news, |part| self.write(part));
        self.blocks.and_then(|blocks| blocks.recorder)
    }

    /// Writes a recording. Returns the time of it that does not count; nothing if there is nothing to record yet.
    fn write(&mut self, part: &Path) -> Result<Option<Duration>> {
        let Some((live, request)) = self.instruments else {
            let blocks = self.blocks.as_mut().map(|blocks| blocks.write(part));
            return blocks.unwrap_or(Ok(None));
        };
        let Some(now) = request.take() else {
            return Ok(None);
        };
        let Some(blocks) = &mut self.blocks else {
            return live.write(part, now).map(|()| Some(Duration::ZERO));
        };
        let files = [part.with_added_extension("instruments"), blocks_path(part)];
        let [instruments, counts] = &files;
        let written = live.write(instruments, now).and_then(|()| {
            let apart = blocks.write(counts)?;
            if apart.is_some() {
                with_blocks(instruments, counts, part)?;
            }
            Ok(apart)
        });
        for file in files
            .iter()
            .flat_map(|file| [file.clone(), sidecar_path(file)])
        {
            // There is none if it could not be written.
            let _none = std::fs::remove_file(file);
        }
        written
    }
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
