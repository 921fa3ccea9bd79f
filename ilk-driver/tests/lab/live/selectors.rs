//! Moved instructions that fault: the kernel goes on as if they stood where they stood.

use gilk_engine::cfg::Cfg;
use gilk_engine::code::Why;
use gilk_engine::patch::Recovery;
use gilk_engine::session::{Session, Workload};
use gilk_engine::{Addr, Image, Span};

use crate::support::{placement, shared};

/// How often the workload takes a descriptor away that two segment registers name.
const ROUNDS: u64 = 200;

/// The blocks of a function that begin with an instruction that may fault and is done again then.
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
fn a_segment_that_is_gone_is_zero_and_its_load_was_done_twice() {
    let shared = shared();
    let turn = shared.turn();
    // What loads them again on every processor where the table of descriptors has changed.
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
    // It faults, and is done again with a selector of zero.
    assert_eq!(
        [outcome.total(0), outcome.total(1)],
        [2 * ROUNDS; 2],
        "{:?}",
        outcome.said
    );
    turn.assert_untouched();
}
