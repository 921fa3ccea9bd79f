//! Totals, maps with their keys among them, are the same in every output.

#![cfg(feature = "recording")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, their helpers included, fail by panicking"
)]

use std::ops::ControlFlow;
use std::path::Path;

use gilk_samples::chart::{escaped, totals};
use gilk_samples::export::{Format, export_to};
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::recording::{Recording, Writer};
use gilk_samples::totals::{Counted, KeyPart, Total, TotalBucket, TotalRow, TotalValue, Totals};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = i128> {
    prop_oneof![
        (-9i64..9).prop_map(i128::from),
        any::<i64>().prop_map(i128::from),
        any::<u64>().prop_map(i128::from)
    ]
}

/// A value of a key, or of an aggregate without keys.
fn single() -> impl Strategy<Value = TotalValue> {
    let bucket = (
        prop::option::of(number()),
        prop::option::of(number()),
        any::<u32>(),
    );
    let bucket = bucket.prop_map(|(from, to, count)| TotalBucket {
        from,
        to,
        count: count.into(),
    });
    prop_oneof![
        number().prop_map(TotalValue::Number),
        any::<i32>().prop_map(|eighths| TotalValue::Mean(f64::from(eighths) / 8.0)),
        prop::collection::vec(bucket, 1..9).prop_map(TotalValue::Buckets),
    ]
}

fn value() -> impl Strategy<Value = TotalValue> {
    let part = prop_oneof![
        number().prop_map(KeyPart::Number),
        "[a-z][a-z ,\"<&;:0-9]{0,14}".prop_map(KeyPart::Text)
    ];
    let row = (prop::collection::vec(part, 1..3), single());
    let row = row.prop_map(|(key, value)| TotalRow { key, value });
    let rows = prop::collection::vec(row, 0..6);
    let values = prop::collection::vec((number(), any::<u32>()), 0..6);
    prop_oneof![
        single(),
        Just(TotalValue::Nothing),
        (rows, any::<u32>()).prop_map(|(rows, others)| TotalValue::Map(rows, others.into())),
        (values, any::<u32>()).prop_map(|(values, others)| {
            let values = values.into_iter();
            TotalValue::Values(
                values.map(|(value, n)| (value, n.into())).collect(),
                others.into(),
            )
        }),
    ]
}

fn all() -> impl Strategy<Value = Totals> {
    let total = ("[a-z]{1,9}", prop::bool::ANY, value());
    prop::collection::vec(total, 0..5).prop_map(|totals| {
        let total =
            |(placement, (name, timed, value)): (usize, (String, bool, TotalValue))| Total {
                placement,
                instrument: format!("of \"{name}\""),
                name,
                unit: if timed { "ticks" } else { "" }.to_owned(),
                may_be_zero: false,
                value,
            };
        Totals {
            added_up: totals.into_iter().enumerate().map(total).collect(),
            failed_reads: vec![Counted {
                placement: 0,
                instrument: "load".to_owned(),
                count: 7,
            }],
            symbols: [(3, "vfs_read+0x7".to_owned())].into(),
            ..Totals::default()
        }
    })
}

/// Returns the fields of a line of comma-separated text.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => {
                // A doubled quote is one of the text.
                let last = fields.last_mut().unwrap();
                if !quoted && !last.is_empty() {
                    last.push('"');
                }
                quoted = !quoted;
            }
            ',' if !quoted => fields.push(String::new()),
            letter => fields.last_mut().unwrap().push(letter),
        }
    }
    fields
}

/// Returns the lines that a naive reading of totals gives: aggregate, kind, keys, bounds and number.
fn expected(totals: &Totals) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    let bound = |bound: Option<i128>| bound.map_or(String::new(), |bound| bound.to_string());
    for total in &totals.added_up {
        let mut put =
            |kind: &str, key: &[KeyPart], [from, to]: [Option<i128>; 2], value: String| {
                let mut line = vec![total.name.clone(), kind.to_owned()];
                for place in 0..2 {
                    line.push(match key.get(place) {
                        Some(KeyPart::Number(number)) => number.to_string(),
                        Some(KeyPart::Text(text)) => text.clone(),
                        None => String::new(),
                    });
                }
                line.extend([bound(from), bound(to), value]);
                lines.push(line);
            };
        let mut single = |key: &[KeyPart], value: &TotalValue| match value {
            TotalValue::Number(number) => put("number", key, [None; 2], number.to_string()),
            TotalValue::Mean(mean) => put("mean", key, [None; 2], mean.to_string()),
            TotalValue::Buckets(buckets) => {
                for one in buckets {
                    put("bucket", key, [one.from, one.to], one.count.to_string());
                }
            }
            other => panic!("{other:?} is no value of a key"),
        };
        match &total.value {
            TotalValue::Map(rows, others) => {
                rows.iter().for_each(|row| single(&row.key, &row.value));
                put("others", &[], [None; 2], others.to_string());
            }
            TotalValue::Values(values, others) => {
                for (value, count) in values {
                    let key = [KeyPart::Number(*value)];
                    put("count", &key, [None; 2], count.to_string());
                }
                put("others", &[], [None; 2], others.to_string());
            }
            TotalValue::Nothing => put("nothing", &[], [None; 2], String::new()),
            value => single(&[], value),
        }
    }
    lines
}

fn exported(recording: &Recording, format: Format, folder: &Path) -> Vec<u8> {
    let path = folder.join("out").with_extension(format.extension());
    export_to(recording, format, &path, &mut |_| ControlFlow::Continue(())).unwrap();
    std::fs::read(&path).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_output_has_all_totals_and_keys(totals in all()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.arrow");
        let clock = Clock { hz: 1_000_000, ..Clock::default() };
        let metadata = Metadata { clock, ..Metadata::default() };
        let mut writer = Writer::create(&path, &metadata).unwrap();
        writer.totals(totals.clone());
        writer.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        prop_assert_eq!(recording.totals(), &totals);
        let json = String::from_utf8(exported(&recording, Format::JsonLines, dir.path())).unwrap();
        let head: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        prop_assert_eq!(&head["gilk.totals"], &serde_json::to_value(&totals).unwrap());
        // The footer of a Parquet file has its texts as they are.
        let parquet = exported(&recording, Format::Parquet, dir.path());
        let text = serde_json::to_string(&totals).unwrap();
        prop_assert!(parquet.windows(text.len()).any(|bytes| bytes == text.as_bytes()));
        let csv = String::from_utf8(exported(&recording, Format::Totals, dir.path())).unwrap();
        let lines: Vec<Vec<String>> = csv.lines().skip(1).map(fields).collect();
        prop_assert!(lines.iter().all(|line| line.len() == 13), "{}", csv);
        let (failed, found): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|line| line[5] == "failed reads");
        prop_assert_eq!((failed.len(), &*failed[0][12]), (1, "7"));
        let picked = |line: &Vec<String>| -> Vec<String> {
            [3, 5, 6, 8, 10, 11, 12].map(|column| line[column].clone()).to_vec()
        };
        let found_lines: Vec<Vec<String>> = found.iter().map(picked).collect();
        prop_assert_eq!(found_lines, expected(&totals), "{}", csv);
        for line in &found {
            prop_assert_eq!(&*line[7] == "vfs_read+0x7", &*line[6] == "3");
        }
        // The text of `ilk run`, `ilk show` and `ilk stats` is in the picture, line by line.
        let printed = totals::text(&totals, recording.metadata(), false);
        let picture = String::from_utf8(exported(&recording, Format::Svg, dir.path())).unwrap();
        for line in printed.lines().filter(|line| line.chars().count() < 150) {
            let line = escaped(&line.trim_end().replace(' ', "\u{a0}"));
            prop_assert!(picture.contains(&line), "{} is not in the picture", line);
        }
    }
}
