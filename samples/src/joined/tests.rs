use std::ops::ControlFlow;

use tempfile::TempDir;

use super::*;
use crate::clocks::Reading;
use crate::kept_stacks::KeptStacks;
use crate::metadata::{Clock, Delivers, InstrumentInfo, Placed};
use crate::process_end::ProcessEnd;
use crate::recording::LossCause;
use crate::totals::{Counted, Gap, Total, TotalBucket, TotalValue as Value, Totals};
use crate::{HookType, InstrumentId, Meaning, Sample};

const SECOND: u64 = 1_000_000_000;

fn id(major: u32) -> u64 {
    InstrumentId::new(major, HookType::Pre, 2, 0)
        .unwrap()
        .pack()
}

/// Returns ticks of a clock with this frequency that showed `off` in 1970, after `truth`
/// nanoseconds.
fn ticks_at(truth: u64, hz: u64, off: u64) -> u64 {
    let ticks = u128::from(truth) * u128::from(hz) / u128::from(SECOND);
    u64::try_from(ticks).unwrap() + off
}

/// Records a machine with samples at these true nanoseconds on two CPUs, an instrument of events
/// and one that measures a microsecond; its second 0 is at `start`.
fn record(dir: &TempDir, machine: &str, hz: u64, off: u64, start: u64, at: &[u64]) -> Recording {
    let instrument = |major, meaning, unit: &str| InstrumentInfo {
        id: id(major),
        label: format!("of {major}"),
        instrument: "test".into(),
        meaning,
        unit: unit.into(),
        launch: 0.5,
        splash: 2.0,
        placed: Some(Placed {
            placement: major,
            function: "f".into(),
            major,
        }),
        delivers: Delivers::Samples,
    };
    let metadata = Metadata {
        machine: machine.into(),
        kernel: "6.1".into(),
        cpus: 2,
        clock: Clock {
            hz,
            start: ticks_at(start, hz, off),
            // A clock that has never been set.
            start_unix_ns: 77,
        },
        instruments: vec![
            instrument(0, Meaning::Event, ""),
            instrument(3, Meaning::Duration, "ticks"),
        ],
        ..Metadata::default()
    };
    let path = dir.path().join(format!("{machine}.arrow"));
    let mut writer = Writer::create(&path, &metadata).unwrap();
    let read = |truth: u64| Reading::between(truth - 1000, truth + 1000, ticks_at(truth, hz, off));
    writer.mark(read(start - SECOND).into()).unwrap();
    for cpu in [0, 1] {
        let samples = at.iter().flat_map(|&at| {
            let tsc = ticks_at(at, hz, off);
            let value = ticks_at(1000, hz, 0);
            [
                Sample {
                    id: id(0),
                    value: 9,
                    tsc,
                },
                Sample {
                    id: id(3),
                    value,
                    tsc,
                },
            ]
        });
        let samples = samples.collect();
        writer.write(&Batch { cpu, samples }).unwrap();
    }
    let launched = Mark {
        kind: MarkKind::Launch,
        tsc: ticks_at(start, hz, off),
        id: id(3),
        value: ticks_at(500, hz, 0),
    };
    writer.mark(launched).unwrap();
    writer.mark(read(start + 4 * SECOND).into()).unwrap();
    writer.finish().unwrap();
    Recording::open(path).unwrap()
}

/// Joins two machines whose clocks have nothing in common.
fn two(dir: &TempDir) -> Joined {
    let start = 1_700_000_000 * SECOND;
    let at = |ms: &[u64]| {
        ms.iter()
            .map(|ms| start + ms * 1_000_000)
            .collect::<Vec<_>>()
    };
    let one = record(dir, "web1", 2_400_000_000, 5, start, &at(&[10, 20, 30]));
    let later = start + 250_000_000;
    let two = record(
        dir,
        "web2",
        3_100_000_001,
        1 << 60,
        later,
        &at(&[15, 25, 3000]),
    );
    Joined::new([one, two].map(|recording| (name(&recording), recording))).unwrap()
}

fn check(metadata: &Metadata, index: &Index, marks: &[Mark]) {
    let start = 1_700_000_000 * SECOND;
    let clock = &metadata.clock;
    assert!(clock.start.abs_diff(start) <= 1 && clock.hz == SECOND);
    let labels: Vec<_> = metadata
        .instruments
        .iter()
        .map(|one| one.label.as_str())
        .collect();
    assert_eq!(
        labels,
        ["web1: of 0", "web1: of 3", "web2: of 0", "web2: of 3"]
    );
    let placements: Vec<u32> = metadata
        .instruments
        .iter()
        .filter_map(|one| Some(one.placed.as_ref()?.placement))
        .collect();
    assert_eq!(
        placements,
        [0, 3, 4, 7],
        "counted on from machine to machine"
    );
    assert!(metadata.instruments.iter().all(|one| !one.is_elsewhere()));
    let launches: Vec<_> = metadata.instruments.iter().map(|one| one.launch).collect();
    assert!(
        (launches[0] - 0.5).abs() < 1e-6 && (launches[2] - 0.75).abs() < 1e-6,
        "{launches:?}"
    );
    let machines: Vec<_> = metadata
        .machines
        .iter()
        .map(|one| (one.name.as_str(), one.first_cpu))
        .collect();
    assert_eq!(machines, [("web1", 0), ("web2", 2)]);
    for machine in &metadata.machines {
        // A microsecond of round trip, and 20 millionths of two and a half seconds.
        let error = machine.error_ns.unwrap();
        assert!((1000..=1000 + 60_000).contains(&error), "{error}");
    }
    let times = |label: usize| {
        let mut times = Vec::new();
        index.visit(metadata.instruments[label].id, 0, u64::MAX, |point| {
            times.push((
                point.cpu,
                (point.tsc - start + 500) / 1_000_000,
                point.value,
            ));
        });
        times.sort_unstable();
        times
    };
    assert_eq!(
        times(0),
        [
            (0, 10, 9),
            (0, 20, 9),
            (0, 30, 9),
            (1, 10, 9),
            (1, 20, 9),
            (1, 30, 9)
        ]
    );
    assert_eq!(times(2)[..3], [(2, 15, 9), (2, 25, 9), (2, 3000, 9)]);
    // Both have measured a microsecond.
    assert!(
        times(1)
            .iter()
            .chain(&times(3))
            .all(|(_, _, value)| value.abs_diff(1000) <= 1)
    );
    let launched: Vec<_> = marks
        .iter()
        .map(|mark| {
            (
                mark.id,
                mark.value.div_ceil(10),
                (mark.tsc - start + 500) / 1_000_000,
            )
        })
        .collect();
    let [one, two] = [1, 3].map(|at| metadata.instruments[at].id);
    assert_eq!(launched, [(one, 50, 0), (two, 50, 250)]);
}

#[test]
fn machines_share_one_timeline() {
    let dir = TempDir::new().unwrap();
    let joined = two(&dir);
    let (index, errors) = joined.index(|_| ControlFlow::Continue(()));
    assert!(errors.is_empty());
    check(joined.metadata(), &index, &joined.marks().unwrap());
}

#[test]
fn a_joined_recording_opens_like_any_other() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("joined.arrow");
    let summary = two(&dir).write(&path, |_| {}).unwrap();
    assert_eq!(summary.samples, 24);
    let read = Recording::open(&path).unwrap();
    assert_eq!(read.recovered(), None);
    let (index, errors) = Index::of(&read, |_| ControlFlow::Continue(()));
    assert!(errors.is_empty());
    check(read.metadata(), &index, &read.marks().unwrap());
}

#[test]
fn machines_of_one_name_are_numbered_and_too_many_are_refused() {
    let dir = TempDir::new().unwrap();
    let open = || record(&dir, "lab", 1_000_000_000, 0, 50 * SECOND, &[51 * SECOND]);
    let joined = Joined::new((0..3).map(|_| ("lab".to_owned(), open()))).unwrap();
    let names: Vec<_> = joined
        .metadata()
        .machines
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["lab", "lab-2", "lab-3"]);

    let path = dir.path().join("large.arrow");
    let metadata = Metadata {
        cpus: 60_000,
        ..Metadata::default()
    };
    Writer::create(&path, &metadata).unwrap().finish().unwrap();
    let refused = Joined::open(&[&path, &path]).unwrap_err().to_string();
    assert!(refused.contains("more CPUs"), "{refused}");
}

#[test]
fn totals_are_prefixed_by_machine_and_converted_to_nanoseconds() {
    let dir = TempDir::new().unwrap();
    let total = |unit: &str, value| Total {
        placement: 2,
        instrument: "latency".into(),
        name: "t".into(),
        unit: unit.into(),
        may_be_zero: false,
        value,
    };
    let bucket = |from, to| TotalBucket {
        from: Some(from),
        to,
        count: 6,
    };
    for (machine, hz) in [("one", 2 * SECOND), ("two", 4 * SECOND)] {
        let mut writer = Writer::create(
            dir.path().join(format!("{machine}.arrow")),
            &Metadata {
                machine: machine.into(),
                clock: Clock {
                    hz,
                    ..Clock::default()
                },
                ..Metadata::default()
            },
        )
        .unwrap();
        let values = vec![(800, 3)];
        let buckets = vec![bucket(4000, Some(8000)), bucket(8000, None)];
        writer.totals(Totals {
            added_up: vec![
                total("ticks", Value::Number(-4000)),
                total("bytes", Value::Number(4000)),
                total("ticks", Value::Mean(2.0)),
                total("ticks", Value::Values(values, 9)),
                total("ticks", Value::Buckets(buckets)),
            ],
            failed_reads: vec![Counted {
                placement: 0,
                instrument: "load".into(),
                count: 7,
            }],
            no_room: vec![Counted {
                placement: 0,
                instrument: "latency".into(),
                count: 2,
            }],
            symbols: [(16, "same".to_owned()), (32, format!("of {machine}"))].into(),
            // Of a hash that all kernels share, with other code below it in each.
            stacks: KeptStacks {
                frames: [
                    (7, vec!["vfs_read".to_owned()]),
                    (8, vec![format!("of {machine}")]),
                ]
                .into(),
                lost: 3,
                ..KeptStacks::default()
            },
            ended: String::new(),
            ends: vec![ProcessEnd {
                pid: 7,
                ..ProcessEnd::default()
            }],
            gaps: vec![Gap {
                out: 1.0,
                back: Some(2.5),
                why: "a test wanted it".into(),
                ..Gap::default()
            }],
            cache: None,
            cost: None,
        });
        writer.finish().unwrap();
    }
    let joined = Joined::open(&files(dir.path()).unwrap()).unwrap();
    let check = |totals: &Totals| {
        let names: Vec<&str> = totals.added_up.iter().map(|one| &*one.instrument).collect();
        assert_eq!(names[4..6], ["one: latency", "two: latency"]);
        assert_eq!(totals.failed_reads[1].instrument, "two: load");
        assert_eq!(totals.no_room[1].instrument, "two: latency");
        // An address that is other code on another machine has no name.
        assert_eq!(totals.symbols, [(16, "same".to_owned())].into());
        let frames = &totals.stacks.frames;
        assert_eq!(frames, &[(7, vec!["vfs_read".to_owned()])].into());
        assert_eq!(totals.stacks.lost, 6);
        let ends = totals.ends.iter().map(|end| (&*end.machine, end.pid));
        assert!(ends.eq([("one", 7), ("two", 7)]));
        let why: Vec<&str> = totals.gaps.iter().map(|gap| &*gap.why).collect();
        assert_eq!(
            why,
            ["on one, a test wanted it", "on two, a test wanted it"]
        );
        for gap in &totals.gaps {
            let length = gap.back.unwrap() - gap.out;
            assert!((length - 1.5).abs() < 1e-6, "{gap:?}");
        }
        for (place, by) in [(0, 2), (5, 4)] {
            let values: Vec<&Value> = totals.added_up[place..]
                .iter()
                .map(|one| &one.value)
                .collect();
            assert_eq!(values[0], &Value::Number(-4000 / by));
            assert_eq!(values[1], &Value::Number(4000));
            assert_eq!(values[2], &Value::Mean(2.0 / by as f64));
            assert_eq!(values[3], &Value::Values(vec![(800 / by, 3)], 9));
            let buckets = vec![bucket(4000 / by, Some(8000 / by)), bucket(8000 / by, None)];
            assert_eq!(values[4], &Value::Buckets(buckets));
        }
    };
    check(&joined.totals());
    let all = dir.path().join("all");
    joined.write(&all, |_| {}).unwrap();
    check(Recording::open(&all).unwrap().totals());
}

#[test]
fn totals_are_of_the_placements_of_their_machine() {
    let dir = TempDir::new().unwrap();
    let recordings = ["one", "two"].map(|machine| {
        let instrument = InstrumentInfo {
            id: id(0),
            label: format!("sizes of {machine}"),
            instrument: "sizes".into(),
            meaning: Meaning::Event,
            unit: String::new(),
            launch: 0.0,
            splash: 1.0,
            placed: Some(Placed {
                placement: 0,
                function: "f".into(),
                major: 0,
            }),
            delivers: Delivers::Samples,
        };
        let metadata = Metadata {
            instruments: vec![instrument],
            ..Metadata::default()
        };
        let path = dir.path().join(machine);
        let mut writer = Writer::create(&path, &metadata).unwrap();
        writer.totals(Totals {
            added_up: vec![Total {
                placement: 0,
                instrument: "sizes".into(),
                name: "sum".into(),
                unit: String::new(),
                may_be_zero: false,
                value: Value::Number(4),
            }],
            ..Totals::default()
        });
        writer.finish().unwrap();
        (machine.to_owned(), Recording::open(&path).unwrap())
    });
    let joined = Joined::new(recordings).unwrap();
    let totals = joined.totals().added_up;
    let place = |total: &Total| joined.metadata().placement(total.placement).unwrap();
    let places: Vec<String> = totals.iter().map(place).collect();
    assert_eq!(places, ["one: sizes of one", "two: sizes of two"]);
}

#[test]
fn placements_of_one_name_stay_separate() {
    let taken = ["web", "web-2"];
    let free = |name| unused(name, |name| taken.contains(&name));
    assert_eq!((free("web"), free("db")), ("web-3".into(), "db".into()));
}

#[test]
fn cpus_are_named_after_their_machines() {
    let dir = TempDir::new().unwrap();
    let joined = two(&dir);
    let metadata = joined.metadata();
    let of = |cpu| metadata.cpu_name(cpu);
    let named = [0, 1, 2, 3].map(of);
    let wanted = [
        "CPU 0 of web1",
        "CPU 1 of web1",
        "CPU 0 of web2",
        "CPU 1 of web2",
    ];
    assert_eq!(named, wanted);
    assert_eq!(Metadata::default().cpu_name(3), "CPU 3");
    let loss = |cpu, count| Loss {
        cpu,
        tsc: 1,
        cause: LossCause::RingFull,
        count,
    };
    assert_eq!(
        Loss::by_cpu(&[loss(3, 5), loss(0, 7)], metadata),
        "lost on CPU 0 of web1: 7 (ring full)\nlost on CPU 1 of web2: 5 (ring full)\n"
    );
}
