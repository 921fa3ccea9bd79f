use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::sink::PROGRESS_EVERY;
use super::*;
use crate::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata};
use crate::recording::{Recording, Writer};
use crate::{Batch, HookType, InstrumentId, Meaning, Sample};

fn id(block: u32) -> u64 {
    InstrumentId::new(7, HookType::Post, block, 0)
        .unwrap()
        .pack()
}

fn recording(dir: &TempDir) -> Recording {
    let instrument = InstrumentInfo {
        id: id(0),
        label: "argument \"rdi\", post kernel_clone".to_owned(),
        instrument: "argument-0".to_owned(),
        meaning: Meaning::Value,
        unit: String::new(),
        launch: 0.0,
        splash: 1.0,
        placed: None,
        delivers: Delivers::Samples,
    };
    let function = FunctionInfo {
        major: 7,
        name: "kernel_clone".to_owned(),
        address: 0xffff_ffff_8100_0000,
        blocks: vec![(0, 12)],
        edges: Vec::new(),
    };
    let metadata = Metadata {
        clock: Clock {
            hz: 1_000_000_000,
            start: 5_000_000_000,
            start_unix_ns: 0,
        },
        functions: vec![function],
        instruments: vec![instrument],
        ..Metadata::default()
    };
    let path = dir.path().join("recording.arrow");
    let mut writer = Writer::create(&path, &metadata).unwrap();
    let sample = |id, value, tsc| Sample { id, value, tsc };
    let samples = vec![
        sample(id(0), 1, 4_000_000_000),
        sample(id(0), 0xffff_8880_1234_5678, 7_500_000_001),
    ];
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    writer
        .write(&Batch {
            cpu: 1,
            samples: vec![sample(id(3), 42, 5_000_000_000)],
        })
        .unwrap();
    writer.finish().unwrap();
    Recording::open(&path).unwrap()
}

fn exported(format: Format) -> String {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("out");
    let mut last = None;
    let done = export_to(&recording(&dir), format, &path, &mut |progress| {
        last = Some(progress);
        ControlFlow::Continue(())
    });
    assert_eq!(done.unwrap().samples, 3);
    assert_eq!(last, Some(Progress { samples: 3, of: 3 }));
    fs::read_to_string(path).unwrap()
}

#[test]
fn csv_is_in_order_of_time_and_quotes_labels() {
    let (known, unknown) = (id(0), id(3));
    let expected = format!(
        "seconds,tsc,cpu,instrument,id,value\n\
         -1.000000000,4000000000,0,\"argument \"\"rdi\"\", post kernel_clone\",{known},1\n\
         0.000000000,5000000000,1,7.post.3.0,{unknown},42\n\
         2.500000001,7500000001,0,\"argument \"\"rdi\"\", post kernel_clone\",{known},18446612682375452280\n"
    );
    assert_eq!(exported(Format::Csv), expected);
}

#[test]
fn the_plain_file_has_a_map_followed_by_samples() {
    let expected = "7 kernel_clone\n\n7.post.0.0 1 4000000000\n7.post.3.0 42 5000000000\n\
                    7.post.0.0 18446612682375452280 7500000001\n";
    assert_eq!(exported(Format::Report), expected);
}

#[test]
fn every_line_of_json_is_an_object_without_rounded_numbers() {
    let text = exported(Format::JsonLines);
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["gilk"]["functions"][0]["name"], "kernel_clone");
    assert_eq!(
        lines[1]["instrument"],
        "argument \"rdi\", post kernel_clone"
    );
    assert_eq!(
        (&lines[2]["seconds"], &lines[2]["value"]),
        (&0.0.into(), &42.into())
    );
    assert_eq!(lines[3]["value"], "0xffff888012345678");
    assert_eq!(lines.len(), 4);
}

#[test]
fn an_export_can_be_stopped_and_reports_a_full_disk() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("long.arrow");
    let mut writer = Writer::create(&path, &Metadata::default()).unwrap();
    let samples = (0..200_000)
        .map(|n| Sample {
            id: 1,
            value: n,
            tsc: n,
        })
        .collect();
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    writer.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let out: PathBuf = dir.path().join("long.csv");
    let error = export_to(&recording, Format::Csv, &out, &mut |_| {
        ControlFlow::Break(())
    })
    .unwrap_err();
    assert!(matches!(
        error,
        Error::Cancelled {
            samples: PROGRESS_EVERY
        }
    ));
    assert!(!out.exists());
    let full = Path::new("/dev/full");
    for format in Format::ALL {
        if format == Format::Ctf {
            continue;
        }
        if matches!(format, Format::Folded | Format::Flame) {
            let go_on = &mut |_| ControlFlow::Continue(());
            let error = export_to(&recording, format, full, go_on).unwrap_err();
            assert!(matches!(error, Error::NoCalls { .. }), "{error}");
            continue;
        }
        let go_on = &mut |_| ControlFlow::Continue(());
        let error = export_to(&recording, format, full, go_on).unwrap_err();
        let said = error.to_string();
        assert!(
            said.starts_with("/dev/full") && said.contains("Free some space"),
            "{format:?}: {said}"
        );
    }
}

#[test]
fn an_extension_selects_the_format() {
    for format in Format::ALL {
        assert_eq!(
            Format::of(&PathBuf::from("out").with_extension(format.extension())),
            Some(format)
        );
    }
    assert_eq!(Format::of(Path::new("out.CSV")), Some(Format::Csv));
    assert_eq!(Format::of(Path::new("out.arrow")), None);
}

#[test]
fn every_format_is_parsed_from_its_name() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
    }
    let error = "xls".parse::<Format>().unwrap_err().to_string();
    assert!(
        error.contains("\"xls\"") && error.contains("parquet"),
        "{error}"
    );
}
