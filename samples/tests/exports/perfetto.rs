//! A trace for Perfetto, read with its own published protos.

use super::*;

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
