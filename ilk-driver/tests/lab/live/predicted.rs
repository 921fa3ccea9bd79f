//! The cost of a session, predicted by a run of counters, next to that of the hits that it had.

use std::process::Command;

use gilk_engine::collection::Strategy;

use super::losses::{counted_and_sampled, session};
use crate::support::{saved, shared};

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_session_is_predicted_and_compared_with_what_it_was() {
    let shared = shared();
    let turn = shared.turn();
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("recording.arrow");
    let session = saved(
        &session(Strategy::Stream, counted_and_sampled()),
        directory.path(),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .args(["run", "--predict", "1", "--socket"])
        .arg(shared.lab.socket())
        .arg("-o")
        .arg(&recording)
        .arg(&session)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = String::from_utf8_lossy(&output.stdout);
    let hits = [" of counting: ", "Estimated from the hits of the run: "].map(|before| {
        let mut lines = said.lines();
        let line = lines.find_map(|line| Some(line.split_once(before)?.1));
        let line = line.unwrap_or_else(|| panic!("{before} is not in {said}"));
        let (hits, rest) = line.split_once(" hits, ").unwrap();
        assert!(rest.ends_with(" % of a processor."), "{line}");
        let digits: String = hits.chars().filter(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    });
    // The counting run has the session's program; how fast that runs is the machine's.
    assert!(hits[0] > 0 && hits[1] > 0, "{said}");
    // The recording has both, and so has what is made of it later.
    let cost: Vec<&str> = { said.lines() }
        .filter(|line| line.starts_with("Predicted by ") || line.starts_with("Estimated from "))
        .collect();
    assert_eq!(cost.len(), 2, "{said}");
    for command in ["show", "stats"] {
        let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .arg(command)
            .arg(&recording)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        for line in &cost {
            assert!(
                shown.lines().any(|shown| shown == *line),
                "{line}\nis not in\n{shown}"
            );
        }
    }
    turn.assert_untouched();
}
