//! Time and memory to write and open a large recording.
//!
//! `cargo run --release -p gilk-samples --example large -- FILE [SAMPLES]`; the file is removed.

#![allow(clippy::expect_used, reason = "a measurement fails by panicking")]

use std::path::Path;
use std::time::Instant;

use gilk_samples::metadata::Metadata;
use gilk_samples::recording::{Compression, Recording, Writer, sidecar_path};
use gilk_samples::{Batch, Sample};

const DRAINED: u64 = 1 << 14;

/// Returns the peak resident memory in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let pages = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    pages.unwrap_or_default() / 1024
}

fn open(path: &Path, what: &str) {
    let begin = Instant::now();
    let recording = Recording::open(path).expect("a recording");
    let took = begin.elapsed().as_secs_f64();
    println!(
        "opened {what} in {took:.3} s: {} samples in {} batches, whole: {}, {} MB at most",
        recording.samples(),
        recording.blocks().len(),
        recording.recovered().is_none(),
        peak()
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("where to write");
    let path = Path::new(&path);
    let samples = arguments
        .next()
        .map_or(1_000_000_000, |text| text.parse().expect("a number"));
    let mut writer = Writer::create(path, &Metadata::default()).expect("a recording");
    writer.set_compression(Compression::Zstd);
    let begin = Instant::now();
    let (mut state, mut now, mut done) = (0x9e37_79b9_7f4a_7c15_u64, 0, 0u64);
    while done < samples {
        let batch = (0..DRAINED).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            now += 200 + state % 1024;
            Sample {
                id: 1 + (state >> 20) % 4,
                value: 500 + (state >> 30) % 2048,
                tsc: now,
            }
        });
        let cpu = (done / DRAINED % 8) as u16;
        writer
            .write(&Batch {
                cpu,
                samples: batch.collect(),
            })
            .expect("a disk with room");
        done += DRAINED;
    }
    let summary = writer.finish().expect("a disk with room");
    println!(
        "{} samples written in {:.1} s, {:.2} bytes a sample, {} MB at most",
        summary.samples,
        begin.elapsed().as_secs_f64(),
        summary.bytes as f64 / summary.samples as f64,
        peak()
    );
    open(path, "the finished file");
    // The state after kill -9: no footer.
    let file = std::fs::File::options()
        .write(true)
        .open(path)
        .expect("the file");
    file.set_len(summary.bytes - summary.bytes / 1000)
        .expect("a shorter file");
    open(path, "the file without its last thousandth");
    std::fs::remove_file(path).expect("the file");
    std::fs::remove_file(sidecar_path(path)).expect("its sidecar");
}
