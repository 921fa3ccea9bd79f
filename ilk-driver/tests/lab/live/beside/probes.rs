//! Kprobes on an instrumented function.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use gilk_engine::cfg::Cfg;
use gilk_engine::{Addr, Session};

use super::{counted, quiet};
use crate::support::{Turn, placement, shared};

/// The function: `GILK_KPROBED`, or one of some 80 instructions; `copy_process` has 1,300.
fn function() -> String {
    std::env::var("GILK_KPROBED").unwrap_or_else(|_| "kernel_wait4".into())
}

/// Registers a kprobe at each offset; then those that are accepted at the `armed` offsets are enabled while
/// programs start, and stay. Prints what is refused.
fn script(function: &str, armed: &[u64], others: &[u64]) -> String {
    let list = |offsets: &[u64]| {
        offsets.iter().fold(String::new(), |mut list, offset| {
            let _infallible = write!(list, " {offset:x}");
            list
        })
    };
    let add = format!(
        "echo \"p:gilk/i$o {function}+0x$o\" >> kprobe_events 2>/dev/null || echo refused $o"
    );
    format!(
        "cd /sys/kernel/debug/tracing; for o in{}; do {add}; done; echo > kprobe_events; \
         for o in{}; do {add}; done; echo 1 > events/gilk/enable || echo not armed; \
         for i in 1 2 3 4 5 6 7 8; do (true) & wait; done; \
         echo armed $(wc -l < kprobe_profile); \
         awk '{{ if ($2 > 0) hit++ }} END {{ print \"hit\", hit }}' kprobe_profile; echo all of them",
        list(others),
        list(armed)
    )
}

/// Looks for splices, and removes the kprobes.
const END: &str = "cd /sys/kernel/debug; echo splices $(wc -l < ilk/splices); cd tracing; \
                   echo 0 > events/gilk/enable; echo > kprobe_events";

/// The refused offsets, the number of armed kprobes, and of those that were hit. The session ends while they are armed.
fn probed(turn: &Turn<'_>, session: &Session) -> (BTreeSet<u64>, usize, usize) {
    let outcome = turn.run(session);
    let said = &outcome.said;
    assert!(said.iter().any(|line| line == "all of them"), "{said:?}");
    assert!(!said.iter().any(|line| line == "not armed"), "{said:?}");
    let with = |word: &'static str| said.iter().filter_map(move |line| line.strip_prefix(word));
    let refused = with("refused ").map(|offset| u64::from_str_radix(offset, 16).unwrap());
    let number = |word| with(word).next().unwrap().parse().unwrap();
    let ended = turn.run(&quiet(END, 1200.0)).said;
    assert!(
        ended.iter().any(|line| line == "splices 0"),
        "kprobes beside splices keep them: {ended:?}"
    );
    (refused.collect(), number("armed "), number("hit "))
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn kprobes_are_accepted_at_what_remains_and_refused_at_what_is_displaced() {
    let shared = shared();
    let turn = shared.turn();
    let image = &shared.image;
    let function = function();
    let cfg = Cfg::of(image, image.function_named(&function).unwrap().id);
    let session = counted(&turn, &function, "true", 1200.0);
    let layout = turn.connect().info().layout.clone();
    let library = gilk_instruments::Library::builtin().unwrap();
    let plan = gilk_engine::plan::plan(image, &session, &library, &layout).unwrap();
    let blocks = cfg
        .blocks
        .iter()
        .flat_map(|block| block.instructions.to_vec());
    let displaced = |at: &u64| {
        plan.sites
            .iter()
            .any(|site| site.displaced.contains(Addr(*at)))
    };
    let (displaced, remaining): (Vec<u64>, Vec<u64>) = blocks
        .map(|instruction| instruction.ip())
        .partition(displaced);
    let offset = |at: &u64| at - cfg.span.start.0;
    let displaced: Vec<u64> = displaced.iter().map(offset).collect();
    let remaining: Vec<u64> = remaining.iter().map(offset).collect();
    let script = script(&function, &remaining, &displaced);

    let mut without = quiet(&script, 1200.0);
    without.placements = vec![placement("vfs_mkdir", 0, "counter", (0.0, 1200.0))];
    let (before, armed_before, hit_before) = probed(&turn, &without);
    let mut with = session;
    with.workload = without.workload;
    let (during, armed, hit) = probed(&turn, &with);

    let of = |refused: &BTreeSet<u64>, all: &[u64]| {
        all.iter().filter(|offset| refused.contains(offset)).count()
    };
    println!(
        "{function}: of {} remaining instructions {} refuse a kprobe without a session, {} with; \
         of {} displaced {} and {}; {armed_before} and {armed} armed, {hit_before} and {hit} hit",
        remaining.len(),
        of(&before, &remaining),
        of(&during, &remaining),
        displaced.len(),
        of(&before, &displaced),
        of(&during, &displaced),
    );
    let new: Vec<u64> = remaining
        .iter()
        .copied()
        .filter(|it| during.contains(it) && !before.contains(it))
        .collect();
    assert!(new.is_empty(), "refused only during a session: {new:x?}");
    // A probe is possible on the splice itself, where it fires, and past the 64 bytes that can be filled.
    let silent = |offset: &&u64| {
        let at = Addr(cfg.span.start.0 + **offset);
        let is_splice = plan.sites.iter().any(|site| site.displaced.start == at);
        !is_splice && !during.contains(offset)
    };
    let silent: Vec<&u64> = displaced.iter().filter(silent).collect();
    assert!(
        silent.is_empty(),
        "probes that never fire are accepted: {silent:x?}"
    );
    assert!(
        armed == armed_before && hit * 3 > armed,
        "{armed} armed, {hit} hit"
    );
    turn.assert_untouched();
}
