use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::Batch;
use crate::metadata::{Clock, Metadata};
use crate::recording::Writer;

fn recording(dir: &TempDir, batches: &[Batch]) -> Recording {
    let path = dir.path().join("recording.arrow");
    let clock = Clock {
        hz: 1000,
        ..Clock::default()
    };
    let metadata = Metadata {
        clock,
        ..Metadata::default()
    };
    let mut writer = Writer::create(&path, &metadata).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    Recording::open(&path).unwrap()
}

fn batch(cpu: u16, samples: impl IntoIterator<Item = (u64, u64, u64)>) -> Batch {
    let samples = samples.into_iter();
    let samples = samples.map(|(id, value, tsc)| Sample { id, value, tsc });
    Batch {
        cpu,
        samples: samples.collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_profile_equals_a_scan_of_every_sample(
        rows in prop::collection::vec((0u16..3, 0u64..2, 0u64..9, 0u64..20), 1..300), from in 0u64..2000, width in 1u64..4000,
    ) {
        let mut now = 0;
        let rows: Vec<(u16, u64, u64, u64)> = rows.into_iter().map(|(cpu, id, value, gap)| {
            now += gap;
            (cpu, id, value, now)
        }).collect();
        let batches: Vec<Batch> = (0..3).map(|cpu| {
            batch(cpu, rows.iter().filter(|row| row.0 == cpu).map(|&(_, id, value, tsc)| (id, value, tsc)))
        }).collect();
        let dir = TempDir::new().unwrap();
        let measured = profiles(&recording(&dir, &batches), Some((from, from + width)), 100, |_| true);
        prop_assert!(measured.damaged.is_empty());
        for id in 0..2 {
            let of: Vec<_> = rows.iter().filter(|row| row.1 == id && (from..from + width).contains(&row.3)).collect();
            let Some(profile) = measured.instruments.iter().find(|profile| profile.id == id) else {
                prop_assert!(of.is_empty());
                continue;
            };
            let mut values: Vec<u64> = of.iter().map(|row| row.2).collect();
            let mut gaps: Vec<u64> = of.windows(2).map(|pair| pair[1].3 - pair[0].3).collect();
            values.sort_unstable();
            gaps.sort_unstable();
            prop_assert_eq!(profile.hits, values.len() as u64);
            prop_assert_eq!(profile.gaps.is_some(), !gaps.is_empty());
            let none = Distribution::default();
            let summaries = [profile.values.as_ref().unwrap_or(&none), profile.gaps.as_ref().unwrap_or(&none)];
            for (summary, wanted) in summaries.into_iter().zip([&values, &gaps]) {
                prop_assert_eq!(summary.count, wanted.len() as u64);
                prop_assert_eq!((summary.min, summary.max), (wanted.first().copied().unwrap_or(0), wanted.last().copied().unwrap_or(0)));
                let n = wanted.len().max(1) as f64;
                let mean = wanted.iter().sum::<u64>() as f64 / n;
                let deviation = (wanted.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
                prop_assert!((summary.mean - mean).abs() < 1e-9 && (summary.deviation - deviation).abs() < 1e-9);
                if !wanted.is_empty() {
                    prop_assert_eq!(summary.percentiles[3], wanted[wanted.len().div_ceil(2) - 1]);
                }
            }
            prop_assert!(profile.top_exact);
            prop_assert_eq!(profile.top.iter().map(|(_, count)| count).sum::<u64>(), values.len() as u64);
            for (value, count) in &profile.top {
                prop_assert_eq!(values.iter().filter(|v| *v == value).count() as u64, *count);
            }
            prop_assert!(profile.top.is_sorted_by_key(|(_, count)| std::cmp::Reverse(*count)));
            prop_assert_eq!(profile.cpus.iter().map(|(_, count)| count).sum::<u64>(), values.len() as u64);
            let rate = profile.rate.per_second.unwrap();
            prop_assert!((rate - values.len() as f64 * 1000.0 / width as f64).abs() < 1e-9);
        }
    }
}

#[test]
fn statistics_of_many_values_are_marked_as_estimates() {
    let dir = TempDir::new().unwrap();
    // A third of the values is 7, the others are all different.
    let rows = (0..300_000u64).map(|n| (1, if n % 3 == 0 { 7 } else { 1_000_000 + n }, n));
    let found = profiles(&recording(&dir, &[batch(0, rows)]), None, 3, |_| true);
    let [profile] = &found.instruments[..] else {
        panic!("{:?}", found.instruments);
    };
    let values = profile.values.as_ref().unwrap();
    assert!(!values.exact && !profile.top_exact);
    let (value, count) = profile.top[0];
    assert_eq!(value, 7);
    assert!(count <= 100_000 && count + profile.top_error >= 100_000);
    // Of each value at most its share of the total can be dropped.
    assert!(profile.top_error <= 300_000 / (DISTINCT as u64 / 2));
    let median = values.percentiles[3];
    assert!((1_075_000..1_100_000).contains(&median), "{median}");
    assert_eq!(profile.gaps.as_ref().unwrap().percentiles, [1; 9]);
}
