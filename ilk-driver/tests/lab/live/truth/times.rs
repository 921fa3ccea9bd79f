//! The facts that timing instruments are compared with: the program's own clock readings around
//! each call, and the kernel's probes at the function's entry and exit.

use std::collections::BTreeMap;

use gilk_instruments::program::Summary as Total;
use gilk_samples::level::Average;
use gilk_samples::profile::profiles;
use gilk_samples::recording::Recording;

use super::rows::{COPY_CALL, NESTED, SLEEP};
use super::{Case, Run, VERIFY};

/// Tolerance in seconds between the kernel's probe and ours at one address: both are code at one
/// hook, but the emulated processor may be preempted in between.
const APART: f64 = 0.02;

/// Checks calls, as sampled at their ends, against the kernel's own events: each of ours is within
/// one of theirs, and slightly shorter.
fn within_the_kernels(run: &Run, case: &Case, samples: &[(u64, u64, u32)]) {
    let mut calls = run.events.calls(case.function);
    assert_eq!(
        samples.len(),
        calls.len(),
        "as many calls as the kernel's probes saw"
    );
    for (tsc, value, _) in samples {
        // Calls on two CPUs may end in another order than their samples have.
        let around = (0..calls.len())
            .filter(|&call| calls[call].0.tsc <= tsc - value && *tsc <= calls[call].1.tsc);
        let shortest = around.min_by_key(|&call| calls[call].1.tsc - calls[call].0.tsc);
        let Some(call) = shortest else {
            panic!("{}..{tsc} is within no other's: {calls:?}", tsc - value);
        };
        let (begun, ended) = calls.remove(call);
        let apart = (ended.tsc - begun.tsc - value) as f64 / run.hz();
        assert!(apart < 2.0 * APART, "{apart} s apart");
    }
}

/// Returns the sleeps in order of their ends: begin, end, milliseconds, nanoseconds on the
/// processor.
fn sleeps(run: &Run) -> Vec<&[u64]> {
    let mut sleeps: Vec<&[u64]> = run.said("sleep").iter().map(Vec::as_slice).collect();
    sleeps.sort_by_key(|sleep| sleep[1]);
    sleeps
}

/// Returns the sleep that contains a span; sleeps of other threads overlap, so the closest length
/// decides.
fn of_thread<'s>(sleeps: &[&'s [u64]], from: u64, to: u64) -> &'s [u64] {
    let around = sleeps
        .iter()
        .filter(|sleep| sleep[0] < from && to < sleep[1]);
    around
        .min_by_key(|sleep| sleep[1] - sleep[0])
        .unwrap_or_else(|| panic!("no thread slept around {from}..{to}"))
}

pub(super) fn asleep(run: &Run, case: &Case) {
    let samples = run.samples(case);
    within_the_kernels(run, case, &samples);
    let sleeps = sleeps(run);
    assert_eq!(samples.len(), sleeps.len());
    // Threads slept concurrently, each was switched out during its call.
    assert!(sleeps.windows(2).any(|pair| pair[1][0] < pair[0][1]));
    for (tsc, value, _) in &samples {
        let sleep = of_thread(&sleeps, tsc - value, *tsc);
        let seconds = *value as f64 / run.hz();
        assert!(
            seconds >= sleep[2] as f64 / 1e3 * 0.999,
            "{seconds} s of {sleep:?}"
        );
    }
}

pub(super) fn histogram(run: &Run, case: &Case) {
    let Total::Buckets(buckets) = run.total(case, "ticks") else {
        panic!("a histogram has buckets");
    };
    // Its own times differ slightly from those of elapsed at the same hooks.
    let beside = run.values(run.other("elapsed", SLEEP));
    let slack = (APART * run.hz()) as i128;
    for bucket in buckets {
        let (from, to) = (
            bucket.from.unwrap_or(i128::MIN / 2),
            bucket.to.unwrap_or(i128::MAX / 2),
        );
        let within = |wide: i128| {
            let inside = |value: &&u64| (from - wide..=to + wide).contains(&i128::from(**value));
            beside.iter().filter(inside).count() as u64
        };
        assert!(
            within(-slack) <= bucket.count && bucket.count <= within(slack),
            "{bucket:?}"
        );
    }
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    assert_eq!(all, beside.len() as u64);
}

pub(super) fn added_up(run: &Run, case: &Case) {
    let beside: u64 = run.values(run.other("elapsed", SLEEP)).iter().sum();
    let calls = run.said("sleep").len();
    assert_eq!(run.number(case, "calls"), calls as i128);
    let apart = (run.number(case, "total") - i128::from(beside)).abs() as f64 / run.hz();
    assert!(apart < APART * calls as f64, "{apart} s apart");
}

pub(super) fn on_the_processor(run: &Run, case: &Case) {
    let samples = run.samples(case);
    let calls = run.events.calls(case.function);
    let sleeps = sleeps(run);
    assert_eq!(samples.len(), calls.len());
    // In order of their ends, like the samples.
    for ((tsc, value, _), (begun, ended)) in samples.iter().zip(&calls) {
        assert!(begun.tsc < *tsc && *tsc <= ended.tsc);
        let sleep = of_thread(&sleeps, begun.tsc, ended.tsc);
        let seconds = *value as f64 / run.hz();
        // The kernel's own accounting of the thread includes the call and the code around it, the
        // program's and the kernel's probes.
        let accounted = sleep[3] as f64 / 1e9;
        assert!(
            seconds <= accounted * 1.001 + 1e-4,
            "{seconds} s, the kernel accounts {accounted} s"
        );
        assert!(
            seconds < sleep[2] as f64 / 1e3,
            "{seconds} s of a sleep {sleep:?}"
        );
    }
}

/// Returns the time integral of concurrent calls by the kernel's probes: each call is a step up and
/// a step down.
fn inside_at(run: &Run, function: &str) -> f64 {
    let calls = run.events.calls(function);
    calls
        .iter()
        .map(|(begun, ended)| (ended.tsc - begun.tsc) as f64)
        .sum()
}

/// Returns the time integral of a sampled number: the sum of number times ticks.
fn integral(samples: &[(u64, u64, u32)]) -> f64 {
    samples
        .windows(2)
        .map(|pair| pair[0].1 as f64 * (pair[1].0 - pair[0].0) as f64)
        .sum()
}

/// Checks that each sample differs from the last by one, except when two CPUs count at the same
/// moment: the one that counts first may sample last. The first is 1, and the last 0.
fn in_steps(samples: &[(u64, u64, u32)]) -> u64 {
    let values: Vec<u64> = samples.iter().map(|(_, value, _)| *value).collect();
    let first = values.iter().take(2).min();
    assert_eq!((first, values.last()), (Some(&1), Some(&0)), "{values:?}");
    values.into_iter().max().unwrap_or(0)
}

pub(super) fn inside(run: &Run, case: &Case) {
    let samples = run.samples(case);
    assert_eq!(samples.len(), 2 * run.said("sleep").len());
    let most = in_steps(&samples);
    assert!((2..=4).contains(&most), "{most} of four threads at once");
    // The average number inside times the duration is the total time inside, by the kernel's probes
    // and by `elapsed` at the same function: Little's law.
    let average = on_average(run, case);
    let ours = average.mean * average.covered as f64;
    let beside: u64 = run.values(run.other("elapsed", SLEEP)).iter().sum();
    for known in [inside_at(run, case.function), beside as f64] {
        let apart = (ours - known).abs() / run.hz();
        assert!(apart < APART * samples.len() as f64, "{apart} s apart");
    }
    assert!((ours - integral(&samples)).abs() / run.hz() < 1e-6);
    assert_eq!((average.least, average.greatest), (0, most.cast_signed()));
}

/// Returns the average of a level as `ilk stats` prints it.
fn on_average(run: &Run, case: &Case) -> Average {
    let recording = Recording::open(&run.outcome.recording).unwrap();
    let measured = profiles(&recording, None, 1, |_| true);
    let instruments = run.outcome.plan.instruments.iter();
    let own: Vec<u64> = instruments
        .filter(|one| case.placements.contains(&one.placement))
        .map(|one| one.id.pack())
        .collect();
    assert!(own.len() > 1, "entered at one hook, left at others");
    let mut levels = measured
        .levels
        .iter()
        .filter(|level| own.contains(&level.id));
    let level = levels.next().expect("it has a level");
    assert_eq!(levels.count(), 0, "all hooks are one level");
    level.average
}

pub(super) fn waiting(run: &Run, case: &Case) {
    let samples = run.samples(case);
    let most = in_steps(&samples);
    assert!((2..=4).contains(&most), "{most} of four threads at once");
    // All the time that the threads were inside, except what the other instrument measured as
    // executing.
    let inside = integral(&run.samples(run.other("threads-inside", SLEEP)));
    let ran: u64 = run.values(run.other("processor-time", SLEEP)).iter().sum();
    let average = on_average(run, case);
    let waited = average.mean * average.covered as f64;
    let apart = (inside - ran as f64 - waited).abs() / run.hz();
    assert!(apart < APART * samples.len() as f64, "{apart} s apart");
}

pub(super) fn nested(run: &Run, case: &Case) {
    let samples = run.samples(case);
    within_the_kernels(run, case, &samples);
    // Requested once each, and each level contains another one.
    for call in run.said("nested") {
        let inside = samples
            .iter()
            .filter(|(tsc, ..)| call[0] < *tsc && *tsc < call[1]);
        let calls: Vec<_> = inside.collect();
        assert_eq!(calls.len() as u64, call[2], "{call:?}");
        for pair in calls.windows(2) {
            let (inner, outer) = (pair[0], pair[1]);
            assert!(
                outer.0 - outer.1 < inner.0 - inner.1 && inner.0 < outer.0,
                "{pair:?}"
            );
        }
    }
}

pub(super) fn outermost(run: &Run, case: &Case) {
    let samples = run.samples(run.other("elapsed", NESTED));
    // A call that is not nested in another one.
    let begun = |sample: &(u64, u64, u32)| sample.0 - sample.1;
    let outer = |one: &&(u64, u64, u32)| {
        !samples
            .iter()
            .any(|other| begun(other) < begun(one) && one.0 < other.0)
    };
    let outer: Vec<_> = samples.iter().filter(outer).collect();
    assert!(outer.len() < samples.len());
    assert_eq!(run.number(case, "calls"), outer.len() as i128);
    let known: u64 = outer.iter().map(|sample| sample.1).sum();
    let apart = (run.number(case, "total") - i128::from(known)).abs() as f64 / run.hz();
    assert!(apart < APART * outer.len() as f64, "{apart} s apart");
}

/// Returns the samples at ends of calls that the kernel's probes saw. Other threads may have called
/// the same function before the probes were installed, and after; none did while the program ran.
pub(super) fn while_witnessed(run: &Run, case: &Case) -> Vec<(u64, u64, u32)> {
    let all = run.samples(case);
    let calls = run.events.calls(case.function);
    let ends = |tsc: u64| {
        calls
            .iter()
            .any(|(begun, ended)| begun.tsc < tsc && tsc < ended.tsc)
    };
    let samples: Vec<_> = all.iter().copied().filter(|(tsc, ..)| ends(*tsc)).collect();
    let (from, to) = (run.said("begun")[0][1], run.said("ended")[0][0]);
    let others = |(tsc, ..): &&(u64, u64, u32)| *tsc < from || to < *tsc;
    let before_and_after = all.iter().filter(others).filter(|(tsc, ..)| !ends(*tsc));
    assert_eq!(before_and_after.count(), all.len() - samples.len());
    samples
}

pub(super) fn waits(run: &Run, case: &Case) {
    let samples = while_witnessed(run, case);
    assert!(!samples.is_empty(), "two threads fought for one lock");
    within_the_kernels(run, case, &samples);
    let Total::Buckets(buckets) = run.total(case, "waits") else {
        panic!("a histogram has buckets");
    };
    let counted: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    assert_eq!(counted, run.samples(case).len() as u64);
}

/// Checks as many calls as the kernel's probe counted at the entry, each beginning there; otherwise
/// as `waits`, because some kernels accept no probe at this function's return.
pub(super) fn spins(run: &Run, case: &Case) {
    let (from, to) = (run.said("begun")[0][1], run.said("ended")[0][0]);
    let meanwhile = |tsc: &u64| from < *tsc && *tsc < to;
    let samples = run.samples(case).into_iter();
    let mut begun: Vec<u64> = samples
        .map(|(tsc, value, _)| tsc - value)
        .filter(meanwhile)
        .collect();
    begun.sort_unstable();
    let kernels = run.entries(case).iter().map(|event| event.tsc);
    let kernels: Vec<u64> = kernels.filter(meanwhile).collect();
    assert!(!kernels.is_empty(), "two threads fought for one lock");
    assert_eq!(begun.len(), kernels.len());
    for (begun, kernel) in begun.iter().zip(kernels) {
        let late = begun.checked_sub(kernel).expect("it follows the probe") as f64 / run.hz();
        assert!(late < APART, "{late} s after the kernel's probe");
    }
    if !run.events.exits(case.function).is_empty() {
        waits(run, case);
    }
}

/// Checks calls whose own code has faulted and recovered, at another instruction or at the same
/// one.
pub(super) fn faulted(run: &Run, case: &Case) {
    let samples = while_witnessed(run, case);
    within_the_kernels(run, case, &samples);
    for call in run.said("faulted").iter().chain(run.said("served")) {
        let within = |(tsc, value, _): &&(u64, u64, u32)| call[0] < tsc - value && *tsc < call[1];
        assert!(samples.iter().any(|sample| within(&sample)), "{call:?}");
    }
}

pub(super) fn started(run: &Run, case: &Case) {
    assert_eq!(run.samples(case), [], "it samples nothing itself");
}

pub(super) fn stopped(run: &Run, case: &Case) {
    let samples = run.samples(case);
    within_the_kernels(run, case, &samples);
    for (call, (tsc, value, _)) in run.said("umask").iter().zip(samples.iter().skip(1)) {
        assert!(call[0] < tsc - value && *tsc < call[1], "{call:?}");
    }
}

/// Returns the calls that copies make, by the kernel's probes: the threads of those within a copy
/// of the same thread, and the number of all.
fn within_copies(run: &Run) -> (Vec<u64>, usize) {
    let copies = run.events.calls(COPY_CALL);
    let calls = run.events.calls(VERIFY);
    let within = calls.iter().filter(|(begun, ended)| {
        let around = |(from, to): &(&super::Event, &super::Event)| {
            from.thread == begun.thread && from.tsc < begun.tsc && ended.tsc < to.tsc
        };
        copies.iter().any(around)
    });
    (within.map(|(begun, _)| begun.thread).collect(), calls.len())
}

pub(super) fn called(run: &Run, case: &Case) {
    assert_eq!(run.samples(case), [], "it samples nothing itself");
    assert_eq!(run.entries(case).len(), run.said("copy").len());
}

pub(super) fn when_called(run: &Run, case: &Case) {
    let (within, all) = within_copies(run);
    let within = within.len();
    assert!(0 < within && within < all, "{within} of {all}");
    assert_eq!(run.samples(case).len(), within);
}

/// Checks the trace of the function that has `caller` itself: an entry and a return of each call.
pub(super) fn root_traced(run: &Run, case: &Case) {
    let steps: Vec<u64> = run.values(case).iter().map(|value| value & 1).collect();
    assert!(steps.chunks(2).all(|call| call == [1, 0]), "{steps:?}");
    assert_eq!(steps.len(), 2 * run.said("copy").len());
}

pub(super) fn call_trace(run: &Run, case: &Case) {
    let mut calls: BTreeMap<u64, usize> = BTreeMap::new();
    for thread in within_copies(run).0 {
        *calls.entry(thread).or_default() += 1;
    }
    let mut traced: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for value in run.values(case) {
        traced.entry(value >> 1).or_default().push(value & 1);
    }
    let is_leaf = |steps: &[u64]| steps == [1, 0];
    assert!(
        traced.values().all(|steps| steps.chunks(2).all(is_leaf)),
        "a leaf of the tree: {traced:?}"
    );
    let traced = traced.into_iter();
    let traced: BTreeMap<u64, usize> = traced.map(|(it, steps)| (it, steps.len() / 2)).collect();
    assert_eq!(traced, calls, "calls by thread");
}
