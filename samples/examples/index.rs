//! What the time index costs with a hundred million samples: appending, memory, and the slowest views.
//!
//! `cargo run --release -p gilk-samples --example index -- [SAMPLES] [LANES]`

#![allow(clippy::expect_used, reason = "a measurement fails by panicking")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use gilk_samples::index::{Column, Index};
use gilk_samples::{Batch, Sample};

const CPUS: u64 = 8;
const DRAINED: u64 = 1 << 14;
const COLUMNS: usize = 2000;
/// Views at each zoom.
const VIEWS: u64 = 40;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// Bursts and pauses on every CPU, as a kernel has them, drained by turns.
fn fill(index: &mut Index, samples: u64, lanes: u64) -> Duration {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut clocks = [0u64; CPUS as usize];
    let (mut done, mut spent) = (0, Duration::ZERO);
    while done < samples {
        let cpu = done / DRAINED % CPUS;
        let clock = clocks.get_mut(cpu as usize).expect("a CPU");
        let mut batch = Vec::with_capacity(DRAINED as usize);
        let mut left = 0;
        for _ in 0..DRAINED {
            if left == 0 {
                left = 1 + random.below(200);
                *clock += random.below(400_000);
            }
            left -= 1;
            *clock += 200 + random.below(2000);
            let value = 500 + random.below(4000);
            let id = 1 + random.below(lanes);
            batch.push(Sample {
                id,
                value,
                tsc: *clock,
            });
        }
        done += DRAINED;
        let batch = Batch {
            cpu: cpu as u16,
            samples: batch,
        };
        let begin = processor();
        index.append(&batch);
        spent += processor() - begin;
    }
    spent
}

/// Processor time of this thread.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Resident memory in MB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let pages = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    pages.unwrap_or_default() / 1024
}

/// Median and worst time of a query over views of a width, in milliseconds.
fn measure(index: &Index, width: u64, query: impl Fn(u64, u64) -> Vec<Column>) -> (f64, f64, u64) {
    let (first, last) = index.span().expect("samples");
    let mut random = Random(7);
    let (mut times, mut most) = (Vec::new(), 0);
    for _ in 0..VIEWS {
        let t0 = first + random.below((last - first).saturating_sub(width));
        let begin = Instant::now();
        let columns = black_box(query(t0, t0 + width));
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        most = most.max(columns.iter().map(|column| column.count).sum());
    }
    times.sort_by(f64::total_cmp);
    let at = |place: usize| times.get(place).copied().unwrap_or_default();
    (at(times.len() / 2), at(times.len() - 1), most)
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse::<u64>().expect("a number"));
    let samples = arguments.next().unwrap_or(100_000_000);
    let lanes = arguments.next().unwrap_or(1);
    let before = memory();
    let mut index = Index::new();
    let spent = fill(&mut index, samples, lanes);
    println!(
        "{samples} samples in {lanes} lanes: {:.1} M/s appended, {} MB",
        samples as f64 / spent.as_secs_f64() / 1e6,
        memory() - before
    );
    let (first, last) = index.span().expect("samples");
    println!(
        "{:>12} {:>10} | {:>8} {:>8} | {:>8} {:>8}",
        "ticks wide", "samples", "exact ms", "worst", "view ms", "worst"
    );
    let mut width = last - first;
    while width > 10_000 {
        let exact = measure(&index, width, |t0, t1| index.query(1, t0, t1, COLUMNS));
        let view = measure(&index, width, |t0, t1| index.view(1, t0, t1, COLUMNS));
        println!(
            "{width:>12} {:>10} | {:>8.3} {:>8.3} | {:>8.3} {:>8.3}",
            exact.2, exact.0, exact.1, view.0, view.1
        );
        width /= 4;
    }
    if lanes > 1 {
        let begin = Instant::now();
        for lane in 1..=lanes {
            black_box(index.view(lane, first, last, COLUMNS));
        }
        println!(
            "all {lanes} lanes at once: {:.2} ms",
            begin.elapsed().as_secs_f64() * 1e3
        );
    }
}
