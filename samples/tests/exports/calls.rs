//! Stacks of calls, and the flame graph.

use super::*;

/// Records a thread that calls `outer`, which calls `inner` twice, repeatedly, a microsecond per
/// step; and a second thread that calls `inner` alone.
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
        placed: None,
        delivers: Delivers::Samples,
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
fn stacks_and_flame_graph_attribute_time_to_functions() {
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
    // A line is a stack and its weight after the last space, as flamegraph.pl expects.
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
    // Of six microseconds, a thousand times, three are in the outer function, two in the inner one,
    // and one in neither; the other thread is in `inner` every other microsecond.
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
