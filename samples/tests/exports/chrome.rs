//! Chrome's events, read by a JSON reader.

use super::*;

#[test]
#[ignore = "needs GILK_PYTHON, any python; cargo xtask test makes one"]
fn a_json_reader_reads_chromes_events() {
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
