//! The facts that each instrument is compared with, except those of timers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use gilk_engine::cfg::Cfg;
use gilk_instruments::program::Summary as Total;
use gilk_samples::Sample;
use gilk_samples::index::Index;
use gilk_samples::recording::Recording;
use gilk_samples::totals::Totals;

use super::{At, Case, Row, Run};
use super::{branches, times};

const UMASK: &str = "__x64_sys_umask";
pub(super) const PRIORITY: &str = "__do_sys_getpriority";
const COPY: &str = "vfs_copy_file_range";
const ADVICE: &str = "ksys_fadvise64_64";
pub(super) const SLEEP: &str = "__x64_sys_nanosleep";
pub(super) const NESTED: &str = "__ep_eventpoll_poll";
pub(super) const SLOWPATH: &str = "rwsem_down_write_slowpath";
const SPINNING: &str = "native_queued_spin_lock_slowpath";
const FAULTING: &str = "fault_in_readable";
pub(super) const COPY_CALL: &str = "__do_sys_copy_file_range";

const fn row(
    instrument: &'static str,
    function: &'static str,
    at: At,
    truth: fn(&Run, &Case),
) -> Row {
    Row {
        instrument,
        function,
        at,
        truth,
    }
}

/// All instruments that can run.
pub(super) const ROWS: &[Row] = &[
    row("counter", UMASK, At::Entry, counted),
    row("timestamp", UMASK, At::Entry, within_the_call),
    row("return-value", UMASK, At::Entry, old_masks),
    row("register", UMASK, At::Returns, old_masks),
    row("memory", UMASK, At::Entry, marks),
    row("coverage", PRIORITY, At::Blocks, covered),
    row("counter", PRIORITY, At::Blocks, blocks_counted),
    row("block-trace", PRIORITY, At::Blocks, traced),
    row("branch", PRIORITY, At::Branches, branches::taken),
    row("branch-hint", PRIORITY, At::Branches, branches::laid_out),
    row("edge-coverage", PRIORITY, At::Branches, branches::covered),
    row("counter", SLOWPATH, At::Blocks, branches::entered),
    row(
        "timestamp",
        SLOWPATH,
        At::Entry,
        branches::entered_concurrently,
    ),
    row("lock-retries", SLOWPATH, At::Retries, branches::retried),
    row("argument-0", COPY, At::Entry, argument),
    row("argument-1", COPY, At::Entry, argument),
    row("argument-2", COPY, At::Entry, argument),
    row("argument-3", COPY, At::Entry, argument),
    row("argument-4", COPY, At::Entry, argument),
    row("argument-5", COPY, At::Entry, argument),
    row("histogram", ADVICE, At::Entry, sizes),
    row("linear-histogram", ADVICE, At::Entry, sizes),
    row("usage", ADVICE, At::Entry, offsets),
    row("errors", PRIORITY, At::Entry, error_numbers),
    row("by-process", UMASK, At::Entry, processes),
    row("running-thread", UMASK, At::Entry, threads),
    row("thread-name", UMASK, At::Entry, names),
    row("elapsed", SLEEP, At::Entry, times::asleep),
    row("elapsed-histogram", SLEEP, At::Entry, times::histogram),
    row("elapsed-total", SLEEP, At::Entry, times::added_up),
    row("processor-time", SLEEP, At::Entry, times::on_the_processor),
    row("threads-inside", SLEEP, At::Entry, times::inside),
    row("threads-waiting", SLEEP, At::Entry, times::waiting),
    row("elapsed", NESTED, At::Entry, times::nested),
    row("elapsed-total", NESTED, At::Entry, times::outermost),
    row("elapsed", FAULTING, At::Entry, times::faulted),
    row("return-value", FAULTING, At::Entry, not_touched),
    row("lock-wait", SLOWPATH, At::Entry, times::waits),
    row("lock-wait", SPINNING, At::Entry, times::spins),
    row("elapsed-start", UMASK, At::Entry, times::started),
    row("elapsed-stop", UMASK, At::Returns, times::stopped),
    row("caller", COPY_CALL, At::Entry, times::called),
    row(
        "elapsed-when-called",
        super::VERIFY,
        At::Entry,
        times::when_called,
    ),
    row("call-trace", super::VERIFY, At::Entry, times::call_trace),
    row("call-trace", COPY_CALL, At::Entry, times::root_traced),
];

/// Returns the number of calls of umask(2): the first one, those with marks, and the children's.
fn umasks(run: &Run) -> u64 {
    let children: u64 = run.said("child").iter().map(|child| child[1]).sum();
    1 + run.said("umask").len() as u64 + children
}

fn counted(run: &Run, case: &Case) {
    let total = run.outcome.total(case.placements[0]);
    assert_eq!(total, umasks(run));
    assert_eq!(total, run.entries(case).len() as u64);
}

fn within_the_call(run: &Run, case: &Case) {
    let samples = run.samples(case);
    assert_eq!(samples.len() as u64, umasks(run));
    // The first call had no mark.
    for (call, (tsc, value, _)) in run.said("umask").iter().zip(samples.iter().skip(1)) {
        assert!(call[0] < *tsc && *tsc < call[1], "{tsc} of {call:?}");
        assert!(value.abs_diff(*tsc) < 1000, "it samples its own time");
    }
    // The kernel's own probe precedes ours at the same entry.
    for (event, (tsc, ..)) in run.entries(case).iter().zip(&samples) {
        let late = tsc.checked_sub(event.tsc).expect("it follows the probe") as f64 / run.hz();
        assert!(late < 5e-3, "{late} s after the kernel's probe");
    }
}

fn old_masks(run: &Run, case: &Case) {
    let values = run.values(case);
    let said: Vec<u64> = run.said("umask").iter().map(|call| call[2]).collect();
    assert_eq!(values[1..=said.len()], said);
    let kernels = run.events.exits(case.function);
    let kernels: Vec<u64> = kernels.iter().map(|event| event.values["ret"]).collect();
    assert_eq!(values, kernels);
}

/// Checks a function that faults, recovers at another instruction or at the same one, and returns
/// the number of bytes that it could not touch.
fn not_touched(run: &Run, case: &Case) {
    let kernels = run.events.exits(case.function).iter();
    let kernels: Vec<u64> = kernels.map(|event| event.values["ret"]).collect();
    let samples = times::while_witnessed(run, case);
    let values: Vec<u64> = samples.iter().map(|(_, value, _)| *value).collect();
    assert_eq!(values, kernels);
    let faulted = run.said("faulted").iter().map(|call| (call, call[2]));
    let served = run.said("served").iter().map(|call| (call, 0));
    for (call, left) in faulted.chain(served) {
        let within = |(tsc, ..): &&(u64, u64, u32)| call[0] < *tsc && *tsc < call[1];
        let mut found = samples.iter().filter(within);
        assert!(found.any(|(_, value, _)| *value == left), "{call:?}");
    }
}

/// Checks argument 0, which points to the registers of the process: first r15, where the program
/// keeps its marks.
fn marks(run: &Run, case: &Case) {
    let values = run.values(case);
    let said = run.said("umask").iter();
    let marks: Vec<u64> = said.map(|call| 0x5eed_0000_0000_0000 + call[3]).collect();
    assert_eq!(values[1..=marks.len()], marks);
    let kernels = run.entries(case).iter().map(|event| event.values["word"]);
    assert_eq!(values, kernels.collect::<Vec<u64>>());
    let mut failed = run.outcome.summary.failed_reads.iter();
    let failed = failed.find(|one| case.placements.contains(&one.placement));
    assert_eq!(failed.map(|one| one.count), Some(0));
}

/// Returns the number of executions of each block of a function, by counters.
pub(super) fn by_counters(run: &Run, function: &str) -> BTreeMap<u32, u64> {
    let counters = run.other("counter", function);
    let of = |index: &usize| (run.outcome.id(*index).block, run.outcome.total(*index));
    counters.placements.iter().map(of).collect()
}

fn blocks_counted(run: &Run, case: &Case) {
    let calls: u64 = run.said("priorities")[0].iter().sum();
    assert_eq!(by_counters(run, PRIORITY)[&0], calls);
    assert_eq!(calls, run.entries(case).len() as u64);
}

fn covered(run: &Run, case: &Case) {
    let mut seen = BTreeSet::new();
    for aggregate in &run.outcome.summary.aggregates {
        if case.placements.contains(&aggregate.placement) && aggregate.value != Total::Number(0) {
            seen.insert(run.outcome.id(aggregate.placement).block);
        }
    }
    let counted = by_counters(run, PRIORITY).into_iter();
    let ran: BTreeSet<u32> = counted.filter(|(_, n)| *n > 0).map(|(b, _)| b).collect();
    assert_eq!(seen, ran);
    assert!(
        ran.len() > 1 && ran.len() < case.placements.len(),
        "{} blocks of {} executed",
        ran.len(),
        case.placements.len()
    );
}

fn traced(run: &Run, case: &Case) {
    let samples = run.samples(case);
    let mut counts: BTreeMap<u32, u64> = by_counters(run, PRIORITY);
    counts.retain(|_, count| *count > 0);
    let mut traced = BTreeMap::new();
    for (_, value, block) in &samples {
        assert_eq!(*value, u64::from(*block), "a sample is of its own block");
        *traced.entry(*block).or_insert(0) += 1;
    }
    assert_eq!(traced, counts);
    // Each step is an edge of the graph if the next block has a hook, or a new call.
    let id = run.shared.image.function_named(case.function).unwrap().id;
    let cfg = Cfg::of(&run.shared.image, id);
    let hooked: BTreeSet<u32> = case
        .placements
        .iter()
        .map(|index| run.outcome.id(*index).block)
        .collect();
    for pair in samples.windows(2) {
        let (from, to) = (pair[0].2, pair[1].2);
        let edge = cfg
            .edges
            .iter()
            .any(|edge| (edge.from.0, edge.to.0) == (from, to));
        let hidden = cfg
            .edges
            .iter()
            .any(|edge| edge.from.0 == from && !hooked.contains(&edge.to.0));
        assert!(
            edge || to == 0 || hidden,
            "there is no path from {from} to {to}"
        );
    }
}

fn argument(run: &Run, case: &Case) {
    let number = case.instrument.trim_start_matches("argument-");
    let values = run.values(case);
    let key = format!("a{number}");
    let kernels: Vec<u64> = run
        .entries(case)
        .iter()
        .map(|event| event.values[&key])
        .collect();
    assert_eq!(values, kernels);
    let said = run.said("copy");
    let known: Option<Vec<u64>> = match number {
        "1" => Some(said.iter().map(|copy| copy[0]).collect()),
        "3" => Some(said.iter().map(|copy| copy[1]).collect()),
        "4" => Some(said.iter().map(|copy| copy[2]).collect()),
        "5" => Some(vec![0; said.len()]),
        _ => None,
    };
    assert!(known.is_none_or(|known| known == values), "{values:?}");
}

/// Checks both histograms of the lengths.
fn sizes(run: &Run, case: &Case) {
    let said: Vec<u64> = run.said("advice").iter().map(|advice| advice[1]).collect();
    let kernels = run.entries(case).iter().map(|event| event.values["a2"]);
    assert_eq!(said, kernels.collect::<Vec<u64>>());
    let Total::Buckets(buckets) = run.total(case, "values") else {
        panic!("a histogram has buckets");
    };
    for bucket in buckets {
        let inside = |value: &&u64| {
            let value = i128::from(**value);
            bucket.from.is_none_or(|from| from <= value) && bucket.to.is_none_or(|to| value <= to)
        };
        assert_eq!(
            bucket.count,
            said.iter().filter(inside).count() as u64,
            "{bucket:?}"
        );
    }
}

/// Checks that an aggregate has exactly these values, and no merged ones.
fn has_values(run: &Run, case: &Case, name: &str, known: impl IntoIterator<Item = u64>) {
    let mut counts: BTreeMap<i128, u64> = BTreeMap::new();
    for value in known {
        *counts.entry(value.into()).or_default() += 1;
    }
    let Total::Values(values, others) = run.total(case, name) else {
        panic!("it has values");
    };
    let values: BTreeMap<i128, u64> = values.iter().copied().collect();
    assert_eq!((&values, *others), (&counts, 0));
}

fn offsets(run: &Run, case: &Case) {
    let said: Vec<u64> = run.said("advice").iter().map(|advice| advice[0]).collect();
    let kernels = run.entries(case).iter().map(|event| event.values["a1"]);
    assert_eq!(said, kernels.collect::<Vec<u64>>());
    has_values(run, case, "values", said);
}

fn error_numbers(run: &Run, case: &Case) {
    let returned = run.events.exits(case.function).iter();
    let returned = returned.map(|event| event.values["ret"].cast_signed());
    let errors: Vec<u64> = returned
        .filter(|ret| *ret < 0)
        .map(i64::unsigned_abs)
        .collect();
    let of = |number: u64| errors.iter().filter(|error| **error == number).count() as u64;
    // EINVAL and ESRCH.
    assert_eq!([of(22), of(3)], run.said("priorities")[0][1..]);
    has_values(run, case, "errors", errors);
}

/// Returns the process of each call of umask(2).
fn callers(run: &Run) -> Vec<u64> {
    let own = run.said("begun")[0][0];
    let mut known = vec![own; 1 + run.said("umask").len()];
    for child in run.said("child") {
        known.resize(known.len() + child[1] as usize, child[0]);
    }
    known
}

fn processes(run: &Run, case: &Case) {
    has_values(run, case, "processes", callers(run));
}

/// Checks that each line has the number of one of the processes and the name of the program.
fn names(run: &Run, case: &Case) {
    let recording = Recording::open(&run.outcome.recording).unwrap();
    let (index, damaged) = Index::of(&recording, |_| ControlFlow::Continue(()));
    assert!(damaged.is_empty(), "{damaged:?}");
    let texts = &recording.metadata().texts;
    let id = run.outcome.id(case.placements[0]).pack();
    let mut lines = Vec::new();
    index.visit(id, 0, u64::MAX, |point| {
        let (value, tsc) = (point.value, point.tsc);
        let sample = Sample { id, value, tsc };
        let words = index.words(&sample, texts.words(&sample)).unwrap();
        lines.push(texts.text(&sample, &words, &Totals::default()).unwrap());
    });
    let known = callers(run).into_iter();
    let mut known: Vec<String> = known
        .map(|number| format!("{number} {number} witness"))
        .collect();
    lines.sort_unstable();
    known.sort_unstable();
    assert_eq!(lines, known);
}

/// Checks that each of the processes has one thread with the same number.
fn threads(run: &Run, case: &Case) {
    let (mut values, mut known) = (run.values(case), callers(run));
    values.sort_unstable();
    known.sort_unstable();
    assert_eq!(values, known);
}
