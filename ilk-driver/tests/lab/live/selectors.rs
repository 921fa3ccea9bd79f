//! Moved instructions that fault: the kernel recovers as if they were at their original address.

use gilk_engine::cfg::Cfg;
use gilk_engine::code::Why;
use gilk_engine::patch::Recovery;
use gilk_engine::session::{Session, Workload};
use gilk_engine::{Addr, Image, Span};

use crate::support::{placement, shared};

/// Number of times that the workload removes a descriptor that two segment registers refer to.
const ROUNDS: u64 = 200;

/// Returns the blocks of a function that begin with an instruction that may fault and is then
/// executed again.
fn retried(image: &Image, cfg: &Cfg) -> Vec<u32> {
    let faults = |at: Addr| {
        let mut sites = image.fixed().overlapping(Span::new(at, 1));
        sites.any(|site| matches!(site.why, Why::Exception { .. }) && site.target == Some(at))
    };
    let blocks = cfg.blocks.iter();
    let blocks = blocks.filter(|block| faults(block.span.start));
    blocks.map(|block| block.index.0).collect()
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_removed_segment_becomes_zero_and_its_load_executes_twice() {
    let shared = shared();
    let turn = shared.turn();
    // The function that reloads them on every CPU after a change of the descriptor table.
    let function = shared.image.function_named("flush_ldt").unwrap().id;
    let cfg = Cfg::of(&shared.image, function);
    let loads = retried(&shared.image, &cfg);
    assert_eq!(loads.len(), 2, "ds and es: {cfg:?}");
    let always = |&block| placement("flush_ldt", block, "counter", (0.0, 4.0));
    let session = Session {
        name: "selectors".into(),
        duration: 4.0,
        workload: Some(Workload {
            program: "/bin/selectors".into(),
            arguments: vec![ROUNDS.to_string()],
            start: 0.5,
        }),
        placements: loads.iter().map(always).collect(),
        ..Session::empty()
    };
    let outcome = turn.run(&session);
    let said = format!("selectors: {ROUNDS} rounds, 0 left");
    assert!(
        outcome.said.iter().any(|line| line.contains(&said)),
        "{:?}",
        outcome.said
    );
    let faults = &outcome.plan.faults;
    assert_eq!(faults.len(), 2, "{faults:?}");
    for fault in faults {
        let Recovery::Like(original) = fault.recovery else {
            panic!("{fault:?}")
        };
        assert!(cfg.span.contains(original));
    }
    // Each load faults, and executes again with a selector of zero.
    assert_eq!(
        [outcome.total(0), outcome.total(1)],
        [2 * ROUNDS; 2],
        "{:?}",
        outcome.said
    );
    turn.assert_untouched();
}
