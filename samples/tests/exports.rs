//! Foreign readers: what was exported is what DuckDB, Polars, Perfetto's own protos, babeltrace2 and
//! any JSON reader find in it.

#![cfg(feature = "recording")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, their helpers included, fail by panicking"
)]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use gilk_samples::export::{Format, export_into, export_to};
use gilk_samples::metadata::{Clock, FunctionInfo, InstrumentInfo, Metadata};
use gilk_samples::recording::{Loss, LossCause, Mark, MarkKind, Recording, Writer};
use gilk_samples::{Batch, Error, HookType, InstrumentId, Meaning, Sample};

const HZ: u64 = 2_400_000_000;
const START: u64 = 987_654_321_012;
const UNIX: u64 = 1_700_000_000_123_456_789;
/// A kernel pointer: above 2^63, and no double holds it.
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
    }
}

/// A second of four instruments on three CPUs, overlapping times and pointers among them.
fn record(path: &Path) -> (Recording, Vec<(u16, Sample)>) {
    let metadata = Metadata {
        kernel: "6.1.0-40-cloud-amd64".to_owned(),
        cpus: 3,
        clock: Clock {
            hz: HZ,
            start: START,
            start_unix_ns: UNIX,
        },
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

/// Nanoseconds since 1970, as exact as can be.
fn unix(tsc: u64) -> u64 {
    UNIX + (u128::from(tsc - START) * 1_000_000_000 / u128::from(HZ)) as u64
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with duckdb and polars; cargo xtask test makes one"]
fn duckdb_and_polars_read_parquet() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::Parquet);
    let printed = python(
        r#"
import duckdb, polars, pyarrow.parquet as pq, sys, json
path = sys.argv[1]
for row in duckdb.sql(f"select kind, instrument, count(*), sum(value)::hugeint, min(time), max(time), min(ns) from '{path}' group by all order by all").fetchall():
    print("duckdb", *row, sep="|")
frame = polars.read_parquet(path)
print("polars", frame.height, *[f"{n}:{t}" for n, t in frame.schema.items()])
print("sorted", frame["time"].is_sorted())
print("pointers", frame.filter(polars.col("value") > 2**63)["value"].head(3).to_list())
file = pq.ParquetFile(path)
print("groups", file.num_row_groups, json.loads(file.schema_arrow.metadata[b"gilk"])["kernel"])
"#,
        &[&path],
    );
    let lines: Vec<&str> = printed.lines().collect();
    for order in 0..4u8 {
        let of = || all.iter().filter(|(_, sample)| sample.id == id(order));
        let label = instrument(
            order,
            [
                Meaning::Event,
                Meaning::Value,
                Meaning::Duration,
                Meaning::Count,
            ][usize::from(order)],
            "",
        )
        .label;
        let sum: u128 = of().map(|(_, sample)| u128::from(sample.value)).sum();
        let (first, last) = (of().next().unwrap().1.tsc, of().next_back().unwrap().1.tsc);
        let wanted = format!(
            "duckdb|0|{label}|{}|{sum}|{first}|{last}|{}",
            of().count(),
            unix(first)
        );
        assert!(
            lines.contains(&wanted.as_str()),
            "{wanted}\nis not in\n{printed}"
        );
    }
    let loss = format!(
        "duckdb|1|lost: ring full|1|41|{0}|{0}|{1}",
        START + HZ / 2,
        unix(START + HZ / 2)
    );
    for wanted in [
        loss.as_str(),
        "polars 180002 utc:Datetime(time_unit='us', time_zone='UTC') ns:Int64 time:UInt64 cpu:UInt16 kind:UInt8 id:UInt64 value:UInt64 instrument:String",
        "sorted True",
        "groups 2 6.1.0-40-cloud-amd64",
    ] {
        assert!(lines.contains(&wanted), "{wanted}\nis not in\n{printed}");
    }
    let pointers = [9, 9, 9].map(|n| POINTER + n);
    assert!(
        printed.contains(&format!("pointers {pointers:?}")),
        "{printed}"
    );
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with Perfetto's protos; cargo xtask test makes one"]
fn perfettos_protos_decode_the_trace() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::Perfetto);
    let printed = python(
        r#"
import sys, collections
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as p
trace = p.Trace.FromString(open(sys.argv[1], "rb").read())
E = p.TrackEvent
tracks, names, open_, count = {}, {}, collections.Counter(), collections.Counter()
units, sums, last = {}, collections.Counter(), {}
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        d = packet.track_descriptor
        assert d.uuid not in tracks
        tracks[d.uuid] = d.name
        if d.HasField("counter"): units[d.name] = d.counter.unit_name
    for n in packet.interned_data.event_names: names[n.iid] = n.name
events = sorted((q for q in trace.packet if q.HasField("track_event")), key=lambda q: (q.timestamp, q.track_event.type != E.TYPE_SLICE_END))
for q in events:
    e = q.track_event
    name = tracks[e.track_uuid]
    count[name, E.Type.Name(e.type)] += 1
    if e.type == E.TYPE_SLICE_BEGIN:
        open_[e.track_uuid] += 1
        assert open_[e.track_uuid] == 1, "times overlap on a track"
        assert name.startswith(names[e.name_iid])
    if e.type == E.TYPE_SLICE_END: open_[e.track_uuid] -= 1
    if e.type == E.TYPE_COUNTER: sums[name] += e.counter_value
    for a in e.debug_annotations:
        sums[name] += a.uint_value + a.pointer_value
assert not any(open_.values())
for (name, kind), n in sorted(count.items()): print(name, kind, n, sep="|")
for name, s in sorted(sums.items()): print("sum", name, s, sep="|")
print("units", sorted(units.items()))
print("first", events[0].timestamp, "last", events[-1].timestamp)
"#,
        &[&path],
    );
    let sum = |order: u8, cpu: u16| -> u128 {
        let of = all
            .iter()
            .filter(|(at, sample)| *at == cpu && sample.id == id(order));
        of.map(|(_, sample)| u128::from(sample.value)).sum()
    };
    let last = all.last().unwrap().1.tsc;
    for wanted in [
        "\"Event\", pre kernel_clone block 3 · CPU 0|TYPE_INSTANT|15000".to_owned(),
        "\"Value\", pre kernel_clone block 3 · CPU 1|TYPE_INSTANT|5000".to_owned(),
        "\"Value\", pre kernel_clone block 3 · CPU 1|TYPE_COUNTER|10000".to_owned(),
        "\"Duration\", pre kernel_clone block 3 · CPU 2|TYPE_SLICE_BEGIN|15000".to_owned(),
        "\"Duration\", pre kernel_clone block 3 · CPU 2|TYPE_SLICE_END|15000".to_owned(),
        "\"Count\", pre kernel_clone block 3 · CPU 2|TYPE_COUNTER|15000".to_owned(),
        "losses and marks|TYPE_INSTANT|2".to_owned(),
        "sum|losses and marks|118".to_owned(),
        format!(
            "sum|\"Value\", pre kernel_clone block 3 · CPU 2|{}",
            sum(1, 2)
        ),
        format!(
            "sum|\"Duration\", pre kernel_clone block 3 · CPU 0|{}",
            sum(2, 0)
        ),
        format!(
            "sum|\"Count\", pre kernel_clone block 3 · CPU 1|{}",
            sum(3, 1)
        ),
    ] {
        assert!(
            printed.lines().any(|line| line == wanted),
            "{wanted}\nis not in\n{printed}"
        );
    }
    assert!(
        printed.contains(&format!("last {}", unix(last))),
        "{printed}"
    );
    assert!(printed.contains("CPU 0', 'hits')"), "{printed}");
}

#[test]
#[ignore = "needs GILK_PYTHON, any python; cargo xtask test makes one"]
fn any_json_reader_reads_chromes_events() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::Chrome);
    let printed = python(
        r#"
import sys, json, collections
trace = json.load(open(sys.argv[1]))
threads = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
count, values, ends = collections.Counter(), collections.Counter(), collections.defaultdict(lambda: -1e9)
for e in trace["traceEvents"]:
    count[e["ph"]] += 1
    if e["ph"] == "M" or e.get("s") == "g": continue
    if e["ph"] == "X":
        assert ends[e["tid"]] <= e["ts"] + 0.002, "times overlap on a thread"
        ends[e["tid"]] = e["ts"] + e["dur"]
        assert threads[e["tid"]].startswith(e["name"])
    v = e["args"]["value"]
    values[e["ph"]] += int(v, 16) if isinstance(v, str) else v
print(sorted(count.items())[0:3], count["X"], trace["otherData"]["kernel"])
for kind, n in values.items(): print(kind, n)
"#,
        &[&path],
    );
    let sum = |keep: &dyn Fn(&Sample) -> bool| -> u128 {
        let kept = all.iter().filter(|(_, sample)| keep(sample));
        kept.map(|(_, sample)| u128::from(sample.value)).sum()
    };
    let order = |sample: &Sample| sample.id & 3;
    for wanted in [
        format!(
            "i {}",
            sum(&|sample| order(sample) == 0 || sample.value >= POINTER)
        ),
        format!(
            "C {}",
            sum(&|sample| order(sample) & 1 == 1 && sample.value < POINTER)
        ),
        format!("X {}", sum(&|sample| order(sample) == 2)),
    ] {
        assert!(
            printed.lines().any(|line| line == wanted),
            "{wanted}\nis not in\n{printed}"
        );
    }
    assert!(printed.contains(" 45000 6.1.0-40-cloud-amd64"), "{printed}");
}

#[test]
#[ignore = "needs babeltrace2; cargo xtask test installs it"]
fn babeltrace2_reads_ctf() {
    let dir = tempfile::TempDir::new().unwrap();
    let (path, all) = exported(dir.path(), Format::Ctf);
    let printed = said(
        Command::new("babeltrace2")
            .args(["--clock-cycles", "--no-delta"])
            .arg(&path),
    );
    // `[00000987654321012] 'Event', pre kernel_clone block 3: { cpu_id = 0 }, { value = 1 }`
    let read = printed.lines().filter(|line| {
        line.contains(", pre ") && line.contains("value = ") && !line.contains("launch")
    });
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let read: Vec<(u16, u64, u64)> = read
        .map(|line| {
            let between = |from: &str, to: &str| {
                let rest = line.split_once(from).unwrap().1;
                rest.split_once(to).unwrap().0.trim().to_owned()
            };
            let cpu = between("cpu_id = ", " }").parse().unwrap();
            (
                cpu,
                number(&between("[", "]")),
                number(&between("value = ", " }")),
            )
        })
        .collect();
    assert_eq!(read.len(), all.len());
    for (read, (cpu, sample)) in read.into_iter().zip(&all) {
        assert_eq!(read, (*cpu, sample.tsc, sample.value));
    }
    assert!(printed.contains("lost: ring full: { cpu_id = 2 }, { count = 41 }"));
    assert!(printed.contains(
        "launch: 'Duration', pre kernel_clone block 3: { cpu_id = 65535 }, { value = 77 }"
    ));
    let dated = said(
        Command::new("babeltrace2")
            .args(["--clock-seconds", "--no-delta"])
            .arg(&path),
    );
    let first = unix(START) / 1_000_000_000;
    assert!(
        dated.starts_with(&format!("[{first}.123456")),
        "{}",
        &dated[..80]
    );
}

#[test]
#[ignore = "needs GILK_PYTHON and babeltrace2; cargo xtask test makes one"]
fn what_was_stopped_is_whole() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    for format in [
        Format::Parquet,
        Format::Perfetto,
        Format::Chrome,
        Format::Ctf,
    ] {
        let path = dir.path().join("out").with_extension(format.extension());
        let stopped = export_to(&recording, format, &path, &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(Error::Cancelled { samples: 65_536 })));
        let read = match format {
            Format::Parquet => {
                "import duckdb, sys; print(duckdb.sql(f\"select count(*) from '{sys.argv[1]}' where kind = 0\").fetchall()[0][0])"
            }
            Format::Perfetto => {
                "import sys; from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as p; print(sum(q.HasField('track_event') and q.track_event.type != 2 for q in p.Trace.FromString(open(sys.argv[1], 'rb').read()).packet) - 1)"
            }
            Format::Chrome => {
                "import sys, json; print(sum(e['ph'] in 'CiX' for e in json.load(open(sys.argv[1]))['traceEvents']) - 1)"
            }
            _ => {
                let printed = said(Command::new("babeltrace2").arg(&path));
                assert_eq!(printed.lines().count(), 65_536 + 1, "samples and a mark");
                continue;
            }
        };
        assert_eq!(python(read, &[&path]).trim(), "65536", "{format:?}");
    }
}

#[test]
#[ignore = "needs GILK_PYTHON, a python with duckdb; cargo xtask test makes one"]
fn the_queries_of_the_readme_run() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    for machine in ["web1", "web2"] {
        let path = dir.path().join(format!("{machine}.arrow"));
        std::fs::copy(recording.path(), &path).unwrap();
        let go_on = &mut |_| ControlFlow::Continue(());
        let fleet = dir.path().join("fleet");
        export_into(&Recording::open(&path).unwrap(), &fleet, go_on).unwrap();
    }
    let readme = include_str!("../README.md");
    // They are asked in the folder that holds `fleet`.
    let queries: Vec<&str> = readme
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect();
    assert_eq!(queries.len(), 4);
    let queries = queries
        .join("\0")
        .replace("'fleet/", &format!("'{}/fleet/", dir.path().display()))
        // The test's times are of an instrument of another name.
        .replace("'elapsed%'", "'\"Duration%'");
    let file = dir.path().join("queries");
    std::fs::write(&file, queries.replace('\0', "\x01")).unwrap();
    let polars: Vec<&str> = readme
        .split("```python\nimport polars as pl\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect();
    assert_eq!(polars.len(), 1);
    let polars = polars[0]
        .replace("\"fleet\"", &format!("\"{}/fleet\"", dir.path().display()))
        .replace("\"elapsed\"", "'\"Duration'");
    let frames = dir.path().join("frames.py");
    std::fs::write(&frames, polars).unwrap();
    let printed = python(
        r#"
import duckdb, sys, polars as pl
for number, query in enumerate(open(sys.argv[1]).read().split("\x01")):
    for row in duckdb.sql(query).fetchall(): print(number, *row, sep="|")
print("types", duckdb.sql(f"select typeof(machine), typeof(day), typeof(utc), min(day), count(distinct day) from read_parquet('{sys.argv[3]}/fleet/**/*.parquet', hive_partitioning = true) group by all").fetchall())
exec(open(sys.argv[2]).read())
"#,
        &[&file, &frames, dir.path()],
    );
    for wanted in [
        "0|web1|\"Event\", pre kernel_clone block 3|45000|[1.0, 1.0]",
        "0|web2|\"Duration\", pre kernel_clone block 3|45000|[271000.0, 541000.0]",
        "2|web1|2|lost: ring full|41",
        "2|web2|2|lost: ring full|41",
    ] {
        assert!(
            printed.lines().any(|line| line == wanted),
            "{wanted}\nis not in\n{printed}"
        );
    }
    // The recording begins at 22:13:20 of that day.
    assert!(
        printed.contains("types [('VARCHAR', 'DATE', 'TIMESTAMP WITH TIME ZONE', datetime.date(2023, 11, 14), 1)]"),
        "{printed}"
    );
    // Polars says the same of the same question.
    for machine in ["web1", "web2"] {
        let wanted =
            format!("polars|{machine}|\"Duration\", pre kernel_clone block 3|45000|271000.0");
        assert!(
            printed.lines().any(|line| line == wanted),
            "{wanted}\nis not in\n{printed}"
        );
    }
    // Every sample is in one of the seconds, on both machines.
    let mut sums = [0u64; 2];
    for line in printed.lines().filter(|line| line.starts_with("1|")) {
        let counts = line
            .split('|')
            .skip(2)
            .map(|count| count.parse::<u64>().unwrap());
        sums.iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count);
    }
    assert_eq!(sums, [180_000; 2], "{printed}");
    assert!(
        printed
            .lines()
            .filter(|line| line.starts_with("3|"))
            .count()
            >= 4,
        "{printed}"
    );
}

/// A thread that calls `outer`, which calls `inner` twice, again and again, a microsecond for each step; and
/// another beside it that calls `inner` alone.
fn trace_calls(path: &Path) -> Recording {
    let function = |major: u32, name: &str| FunctionInfo {
        major,
        name: name.into(),
        address: 0,
        blocks: vec![(0, 8)],
        edges: Vec::new(),
    };
    let of = |major| {
        InstrumentId::new(major, HookType::Pre, 0, 0)
            .unwrap()
            .pack()
    };
    let instrument = |major| InstrumentInfo {
        id: of(major),
        label: format!("call-trace of {major}"),
        instrument: "call-trace".into(),
        meaning: Meaning::Value,
        unit: String::new(),
        launch: 0.0,
        splash: 1.0,
    };
    let metadata = Metadata {
        clock: Clock {
            hz: HZ,
            start: START,
            start_unix_ns: UNIX,
        },
        functions: vec![function(0, "outer<a>"), function(1, "inner")],
        instruments: vec![instrument(0), instrument(1)],
        ..Metadata::default()
    };
    let mut writer = Writer::create(path, &metadata).unwrap();
    for cpu in 0..2u16 {
        let thread = 70 + u64::from(cpu);
        let steps: &[(u32, u64)] = match cpu {
            0 => &[(0, 1), (1, 1), (1, 0), (1, 1), (1, 0), (0, 0)],
            _ => &[(1, 1), (1, 0)],
        };
        let steps = steps.iter().cycle().take(6 * 1000).zip(0..);
        let samples = steps.map(|(&(major, enters), n)| Sample {
            id: of(major),
            value: thread << 1 | enters,
            tsc: START + n * (HZ / 1_000_000),
        });
        let samples = samples.collect();
        writer.write(&Batch { cpu, samples }).unwrap();
    }
    writer.finish().unwrap();
    Recording::open(path).unwrap()
}

#[test]
#[ignore = "needs GILK_PYTHON, any python; cargo xtask test makes one"]
fn stacks_and_flame_graph_say_where_time_went() {
    let dir = tempfile::TempDir::new().unwrap();
    let recording = trace_calls(&dir.path().join("calls.arrow"));
    let [folded, flame] = [Format::Folded, Format::Flame].map(|format| {
        let path = dir.path().join(format!("out.{}", format.extension()));
        assert_eq!(Format::of(&path), Some(format));
        let done = export_to(
            &recording,
            format,
            &path,
            &mut |_| ControlFlow::Continue(()),
        );
        assert_eq!(done.unwrap().samples, 12_000);
        path
    });
    // A line is a stack and its weight behind the last space, as flamegraph.pl has it.
    let printed = python(
        r#"
import sys, collections, xml.etree.ElementTree as xml
time = collections.Counter()
for line in open(sys.argv[1]):
    stack, weight = line.rstrip("\n").rsplit(" ", 1)
    time[tuple(stack.split(";"))] += int(weight)
for stack, weight in sorted(time.items()): print("folded", *stack, weight, sep="|")
frames, svg = {}, "{http://www.w3.org/2000/svg}"
for group in xml.parse(sys.argv[2]).getroot().iter(svg + "g"):
    box = group.find(svg + "rect").attrib
    frames.setdefault(float(box["y"]), []).append((float(box["x"]), float(box["width"]), group.find(svg + "title").text))
rows = [sorted(frames[y]) for y in sorted(frames, reverse=True)]
for row in rows:
    for one, next in zip(row, row[1:]): assert one[0] + one[1] <= next[0] + 0.011, "frames overlap"
    for x, width, title in row: print("flame", round(width), title, sep="|")
"#,
        &[&folded, &flame],
    );
    // Of six microseconds, a thousand times, three are in the outer one, two in the inner, and one in nobody; the
    // other thread is in `inner` every other microsecond.
    for wanted in [
        "folded|outer<a>|3000000",
        "folded|outer<a>|inner|2000000",
        "folded|inner|3000000",
        "flame|1180|all: 8 ms (100.00 %)",
        "flame|738|outer<a>: 5 ms (62.50 %), 1,000 calls",
        "flame|295|inner: 2 ms (25.00 %), 2,000 calls",
        "flame|442|inner: 3 ms (37.50 %), 3,000 calls",
    ] {
        assert!(
            printed.lines().any(|line| line == wanted),
            "{wanted}\nis not in\n{printed}"
        );
    }
}

#[test]
fn the_timeline_is_drawn() {
    let dir = tempfile::TempDir::new().unwrap();
    let (recording, _) = record(&dir.path().join("recording.arrow"));
    for format in [Format::Svg, Format::Png] {
        let path = dir.path().join("out").with_extension(format.extension());
        let stopped = export_to(&recording, format, &path, &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(Error::Cancelled { .. })) && !path.exists());
        let done = export_to(
            &recording,
            format,
            &path,
            &mut |_| ControlFlow::Continue(()),
        );
        assert_eq!(done.unwrap().samples, 180_000);
        let bytes = std::fs::read(&path).unwrap();
        match format {
            Format::Svg => {
                let text = String::from_utf8(bytes).unwrap();
                assert!(text.starts_with("<svg") && text.contains("kernel_clone block 3"));
            }
            _ => {
                // The width is the first number of the first chunk.
                assert!(bytes.starts_with(b"\x89PNG") && bytes[16..20] == 1280u32.to_be_bytes());
            }
        }
    }
}
