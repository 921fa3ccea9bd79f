//! Cost of a recording compared with copying the same bytes: writing, reading, indexing, querying,
//! exporting.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a bench fails by panicking, and has no documentation"
)]

use std::hint::black_box;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gilk_samples::export::{Format, export_to};
use gilk_samples::index::Index;
use gilk_samples::metadata::Metadata;
use gilk_samples::recording::{Compression, Recording, Writer};
use gilk_samples::{Batch, HookType, InstrumentId, Sample};

const SAMPLES: u64 = 1 << 20;
const CPUS: u16 = 8;
const INSTRUMENTS: u32 = 100;
const DRAINED: usize = 1 << 14;

/// Returns samples like a busy kernel's: a hundred instruments, in bursts, on eight CPUs, drained
/// in turn. Values are addresses, totals and durations.
fn batches() -> Vec<Batch> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut clocks = [0u64; CPUS as usize];
    let mut totals = vec![0u64; INSTRUMENTS as usize];
    let mut batches = Vec::new();
    while (batches.len() * DRAINED) < SAMPLES as usize {
        let cpu = (batches.len() % usize::from(CPUS)) as u16;
        let clock = &mut clocks[usize::from(cpu)];
        let mut samples = Vec::with_capacity(DRAINED);
        while samples.len() < DRAINED {
            *clock += random(1_000_000);
            let first = random(u64::from(INSTRUMENTS)) as u32;
            for n in 0..random(60) as u32 {
                *clock += 100 + random(2000);
                let major = (first + n % 5) % INSTRUMENTS;
                let total = &mut totals[major as usize];
                *total += 1;
                let value = match major % 3 {
                    0 => *total,
                    1 => 0xffff_8880_0000_0000 + random(1 << 20) * 64,
                    _ => 500 + random(4000),
                };
                let id =
                    InstrumentId::new(major, HookType::Pre, n % 5, 0).map_or(0, InstrumentId::pack);
                samples.push(Sample {
                    id,
                    value,
                    tsc: *clock,
                });
            }
        }
        samples.truncate(DRAINED);
        batches.push(Batch { cpu, samples });
    }
    batches
}

fn record(path: &Path, batches: &[Batch], compression: Compression) -> io::Result<u64> {
    let mut writer = Writer::create(path, &Metadata::default()).map_err(io::Error::other)?;
    writer.set_compression(compression);
    for batch in batches {
        writer.write(batch).map_err(io::Error::other)?;
    }
    Ok(writer.finish().map_err(io::Error::other)?.bytes)
}

/// Returns the size in bytes of a file, or of the files in a directory.
fn size(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok()?.metadata().ok())
            .map(|metadata| metadata.len())
            .sum(),
        Err(_) => std::fs::metadata(path).map_or(0, |metadata| metadata.len()),
    }
}

fn bench(criterion: &mut Criterion) {
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    let batches = batches();
    let samples = batches
        .iter()
        .map(|batch| batch.samples.len() as u64)
        .sum::<u64>();
    let path = |name: &str| dir.path().join(name);

    let mut group = criterion.benchmark_group("recording");
    group
        .throughput(Throughput::Elements(samples))
        .sample_size(10);
    group.bench_function("copy the samples in memory", |bench| {
        let mut out: Vec<Sample> = Vec::with_capacity(samples as usize);
        bench.iter(|| {
            out.clear();
            batches
                .iter()
                .for_each(|batch| out.extend_from_slice(&batch.samples));
            black_box(out.last().copied())
        });
    });
    for (name, compression) in [("none", Compression::None), ("zstd", Compression::Zstd)] {
        let file = path(name);
        let bytes = record(&file, &batches, compression).expect("a recording");
        println!(
            "{name}: {:.2} bytes a sample",
            bytes as f64 / samples as f64
        );
        group.bench_function(BenchmarkId::new("write", name), |bench| {
            bench.iter(|| record(&path("written"), &batches, compression).expect("a recording"));
        });
        let recording = Recording::open(&file).expect("a recording");
        group.bench_function(BenchmarkId::new("read", name), |bench| {
            bench.iter(|| {
                recording
                    .batches()
                    .map(|batch| batch.map_or(0, |batch| batch.samples.len()))
                    .sum::<usize>()
            });
        });
    }
    let recording = Recording::open(path("zstd")).expect("a recording");
    group.bench_function("read in order of time", |bench| {
        bench.iter(|| recording.merged().count());
    });
    for format in Format::ALL {
        let file = path("exported");
        group.bench_function(BenchmarkId::new("export", format.extension()), |bench| {
            bench.iter(|| {
                let go_on = &mut |_| ControlFlow::Continue(());
                let file = file.with_extension(format.extension());
                export_to(&recording, format, &file, go_on)
                    .expect("an export")
                    .samples
            });
        });
        let size = size(&file.with_extension(format.extension())) as f64;
        println!(
            "{}: {:.1} bytes a sample",
            format.extension(),
            size / samples as f64
        );
    }
    group.finish();

    let mut group = criterion.benchmark_group("index");
    group
        .throughput(Throughput::Elements(samples))
        .sample_size(10);
    group.bench_function("append", |bench| {
        bench.iter_batched(
            Index::new,
            |mut index| {
                batches.iter().for_each(|batch| index.append(batch));
                index
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();

    // A single lane with all samples is the slowest to draw.
    let mut index = Index::new();
    for batch in &batches {
        let samples = batch
            .samples
            .iter()
            .map(|sample| Sample { id: 1, ..*sample })
            .collect();
        index.append(&Batch {
            cpu: batch.cpu,
            samples,
        });
    }
    let (first, last) = index.span().expect("samples");
    let mut group = criterion.benchmark_group("2000 columns of one lane of a million samples");
    for zoom in [1u64, 10, 1000] {
        let (middle, half) = (first + (last - first) / 2, (last - first) / zoom / 2);
        group.bench_function(BenchmarkId::new("zoomed in", zoom), |bench| {
            bench.iter(|| black_box(index.query(1, middle - half, middle + half, 2000)));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
