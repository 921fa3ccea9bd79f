//! Hits = delivered + lost, exactly, for every cause of loss: a counter and a sampler at one hook.

use gilk_engine::collection::{Collection, Strategy};
use gilk_engine::session::{Placement, Session, Workload};
use gilk_samples::record::ALL_CPUS;
use ilk_driver::client::CpuLosses;

use crate::support::{Outcome, Turn, placement, shared};

const CALLED: &str = "__x64_sys_getppid";
/// A function that the timer's interrupt executes on every CPU.
const INTERRUPTS: &str = "update_process_times";
/// Number of hits, above the slots of two rings.
const BURSTS: u64 = 200;
const CALLS: u64 = 1000;
const WHOLE: (f64, f64) = (0.0, 6.0);

pub(super) fn session(samples: Strategy, placements: Vec<Placement>) -> Session {
    let workload = Workload {
        program: "/bin/strobe".into(),
        arguments: vec![BURSTS.to_string(), CALLS.to_string()],
        start: 0.3,
    };
    Session {
        name: format!("{samples:?}"),
        duration: WHOLE.1,
        workload: Some(workload),
        placements,
        collection: Collection {
            samples,
            ..Collection::default()
        },
        ..Session::empty()
    }
}

/// Returns two placements: 0 counts the hits, 1 samples each.
pub(super) fn counted_and_sampled() -> Vec<Placement> {
    let both = ["counter", "timestamp"];
    both.map(|it| placement(CALLED, 0, it, WHOLE)).into()
}

/// Runs a session and compares hits with delivered and lost samples.
fn balance(turn: &Turn<'_>, samples: Strategy, further: Vec<Placement>) -> (Outcome, CpuLosses) {
    println!("{samples:?}");
    let mut placements = counted_and_sampled();
    placements.extend(further);
    let outcome = turn.run(&session(samples, placements));
    assert!(outcome.total(0) >= BURSTS * CALLS, "{:?}", outcome.said);
    let lost = assert_balanced(&outcome);
    (outcome, lost)
}

/// Compares counted hits with samples and losses, and returns the losses.
pub(super) fn assert_balanced(outcome: &Outcome) -> CpuLosses {
    let counters = || (0..outcome.plan.instruments.len()).map(|placement| outcome.id(placement));
    let total = |id: u64| {
        let mut instruments = outcome.summary.instruments.iter();
        instruments.find(|summary| summary.id == id)?.total
    };
    let hits: u64 = counters().filter_map(|id| total(id.pack())).sum();
    let delivered = outcome
        .samples
        .iter()
        .filter(|(cpu, _)| *cpu != ALL_CPUS)
        .count() as u64;
    let lost = outcome.summary.lost_by_cause();
    println!(
        "{hits} hits = {delivered} delivered + {} lost: {} ring full, {} off, {} overwritten, \
         {} overtaken",
        lost.lost(),
        lost.full,
        lost.disabled,
        lost.overwritten,
        lost.overtaken
    );
    assert_eq!(hits, delivered + lost.lost(), "{lost:?}");
    assert_eq!(outcome.summary.missing, 0);
    for cpu in 0..2 {
        let times = outcome.samples.iter().filter(|(of, _)| *of == cpu);
        assert!(
            times.map(|(_, sample)| sample.tsc).is_sorted(),
            "samples of CPU {cpu} are out of order"
        );
    }
    lost
}

/// Fails if there are losses of other causes.
pub(super) fn only(lost: CpuLosses, keep: impl Fn(&mut CpuLosses)) {
    let mut others = lost;
    keep(&mut others);
    assert_eq!(others.lost(), 0, "{lost:?}");
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn nested_hits_lose_no_streamed_samples() {
    let shared = shared();
    let turn = shared.turn();
    let interrupts = ["counter", "timestamp"].map(|it| placement(INTERRUPTS, 0, it, WHOLE));
    let (outcome, lost) = balance(&turn, Strategy::Stream, interrupts.into());
    assert!(outcome.total(2) > 100, "the timer did not interrupt");
    // On a busy host the agent may be late.
    only(lost, |lost| lost.full = 0);
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_full_ring_loses_new_or_old_samples_by_the_sessions_strategy() {
    let shared = shared();
    let turn = shared.turn();
    let (oldest, lost) = balance(&turn, Strategy::Oldest, Vec::new());
    assert!(lost.full > 0);
    only(lost, |lost| lost.full = 0);
    let (newest, lost) = balance(&turn, Strategy::Newest, Vec::new());
    assert!(lost.overwritten > 0);
    only(lost, |lost| {
        lost.overwritten = 0;
        lost.overtaken = 0;
    });
    // One strategy keeps the first samples, the other the last.
    let last = |outcome: &Outcome| outcome.times(1).last().copied().unwrap();
    // The part of the workload's time after the last sample.
    let after = |outcome: &Outcome| {
        let at = |word: &str| {
            let said = outcome.said.iter().find(|line| line.starts_with(word));
            let words = said.and_then(|line| line.split_whitespace().nth(2));
            words.unwrap().parse::<f64>().unwrap()
        };
        let (started, ended) = (at("started at "), at("ended at "));
        (ended - last(outcome)) / (ended - started)
    };
    let (oldest, newest) = (after(&oldest), after(&newest));
    println!("{oldest} of the time is after the oldest samples, {newest} after the newest");
    assert!(newest < oldest / 2.0, "{newest} {oldest}");
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn hits_outside_of_windows_are_counted_separately() {
    let shared = shared();
    let turn = shared.turn();
    let windows = Strategy::Windows {
        every: 0.05,
        jitter: 0.02,
        length: 0.01,
    };
    let (outcome, lost) = balance(&turn, windows, Vec::new());
    assert!(lost.disabled > 0 && !outcome.times(1).is_empty());
    // A hit interrupted by the switch may be counted as the other cause; the sum is exact.
    only(lost, |lost| (lost.disabled, lost.full) = (0, 0));
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_timer_started_within_itself_is_sampled_once() {
    let shared = shared();
    let turn = shared.turn();
    // As for a recursive function: started twice, stopped twice. The first stop samples and empties the
    // timer; the second finds none, and samples nothing.
    let nested = [
        "counter",
        "elapsed-start",
        "elapsed-start",
        "elapsed-stop",
        "elapsed-stop",
    ];
    let nested = nested.map(|it| placement(CALLED, 0, it, WHOLE));
    let (_, lost) = balance(&turn, Strategy::Stream, nested.into());
    // On a busy host the agent may be late.
    only(lost, |lost| lost.full = 0);
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn periodic_collection_is_as_complete_as_streaming() {
    let shared = shared();
    let turn = shared.turn();
    let often = Strategy::Periodic {
        every: 0.03,
        jitter: 0.01,
    };
    let (_, lost) = balance(&turn, often, Vec::new());
    only(lost, |lost| lost.full = 0);
    turn.assert_untouched();
}
