//! Cost of the time index with a hundred million samples: appending, memory, and the slowest views
//! of a lane at every zoom; with several lanes, frames of all of them.
//!
//! `cargo run --release -p gilk-samples --example index -- [SAMPLES] [LANES]`

#![allow(clippy::expect_used, reason = "a measurement fails by panicking")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gilk_samples::index::{Column, Index, Tiles};
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

/// Appends bursts and pauses on every CPU, as a kernel produces them, drained in turn.
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

/// Returns how often the scheduler took this thread off its core.
fn interrupted() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let lines = status.lines();
    let mut switches = lines.filter_map(|line| line.split_once("nonvoluntary_ctxt_switches:"));
    let number = switches
        .next()
        .and_then(|(_, number)| number.trim().parse().ok());
    number.unwrap_or_default()
}

/// Returns the duration of `work`, or `None` if the thread was preempted during it.
fn timed(work: impl FnOnce()) -> Option<Duration> {
    let before = interrupted();
    let begin = Instant::now();
    work();
    let taken = begin.elapsed();
    (interrupted() == before).then_some(taken)
}

/// Returns median and maximum, in milliseconds.
fn spread(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let at = |place: usize| {
        times
            .get(place)
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    (at(times.len() / 2), at(times.len().saturating_sub(1)))
}

/// Returns median and maximum time of a query over views of one width at random positions, and the
/// largest number of samples in a view.
fn measure(
    index: &Index,
    width: u64,
    mut query: impl FnMut(u64, u64) -> Arc<[Column]>,
) -> ((f64, f64), u64) {
    let (first, last) = index.span().expect("samples");
    let mut random = Random(7);
    let (mut times, mut most) = (Vec::new(), 0);
    // Preempted queries have no time, so some extra tries are needed.
    for _ in 0..4 * VIEWS {
        if times.len() as u64 == VIEWS {
            break;
        }
        let t0 = first + random.below((last - first).saturating_sub(width));
        let mut seen = None;
        times.extend(timed(|| seen = Some(black_box(query(t0, t0 + width)))));
        let samples = seen.iter().flat_map(|columns| columns.iter());
        most = most.max(samples.map(|column| column.count).sum());
    }
    (spread(times), most)
}

/// Measures every zoom of a lane: exact, drawn at a new position, one CPU only, and moved by a
/// fiftieth.
fn zooms(index: &Index) {
    let (first, last) = index.span().expect("samples");
    println!(
        "{:>10} | {:>7} {:>6} | {:>6} {:>6} | {:>6} {:>6} | {:>6} {:>6}",
        "samples", "exact", "worst", "view", "worst", "a CPU", "worst", "moved", "worst"
    );
    let mut width = last - first;
    while width > 10_000 {
        let (exact, _) = measure(index, width, |t0, t1| {
            index.query(1, t0, t1, COLUMNS).into()
        });
        let (view, samples) = measure(index, width, |t0, t1| index.view(1, t0, t1, COLUMNS).into());
        let part = index.part(Some(3));
        let (own, _) = measure(index, width, |t0, t1| part.view(1, t0, t1, COLUMNS).into());
        let moved = moved(index, &[1], width);
        println!(
            "{samples:>10} | {:>7.3} {:>6.3} | {:>6.3} {:>6.3} | {:>6.3} {:>6.3} | {:>6.3} {:>6.3}",
            exact.0, exact.1, view.0, view.1, own.0, own.1, moved.0, moved.1
        );
        width /= 2;
    }
}

/// Measures a frame of these lanes drawn from tiles while the view moves by a fiftieth from frame
/// to frame.
fn moved(index: &Index, lanes: &[u64], width: u64) -> (f64, f64) {
    let (first, last) = index.span().expect("samples");
    let mut tiles = Tiles::default();
    let from = first + (last - first).saturating_sub(2 * width) / 2;
    let mut frames = Vec::new();
    for frame in 0..VIEWS {
        let t0 = from + width / 50 * frame;
        tiles.begin();
        frames.extend(timed(|| {
            for &lane in lanes {
                black_box(tiles.view(index.part(None), lane, t0, t0 + width, COLUMNS));
            }
        }));
    }
    spread(frames)
}

/// Measures a frame of all lanes: at a new position, moved, and zoomed by a tenth from frame to
/// frame.
fn frames(index: &Index, lanes: u64) {
    let (first, last) = index.span().expect("samples");
    let lanes: Vec<u64> = (1..=lanes).collect();
    println!("a frame of {} lanes", lanes.len());
    println!(
        "{:>10} | {:>6} {:>6} | {:>6} {:>6} | {:>6} {:>6}",
        "samples", "new", "worst", "moved", "worst", "zoomed", "worst"
    );
    let mut width = last - first;
    while width > 1_000_000 {
        let all = |t0: u64, t1: u64| -> u64 {
            let views = lanes
                .iter()
                .map(|&lane| black_box(index.view(lane, t0, t1, COLUMNS)));
            views
                .map(|view| view.iter().map(|column| column.count).sum::<u64>())
                .sum()
        };
        let mut samples = 0;
        let (new, _) = measure(index, width, |t0, t1| {
            samples = samples.max(all(t0, t1));
            Arc::from([])
        });
        let moved = moved(index, &lanes, width);
        let mut tiles = Tiles::default();
        let middle = first + (last - first) / 2;
        let mut zoomed = Vec::new();
        for frame in 0..VIEWS {
            let half = (width as f64 / 2.0 / 1.1f64.powi(frame as i32 % 20)) as u64;
            tiles.begin();
            zoomed.extend(timed(|| {
                for &lane in &lanes {
                    let part = index.part(None);
                    black_box(tiles.view(part, lane, middle - half, middle + half, COLUMNS));
                }
            }));
        }
        let zoomed = spread(zoomed);
        println!(
            "{samples:>10} | {:>6.2} {:>6.2} | {:>6.2} {:>6.2} | {:>6.2} {:>6.2}",
            new.0, new.1, moved.0, moved.1, zoomed.0, zoomed.1
        );
        width /= 4;
    }
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
        "{samples} samples in {lanes} lanes: {:.1} M/s appended, {} MB; milliseconds",
        samples as f64 / spent.as_secs_f64() / 1e6,
        memory() - before
    );
    if lanes == 1 {
        zooms(&index);
    } else {
        frames(&index, lanes);
    }
}
