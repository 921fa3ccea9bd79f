use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::cache_numbers::CacheNumbers;
use crate::kept_stacks::KeptStacks;
use crate::metadata::{Clock, Delivers, InstrumentInfo, Metadata};
use crate::process_end::{EndWay, ProcessEnd};
use crate::record::ALL_CPUS;
use crate::totals::{Counted, Gap, SessionCost, Total, TotalBucket, TotalValue, Totals};
use crate::{Batch, Error, HookType, InstrumentId, Meaning, Sample};

fn metadata() -> Metadata {
    let id = InstrumentId::new(3, HookType::Pre, 0, 0).unwrap().pack();
    Metadata {
        session: "(instruments: [])".to_owned(),
        kernel: "6.1.0-1-cloud-amd64".to_owned(),
        cpus: 2,
        clock: Clock {
            hz: 2_400_000_000,
            start: 1_000_000,
            start_unix_ns: 1_700_000_000_000_000_000,
        },
        instruments: vec![InstrumentInfo {
            id,
            label: "timestamp pre __x64_sys_clone block 0".to_owned(),
            instrument: "timestamp".to_owned(),
            meaning: Meaning::Event,
            unit: String::new(),
            launch: 0.0,
            splash: 10.0,
            placed: None,
            delivers: Delivers::Samples,
        }],
        ..Metadata::default()
    }
}

fn batch(cpu: u16, from: u64, count: u64) -> Batch {
    let samples = (from..from + count).map(|n| Sample {
        id: 1 + n % 5,
        value: n.wrapping_mul(0x9e37_79b9),
        tsc: 1000 + n * 7,
    });
    Batch {
        cpu,
        samples: samples.collect(),
    }
}

fn create(dir: &TempDir) -> (PathBuf, Writer) {
    let path = dir.path().join("recording.arrow");
    let writer = Writer::create(&path, &metadata()).unwrap();
    (path, writer)
}

/// Returns every sample with its CPU, in the order of the file.
fn contents(path: &Path) -> Vec<(u16, Sample)> {
    let recording = Recording::open(path).unwrap();
    let batches: Vec<Batch> = recording.batches().collect::<crate::Result<_>>().unwrap();
    batches
        .iter()
        .flat_map(|batch| batch.samples.iter().map(|sample| (batch.cpu, *sample)))
        .collect()
}

fn of_cpu(contents: &[(u16, Sample)], cpu: u16) -> Vec<Sample> {
    contents
        .iter()
        .filter(|(of, _)| *of == cpu)
        .map(|(_, sample)| *sample)
        .collect()
}

mod growing;
mod torn;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_recording_contains_exactly_what_was_written(
        batches in prop::collection::vec((0u16..4, prop::collection::vec(any::<[u64; 3]>(), 0..3000)), 0..8),
        compression in prop_oneof![Just(Compression::Auto), Just(Compression::Zstd), Just(Compression::None)],
        finish: bool, keep_sidecar: bool,
    ) {
        let dir = TempDir::new().unwrap();
        let (path, mut writer) = create(&dir);
        writer.set_compression(compression);
        let batches: Vec<Batch> = batches.into_iter().map(|(cpu, samples)| {
            // A further word of a line is a row, and no sample.
            let samples = samples.into_iter().map(|[id, value, tsc]| Sample { id: id & !Sample::WORD, value, tsc });
            Batch { cpu, samples: samples.collect() }
        }).collect();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        let count: u64 = batches.iter().map(|batch| batch.samples.len() as u64).sum();
        if finish {
            let summary = writer.finish().unwrap();
            prop_assert_eq!(summary.samples, count);
            prop_assert_eq!(summary.bytes, fs::metadata(&path).unwrap().len());
        } else {
            drop(writer);
        }
        if !keep_sidecar {
            fs::remove_file(sidecar_path(&path)).unwrap();
        }
        let recording = Recording::open(&path).unwrap();
        prop_assert_eq!(recording.metadata(), &metadata());
        prop_assert_eq!(recording.samples(), count);
        prop_assert_eq!(recording.recovered().is_none(), finish);
        let all = || batches.iter().flat_map(|batch| &batch.samples);
        prop_assert_eq!(recording.span(), all().map(|s| s.tsc).min().zip(all().map(|s| s.tsc).max()));
        let found = contents(&path);
        for cpu in 0..4 {
            let expected: Vec<Sample> =
                batches.iter().filter(|batch| batch.cpu == cpu).flat_map(|batch| batch.samples.clone()).collect();
            prop_assert_eq!(of_cpu(&found, cpu), expected);
        }
    }
}

#[test]
fn losses_and_marks_are_rows_next_to_samples() {
    let dir = TempDir::new().unwrap();
    let (path, mut writer) = create(&dir);
    let losses = [
        Loss {
            cpu: 0,
            tsc: 500,
            cause: LossCause::RingFull,
            count: 7,
        },
        Loss {
            cpu: 1,
            tsc: 501,
            cause: LossCause::Unmatched,
            count: 3,
        },
        Loss {
            cpu: 1,
            tsc: 502,
            cause: LossCause::RingFull,
            count: 2,
        },
    ];
    let marks = [
        Mark {
            kind: MarkKind::Launch,
            tsc: 100,
            id: 3,
            value: 12,
        },
        Mark {
            kind: MarkKind::Splash,
            tsc: 900,
            id: 3,
            value: 15,
        },
        Mark {
            kind: MarkKind::User,
            tsc: 950,
            id: 0,
            value: 1,
        },
    ];
    writer.losses(&losses).unwrap();
    writer
        .losses(&[Loss {
            cpu: 0,
            tsc: 503,
            cause: LossCause::RingFull,
            count: 0,
        }])
        .unwrap();
    writer.write(&batch(0, 0, 10)).unwrap();
    marks.iter().for_each(|mark| writer.mark(*mark).unwrap());
    writer.write(&batch(ALL_CPUS, 0, 4)).unwrap();
    let summary = writer.finish().unwrap();
    assert_eq!(
        (
            summary.lost_full,
            summary.lost_otherwise,
            summary.marks,
            summary.samples
        ),
        (9, 3, 3, 14)
    );
    for keep_sidecar in [true, false] {
        if !keep_sidecar {
            fs::remove_file(sidecar_path(&path)).unwrap();
        }
        let recording = Recording::open(&path).unwrap();
        assert_eq!(recording.losses().unwrap(), losses);
        assert_eq!(recording.marks().unwrap(), marks);
        assert_eq!(recording.samples(), 14);
        assert_eq!(recording.recovered(), None);
    }
}

#[test]
fn small_drains_are_gathered_and_large_ones_split() {
    let dir = TempDir::new().unwrap();
    let (path, mut writer) = create(&dir);
    (0..100).for_each(|n| writer.write(&batch(0, n * 10, 10)).unwrap());
    writer.flush().unwrap();
    assert!(
        writer.summary().batches <= 2,
        "a thousand samples in no time make one batch"
    );
    writer.write(&batch(1, 0, 3 * MAX_ROWS as u64 + 1)).unwrap();
    writer.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let rows: Vec<u32> = recording
        .blocks()
        .iter()
        .filter(|block| block.cpu == 1)
        .map(|block| block.rows)
        .collect();
    assert_eq!(rows, [65536, 65536, 65536, 1]);
}

#[test]
fn merged_is_in_order_of_time_over_all_cpus() {
    let dir = TempDir::new().unwrap();
    let (path, mut writer) = create(&dir);
    for n in 0..20 {
        // The CPUs are drained in turn, each some time after its samples were taken.
        writer
            .write(&batch(n % 3, u64::from(n / 3) * 300, 300))
            .unwrap();
        writer.flush().unwrap();
    }
    let count = writer.finish().unwrap().samples;
    let recording = Recording::open(&path).unwrap();
    let merged: Vec<(u16, Sample)> = recording.merged().collect::<crate::Result<_>>().unwrap();
    assert_eq!(merged.len() as u64, count);
    assert!(merged.is_sorted_by_key(|(cpu, sample)| (sample.tsc, *cpu)));
    let file = contents(&path);
    for cpu in 0..3 {
        assert_eq!(of_cpu(&merged, cpu), of_cpu(&file, cpu));
    }
}

#[test]
fn other_files_are_refused_in_one_sentence() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("file");
    let refusal = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Recording::open(&path).unwrap_err().to_string()
    };
    let name = path.display();
    assert_eq!(
        refusal(b""),
        format!("{name} is not a recording that can be opened: it is empty.")
    );
    assert_eq!(
        refusal(b"\x7fELF and more"),
        format!(
            "{name} is not a recording that can be opened: it does not begin with ARROW1, as every recording does."
        )
    );
    assert!(refusal(b"ARROW1").contains("its schema is cut off: the file ends after 6 bytes"));
    assert!(
        Recording::open(dir.path())
            .unwrap_err()
            .to_string()
            .contains("it is not a regular file")
    );
    let missing = Recording::open(dir.path().join("missing"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("Check the path"), "{missing}");
}

#[test]
fn a_full_disk_is_reported_and_keeps_everything_written() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("full.arrow");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let error = Writer::create(&path, &metadata()).unwrap_err();
    assert!(
        matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    );
    assert!(error.to_string().contains("Free some space"), "{error}");
}

/// Returns arbitrary aggregates.
fn totals() -> impl Strategy<Value = Totals> {
    let number = prop_oneof![
        any::<i64>().prop_map(i128::from),
        any::<u64>().prop_map(i128::from)
    ];
    let bucket = (
        prop::option::of(number.clone()),
        prop::option::of(number.clone()),
        any::<u64>(),
    );
    let bucket = bucket.prop_map(|(from, to, count)| TotalBucket { from, to, count });
    let value = prop_oneof![
        number.clone().prop_map(TotalValue::Number),
        Just(TotalValue::Nothing),
        any::<i32>().prop_map(|eighths| TotalValue::Mean(f64::from(eighths) / 8.0)),
        prop::collection::vec(bucket, 0..70).prop_map(TotalValue::Buckets),
        (
            prop::collection::vec((number, any::<u64>()), 0..9),
            any::<u64>()
        )
            .prop_map(|(values, others)| TotalValue::Values(values, others)),
    ];
    let total = (any::<usize>(), ".{0,9}", value).prop_map(|(placement, name, value)| Total {
        placement,
        instrument: format!("of {name}"),
        name,
        unit: "ticks".to_owned(),
        may_be_zero: false,
        value,
    });
    prop::collection::vec(total, 0..5).prop_map(|added_up| Totals {
        added_up,
        failed_reads: vec![Counted {
            placement: 1,
            instrument: "load".to_owned(),
            count: 7,
        }],
        no_room: vec![Counted {
            placement: 0,
            instrument: "elapsed".to_owned(),
            count: 2,
        }],
        symbols: [(u64::MAX, "vfs_read+0x1c".to_owned())].into(),
        stacks: KeptStacks {
            frames: [(7, vec!["vfs_read+0x1c".to_owned()])].into(),
            of_processes: [7].into(),
            lost: 3,
            limits: ["Stacks end in a test.".to_owned()].into(),
        },
        ended: "The session was ended: a test ended it.".to_owned(),
        ends: vec![ProcessEnd {
            pid: 7,
            program: "sh".to_owned(),
            way: EndWay::LetGo {
                rule: "may-change".to_owned(),
                at: u64::MAX,
                why: "a test wanted it".to_owned(),
            },
            ..ProcessEnd::default()
        }],
        gaps: vec![Gap {
            out: 0.5,
            back: Some(1.5),
            why: "a test wanted it".to_owned(),
            left_out: 2,
            replaced: vec!["vfs_read".to_owned()],
        }],
        cache: Some(CacheNumbers {
            blocks: 3,
            ..CacheNumbers::default()
        }),
        cost: Some(SessionCost {
            counted_for: 0.5,
            silent: 1,
            ..SessionCost::default()
        }),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn totals_survive_until_the_footer_is_lost(totals in totals()) {
        let dir = TempDir::new().unwrap();
        let (path, mut writer) = create(&dir);
        writer.write(&batch(0, 0, 500)).unwrap();
        writer.flush().unwrap();
        writer.write(&batch(0, 500, 500)).unwrap();
        writer.totals(totals.clone());
        writer.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        prop_assert_eq!(recording.recovered(), None);
        prop_assert_eq!(recording.totals(), &totals);
        // A damaged batch is left out, and the totals stay.
        let mut bytes = fs::read(&path).unwrap();
        let inside = recording.blocks()[0].offset as usize + 9;
        bytes[inside] ^= 0xff;
        fs::write(&path, &bytes).unwrap();
        let _ = fs::remove_file(sidecar_path(&path));
        recover(&path).unwrap();
        let recording = Recording::open(&path).unwrap();
        prop_assert_eq!((recording.samples(), recording.recovered()), (500, None));
        prop_assert_eq!(recording.totals(), &totals);
        let length = fs::metadata(&path).unwrap().len();
        fs::File::options().write(true).open(&path).unwrap().set_len(length - 3).unwrap();
        let recording = Recording::open(&path).unwrap();
        prop_assert_eq!(recording.totals(), &Totals::default());
        prop_assert!(recording.recovered().unwrap().contains("was not finished"));
    }
}

#[test]
fn what_is_described_during_the_run_is_in_the_finished_recording() {
    let dir = TempDir::new().unwrap();
    let (path, mut writer) = create(&dir);
    let initial = Recording::open(&path).unwrap().metadata().clone();
    let mut described = initial.clone();
    described.kernel.push_str(" and a library");
    writer.write(&batch(0, 0, 500)).unwrap();
    writer.describe(&described).unwrap();
    writer.write(&batch(0, 500, 500)).unwrap();
    writer.flush().unwrap();
    assert_eq!(Recording::open(&path).unwrap().metadata(), &initial);
    writer.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!((recording.samples(), recording.recovered()), (1000, None));
    assert_eq!(recording.metadata(), &described);
    // A repaired recording keeps it.
    let mut bytes = fs::read(&path).unwrap();
    let inside = recording.blocks()[0].offset as usize + 9;
    bytes[inside] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    fs::remove_file(sidecar_path(&path)).unwrap();
    recover(&path).unwrap();
    assert_eq!(Recording::open(&path).unwrap().metadata(), &described);
    // Metadata that cannot be read is reported, and that of the start taken.
    let mut bytes = fs::read(&path).unwrap();
    let word = b"and a library\",";
    let at = bytes.windows(word.len()).rposition(|window| window == word);
    bytes[at.unwrap() + 1] = b'"';
    fs::write(&path, &bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.metadata(), &initial);
    assert!(recording.recovered().unwrap().contains("during the run"));
}

#[test]
fn invalid_totals_are_reported() {
    let dir = TempDir::new().unwrap();
    let (path, mut writer) = create(&dir);
    writer.write(&batch(0, 0, 500)).unwrap();
    writer.totals(Totals {
        failed_reads: vec![Counted {
            placement: 4,
            instrument: "load".to_owned(),
            count: 7,
        }],
        ..Totals::default()
    });
    writer.finish().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let word = b"failed_reads";
    let at = bytes
        .windows(word.len())
        .rposition(|window| window == word)
        .unwrap();
    bytes[at + word.len() + 1] = b'!';
    fs::write(&path, &bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.samples(), 500);
    assert_eq!(recording.totals(), &Totals::default());
    let why = recording.recovered().unwrap();
    assert!(why.contains("added up cannot be read"), "{why}");
    recover(&path).unwrap();
    assert_eq!(Recording::open(&path).unwrap().recovered(), None);
}
