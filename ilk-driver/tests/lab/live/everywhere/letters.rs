//! Calls of every function of the kernel are counted, the functions of a letter at a time: a function in which no splice
//! may stand, and that nothing refuses, ends the kernel within seconds.

use crate::support::{answer, printed, shared};

/// Forks 160 times: five rounds of 32.
const PULSAR: &str = "/bin/pulsar 100 5";

/// First letters of functions: `GILK_LETTERS`, or all that names have.
fn letters() -> String {
    let all = || ('a'..='z').chain(['_']).collect();
    std::env::var("GILK_LETTERS").unwrap_or_else(|_| all())
}

#[test]
#[ignore = "boots the lab and runs many minutes; cargo xtask test --long runs it"]
fn every_function_is_counted_a_letter_at_a_time() {
    let shared = shared();
    let turn = shared.turn();
    let letters = letters();
    let mut counted = 0;
    for letter in letters.chars() {
        let pattern = format!("{letter}*");
        let output = answer(&turn, &["count", &pattern, "-c", PULSAR]);
        let (out, err) = printed(&output);
        assert!(output.status.success(), "{pattern}: {out}{err}");
        let lines = out.lines().filter(|line| !line.trim().is_empty()).count();
        println!(
            "{pattern}: {lines} lines; {}",
            err.trim().replace('\n', "; ")
        );
        counted += usize::from(lines > 1);
        turn.assert_untouched();
    }
    let few = letters.len().div_ceil(5);
    assert!(
        counted + few >= letters.len(),
        "functions of only {counted} of {letters:?} were reached"
    );
}
