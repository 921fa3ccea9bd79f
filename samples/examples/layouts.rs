//! Batch layouts compared on existing recordings: bytes per sample, and speed.
//!
//! `cargo run --release -p gilk-samples --example layouts -- RECORDING…`
//!
//! Columns are compressed one by one, as in Arrow IPC. A batch's other bytes are the same for every
//! layout and are not counted.

#![allow(clippy::expect_used, reason = "a measurement fails by panicking")]

use std::collections::HashMap;
use std::time::Duration;

use gilk_samples::recording::Recording;
use gilk_samples::{Batch, Sample};

/// Rows per batch.
const ROWS: usize = 1 << 14;

/// Returns the processor time of this thread.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    /// In order of arrival.
    Plain,
    /// By identifier, and by time within an identifier.
    Grouped,
    /// In order of arrival; each time is stored as the difference from the previous one.
    DeltaTimes,
    /// As `DeltaTimes`; each value is stored as the difference from the previous value of the same
    /// identifier.
    Delta,
    /// Grouped; times and values are stored as differences.
    GroupedDelta,
}

/// Returns the columns of a batch: time, CPU, kind, identifier, value.
fn columns(layout: Layout, batch: &Batch) -> Vec<Vec<u8>> {
    let mut rows: Vec<Sample> = batch.samples.clone();
    if matches!(layout, Layout::Grouped | Layout::GroupedDelta) {
        rows.sort_by_key(|sample| sample.id);
    }
    let times: Vec<u64> = match layout {
        Layout::Plain | Layout::Grouped => rows.iter().map(|sample| sample.tsc).collect(),
        _ => {
            let mut before = 0;
            let delta = |sample: &Sample| {
                sample
                    .tsc
                    .wrapping_sub(std::mem::replace(&mut before, sample.tsc))
            };
            rows.iter().map(delta).collect()
        }
    };
    let values: Vec<u64> = match layout {
        Layout::Delta | Layout::GroupedDelta => {
            let mut before: HashMap<u64, u64> = HashMap::new();
            let delta = |sample: &Sample| {
                let before = before.insert(sample.id, sample.value).unwrap_or_default();
                let delta = sample.value.wrapping_sub(before).cast_signed();
                ((delta << 1) ^ (delta >> 63)).cast_unsigned()
            };
            rows.iter().map(delta).collect()
        }
        _ => rows.iter().map(|sample| sample.value).collect(),
    };
    let bytes = |words: &[u64]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let ids: Vec<u64> = rows.iter().map(|sample| sample.id).collect();
    let cpus = batch.cpu.to_le_bytes().repeat(rows.len());
    vec![
        bytes(&times),
        cpus,
        vec![0; rows.len()],
        bytes(&ids),
        bytes(&values),
    ]
}

fn main() {
    let mut batches: Vec<Batch> = Vec::new();
    for path in std::env::args().skip(1) {
        let recording = Recording::open(&path).expect("a recording");
        let mut waiting: HashMap<u16, Vec<Sample>> = HashMap::new();
        for batch in recording.batches() {
            let batch = batch.expect("a whole batch");
            waiting.entry(batch.cpu).or_default().extend(batch.samples);
        }
        for (cpu, samples) in waiting {
            batches.extend(samples.chunks(ROWS).map(|samples| Batch {
                cpu,
                samples: samples.to_vec(),
            }));
        }
    }
    let samples: usize = batches.iter().map(|batch| batch.samples.len()).sum();
    println!("{samples} samples in {} batches", batches.len());
    println!(
        "{:>14} {:>8} {:>8} {:>8} | M samples/s at level 1",
        "bytes a sample", "none", "zstd 1", "zstd 3"
    );
    for layout in [
        Layout::Plain,
        Layout::Grouped,
        Layout::DeltaTimes,
        Layout::Delta,
        Layout::GroupedDelta,
    ] {
        let (mut sizes, mut spent) = ([0usize; 3], Duration::ZERO);
        for batch in &batches {
            let begin = processor();
            let columns = columns(layout, batch);
            let small = columns
                .iter()
                .map(|column| zstd::bulk::compress(column, 1).expect("zstd").len());
            let small: usize = small.sum();
            spent += processor().saturating_sub(begin);
            let smaller = columns
                .iter()
                .map(|column| zstd::bulk::compress(column, 3).expect("zstd").len());
            let all = [columns.iter().map(Vec::len).sum(), small, smaller.sum()];
            sizes
                .iter_mut()
                .zip(all)
                .for_each(|(sum, size)| *sum += size);
        }
        let [none, one, three] = sizes.map(|size| size as f64 / samples.max(1) as f64);
        let speed = samples as f64 / spent.as_secs_f64().max(1e-9) / 1e6;
        println!(
            "{:>14} {none:>8.2} {one:>8.2} {three:>8.2} | {speed:.1}",
            format!("{layout:?}")
        );
    }
}
