//! Calls of every function of the kernel are counted, the functions of a letter at a time: a function in which no splice
//! may stand, and that nothing refuses, ends the kernel within seconds.

use crate::support::{answer, printed, shared};

/// Forks 160 times: five rounds of 32.
const PULSAR: &str = "/bin/pulsar 100 5";

#[test]
#[ignore = "boots the lab and runs many minutes; cargo xtask test --long runs it"]
fn every_function_is_counted_a_letter_at_a_time() {
    let shared = shared();
    let turn = shared.turn();
    let letters = (b'a'..=b'z').map(|letter| format!("{}*", char::from(letter)));
    let mut counted = Vec::new();
    for pattern in letters.chain(["_*".to_owned()]) {
        let output = answer(&turn, &["count", &pattern, "-c", PULSAR]);
        let (out, err) = printed(&output);
        assert!(output.status.success(), "{pattern}: {out}{err}");
        let lines = out.lines().filter(|line| !line.trim().is_empty()).count();
        println!(
            "{pattern}: {lines} lines; {}",
            err.trim().replace('\n', "; ")
        );
        if lines > 1 {
            counted.push(pattern);
        }
        turn.assert_untouched();
    }
    assert!(counted.len() > 20, "only {counted:?} were reached");
}
