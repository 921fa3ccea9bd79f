use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::Meaning;
use crate::index::{By, Index, Owner};
use crate::metadata::{Clock, Delivers, Placed};
use crate::profile::profiles;
use crate::recording::{Recording, Writer};
use crate::{Batch, Sample};

const HZ: u64 = 1000;

/// Returns metadata of two levels: one of two hooks, and one of one hook.
fn metadata(splash: f64) -> Metadata {
    let info = |id: u64, meaning, placement| InstrumentInfo {
        id,
        label: format!("inside pre f block {id}"),
        instrument: "inside".to_owned(),
        meaning,
        unit: "threads".to_owned(),
        launch: 0.0,
        splash,
        placed: Some(Placed {
            placement,
            function: "f".to_owned(),
            major: 0,
        }),
        delivers: Delivers::Samples,
    };
    Metadata {
        clock: Clock {
            hz: HZ,
            ..Clock::default()
        },
        instruments: vec![
            info(1, Meaning::Level, 0),
            info(2, Meaning::Level, 0),
            info(3, Meaning::Level, 1),
            // An instrument without a level.
            info(4, Meaning::Value, 0),
        ],
        ..Metadata::default()
    }
}

fn batches(rows: &[(u16, u64, u64, u64)]) -> Vec<Batch> {
    let of = |wanted: u16| {
        let own = rows.iter().filter(|row| row.0 == wanted);
        let samples = own.map(|&(_, id, value, tsc)| Sample { id, value, tsc });
        samples.collect::<Vec<_>>()
    };
    let cut = |cpu: u16| {
        let samples = of(cpu);
        let pieces = samples.chunks(7).map(<[Sample]>::to_vec);
        pieces
            .map(move |samples| Batch { cpu, samples })
            .collect::<Vec<_>>()
    };
    (0..3).flat_map(cut).collect()
}

fn recorded(directory: &TempDir, metadata: &Metadata, batches: &[Batch]) -> Recording {
    let path = directory.path().join("recording.arrow");
    let mut writer = Writer::create(&path, metadata).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    Recording::open(&path).unwrap()
}

/// Returns the level at each tick at which it is known.
fn brute(rows: &[(u16, u64, u64, u64)], ids: &[u64], (t0, t1): (u64, u64)) -> Vec<i64> {
    let mut own: Vec<_> = rows.iter().filter(|row| ids.contains(&row.1)).collect();
    // Of two samples at one tick the one on the higher CPU is later.
    own.sort_by_key(|row| (row.3, row.0));
    (t0..t1)
        .filter_map(|tick| own.iter().rfind(|row| row.3 <= tick))
        .map(|row| row.2.cast_signed())
        .collect()
}

fn is_that(average: Option<Average>, ticks: &[i64]) -> bool {
    let Some(average) = average else {
        return ticks.is_empty();
    };
    let mean = ticks.iter().sum::<i64>() as f64 / ticks.len() as f64;
    (average.mean - mean).abs() < 1e-9
        && average.covered == ticks.len() as u64
        && Some(&average.least) == ticks.iter().min()
        && Some(&average.greatest) == ticks.iter().max()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn an_average_is_the_mean_of_all_ticks(
        rows in prop::collection::vec((0u16..3, 1u64..5, -3i64..9, 0u64..9), 1..120),
        from in 0u64..500, width in 1u64..600, splash in 0u64..700,
    ) {
        let mut now = 0;
        let rows: Vec<_> = rows.into_iter().map(|(cpu, id, value, gap)| {
            now += gap;
            (cpu, id, value.cast_unsigned(), now)
        }).collect();
        let metadata = metadata(splash as f64 / HZ as f64);
        let batches = batches(&rows);
        let mut index = Index::new().by_thread_and_level(&metadata);
        batches.iter().for_each(|batch| index.append(batch));
        let directory = TempDir::new().unwrap();
        let recording = recorded(&directory, &metadata, &batches);
        let span = (from, from + width);
        let measured = profiles(&recording, Some(span), 1, |_| true);
        prop_assert!(measured.damaged.is_empty());
        for (head, ids) in [(0, &[1, 2][..]), (2, &[3])] {
            let info = &metadata.instruments[head];
            let own = rows.iter().filter(|row| ids.contains(&row.1) && row.3 < span.1);
            let last = own.map(|row| row.3).max();
            let known = span.1.min(splash.max(last.map_or(0, |last| last + 1)));
            let ticks = brute(&rows, ids, (span.0, known.max(span.0)));
            let seen = average(Owner::Level.part(&index), &metadata, info, span);
            prop_assert!(is_that(seen, &ticks), "{:?} of {:?}", seen, ticks);
            let read = measured.levels.iter().find(|level| level.id == info.id);
            prop_assert_eq!(read.map(|level| level.average), seen);
        }
        prop_assert!(measured.levels.iter().all(|level| level.id == 1 || level.id == 3));
    }
}

#[test]
fn a_level_holds_from_its_first_sample_to_the_splash() {
    // Known from 100; 2 for 100 ticks, 5 for 300, then 0 until the splash at 1000.
    let rows = [(0, 1, 2, 100), (1, 2, 5, 200), (0, 1, 0, 500)];
    let metadata = metadata(1.0);
    let mut index = Index::new().by_thread_and_level(&metadata);
    batches(&rows).iter().for_each(|batch| index.append(batch));
    let part = Owner::Level.part(&index);
    let [info, ..] = metadata.instruments.as_slice() else {
        unreachable!();
    };
    let of = |from, to| average(part, &metadata, info, (from, to));
    let found = of(0, 5000).unwrap();
    assert_eq!((found.covered, found.mean), (900, 1700.0 / 900.0));
    assert_eq!((found.least, found.greatest), (0, 5));
    // The level is known without a sample in the range.
    assert_eq!(of(300, 400).unwrap().mean, 5.0);
    assert_eq!(of(0, 100), None);
    assert_eq!(of(1000, 2000), None);
}

#[test]
fn a_level_has_one_lane_unless_split_by_cpu() {
    let metadata = metadata(1.0);
    let mut index = Index::new().by_thread_and_level(&metadata);
    for batch in batches(&[(0, 1, 1, 10), (1, 2, 0, 20), (1, 4, 7, 30)]) {
        index.append(&batch);
    }
    let ids: Vec<u64> = metadata.instruments.iter().map(|info| info.id).collect();
    assert_eq!(
        index.lanes_whole(&ids),
        [(0, Owner::Level), (2, Owner::Level), (3, Owner::All)]
    );
    assert_eq!(Owner::Level.part(&index).lane(1).unwrap().total.count, 2);
    assert_eq!(index.samples(), 3);
    let whole = Owner::Level.label(&metadata.instruments[0]);
    assert_eq!(whole, "inside of f");
    let by_cpu = index.lanes_by(By::Cpu, &ids);
    assert!(by_cpu.contains(&(0, Owner::Cpu(0))) && by_cpu.contains(&(1, Owner::Cpu(1))));
    assert!(
        Index::new()
            .by_thread_and_level(&Metadata::default())
            .levels()
            .is_none()
    );
}
