use super::*;
use crate::metadata::{Delivers, InstrumentInfo};
use crate::recording::{LossCause, MarkKind};
use crate::{Batch, HookType, Sample};

const HZ: u64 = 2_400_000_000;
const START: u64 = 80_000_000_000_000;

fn id(major: u32) -> u64 {
    InstrumentId::new(major, HookType::Pre, 0, 0)
        .unwrap()
        .pack()
}

fn instrument(
    major: u32,
    name: &str,
    place: &str,
    meaning: Meaning,
    unit: &str,
    times: (f64, f64),
) -> InstrumentInfo {
    InstrumentInfo {
        id: id(major),
        label: format!("{name} {place}"),
        instrument: name.to_owned(),
        meaning,
        unit: unit.to_owned(),
        launch: times.0,
        splash: times.1,
        placed: None,
        delivers: Delivers::Samples,
    }
}

/// Returns a recording of everything that can be drawn: Pulsar's five rounds of 32 forks, and more.
fn demonstration() -> (Metadata, Index) {
    let instruments = vec![
        instrument(
            1,
            "timestamp",
            "pre __do_sys_clone block 0",
            Meaning::Event,
            "",
            (0.0, 10.0),
        ),
        instrument(
            2,
            "timestamp",
            "pre kernel_clone block 0",
            Meaning::Event,
            "",
            (0.0, 5.2),
        ),
        instrument(
            3,
            "counter",
            "post copy_process block 12",
            Meaning::Count,
            "hits",
            (0.5, 9.0),
        ),
        instrument(
            4,
            "elapsed-stop",
            "post kernel_clone block 31",
            Meaning::Duration,
            "ticks",
            (0.0, 10.0),
        ),
        instrument(
            5,
            "argument-0",
            "pre wake_up_new_task block 0",
            Meaning::Value,
            "",
            (1.0, 8.0),
        ),
        instrument(
            6,
            "block-trace",
            "pre copy_process block 0",
            Meaning::Block,
            "",
            (0.0, 10.0),
        ),
        instrument(
            7,
            "argument-1",
            "pre <vfs_read> & \"friends\" with a very long name indeed block 0",
            Meaning::Value,
            "ticks",
            (0.0, 10.0),
        ),
        instrument(
            9,
            "elapsed-stop",
            "post do_wait block 4",
            Meaning::Duration,
            "ticks",
            (0.0, 10.0),
        ),
        instrument(
            8,
            "timestamp",
            "pre do_exit block 3",
            Meaning::Event,
            "",
            (2.0, 3.0),
        ),
    ];
    let tsc = |seconds: f64| START + (seconds * HZ as f64) as u64;
    let mut samples = [Vec::new(), Vec::new()];
    let mut noise = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise as f64 / u64::MAX as f64
    };
    let mut forks = 0;
    for round in 0..5 {
        for fork in 0..32 {
            let at = 0.7 + f64::from(round) * 2.0 + f64::from(fork) * 0.004 + random() * 0.002;
            forks += 1;
            let cpu = &mut samples[fork as usize % 2];
            cpu.push(Sample {
                id: id(1),
                value: 0,
                tsc: tsc(at),
            });
            if at < 5.2 {
                cpu.push(Sample {
                    id: id(2),
                    value: 0,
                    tsc: tsc(at + 0.0001),
                });
            }
            cpu.push(Sample {
                id: id(3),
                value: forks,
                tsc: tsc(at + 0.0002),
            });
            cpu.push(Sample {
                id: id(4),
                value: ((0.0004 + random() * 0.002) * HZ as f64) as u64,
                tsc: tsc(at + 0.0003),
            });
            if (1.0..8.0).contains(&at) {
                cpu.push(Sample {
                    id: id(5),
                    value: 0xffff_8880_0400_0000 + (random() * 4096.0) as u64 * 64,
                    tsc: tsc(at + 0.0004),
                });
            }
            cpu.push(Sample {
                id: id(6),
                value: (random() * 40.0) as u64,
                tsc: tsc(at + 0.0005),
            });
        }
    }
    for round in 0..5 {
        let length = 1.2 + random() * 0.5;
        samples[1].push(Sample {
            id: id(9),
            value: (length * HZ as f64) as u64,
            tsc: tsc(f64::from(round) * 2.0 + 0.83 + length),
        });
    }
    for n in 0..60_000 {
        let at = f64::from(n) / 6000.0;
        let value = (30_000.0 * (1.2 + (at * 1.7).sin()) + random() * 20_000.0) as u64;
        let value = if n == 34_567 { 180_000 } else { value };
        samples[0].push(Sample {
            id: id(7),
            value,
            tsc: tsc(at),
        });
    }
    let mut index = Index::new();
    for (cpu, mut samples) in (0..).zip(samples) {
        samples.sort_by_key(|sample| sample.tsc);
        index.append(&Batch { cpu, samples });
    }
    let metadata = Metadata {
        kernel: "6.1.0-40-cloud-amd64".to_owned(),
        cpus: 2,
        clock: Clock {
            hz: HZ,
            start: START,
            start_unix_ns: 1_795_246_860_000_000_000,
        },
        instruments,
        ..Metadata::default()
    };
    (metadata, index)
}

fn losses() -> [Loss; 2] {
    let loss = |seconds: u64, cause, count| Loss {
        cpu: 0,
        tsc: START + seconds * HZ,
        cause,
        count,
    };
    [
        loss(3, LossCause::RingFull, 1234),
        loss(7, LossCause::Unmatched, 5),
    ]
}

#[test]
fn the_picture_has_every_lane_and_is_well_formed() {
    let (metadata, index) = demonstration();
    let (losses, marks) = (
        losses(),
        [Mark {
            kind: MarkKind::User,
            tsc: START + 4 * HZ,
            id: 0,
            value: 1,
        }],
    );
    let mut chart = Chart::new(&metadata, &index);
    chart.title = "Pulsar <demonstration>".to_owned();
    (chart.losses, chart.marks) = (&losses, &marks);
    assert!(svg(&chart).contains("1 other: 0 hits"));
    chart.all = true;
    let text = svg(&chart);
    for wanted in [
        "Pulsar &lt;demonstration&gt;",
        "Linux 6.1.0-40-cloud-amd64  ·  2 CPUs",
        "pre kernel_clone block 0",
        "160 hits  ·  ≥ 16/s",
        "·  160 counted hits",
        "no hits",
        "1,239 samples lost",
        "1,234 (ring full), 5 (timer stop without a start)",
        ">32</text>",
        ">10 s</text>",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing");
    }
    assert_eq!(
        text.matches(">32</text>").count(),
        8,
        "five bursts of one lane and three of the other"
    );
    let picture = png(&text, 2.0).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    if let Some(path) = std::env::var_os("GILK_CHART_OUT") {
        std::fs::write(path, picture).unwrap();
    }
}

#[test]
fn nothing_to_draw_is_drawn() {
    let (metadata, index) = (Metadata::default(), Index::new());
    let chart = Chart::new(&metadata, &index);
    png(&svg(&chart), 1.0).unwrap();
    assert!(terminal(&chart, 0).contains("0 s"));
    let mut index = Index::new();
    index.append(&Batch {
        cpu: 0,
        samples: vec![Sample {
            id: Sample::WORD - 1,
            value: u64::MAX,
            tsc: u64::MAX,
        }],
    });
    let mut chart = Chart::new(&metadata, &index);
    chart.all = true;
    png(&svg(&chart), 1.0).unwrap();
    assert!(terminal(&chart, 80).contains("unknown"));
}

#[test]
fn lanes_beyond_the_maximum_are_counted() {
    let instruments = (0..200).map(|major| {
        instrument(
            major,
            "counter",
            &format!("pre f{major}"),
            Meaning::Count,
            "hits",
            (0.0, 1.0),
        )
    });
    let metadata = Metadata {
        clock: Clock {
            hz: HZ,
            start: START,
            start_unix_ns: 0,
        },
        instruments: instruments.collect(),
        ..Metadata::default()
    };
    let index = Index::new();
    let mut chart = Chart::new(&metadata, &index);
    assert!(terminal(&chart, 100).contains("200 others: 0 hits"));
    chart.all = true;
    assert!(svg(&chart).contains("and 160 more instruments"));
    assert!(terminal(&chart, 100).contains("and 160 more instruments"));
    png(&svg(&chart), 1.0).unwrap();
    assert!(matches!(
        png(&svg(&chart), 100.0),
        Err(crate::Error::Chart { .. })
    ));
    assert!(png("not an svg", 1.0).is_err());
}

#[test]
fn the_terminal_shows_five_groups() {
    let (metadata, index) = demonstration();
    let losses = losses();
    let mut chart = Chart::new(&metadata, &index);
    chart.losses = &losses;
    let text = terminal(&chart, 120);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8 + 4);
    assert!(
        lines[..8].iter().all(|line| line.chars().count() <= 120),
        "{text}"
    );
    let hits = ["60,000", "160", "160", "160", "160"];
    for (line, hits) in lines.iter().zip(hits) {
        assert!(line.contains(&format!("{hits} ")), "{line}");
    }
    let row = lines[1].split('│').nth(1).unwrap();
    assert_eq!(
        row.split(' ')
            .filter(|group| group.contains(&LEVELS_SEEN[..]))
            .count(),
        5,
        "{row}"
    );
    assert!(lines[1].ends_with("160    ≥ 16/s"), "{}", lines[1]);
    // After its splash a lane has no sample.
    let line = lines.iter().find(|line| line.contains("pre kernel_clone"));
    let row = line.unwrap().split('│').nth(1).unwrap();
    assert!(row.ends_with("····"), "{row}");
    assert!(text.contains("lost: 1,234 (ring full)"));
    let of_cpu = "lost on CPU 0: 1,234 (ring full), 5 (timer stop without a start)";
    assert_eq!(lines[10..], [of_cpu, "1 other: 0 hits"]);
    // A wide terminal shows numbers to the right of the lanes.
    let wide = terminal(&chart, 160);
    let line = wide
        .lines()
        .find(|line| line.starts_with("elapsed-stop post kernel"));
    let line = line.unwrap();
    assert!(line.ends_with("1.55 ms, 99 % 2.39 ms"), "{line}");
    if std::env::var_os("GILK_CHART_OUT").is_some() {
        println!("{text}");
    }
}

#[test]
fn lanes_are_split_by_cpu_and_by_thread() {
    let reporter = instrument(
        1,
        "running-thread",
        "pre finish_task_switch block 0",
        Meaning::Value,
        crate::index::threads::UNIT,
        (0.0, 1.0),
    );
    let hits = instrument(
        2,
        "timestamp",
        "pre f block 0",
        Meaning::Event,
        "",
        (0.0, 1.0),
    );
    let total = instrument(
        3,
        "counter",
        "pre g block 0",
        Meaning::Count,
        "hits",
        (0.0, 1.0),
    );
    let metadata = Metadata {
        clock: Clock {
            hz: HZ,
            start: START,
            start_unix_ns: 0,
        },
        cpus: 2,
        instruments: vec![reporter, hits, total],
        ..Metadata::default()
    };
    let mut index = Index::new().by_thread_and_level(&metadata);
    let tsc = |millisecond: u64| START + millisecond * HZ / 1000;
    let hit = |millisecond| Sample {
        id: id(2),
        value: 0,
        tsc: tsc(millisecond),
    };
    let reported = |thread, millisecond| Sample {
        id: id(1),
        value: thread,
        tsc: tsc(millisecond),
    };
    // CPU 0 runs thread 40, then 41; CPU 1 reports thread 40 in the middle.
    for (cpu, first, second) in [(0, Some(40), 41), (1, None, 40)] {
        let samples = first.map(|thread| reported(thread, 0)).into_iter();
        let samples = samples
            .chain((0..500).map(hit))
            .chain([reported(second, 500)]);
        let samples = samples.chain((500..1000).map(hit)).collect();
        index.append(&Batch { cpu, samples });
    }
    index.append(&Batch {
        cpu: crate::record::ALL_CPUS,
        samples: vec![Sample {
            id: id(3),
            value: 9,
            tsc: tsc(999),
        }],
    });
    let lanes = |by| {
        let mut chart = Chart::new(&metadata, &index);
        chart.by = by;
        let text = terminal(&chart, 170);
        let lines = text.lines().filter(|line| line.contains('│'));
        let lane = |line: &str| {
            let mut parts = line.split('│');
            let label = parts.next().unwrap().trim().to_owned();
            let count = parts.nth(1).unwrap().split_whitespace().next().unwrap();
            format!("{label}: {count}")
        };
        lines.map(lane).collect::<Vec<_>>()
    };
    let (teller, hits, total) = (
        "running-thread pre finish_task_switch block 0",
        "timestamp pre f block 0",
        "counter pre g block 0: 9",
    );
    assert_eq!(
        lanes(None),
        [
            format!("{hits}: 2,000"),
            total.to_owned(),
            format!("{teller}: 3"),
        ]
    );
    let cpus = [(0, 2), (1, 1)].map(|(cpu, reported)| {
        [
            format!("CPU {cpu} · {teller}: {reported}"),
            format!("CPU {cpu} · {hits}: 1,000"),
        ]
    });
    assert_eq!(
        lanes(Some(By::Cpu)),
        [cpus.concat(), vec![total.to_owned()]].concat()
    );
    assert_eq!(
        lanes(Some(By::Thread)),
        [
            format!("thread 40 · {teller}: 2"),
            format!("thread 40 · {hits}: 1,000"),
            format!("thread 41 · {teller}: 1"),
            format!("thread 41 · {hits}: 500"),
            format!("unknown thread · {hits}: 500"),
            total.to_owned(),
        ]
    );
    // A thread's lane has its own times only, and the picture names the thread.
    let mut chart = Chart::new(&metadata, &index);
    chart.by = Some(By::Thread);
    chart.all = true;
    chart.range = Some((tsc(0), tsc(500)));
    let text = terminal(&chart, 170);
    let line = text
        .lines()
        .find(|line| line.starts_with("thread 41 · timestamp"));
    assert!(line.unwrap().ends_with("│    0     0/s"), "{text}");
    assert!(svg(&chart).contains("unknown thread · pre f block 0"));
    chart.max_lanes = 1;
    assert!(terminal(&chart, 170).contains("and 5 more lanes"));
}

const LEVELS_SEEN: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[test]
fn a_level_is_drawn_as_steps_in_one_lane_with_its_average() {
    use crate::metadata::Placed;

    let of = |major, meaning| InstrumentInfo {
        placed: Some(Placed {
            placement: 0,
            function: "vfs_read".to_owned(),
            major: 0,
        }),
        delivers: Delivers::Samples,
        ..instrument(
            major,
            "inside",
            "pre vfs_read block 0",
            meaning,
            "threads",
            (0.0, 10.0),
        )
    };
    let metadata = Metadata {
        clock: Clock {
            hz: 1000,
            ..Clock::default()
        },
        instruments: vec![of(1, Meaning::Level), of(2, Meaning::Level)],
        ..Metadata::default()
    };
    let mut index = Index::new().by_thread_and_level(&metadata);
    for (cpu, major, value, tsc) in [(0, 1, 4, 1000), (1, 2, 1, 3000), (0, 2, 0, 9000)] {
        let id = id(major);
        index.append(&Batch {
            cpu,
            samples: vec![Sample { id, value, tsc }],
        });
    }
    let mut chart = Chart::new(&metadata, &index);
    chart.range = Some((0, 10_000));
    let text = terminal(&chart, 120);
    assert_eq!(text.lines().count(), 2, "a lane and the axis:\n{text}");
    // 4 for 2 s and 1 for 6 s, of 9 s in which it is known.
    assert!(text.starts_with("inside of vfs_read"), "{text}");
    assert!(text.contains("1.56 threads on average"), "{text}");
    let lane = text.split('│').nth(1).unwrap();
    let seen = |character| lane.matches(character).count();
    let tenth = lane.chars().count() as f64 / 10.0;
    assert!((seen('█') as f64 - 2.0 * tenth).abs() <= 2.0, "{text}");
    assert!((seen('▂') as f64 - 6.0 * tenth).abs() <= 2.0, "{text}");
    let picture = svg(&chart);
    assert_eq!(picture.matches("fill-opacity=\"0.18\"").count(), 1);
    assert!(picture.contains("of vfs_read"));
    // The levels of a range that begins between two samples hold from its start.
    chart.range = Some((4000, 8000));
    assert!(svg(&chart).contains("fill-opacity=\"0.18\""));
    assert!(terminal(&chart, 120).contains("1 threads on average"));
}
