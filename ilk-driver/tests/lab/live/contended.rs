//! Retries of a contended `cmpxchg`: two processes take references to the same open file
//! concurrently.

use std::fmt::Write as _;

use gilk_engine::cfg::{Block, BlockIndex, Cfg};
use gilk_engine::session::{Placement, Session, Workload};
use gilk_engine::{Addr, HookType};
use gilk_instruments::program::Summary as Total;
use iced_x86::Mnemonic;

use crate::support::{Outcome, placement, shared};

/// Functions that may serve `dup` and contain the loop that increments a non-zero reference count,
/// depending on the compiler.
const TAKE: [&str; 2] = ["__x64_sys_dup", "fget_raw"];
const SECONDS: f64 = 8.0;
const DURATION: f64 = 14.0;
/// Number of instruments that only take time, between the read of the count and the `cmpxchg`. When
/// one thread emulates all CPUs it switches between them ten times a second, so the window must be
/// long.
const DELAYS: usize = 8;

/// Returns an instrument that sums a thousand numbers.
fn delay() -> String {
    let mut text = String::from("instrument delay \"Wastes time.\"; hit { ");
    for _ in 0..60 {
        let _written = write!(text, "@a = hist(tid); ");
    }
    text + "}"
}

fn number(outcome: &Outcome, placement: usize, name: &str) -> u64 {
    let mut all = outcome.summary.aggregates.iter();
    let found = all.find(|one| (one.placement, &*one.name) == (placement, name));
    match found.map(|one| &one.value) {
        Some(Total::Number(number)) => u64::try_from(*number).unwrap(),
        other => panic!("@{name} is {other:?}"),
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn retries_are_counted_where_two_processors_contend() {
    let shared = shared();
    let turn = shared.turn();
    let image = &shared.image;
    let is_try = |block: &&Block| {
        let mut all = block.instructions.iter();
        all.any(|one| one.mnemonic() == Mnemonic::Cmpxchg && one.has_lock_prefix())
    };
    let graphs = TAKE
        .into_iter()
        .filter_map(|name| image.function_named(name).ok())
        .map(|function| (function.name.to_string(), Cfg::of(image, function.id)));
    let mut with_loop = graphs.filter(|(_, cfg)| cfg.blocks.iter().any(|block| is_try(&block)));
    let (take, cfg) = with_loop.next().expect("one of them has the loop");
    let tries = cfg.blocks.iter().find(is_try).unwrap();
    let target = Addr(tries.instructions.last().unwrap().near_branch_target());
    let again = cfg.block_at(target).unwrap().index;
    let at = |block: BlockIndex, name: &str| Placement {
        hook: HookType::Pre,
        ..placement(&take, block.0, name, (0.0, DURATION))
    };
    let mut placements = vec![
        at(BlockIndex(0), "counter"),
        at(tries.index, "counter"),
        at(again, "counter"),
        at(tries.index, "lock-retries"),
    ];
    placements.extend((0..DELAYS).map(|_| at(tries.index, "delay")));
    let session = Session {
        name: "contended".into(),
        duration: DURATION,
        workload: Some(Workload {
            program: "/bin/dups".into(),
            arguments: vec![SECONDS.to_string()],
            start: 0.5,
        }),
        placements,
        sources: [("delay".to_owned(), delay())].into(),
        ..Session::empty()
    };
    let outcome = turn.run(&session);
    let said = outcome.said.iter();
    let dups = said.filter_map(|line| line.split("dups ").nth(1)?.trim().parse::<u64>().ok());
    let dups: u64 = dups.sum();
    let (retries, done) = (number(&outcome, 3, "again"), number(&outcome, 3, "done"));
    let [calls, passes, looks] = [0, 1, 2].map(|placement| outcome.total(placement));
    println!("{dups} copies, {calls} calls, {passes} tries, {retries} of them retried");
    assert!(dups > 1000, "{:?}", outcome.said);
    assert!(retries > 0, "no try failed");
    assert_eq!((retries + done, calls), (passes, dups));
    // Each call reads the count once, and again after each failed try.
    assert_eq!((done, looks), (dups, calls + retries));
    turn.assert_untouched();
}
