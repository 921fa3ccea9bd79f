//! Recordings read by pyarrow and polars alone.

#![cfg(feature = "recording")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, their helpers included, fail by panicking"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gilk_samples::metadata::{Clock, Delivers, InstrumentInfo, Metadata, Placed};
use gilk_samples::recording::{Compression, Loss, LossCause, Mark, MarkKind, Writer};
use gilk_samples::totals::{Total, TotalValue, Totals};
use gilk_samples::{Batch, HookType, InstrumentId, Meaning, Sample};

/// Script that reads the file in three ways and prints `kind id count sum` for each, sorted.
const READERS: &str = r#"
import json, sys
import polars, pyarrow as pa, pyarrow.ipc as ipc

def show(name, rows):
    for row in sorted(rows):
        print(name, *row)

def of_arrow(table):
    groups = table.group_by(["kind", "id"]).aggregate([("value", "count"), ("value", "sum")]).to_pylist()
    return [(g["kind"], g["id"], g["value_count"], g["value_sum"]) for g in groups]

finished, torn = sys.argv[1:]
reader = ipc.open_file(finished)
show("file", of_arrow(reader.read_all()))
mapped = pa.memory_map(torn)
mapped.seek(64)
show("torn", of_arrow(ipc.open_stream(mapped).read_all()))
frame = polars.read_ipc(finished)
groups = frame.group_by("kind", "id").agg(n=polars.len(), s=polars.col("value").sum())
show("polars", groups.select("kind", "id", "n", "s").rows())
print("columns", *[f"{f.name}:{f.type}" for f in reader.schema])
print("polars-columns", *[f"{n}:{t}" for n, t in frame.schema.items()])
for key in sorted(reader.schema.metadata):
    if key not in (b"gilk", b"gilk.totals"):
        print(key.decode(), reader.schema.metadata[key].decode())
about = json.loads(reader.schema.metadata[b"gilk"])
print("labels", *[i["label"] for i in about["instruments"]])
for one in json.loads(reader.schema.metadata[b"gilk.totals"])["added_up"]:
    print("total", one["instrument"], one["name"], json.dumps(one["value"]))
"#;

fn python() -> String {
    std::env::var("GILK_PYTHON").expect("GILK_PYTHON names a python with pyarrow and polars")
}

fn run(code: &str, arguments: &[&Path]) -> String {
    let output = Command::new(python())
        .arg("-c")
        .arg(code)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn id(block: u32) -> u64 {
    InstrumentId::new(7, HookType::Pre, block, 0)
        .unwrap()
        .pack()
}

fn metadata() -> Metadata {
    let instruments = (0..3).map(|block| InstrumentInfo {
        id: id(block),
        label: format!("counter pre kernel_clone block {block}"),
        instrument: "counter".to_owned(),
        meaning: Meaning::Count,
        unit: "hits".to_owned(),
        launch: 0.0,
        splash: 5.0,
        placed: None,
        delivers: Delivers::Samples,
    });
    Metadata {
        session: "(instruments: [\"ünïcode\"])".to_owned(),
        kernel: "6.1.0-40-cloud-amd64".to_owned(),
        cpus: 2,
        clock: Clock {
            hz: 2_400_000_000,
            start: 123_456_789_012,
            start_unix_ns: 1_700_000_000_123_456_789,
        },
        instruments: instruments.collect(),
        ..Metadata::default()
    }
}

/// Writes a recording and returns the expected result of every reader: (kind, id) → (count, sum).
fn record(path: &Path, finish: bool) -> BTreeMap<(u8, u64), (u64, u64)> {
    let mut writer = Writer::create(path, &metadata()).unwrap();
    let mut expected: BTreeMap<(u8, u64), (u64, u64)> = BTreeMap::new();
    let mut count = |kind: u8, id: u64, value: u64| {
        let entry = expected.entry((kind, id)).or_default();
        *entry = (entry.0 + 1, entry.1.wrapping_add(value));
    };
    // Batches of both codecs, of both CPUs, of few and of many samples, one with values above 2^63.
    for n in 0..12u64 {
        writer.set_compression(if n % 2 == 0 {
            Compression::Zstd
        } else {
            Compression::None
        });
        let rows = if n % 5 == 0 { 20_000 } else { 17 };
        let base = if n == 3 { 0xffff_8880_0000_0000 } else { 0 };
        let samples: Vec<Sample> = (0..rows)
            .map(|k| Sample {
                id: id((k % 3) as u32),
                value: base + k * n,
                tsc: 123_456_789_012 + n * 1_000_000 + k,
            })
            .collect();
        samples
            .iter()
            .for_each(|sample| count(0, sample.id, sample.value));
        writer
            .write(&Batch {
                cpu: (n % 2) as u16,
                samples,
            })
            .unwrap();
        writer.flush().unwrap();
    }
    writer
        .losses(&[Loss {
            cpu: 1,
            tsc: 123_456_800_000,
            cause: LossCause::RingFull,
            count: 41,
        }])
        .unwrap();
    count(1, 0, 41);
    writer
        .mark(Mark {
            kind: MarkKind::Splash,
            tsc: 123_456_900_000,
            id: id(1),
            value: 9,
        })
        .unwrap();
    count(17, id(1), 9);
    writer.flush().unwrap();
    if finish {
        let values = vec![(1 << 65, 3), (-7, 2)];
        writer.totals(Totals {
            added_up: vec![Total {
                placement: 0,
                instrument: "sizes".to_owned(),
                name: "seen".to_owned(),
                unit: "bytes".to_owned(),
                may_be_zero: false,
                value: TotalValue::Values(values, 5),
            }],
            ..Totals::default()
        });
        writer.finish().unwrap();
    } else {
        // The state after kill -9: no footer, no end of stream.
        std::mem::forget(writer);
    }
    expected
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with pyarrow and polars; cargo xtask test makes one"]
fn pyarrow_and_polars_read_a_recording() {
    let dir = tempfile::TempDir::new().unwrap();
    let (finished, torn) = (
        dir.path().join("finished.arrow"),
        dir.path().join("torn.arrow"),
    );
    let expected = record(&finished, true);
    assert_eq!(record(&torn, false), expected);
    let printed = run(READERS, &[&finished, &torn]);
    for reader in ["file", "torn", "polars"] {
        let rows: Vec<&str> = printed
            .lines()
            .filter_map(|line| line.strip_prefix(reader)?.strip_prefix(' '))
            .collect();
        let wanted: Vec<String> = expected
            .iter()
            .map(|((kind, id), (count, sum))| format!("{kind} {id} {count} {sum}"))
            .collect();
        assert_eq!(rows, wanted, "{reader}");
    }
    for line in [
        "columns time:uint64 cpu:uint16 kind:uint8 id:uint64 value:uint64",
        "polars-columns time:UInt64 cpu:UInt16 kind:UInt8 id:UInt64 value:UInt64",
        "gilk.version 1",
        "total sizes seen {\"Values\": [[[36893488147419103232, 3], [-7, 2]], 5]}",
        "gilk.kernel 6.1.0-40-cloud-amd64",
        "gilk.cpus 2",
        "gilk.clock.hz 2400000000",
        "gilk.clock.start 123456789012",
        "gilk.clock.start_unix_ns 1700000000123456789",
        "gilk.session (instruments: [\"ünïcode\"])",
        "labels counter pre kernel_clone block 0 counter pre kernel_clone block 1 counter pre kernel_clone block 2",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line}\nis not in\n{printed}"
        );
    }
}

/// Records a level that is sampled by two hooks on two CPUs: 1 for 30 ticks, 2 for 60, 0 for 10.
fn level(directory: &Path) -> PathBuf {
    let path = directory.join("level.arrow");
    let mut about = metadata();
    about.instruments.truncate(2);
    for part in &mut about.instruments {
        part.meaning = Meaning::Level;
        part.placed = Some(Placed {
            placement: 4,
            function: "vfs_read".to_owned(),
            major: 0,
        });
    }
    let mut writer = Writer::create(&path, &about).unwrap();
    for (cpu, block, value, tsc) in [
        (0, 0, 1, 100),
        (1, 0, 2, 130),
        (0, 1, 0, 190),
        (1, 1, 0, 200),
    ] {
        let id = id(block);
        let samples = vec![Sample { id, value, tsc }];
        writer.write(&Batch { cpu, samples }).unwrap();
    }
    writer.finish().unwrap();
    path
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with pyarrow and polars; cargo xtask test makes one"]
fn the_examples_of_the_readme_run() {
    let dir = tempfile::TempDir::new().unwrap();
    let finished = dir.path().join("recording.arrow");
    let expected = record(&finished, true);
    let readme = include_str!("../README.md");
    let examples: Vec<&str> = readme
        .split("```python\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        // The examples of folders run with the exports.
        .filter(|example| example.contains("sys.argv[1]"))
        .collect();
    assert_eq!(
        examples.len(),
        5,
        "one with pyarrow, one with polars, one of levels, one of totals, one of a recording without its footer"
    );
    for example in examples {
        let printed = run(example, &[&finished]);
        if example.contains("gilk.totals") {
            assert_eq!(
                printed,
                "sizes seen {'Values': [[[36893488147419103232, 3], [-7, 2]], 5]} bytes\n"
            );
            continue;
        }
        if example.contains("Level") {
            assert_eq!(run(example, &[&level(dir.path())]), "average 4 1.5\n");
            continue;
        }
        for block in 0..3 {
            let (count, _) = expected[&(0, id(block))];
            let wanted = format!("counter pre kernel_clone block {block} {count}");
            assert!(
                printed.lines().any(|line| line.starts_with(&wanted)),
                "{wanted}\nis not in\n{printed}"
            );
        }
    }
}
