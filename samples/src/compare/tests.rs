use tempfile::TempDir;

use super::*;
use crate::metadata::{Clock, Delivers, InstrumentInfo, Metadata};
use crate::recording::Writer;
use crate::{Batch, Meaning, Sample};

const HZ: u64 = 1_000_000_000;

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Records ten seconds of three instruments: the duration of a call, in a kernel that has busy and
/// calm periods; a word; and a total. `slower` is added to every duration, in nanoseconds; `often`
/// is the number of calls for each hundred of the first.
fn record(dir: &TempDir, seed: u64, slower: u64, often: u64) -> Recording {
    let instrument = |id: u64, label: &str, meaning| InstrumentInfo {
        id,
        label: label.to_owned(),
        instrument: label.to_owned(),
        meaning,
        unit: String::new(),
        launch: 0.0,
        splash: 10.0,
        placed: None,
        delivers: Delivers::Samples,
    };
    let metadata = Metadata {
        clock: Clock {
            hz: HZ,
            start: 1 << 40,
            start_unix_ns: 0,
        },
        instruments: vec![
            instrument(1, "latency", Meaning::Duration),
            instrument(2, "argument", Meaning::Value),
            instrument(3, "hits", Meaning::Count),
            instrument(4 + seed % 2, &format!("only {}", seed % 2), Meaning::Event),
        ],
        ..Metadata::default()
    };
    let path = dir.path().join(format!("{seed}-{slower}-{often}"));
    let mut writer = Writer::create(&path, &metadata).unwrap();
    let mut random = Random(seed * 2 + 1);
    let (mut now, mut busy, mut total) = (1 << 40, 0, 0);
    let mut samples = Vec::new();
    while now < (1 << 40) + 10 * HZ {
        now += (500_000 + random.next(1_000_000)) * 100 / often;
        if samples.len() % 100 == 0 {
            busy = random.next(2000);
        }
        total += 3;
        let sample = |id, value| Sample {
            id,
            value,
            tsc: now,
        };
        samples.push(sample(1, 20_000 + busy + random.next(8000) + slower));
        samples.push(sample(2, random.next(64)));
        samples.push(sample(3, total));
    }
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    writer.finish().unwrap();
    Recording::open(&path).unwrap()
}

fn sides<'a>(a: &'a Recording, b: &'a Recording) -> Compared {
    let side = |recording| Side {
        recording,
        span: None,
    };
    compare(side(a), side(b))
}

fn of<'a>(compared: &'a Compared, label: &str) -> &'a Comparison {
    compared
        .instruments
        .iter()
        .find(|of| of.label == label)
        .unwrap()
}

#[test]
fn two_runs_of_the_same_do_not_differ() {
    let dir = TempDir::new().unwrap();
    let alarms = (1..=40).filter(|&seed| {
        let (a, b) = (record(&dir, seed, 0, 100), record(&dir, seed + 100, 0, 100));
        let compared = sides(&a, &b);
        assert_eq!((compared.instruments.len(), compared.tests), (4, 5));
        let changes = compared
            .instruments
            .iter()
            .flat_map(|of| [of.rate, of.value]);
        changes.flatten().any(|change| change.differs())
    });
    // At most one of twenty, by chance.
    assert!(alarms.count() <= 4);
}

#[test]
fn a_slower_call_and_a_rarer_one_are_found() {
    let dir = TempDir::new().unwrap();
    let (a, b) = (record(&dir, 1, 0, 100), record(&dir, 2, 3000, 90));
    let compared = sides(&a, &b);
    let latency = of(&compared, "latency");
    let value = latency.value.unwrap();
    assert!(
        value.differs() && value.between.0 < 3000.0 && value.between.1 > 3000.0,
        "{value:?}"
    );
    assert!((0.08..0.16).contains(&value.share().unwrap()), "{value:?}");
    assert!(latency.superiority.unwrap() > 0.75);
    // Rates fell by a tenth, both of events and of hits.
    for rate in [latency.rate.unwrap(), of(&compared, "hits").rate.unwrap()] {
        assert!(
            rate.differs() && (-0.12..-0.08).contains(&rate.share().unwrap()),
            "{rate:?}"
        );
    }
    assert!(!of(&compared, "argument").value.unwrap().differs());
    assert_eq!(of(&compared, "hits").value, None);
    assert!((of(&compared, "hits").a.count as i64 - 30_000).abs() < 300);
    assert_eq!(
        (compared.only_a, compared.only_b),
        (vec!["only 1".to_owned()], vec!["only 0".to_owned()])
    );
}

#[test]
fn spans_of_one_recording_are_compared_too() {
    let dir = TempDir::new().unwrap();
    let a = record(&dir, 3, 0, 100);
    let half = (1 << 40) + 5 * HZ;
    let side = |from, to| Side {
        recording: &a,
        span: Some((from, to)),
    };
    let compared = compare(side(1 << 40, half), side(half, half + 5 * HZ));
    let latency = of(&compared, "latency");
    assert!((latency.a.seconds - 5.0).abs() < 1e-6 && (latency.b.seconds - 5.0).abs() < 1e-6);
    assert!(latency.rate.is_some() && latency.a.count + latency.b.count > 9_900);
    // A span in which the instrument has no samples.
    let compared = compare(side(1 << 40, half), side(1 << 30, 1 << 31));
    assert!(compared.instruments.is_empty() && compared.only_a.len() == 4);
}
