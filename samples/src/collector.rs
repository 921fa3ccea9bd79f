//! The thread that writes the recording: a producer never waits for the disk or for compression,
//! only for bounded memory.
//!
//! A channel of bounded length connects producers and writer. When it is full, producers block; the
//! back-pressure reaches the rings, where patches count the samples that do not fit. So nothing is
//! lost without being counted, and memory is bounded.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::metadata::Metadata;
use crate::recording::{Loss, Mark, Summary, Writer};
use crate::totals::Totals;
use crate::{Batch, Error, Result};

/// Length of the channel: with batches as an agent drains them (up to 16,384 samples) 24 MB.
const WAITING: usize = 64;
/// Longest time without input before the writer checks whether gathered samples have waited long
/// enough.
const PATIENCE: Duration = Duration::from_millis(100);

/// Input of the writer.
enum Piece {
    Samples(Arc<Batch>),
    Losses(Vec<Loss>),
    Marks(Vec<Mark>),
    Totals(Box<Totals>),
    Metadata(Box<Metadata>),
    Written(OnWritten),
}

/// Callback that receives the length of the recording in bytes.
type OnWritten = Box<dyn FnOnce(u64) -> Result<()> + Send>;

/// A recording that a separate thread writes, piece by piece in the order of arrival.
#[derive(Debug)]
pub struct Collector {
    pieces: Option<Sender<Piece>>,
    thread: Option<JoinHandle<Result<Summary>>>,
    failed: Arc<AtomicBool>,
    waits: Arc<AtomicU64>,
}

impl Collector {
    /// Starts a thread that runs `writer`.
    ///
    /// # Errors
    /// [`Error::Io`] if the system provides no thread.
    pub fn start(writer: Writer) -> Result<Self> {
        let (pieces, received) = bounded(WAITING);
        let failed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&failed);
        let path = writer.path().to_path_buf();
        let thread = std::thread::Builder::new()
            .name("recording".to_owned())
            .spawn(move || {
                let outcome = record(writer, &received);
                flag.store(outcome.is_err(), Ordering::Release);
                outcome
            })
            .map_err(|error| Error::io(&path, error))?;
        Ok(Self {
            pieces: Some(pieces),
            thread: Some(thread),
            failed,
            waits: Arc::default(),
        })
    }

    /// Records samples. Blocks while the channel is full; does nothing if the recording has
    /// [failed](Self::has_failed).
    pub fn samples(&self, batch: &Arc<Batch>) {
        self.send(Piece::Samples(Arc::clone(batch)));
    }

    /// Records losses.
    pub fn losses(&self, losses: Vec<Loss>) {
        self.send(Piece::Losses(losses));
    }

    /// Records marks.
    pub fn marks(&self, marks: Vec<Mark>) {
        self.send(Piece::Marks(marks));
    }

    /// Stores the aggregates of the instruments, to be written at the end of the recording.
    pub fn totals(&self, totals: Totals) {
        self.send(Piece::Totals(Box::new(totals)));
    }

    /// Replaces the metadata of the finished recording.
    pub fn describe(&self, metadata: Metadata) {
        self.send(Piece::Metadata(Box::new(metadata)));
    }

    /// Writes everything handed over before, and then calls `written` with the length of the
    /// recording in bytes: if this process dies, [`Writer::resume`] continues from there. An error
    /// of `written` fails the recording.
    pub fn when_written(&self, written: impl FnOnce(u64) -> Result<()> + Send + 'static) {
        self.send(Piece::Written(Box::new(written)));
    }

    /// Returns whether recording has stopped early, for example because the disk is full.
    /// [`finish`](Self::finish) returns the reason.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns how often a producer had to wait for the channel: more than 0 means that samples
    /// arrive faster than they can be written.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Writes all pending pieces and the footer.
    ///
    /// # Errors
    /// The first error; everything written before it is intact.
    pub fn finish(mut self) -> Result<Summary> {
        match self.end() {
            Some(Ok(finished)) => finished,
            // A defect of the writer is not an empty recording.
            Some(Err(panic)) => resume_unwind(panic),
            None => {
                debug_assert!(false, "a recording was finished twice");
                Ok(Summary::default())
            }
        }
    }

    fn send(&self, piece: Piece) {
        let Some(pieces) = &self.pieces else { return };
        if let Err(full) = pieces.try_send(piece) {
            self.waits.fetch_add(1, Ordering::Relaxed);
            // The channel is closed if the recording has failed.
            let _failed = pieces.send(full.into_inner());
        }
    }

    /// Closes the channel and waits for the thread; `None` if that was done before.
    fn end(&mut self) -> Option<thread::Result<Result<Summary>>> {
        drop(self.pieces.take());
        Some(self.thread.take()?.join())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Everything handed over is on the disk when this returns. `finish` reports errors; there
        // is no caller to report to here.
        let _ = self.end();
    }
}

/// Writes pieces until the channel is closed.
fn record(mut writer: Writer, pieces: &Receiver<Piece>) -> Result<Summary> {
    loop {
        match pieces.recv_timeout(PATIENCE) {
            Ok(Piece::Samples(batch)) => writer.write(&batch)?,
            Ok(Piece::Losses(losses)) => writer.losses(&losses)?,
            Ok(Piece::Marks(marks)) => marks.into_iter().try_for_each(|mark| writer.mark(mark))?,
            Ok(Piece::Totals(totals)) => writer.totals(*totals),
            Ok(Piece::Metadata(metadata)) => writer.describe(&metadata)?,
            Ok(Piece::Written(written)) => {
                writer.flush()?;
                written(writer.summary().bytes)?;
            }
            Err(RecvTimeoutError::Timeout) => writer.losses(&[])?,
            Err(RecvTimeoutError::Disconnected) => return writer.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::Sample;
    use crate::recording::{LossCause, MarkKind, Recording};

    fn batch(cpu: u16, from: u64, count: u64) -> Arc<Batch> {
        let samples = (from..from + count).map(|n| Sample {
            id: 1 + n % 3,
            value: n,
            tsc: n,
        });
        Arc::new(Batch {
            cpu,
            samples: samples.collect(),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn nothing_is_lost_and_nothing_reordered(sizes in prop::collection::vec((0u16..4, 0u64..3000), 0..300)) {
            let dir = TempDir::new().unwrap();
            let path = dir.path().join("r.arrow");
            let collector = Collector::start(Writer::create(&path, &Metadata::default()).unwrap()).unwrap();
            let mut sent = [0u64; 4];
            for (cpu, size) in sizes {
                let from = sent[usize::from(cpu)];
                collector.samples(&batch(cpu, from, size));
                sent[usize::from(cpu)] += size;
            }
            collector.losses(vec![Loss { cpu: 1, tsc: 5, cause: LossCause::RingFull, count: 9 }]);
            collector.marks(vec![Mark { kind: MarkKind::User, tsc: 6, id: 0, value: 0 }]);
            let summary = collector.finish().unwrap();
            prop_assert_eq!((summary.samples, summary.lost_full, summary.marks), (sent.iter().sum::<u64>(), 9, 1));
            let recording = Recording::open(&path).unwrap();
            let mut got = [0u64; 4];
            for batch in recording.batches() {
                let batch = batch.unwrap();
                for sample in &batch.samples {
                    prop_assert_eq!(sample.value, got[usize::from(batch.cpu)]);
                    got[usize::from(batch.cpu)] += 1;
                }
            }
            prop_assert_eq!(got, sent);
        }
    }

    #[test]
    fn the_callback_runs_when_everything_before_is_written() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("r.arrow");
        let collector =
            Collector::start(Writer::create(&path, &Metadata::default()).unwrap()).unwrap();
        let (sender, written) = bounded(1);
        for number in 1..=3 {
            collector.samples(&batch(0, 10 * number, 10));
            let (path, sender) = (path.clone(), sender.clone());
            collector.when_written(move |bytes| {
                let length = std::fs::metadata(&path).unwrap().len();
                sender
                    .send((length == bytes, Recording::open(&path)?.samples()))
                    .unwrap();
                Ok(())
            });
            assert_eq!(written.recv().unwrap(), (true, 10 * number));
        }
        collector.when_written(|_| {
            Err(Error::io(
                "there".as_ref(),
                std::io::ErrorKind::StorageFull.into(),
            ))
        });
        assert!(collector.finish().is_err());
    }

    #[test]
    fn a_full_disk_stops_the_recording_but_not_the_producer() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("full.arrow");
        let mut writer = Writer::create(&path, &Metadata::default()).unwrap();
        writer.write(&batch(0, 0, 20_000)).unwrap();
        writer.fill_disk();
        let collector = Collector::start(writer).unwrap();
        let mut from = 20_000;
        // Far more than the channel holds: a producer is not held up by a thread that has ended.
        for _ in 0..4 * WAITING {
            collector.samples(&batch(0, from, 20_000));
            from += 20_000;
        }
        while !collector.has_failed() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = collector.finish().unwrap_err();
        assert!(error.to_string().contains("Free some space"), "{error}");
        assert_eq!(Recording::open(&path).unwrap().samples(), 20_000);
    }
}
