//! The thread that records: whoever delivers samples never waits for the disk, or for compression,
//! but for memory that is bounded.
//!
//! Between the two stands a channel of so many pieces. When it is full, whoever delivers waits; what
//! they take from then waits in turn, back to the rings, where the patches count what finds no room.
//! So nothing is lost without being counted, and memory has a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::recording::{Loss, Mark, Summary, Writer};
use crate::totals::Totals;
use crate::{Batch, Error, Result};

/// Pieces that may wait: with batches as an agent drains them (up to 16,384 samples) 24 MB.
const WAITING: usize = 64;
/// How long nothing may come until the writer is asked whether samples have waited long enough.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is to be recorded.
enum Piece {
    Samples(Arc<Batch>),
    Losses(Vec<Loss>),
    Marks(Vec<Mark>),
    Totals(Totals),
    Written(Told),
}

/// Somebody who is told how many bytes the recording has.
type Told = Box<dyn FnOnce(u64) -> Result<()> + Send>;

/// A recording that is written by a thread of its own, piece by piece in the order in which they came.
#[derive(Debug)]
pub struct Collector {
    pieces: Option<Sender<Piece>>,
    thread: Option<JoinHandle<Result<Summary>>>,
    failed: Arc<AtomicBool>,
    waits: Arc<AtomicU64>,
}

impl Collector {
    /// Has `writer` write on a thread of its own from now on.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no thread.
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

    /// Records samples. Waits while there is no room; does nothing if the recording has
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

    /// Has the recording say at its end what instruments have added up.
    pub fn totals(&self, totals: Totals) {
        self.send(Piece::Totals(totals));
    }

    /// Has everything written that was handed over before, and then tells `told` how many bytes the
    /// recording has: whatever becomes of this process, [`Writer::go_on`] goes on from there. If that fails,
    /// so has the recording.
    pub fn when_written(&self, told: impl FnOnce(u64) -> Result<()> + Send + 'static) {
        self.send(Piece::Written(Box::new(told)));
    }

    /// Whether nothing is recorded any more, for example because the disk is full. The reason is what
    /// [`finish`](Self::finish) returns.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// How often somebody had to wait for room: more than 0 means that samples come faster than they
    /// can be written.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Writes what waits, and the footer.
    ///
    /// # Errors
    /// The first thing that went wrong; what was written before is whole.
    pub fn finish(mut self) -> Result<Summary> {
        self.end().unwrap_or_else(|| Ok(Summary::default()))
    }

    fn send(&self, piece: Piece) {
        let Some(pieces) = &self.pieces else { return };
        if let Err(full) = pieces.try_send(piece) {
            self.waits.fetch_add(1, Ordering::Relaxed);
            // Nobody receives any more if the recording has failed.
            let _failed = pieces.send(full.into_inner());
        }
    }

    /// Closes the channel and waits for the thread; `None` if that was done before.
    fn end(&mut self) -> Option<Result<Summary>> {
        drop(self.pieces.take());
        self.thread.take()?.join().ok()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // What was handed over is on the disk when this returns.
        let _ = self.end();
    }
}

/// Writes pieces until nobody sends any more.
fn record(mut writer: Writer, pieces: &Receiver<Piece>) -> Result<Summary> {
    loop {
        match pieces.recv_timeout(PATIENCE) {
            Ok(Piece::Samples(batch)) => writer.write(&batch)?,
            Ok(Piece::Losses(losses)) => writer.losses(&losses)?,
            Ok(Piece::Marks(marks)) => marks.into_iter().try_for_each(|mark| writer.mark(mark))?,
            Ok(Piece::Totals(totals)) => writer.totals(totals),
            Ok(Piece::Written(told)) => {
                writer.flush()?;
                told(writer.so_far().bytes)?;
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
    use crate::metadata::Metadata;
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
    fn who_asks_is_told_when_all_before_is_written() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("r.arrow");
        let collector =
            Collector::start(Writer::create(&path, &Metadata::default()).unwrap()).unwrap();
        let (sender, told) = bounded(1);
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
            assert_eq!(told.recv().unwrap(), (true, 10 * number));
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
    fn a_full_disk_stops_the_recording_and_not_who_delivers() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("full.arrow");
        let mut writer = Writer::create(&path, &Metadata::default()).unwrap();
        writer.write(&batch(0, 0, 20_000)).unwrap();
        writer.fill_disk();
        let collector = Collector::start(writer).unwrap();
        let mut from = 20_000;
        // Far more than may wait: who delivers is not held up by a thread that has gone.
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
