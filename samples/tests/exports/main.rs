//! Exports read by other programs: DuckDB, Polars, Perfetto's own protos, babeltrace2 and a JSON
//! reader find exactly what was exported.

#![cfg(feature = "recording")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, their helpers included, fail by panicking"
)]

mod calls;
mod chrome;
mod cpus;
mod ctf;
mod folder;
mod parquet;
mod perfetto;
mod stopped;
mod text;
mod timeline;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use gilk_samples::export::{Format, export_into, export_to};
use gilk_samples::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata};
use gilk_samples::recording::{Loss, LossCause, Mark, MarkKind, Recording, Writer};
use gilk_samples::{Batch, Error, HookType, InstrumentId, Meaning, Sample};

const HZ: u64 = 2_400_000_000;
const START: u64 = 987_654_321_012;
const UNIX: u64 = 1_700_000_000_123_456_789;
/// A kernel pointer: above 2^63, and not representable as a double.
const POINTER: u64 = 0xffff_8880_1234_5679;

fn id(order: u8) -> u64 {
    let id = InstrumentId::new(7, HookType::Pre, 3, order);
    id.unwrap().pack()
}

fn instrument(order: u8, meaning: Meaning, unit: &str) -> InstrumentInfo {
    InstrumentInfo {
        id: id(order),
        label: format!("\"{meaning:?}\", pre kernel_clone block 3"),
        instrument: format!("{meaning:?}"),
        meaning,
        unit: unit.to_owned(),
        launch: 0.0,
        splash: 5.0,
        placed: None,
        delivers: Delivers::Samples,
    }
}

/// Records a second of four instruments on three CPUs, including overlapping durations and
/// pointers.
fn record(path: &Path) -> (Recording, Vec<(u16, Sample)>) {
    let metadata = Metadata {
        kernel: "6.1.0-40-cloud-amd64".to_owned(),
        cpus: 3,
        clock: Clock {
            hz: HZ,
            start: START,
            start_unix_ns: UNIX,
        },
        functions: vec![FunctionInfo {
            major: 7,
            name: "kernel_clone".to_owned(),
            address: 0xffff_ffff_8108_0000,
            blocks: vec![(0, 16)],
            edges: Vec::new(),
        }],
        instruments: vec![
            instrument(0, Meaning::Event, ""),
            instrument(1, Meaning::Value, ""),
            instrument(2, Meaning::Duration, "ticks"),
            instrument(3, Meaning::Count, "hits"),
        ],
        ..Metadata::default()
    };
    let mut writer = Writer::create(path, &metadata).unwrap();
    let mut all = Vec::new();
    for cpu in 0..3u16 {
        let samples: Vec<Sample> = (0..60_000u64)
            .map(|n| {
                let order = (n % 4) as u8;
                let value = match order {
                    0 => 1,
                    1 if n % 3 == 0 => POINTER + n,
                    1 => n,
                    2 => 1000 + n % 7 * 90_000,
                    _ => n,
                };
                let tsc = START + u64::from(cpu) * 13 + n * 40_000;
                Sample {
                    id: id(order),
                    value,
                    tsc,
                }
            })
            .collect();
        all.extend(samples.iter().map(|sample| (cpu, *sample)));
        writer.write(&Batch { cpu, samples }).unwrap();
    }
    let cause = LossCause::RingFull;
    let loss = Loss {
        cpu: 2,
        tsc: START + HZ / 2,
        cause,
        count: 41,
    };
    writer.losses(&[loss]).unwrap();
    let kind = MarkKind::Launch;
    let mark = Mark {
        kind,
        tsc: START + 5,
        id: id(2),
        value: 77,
    };
    writer.mark(mark).unwrap();
    writer.finish().unwrap();
    all.sort_by_key(|&(cpu, sample)| (sample.tsc, cpu));
    (Recording::open(path).unwrap(), all)
}

fn exported(dir: &Path, format: Format) -> (PathBuf, Vec<(u16, Sample)>) {
    let (recording, all) = record(&dir.join("recording.arrow"));
    let path = dir.join("out").with_extension(format.extension());
    let done = export_to(
        &recording,
        format,
        &path,
        &mut |_| ControlFlow::Continue(()),
    );
    let done = done.unwrap();
    assert_eq!((done.samples, done.damaged.len()), (180_000, 0));
    (path, all)
}

fn python(code: &str, arguments: &[&Path]) -> String {
    let python = std::env::var("GILK_PYTHON").expect("GILK_PYTHON names a python with the readers");
    let mut command = Command::new(python);
    said(command.arg("-c").arg(code).args(arguments))
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns nanoseconds since 1970, rounded down.
fn unix(tsc: u64) -> u64 {
    UNIX + (u128::from(tsc - START) * 1_000_000_000 / u128::from(HZ)) as u64
}
