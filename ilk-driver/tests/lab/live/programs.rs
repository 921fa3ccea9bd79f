//! Instruments in the language, compared with known facts: Pulsar's forks, one by one.

use std::collections::BTreeSet;

use gilk_engine::Session;
use gilk_instruments::program::Summary as Total;
use gilk_samples::Sample;

use crate::support::{Outcome, placement, pulsar, shared};

/// The function that serves glibc's `fork`, which calls clone(2).
const FORK: &str = "__x64_sys_clone";
/// A function that every creation of a thread calls.
const CLONE: &str = "kernel_clone";
/// A function that the kernel calls there for each new thread, for any caller.
const WAKE: &str = "wake_up_new_task";

const MINE: [(&str, &str); 7] = [
    (
        "child",
        "instrument child \"Samples the numbers of Pulsar's children.\";\n\
         return / comm == \"pulsar\" / { sample(retval) }",
    ),
    (
        "by-pulsar",
        "instrument by-pulsar \"Counts Pulsar's forks.\";\n\
         hit / comm == \"pulsar\" / { @n = count(); @least = min(pid); @most = max(pid); @mean = avg(pid); \
         @where = hist(pid); @there = lhist(pid, 0, 100000, 1000) }",
    ),
    (
        "by-others",
        "instrument by-others \"Samples other processes that fork.\";\nhit / comm != \"pulsar\" / { sample(pid) }",
    ),
    (
        "called",
        "instrument called \"Counts new threads, and those that Pulsar creates.\";\nthread @in; global @seen;\n\
         entry / comm == \"pulsar\" / { @in = 1 }\nreturn { @in = 0 }\n\
         entry:wake_up_new_task / @in == 1 / { @mine = count(); @seen += 1; sample(@seen) }\n\
         entry:wake_up_new_task { @all = count() }",
    ),
    (
        "both",
        "instrument both \"Samples the time of a call, in nanoseconds too.\" unit \"ns\" duration;\n\
         call @start; call @ns;\nentry { @start = tsc; @ns = nsecs }\n\
         return / @start != 0 / { @ticks = max(tsc - @start); sample(nsecs - @ns) }",
    ),
    (
        "clock",
        "instrument clock \"Compares the monotonic clock with the kernel's reading of it.\" unit \"ns\";\n\
         call @from;\nentry { @from = nsecs }\n\
         return / @from != 0 / { @n = count(); @before = max((s64)(@from - retval)); \
         @after = max((s64)(retval - nsecs)); @around = min((s64)(nsecs - @from)) }",
    ),
    (
        "age",
        "instrument age \"Samples how old a new thread is, by the kernel's own timestamp.\" unit \"ns\";\n\
         hit { sample(nsecs - p->start_time) }",
    ),
];

/// A reading of the monotonic clock.
const CLOCK: &str = "ktime_get";
/// The bound of the distance between `nsecs` and the kernel's clock in the lab, in nanoseconds.
const CLOCKS_APART_NS: i128 = 1_000;

/// Returns the samples of all instruments of a placement, in order of time.
fn of(outcome: &Outcome, index: usize) -> Vec<Sample> {
    let instruments = outcome.plan.instruments.iter();
    let own: BTreeSet<u64> = instruments
        .filter(|one| one.placement == index)
        .map(|one| one.id.pack())
        .collect();
    let samples = outcome.samples.iter().map(|(_, sample)| *sample);
    samples.filter(|sample| own.contains(&sample.id)).collect()
}

fn total(outcome: &Outcome, index: usize, name: &str) -> Total {
    let all = outcome.summary.aggregates.iter();
    let mut found = all.filter(|one| one.placement == index && one.name == name);
    found.next().expect("it has a total").value.clone()
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn programs_report_the_known_facts_of_pulsars_forks() {
    let shared = shared();
    let turn = shared.turn();
    let names = [
        "timestamp",
        "elapsed",
        "child",
        "by-pulsar",
        "by-others",
        "called",
        "both",
    ];
    let placements = names.map(|name| {
        let function = if name == "called" { CLONE } else { FORK };
        placement(function, 0, name, (0.0, 8.0))
    });
    let mut placements = placements.to_vec();
    placements.push(placement(WAKE, 0, "counter", (0.0, 8.0)));
    // The function that the system call jumps to in the end, for all of its callers.
    placements.extend(["child", "elapsed"].map(|name| placement(CLONE, 0, name, (0.0, 8.0))));
    placements.extend(
        [(CLOCK, "clock"), (WAKE, "age")]
            .map(|(function, name)| placement(function, 0, name, (0.0, 8.0))),
    );
    let session = Session {
        sources: MINE
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into(),
        ..pulsar(8.0, 500, placements)
    };
    let outcome = turn.run(&session);
    let [entered, elapsed, returned] = [0, 1, 2].map(|index| of(&outcome, index));
    assert_eq!(entered.len(), 160, "Pulsar printed {:?}", outcome.said);

    // Every call is timed from its own entry to its own exit.
    assert_eq!(elapsed.len(), 160);
    let delay = |(entry, exit): (&Sample, &Sample)| {
        let begun = exit.tsc - exit.value;
        begun
            .checked_sub(entry.tsc)
            .expect("it begins after the entry")
    };
    let between = entered.iter().zip(&elapsed).map(delay);
    outcome.assert_moments(between.collect(), 1000);
    // The system call tail-calls other functions, and its timer continues to where they return:
    // each is a call of the jump's target, and takes slightly longer.
    let onward = outcome.plan.notes.iter().filter(|note| note.placement == 1);
    assert!(onward.count() == 1, "{:?}", outcome.plan.notes);
    let inner = of(&outcome, 9);
    assert!(inner.len() > 160, "other processes create threads, too");
    let mut between = Vec::new();
    for call in &elapsed {
        let begun = |one: &Sample| one.tsc - one.value;
        let delay = inner.iter().filter(|one| begun(one) > begun(call));
        let first = delay.min_by_key(|one| begun(one)).expect("it is called");
        between.push(begun(first).abs_diff(begun(call)) + first.tsc.abs_diff(call.tsc));
    }
    outcome.assert_moments(between, 1000);
    let values = |index| of(&outcome, index).into_iter().map(|sample| sample.value);
    assert_eq!(values(8).collect::<Vec<_>>(), values(2).collect::<Vec<_>>());
    // The parent samples each child once.
    let children: BTreeSet<u64> = returned.iter().map(|sample| sample.value).collect();
    assert_eq!((returned.len(), children.len()), (160, 160));
    assert!(
        children.iter().all(|pid| (1..1 << 22).contains(pid)),
        "{children:?}"
    );

    let started = outcome
        .said
        .iter()
        .find_map(|line| line.split("as process ").nth(1));
    let pulsar: i128 = started
        .expect("the line contains its number")
        .trim()
        .parse()
        .unwrap();
    assert_eq!(total(&outcome, 3, "n"), Total::Number(160));
    assert_eq!(total(&outcome, 3, "least"), Total::Number(pulsar));
    assert_eq!(total(&outcome, 3, "most"), Total::Number(pulsar));
    assert_eq!(total(&outcome, 3, "mean"), Total::Mean(pulsar as f64));
    for name in ["where", "there"] {
        let Total::Buckets(buckets) = total(&outcome, 3, name) else {
            panic!("{name} has buckets");
        };
        for bucket in buckets {
            let inside = bucket.from.is_none_or(|from| from <= pulsar)
                && bucket.to.is_none_or(|to| pulsar <= to);
            assert_eq!(bucket.count, if inside { 160 } else { 0 }, "{bucket:?}");
        }
    }
    assert_eq!(of(&outcome, 4), []);

    // Pulsar's threads are distinguished by a variable that another function's probe sets.
    assert_eq!(total(&outcome, 5, "mine"), Total::Number(160));
    let all = i128::from(outcome.total(7));
    assert_eq!(total(&outcome, 5, "all"), Total::Number(all));
    assert!(all >= 160);
    let seen: Vec<u64> = of(&outcome, 5).iter().map(|sample| sample.value).collect();
    assert_eq!(seen, (1..=160).collect::<Vec<u64>>());

    // Both clocks measure the same time.
    let both = of(&outcome, 6);
    assert_eq!(both.len(), 160);
    let hz = u128::from(outcome.summary.clock.hz);
    let ns = |ticks: u64| (u128::from(ticks) * 1_000_000_000 / hz) as u64;
    let ticks = |ns: u64| (u128::from(ns) * hz / 1_000_000_000) as u64;
    let apart = elapsed
        .iter()
        .zip(&both)
        .map(|(one, other)| ticks(other.value).abs_diff(one.value))
        .collect();
    outcome.assert_moments(apart, 1000);
    let Total::Number(most) = total(&outcome, 6, "ticks") else {
        panic!("a largest value is a number");
    };
    // The kernel's reading of its clock lies between two of ours, and a thread is younger than its own start.
    let number = |name: &str| match total(&outcome, 10, name) {
        Total::Number(number) => number,
        other => panic!("{name} is a number: {other:?}"),
    };
    let clocks = ["n", "before", "after", "around"].map(number);
    let [readings, before, after, around] = clocks;
    assert!(
        readings > 1000
            && before < CLOCKS_APART_NS
            && after < CLOCKS_APART_NS
            && around > -CLOCKS_APART_NS,
        "{clocks:?}"
    );
    let ages: Vec<u64> = of(&outcome, 11).iter().map(|one| one.value).collect();
    assert_eq!(ages.len(), outcome.total(7) as usize);
    assert!(
        ages.iter().all(|age| (1..1_000_000_000).contains(age)),
        "{ages:?}"
    );

    let longest = both.iter().map(|sample| sample.value).max().unwrap();
    assert!(ns(most as u64).abs_diff(longest) < 10_000_000);
    assert_eq!((outcome.summary.lost(), outcome.summary.missing), (0, 0));
    turn.assert_untouched();
}
