//! Samples of no CPU, such as totals over all of them: no export shows the recording's number for that as a CPU.

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::Field;
use gilk_samples::profile::profiles;
use gilk_samples::record::ALL_CPUS;

use super::*;

/// A recording of two samples, of CPU 1 and of none, and of a loss that no CPU is known for.
fn recorded(path: &Path) -> Recording {
    let metadata = Metadata {
        cpus: 2,
        clock: Clock {
            hz: HZ,
            start: START,
            start_unix_ns: UNIX,
        },
        instruments: vec![instrument(1, Meaning::Value, "")],
        ..Metadata::default()
    };
    let mut writer = Writer::create(path, &metadata).unwrap();
    for (cpu, value) in [(1, 5), (ALL_CPUS, 6)] {
        let sample = Sample {
            id: id(1),
            value,
            tsc: START + HZ + value,
        };
        let samples = vec![sample];
        writer.write(&Batch { cpu, samples }).unwrap();
    }
    let loss = Loss {
        cpu: ALL_CPUS,
        tsc: START + 2 * HZ,
        cause: LossCause::RingFull,
        count: 3,
    };
    writer.losses(&[loss]).unwrap();
    writer.finish().unwrap();
    Recording::open(path).unwrap()
}

#[test]
fn samples_of_no_cpu_have_none_in_any_export() {
    let dir = tempfile::TempDir::new().unwrap();
    let recording = recorded(&dir.path().join("recording.arrow"));
    let exported = |format: Format| {
        let path = dir.path().join("out").with_extension(format.extension());
        let proceed = &mut |_| ControlFlow::Continue(());
        export_to(&recording, format, &path, proceed).unwrap();
        path
    };
    let text = |format| std::fs::read_to_string(exported(format)).unwrap();
    // Comma-separated: an empty field.
    let csv = text(Format::Csv);
    let cpus: Vec<&str> = csv
        .lines()
        .map(|line| line.split(',').nth(2).unwrap())
        .collect();
    assert_eq!(cpus, ["cpu", "1", ""], "{csv}");
    // JSON: null.
    let lines = text(Format::JsonLines);
    let cpus = lines.lines().skip(1).map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["cpu"].clone()
    });
    let none = serde_json::Value::Null;
    assert_eq!(
        cpus.collect::<Vec<_>>(),
        [1.into(), none.clone()],
        "{lines}"
    );
    // Parquet: null.
    let file = std::fs::File::open(exported(Format::Parquet)).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    let mut cpus = Vec::new();
    for row in file.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let (_, cpu) = row
            .get_column_iter()
            .find(|(name, _)| *name == "cpu")
            .unwrap();
        cpus.push(cpu.clone());
    }
    assert_eq!(cpus, [Field::UShort(1), Field::Null, Field::Null]);
    // Tracks of traces: named by the instrument alone; the loss is of no number.
    let chrome: serde_json::Value = serde_json::from_str(&text(Format::Chrome)).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    let names = events
        .iter()
        .filter_map(|event| event["args"]["name"].as_str());
    let names: Vec<&str> = names.filter(|name| name.contains("Value")).collect();
    let label = "\"Value\", pre kernel_clone block 3";
    if !names.is_empty() {
        assert_eq!(names, [&*format!("{label} · CPU 1"), label]);
    }
    let loss = events
        .iter()
        .find(|event| event["args"]["count"] == 3)
        .unwrap();
    assert_eq!(loss["args"]["cpu"], none, "{loss}");
    let perfetto = std::fs::read(exported(Format::Perfetto)).unwrap();
    let perfetto = String::from_utf8_lossy(&perfetto);
    assert!(perfetto.contains(&format!("{label} · CPU 1")), "{perfetto}");
    assert!(perfetto.contains("ring full · all CPUs"), "{perfetto}");
    // CTF has no null: a stream of that name, whose number is that of the recording.
    let trace = exported(Format::Ctf);
    assert!(trace.join("cpu_1").exists() && trace.join("cpu_all").exists());
    for written in [csv, lines, chrome.to_string(), perfetto.into_owned()] {
        assert!(!written.contains("65535"), "{written}");
    }
    // Statistics.
    let found = profiles(&recording, None, 4, |_| true);
    let counted = serde_json::to_value(&found.instruments).unwrap();
    assert_eq!(counted[0]["cpus"], serde_json::json!([[1, 1], [null, 1]]));
    let lost = recording.losses().unwrap();
    let by_cpu = Loss::by_cpu(&lost, recording.metadata());
    assert_eq!(by_cpu, "lost on all CPUs: 3 (ring full)\n");
}
