//! BPF programs beside a session.

use std::collections::BTreeMap;

use gilk_engine::HookType;

use super::{counted, lab_with_modules};

/// A function that only the program `rivals` calls, by select(2).
const FUNCTION: &str = "core_sys_select";
/// The number of its calls.
const CALLS: u64 = 500;

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn programs_at_a_functions_entry_count_its_calls_as_a_session_does() {
    let shared = lab_with_modules();
    let turn = shared.turn();
    let entry = shared.image.function_named(FUNCTION).unwrap().span.start;
    let script = format!(
        "sleep 1; /bin/rivals beside select {CALLS} {FUNCTION} {:x}",
        entry.0
    );
    let session = counted(&turn, FUNCTION, &script, 120.0);
    let outcome = turn.run(&session);
    for probe in ["fentry", "kprobe"] {
        let line = format!("rivals: {probe} {CALLS}");
        assert!(outcome.said.contains(&line), "{:?}", outcome.said);
    }
    let placements = session.placements.iter().enumerate();
    let counts: BTreeMap<u32, u64> = placements
        .filter(|(_, placement)| placement.hook == HookType::Pre)
        .map(|(index, placement)| (placement.block, outcome.total(index)))
        .collect();
    assert_eq!(counts.get(&0), Some(&CALLS), "{counts:?}");
    assert!(
        counts.values().filter(|&&count| count == CALLS).count() > 3,
        "{counts:?}"
    );
    turn.assert_same_text();
}
