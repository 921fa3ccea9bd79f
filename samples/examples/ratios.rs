//! Cost of collecting, recording and indexing relative to the cheapest equivalent, in one run:
//! copying the ring, `cat`, and polars.
//!
//! `cargo run --release -p gilk-samples --example ratios -- [DIRECTORY]`; the last comparison needs
//! `GILK_PYTHON`, a python that has polars.

#![allow(clippy::expect_used, reason = "a measurement fails by panicking")]

use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use gilk_samples::Batch;
use gilk_samples::collector::Collector;
use gilk_samples::index::Index;
use gilk_samples::metadata::Metadata;
use gilk_samples::record::SLOT_BYTES;
use gilk_samples::recording::{Compression, Recording, Writer};
use gilk_samples::ring::RingReader;

const SLOTS_LOG2: u32 = 16;
const SLOTS: u64 = 1 << SLOTS_LOG2;
/// Number of full rings that are collected: 13 million samples.
const ROUNDS: u64 = 200;
const DRAINED: usize = 1 << 14;
/// Number of copies: one copy of all rings is shorter than the resolution of processor time.
const COPIES: u64 = 50;
const LANES: u64 = 20;

/// Returns processor time in seconds, with a resolution of 10 ms: of this process including all
/// threads, and of children that have ended.
fn processor() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = |from: usize| {
        let words = after.split_whitespace().skip(from).take(2);
        words
            .filter_map(|text| text.parse::<f64>().ok())
            .sum::<f64>()
            / 100.0
    };
    (ticks(11), ticks(13))
}

/// Returns the processor time of this thread in seconds. The kernel updates it at every tick; over
/// many short stretches the errors average out.
fn thread() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat
        .split_whitespace()
        .next()
        .and_then(|text| text.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}

/// One CPU's ring as patches leave it: mark, value, time, identifier.
struct Ring {
    words: Vec<u64>,
    next: u64,
    now: u64,
    state: u64,
}

impl Ring {
    fn fill(&mut self) {
        for (slot, serial) in self
            .words
            .as_chunks_mut::<4>()
            .0
            .iter_mut()
            .zip(self.next..)
        {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.now += 100 + self.state % 400;
            let id = 1 + (self.state >> 20) % LANES;
            *slot = [
                serial << (32 - SLOTS_LOG2),
                500 + (self.state >> 40) % 4000,
                self.now,
                id,
            ];
        }
        self.next += SLOTS;
    }
}

fn per_second(samples: u64, seconds: f64) -> f64 {
    samples as f64 / seconds.max(1e-9) / 1e6
}

/// Collects full rings one after another and returns the seconds of processor time, filling
/// excluded.
fn collect(path: &Path, indexed: bool) -> (f64, f64, u64) {
    let mut ring = Ring {
        words: vec![0; SLOTS as usize * SLOT_BYTES / 8],
        next: SLOTS,
        now: 1,
        state: 0x9e37_79b9_7f4a_7c15,
    };
    // SAFETY: the words outlive the reader, and are written only while no reader reads them.
    #[allow(unsafe_code, reason = "the ring is measured as it is read")]
    let reader =
        unsafe { RingReader::new(ring.words.as_ptr().cast(), ring.words.len() * 8, SLOTS_LOG2) };
    let mut reader = reader.expect("a ring");
    let mut writer = Writer::create(path, &Metadata::default()).expect("a recording");
    writer.set_compression(Compression::None);
    let collector = Collector::start(writer).expect("a thread");
    let (mut index, mut copy) = (Index::new(), vec![0u64; ring.words.len()]);
    let mut filled = 0.0;
    let begin = processor().0;
    for _ in 0..ROUNDS {
        let before = thread();
        ring.fill();
        filled += thread() - before;
        loop {
            let mut samples = Vec::with_capacity(DRAINED);
            if reader.drain(&mut samples, DRAINED) == 0 {
                break;
            }
            let batch = Arc::new(Batch { cpu: 0, samples });
            collector.samples(&batch);
            if indexed {
                index.append(&batch);
            }
        }
    }
    let samples = collector.finish().expect("a recording").samples;
    let spent = processor().0 - begin - filled;
    let begin = processor().0;
    for _ in 0..ROUNDS * COPIES {
        black_box(&mut copy).copy_from_slice(black_box(&ring.words));
    }
    let copied = (processor().0 - begin).max(0.01) / COPIES as f64;
    assert_eq!(samples, ROUNDS * SLOTS, "nothing is lost");
    (spent, copied, samples)
}

/// Script in which polars answers the query of a screen: count, minimum, maximum and sum in 2,000
/// columns of each lane.
const POLARS: &str = r#"
import sys, time, polars as pl
frame = pl.read_ipc(sys.argv[1]).filter(pl.col("kind") == 0)
t0, t1 = frame["time"].min(), frame["time"].max() + 1
begin = time.process_time()
column = ((pl.col("time") - t0).cast(pl.Float64) * (2000 / (t1 - t0))).cast(pl.UInt16)
value = pl.col("value")
rows = frame.group_by("id", column.alias("column")).agg(pl.len(), value.min().alias("min"), value.max().alias("max"), value.sum().alias("sum"))
assert rows["len"].sum() == frame.height
print(time.process_time() - begin)
"#;

fn main() {
    let home = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::TempDir::new_in(home).expect("a directory");
    let path = dir.path().join("collected.arrow");
    for indexed in [false, true] {
        let (spent, copied, samples) = collect(&path, indexed);
        let what = if indexed {
            "ring to recording and index"
        } else {
            "ring to recording"
        };
        println!(
            "{what}: {:.1} M samples/s of one core, {:.1} times as long as copying the ring ({:.0} M/s)",
            per_second(samples, spent),
            spent / copied,
            per_second(samples, copied)
        );
    }
    let recording = Recording::open(&path).expect("a recording");
    let batches: Vec<Batch> = recording
        .batches()
        .map(|batch| batch.expect("a batch"))
        .collect();
    for compression in [Compression::None, Compression::Zstd] {
        let written = dir.path().join("written.arrow");
        let begin = processor().0;
        let mut writer = Writer::create(&written, &Metadata::default()).expect("a recording");
        writer.set_compression(compression);
        batches
            .iter()
            .for_each(|batch| writer.write(batch).expect("a disk with room"));
        let summary = writer.finish().expect("a disk with room");
        let took = processor().0 - begin;
        let begin = processor().1;
        let to = File::create(dir.path().join("cat")).expect("a file");
        let cat = Command::new("cat")
            .arg(&written)
            .stdout(to)
            .status()
            .expect("cat");
        assert!(cat.success());
        let cat = (processor().1 - begin).max(0.01);
        println!(
            "recording, {compression:?}: {:.1} M samples/s, {:.2} bytes each, {:.1} times as long as cat of the same bytes",
            per_second(summary.samples, took),
            summary.bytes as f64 / summary.samples as f64,
            took / cat
        );
    }
    let begin = processor().0;
    let mut index = Index::new();
    batches.iter().for_each(|batch| index.append(batch));
    let built = processor().0 - begin;
    let (first, last) = index.span().expect("samples");
    let begin = Instant::now();
    for lane in 1..=LANES {
        black_box(index.view(lane, first, last + 1, 2000));
    }
    let viewed = begin.elapsed().as_secs_f64();
    println!(
        "index of {} samples: built in {built:.2} s, {LANES} lanes viewed in {:.2} ms",
        index.samples(),
        viewed * 1e3
    );
    let Ok(python) = std::env::var("GILK_PYTHON") else {
        return println!(
            "GILK_PYTHON names no python with polars: nothing to hold the index against"
        );
    };
    let output = Command::new(python)
        .env("POLARS_MAX_THREADS", "1")
        .args(["-c", POLARS])
        .arg(&path)
        .output()
        .expect("python");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = String::from_utf8_lossy(&output.stdout);
    let polars: f64 = said.trim().parse().expect("a number from polars");
    println!(
        "polars' group-by of the same: {polars:.3} s; the index, built and viewed, takes {:.2} times as long, and each view after that {:.4} times",
        (built + viewed) / polars,
        viewed / polars
    );
}
