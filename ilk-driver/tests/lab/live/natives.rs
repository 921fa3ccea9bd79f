//! Instruments that are functions of an object file, on a live kernel, beside those of the library.

use std::process::Command;

use gilk_instruments::{Definition, Library, Native};

use crate::support::{Outcome, placement, pulsar, shared};

const ALWAYS: (f64, f64) = (0.0, 6.0);
/// Called for each mapping of each process that forks, with two pointers.
const FUNCTION: &str = "anon_vma_fork";
const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../instruments/native");
const SOURCE: &str = "#include \"gilk.h\"
GILK_INSTRUMENT(\"hits(counter): Counts.\");
void hits(gilk_word counter) { gilk_count(counter, 1); }
GILK_INSTRUMENT(\"mixed(arg0, arg1, id) samples things: Of two arguments.\");
gilk_word int_sqrt(gilk_word);
gilk_word mixed(gilk_word a, gilk_word b, gilk_word c) { return a * 3 + b * 5 + c + int_sqrt(144); }
";

/// The library, and the instruments of the source.
fn library() -> Library {
    let place = tempfile::tempdir().unwrap();
    let (from, object) = (place.path().join("own.c"), place.path().join("own.o"));
    std::fs::write(&from, SOURCE).unwrap();
    let mut cc = Command::new("cc");
    cc.args(Native::C_FLAGS)
        .args(["-I", HEADER, "-o"])
        .args([&object, &from]);
    assert!(cc.status().unwrap().success());
    let mut library = Library::builtin().unwrap();
    for definition in Definition::natives("own.o", &std::fs::read(&object).unwrap()).unwrap() {
        library.add(definition).unwrap();
    }
    library
}

fn sampled(outcome: &Outcome, placement: usize) -> Vec<u64> {
    let id = outcome.id(placement).pack();
    let own = outcome.samples.iter().filter(|(_, sample)| sample.id == id);
    own.map(|(_, sample)| sample.value).collect()
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn functions_of_object_files_see_and_count_what_the_library_does() {
    let shared = shared();
    let turn = shared.turn();
    let instruments = ["counter", "hits", "argument-0", "mixed", "argument-1"];
    let placements = instruments.map(|name| placement(FUNCTION, 0, name, ALWAYS));
    let session = pulsar(6.0, 500, placements.into());
    let outcome = turn.run_with(&library(), &session);
    let hits = outcome.total(0);
    assert!(hits > 1000, "{hits} hits");
    assert_eq!(outcome.total(1), hits);
    let [first, mixed, second] = [2, 3, 4].map(|placement| sampled(&outcome, placement));
    assert_eq!(
        [first.len(), mixed.len(), second.len()].map(|length| length as u64),
        [hits; 3]
    );
    // Which samples are of one hit is not told by any of them; but their sums are.
    let sum = |all: &[u64]| all.iter().fold(0_u64, |sum, one| sum.wrapping_add(*one));
    let ids = (outcome.id(3).pack() + 12).wrapping_mul(hits);
    let arguments = sum(&first)
        .wrapping_mul(3)
        .wrapping_add(sum(&second).wrapping_mul(5));
    assert_eq!(sum(&mixed), arguments.wrapping_add(ids));
    assert_eq!(
        (outcome.summary.lost(), outcome.summary.missing),
        ((0, 0), 0)
    );
    turn.assert_untouched();
}
