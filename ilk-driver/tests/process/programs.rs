//! Programs of the language in a process: their totals are those of the program.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use gilk_engine::Session;
use gilk_engine::verify::verify;
use gilk_instruments::Library;
use gilk_samples::Batch;
use gilk_samples::totals::TotalValue;
use ilk_driver::client::totals;
use ilk_driver::process::{Attached, Drained, SampleRings, Subject, tsc};
use ilk_driver::script::{Filter, Script, resolve};

use super::{Counted, clean, compiled_with_musl, subject, without_area};

const SCRIPT: &str = "
    cpu @seen;
    global @all;
    entry:counted {
        @calls = count();
        @sum = sum(arg0);
        @mean = avg(arg0);
        @least = min(arg0);
        @most = max((u32)arg0);
        @sizes = hist(arg0);
        @steps = lhist((u32)arg0 % 3, 0, 3, 1);
        @rest = values((u32)arg0 % 3);
        @by[(u32)arg0 % 3] = sum(arg0);
        @seen += 1;
        @all += 1
    }
    return:counted / retval == 7 / { @sevens = count() }
    return:counted { @returned = sum((u32)retval) }
    entry:counted / @seen > 0 && @all > 0 && cpu < 4096 / { @after = count() }
";

/// The session of a script for the program.
pub(super) fn session(subject: &Subject, script: &str) -> Session {
    let script = Script::parse(script).unwrap();
    let filter = Filter {
        duration: 10.0,
        pid: None,
    };
    resolve(&script, subject.image(), filter, None)
        .unwrap_or_else(|faults| panic!("{faults}"))
        .session
}

#[test]
fn totals_of_programs_are_those_of_the_process() {
    totals_are_those_of_the_process(SCRIPT, |_| {});
}

#[test]
fn totals_need_no_restartable_sequences() {
    // Without them there are no words of a CPU.
    let lines = SCRIPT.lines().filter(|line| !line.contains("@seen"));
    let script: Vec<&str> = lines.collect();
    totals_are_those_of_the_process(&script.join("\n"), without_area);
}

fn totals_are_those_of_the_process(script: &str, change: impl FnOnce(&mut Command)) {
    let mut counted = Counted::start(&[], change);
    let (subject, reserved) = subject(counted.pid(), "counted", 8192);
    let session = session(&subject, script);
    let library = Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(subject.image(), &session, &library, &reserved.layout);
    let plan = verify(subject.image(), plan.unwrap()).unwrap();
    let attached = Attached::attach(&subject, reserved, &plan).unwrap();
    let (calls, odd) = counted.does("load");
    let (sum, returned) = counted.does("sums");
    let removed = attached.remove().unwrap();
    clean(&removed);
    let words: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
    let all = totals(plan.plan(), &words).added_up;
    let value = |name: &str| -> Vec<&TotalValue> {
        let named = all.iter().filter(|one| one.name == name);
        named.map(|one| &one.value).collect()
    };
    let number = |name: &str| -> i128 {
        let numbers = value(name).into_iter().map(|value| match value {
            TotalValue::Number(number) => *number,
            other => panic!("{name}: {other:?}"),
        });
        numbers.sum()
    };
    assert_eq!(number("sum"), sum.into());
    assert_eq!(number("returned"), returned.into());
    assert_eq!(number("least"), 1);
    assert_eq!(number("most"), 2_000_004);
    let [TotalValue::Mean(mean)] = value("mean")[..] else {
        panic!("{:?}", value("mean"));
    };
    assert!((mean - sum as f64 / calls as f64).abs() < 1e-6, "{mean}");
    for name in ["sizes", "steps", "rest"] {
        let hits: u64 = value(name).iter().map(|value| value.hits()).sum();
        assert_eq!(hits, calls, "{name}");
    }
    let [TotalValue::Values(rest, 0)] = value("rest")[..] else {
        panic!("{:?}", value("rest"));
    };
    assert!(rest.contains(&(1, odd)), "{rest:?}");
    let [TotalValue::Map(rows, 0)] = value("by")[..] else {
        panic!("{:?}", value("by"));
    };
    let sums = rows.iter().map(|row| match row.value {
        TotalValue::Number(number) => number,
        ref other => panic!("{other:?}"),
    });
    assert_eq!(sums.sum::<i128>(), sum.into());
    counted.end();
}

#[test]
fn each_hit_is_a_sample_or_a_loss_that_is_counted() {
    each_hit_is_a_sample_or_a_loss_of(Counted::start(&[], |_| {}), ("", 100_000));
}

#[test]
fn each_hit_is_a_sample_or_a_loss_without_restartable_sequences() {
    let without = || Counted::start(&[], without_area);
    let musl = |linked| {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("counted.c");
        let program = compiled_with_musl(folder.path(), text, &[linked]);
        Counted::of(Command::new(program), folder)
    };
    for counted in [without(), musl("-pie"), musl("-static")] {
        each_hit_is_a_sample_or_a_loss_of(counted, ("", 100_000));
    }
    // Few enough for the reader to follow: several times round the ring.
    for counted in [without(), musl("-pie")] {
        let predicate = "/ (u32)arg0 % 128 == 1 /";
        each_hit_is_a_sample_or_a_loss_of(counted, (predicate, 3 << 19));
    }
}

/// Samples calls of the function that a predicate chooses, until at least so many samples were taken.
fn each_hit_is_a_sample_or_a_loss_of(mut counted: Counted, (predicate, least): (&str, u64)) {
    let began = tsc();
    let (subject, reserved) = subject(counted.pid(), "counted", 64);
    let script = format!(
        "entry:counted {predicate} {{ sample((u32)arg0); @calls = count(); @sum = sum((u32)arg0) }}"
    );
    let session = session(&subject, &script);
    let library = Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(subject.image(), &session, &library, &reserved.layout);
    let plan = verify(subject.image(), plan.unwrap()).unwrap();
    let mut attached = Attached::attach(&subject, reserved, &plan).unwrap();
    let mut rings = attached.take_rings().unwrap();
    let id = plan.plan().instruments[0].id.pack();
    let mut last = BTreeMap::new();
    let (mut taken, mut lost, mut sum) = (0, 0, 0_u64);
    let mut drain = |rings: &mut SampleRings| {
        let Drained { batches, losses } = rings.drain().unwrap();
        for Batch { cpu, samples } in batches {
            for sample in samples {
                let before = last.insert(cpu, sample.tsc).unwrap_or_default();
                assert!(before < sample.tsc, "CPU {cpu}: {before} {}", sample.tsc);
                let times = began..tsc();
                assert!(times.contains(&sample.tsc), "{times:?} {}", sample.tsc);
                assert!(sample.id == id && (1..2_000_005).contains(&sample.value));
                sum += sample.value;
                taken += 1;
            }
        }
        lost += losses.iter().map(|loss| loss.count).sum::<u64>();
        taken
    };
    let is_enough = AtomicBool::new(false);
    let (ended, is_over) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (counted, is_enough) = (&mut counted, &is_enough);
        scope.spawn(move || {
            while !is_enough.load(Ordering::Relaxed) {
                counted.does("load");
            }
            ended.send(()).unwrap();
        });
        while is_over.try_recv().is_err() {
            is_enough.store(drain(&mut rings) >= least, Ordering::Relaxed);
        }
    });
    let (calls, _) = counted.does("count");
    let removed = attached.remove().unwrap();
    clean(&removed);
    rings.end();
    drain(&mut rings);
    let words: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
    let all = totals(plan.plan(), &words).added_up;
    let number = |name: &str| -> u64 {
        let total = all.iter().find(|one| one.name == name).unwrap();
        let TotalValue::Number(number) = total.value else {
            panic!("{total:?}");
        };
        number.try_into().unwrap()
    };
    let hits = number("calls");
    assert_eq!(taken + lost, hits);
    assert!(!predicate.is_empty() || hits == calls, "{hits} {calls}");
    match lost {
        0 => assert_eq!(sum, number("sum")),
        _ => assert!(sum < number("sum")),
    }
    println!("{taken} samples, {lost} lost of {hits}");
    counted.end();
}

#[test]
fn a_few_samples_all_arrive_with_their_values() {
    let mut counted = Counted::start(&[], |_| {});
    let (subject, reserved) = subject(counted.pid(), "counted", 64);
    let script = "entry:counted / (u32)arg0 % 4096 == 1 / { sample((u32)arg0); @sum = sum((u32)arg0); @n = count() }";
    let session = session(&subject, script);
    let library = Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(subject.image(), &session, &library, &reserved.layout);
    let plan = verify(subject.image(), plan.unwrap()).unwrap();
    let mut attached = Attached::attach(&subject, reserved, &plan).unwrap();
    let mut rings = attached.take_rings().unwrap();
    counted.does("load");
    let removed = attached.remove().unwrap();
    clean(&removed);
    let Drained { batches, losses } = rings.drain().unwrap();
    assert_eq!(losses, []);
    let words: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
    let all = totals(plan.plan(), &words).added_up;
    let values = batches
        .iter()
        .flat_map(|batch| &batch.samples)
        .map(|sample| i128::from(sample.value));
    let (number, sum) = (values.clone().count(), values.sum::<i128>());
    let value = |name: &str| {
        all.iter()
            .find(|one| one.name == name)
            .unwrap()
            .value
            .clone()
    };
    assert_eq!(value("sum"), TotalValue::Number(sum));
    assert_eq!(value("n"), TotalValue::Number(number as i128));
    assert!(number > 2000, "{number}");
    counted.end();
}
