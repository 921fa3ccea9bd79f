//! Native instruments, functions of an object file, on a live kernel, compared with those of the
//! library.

use std::path::Path;
use std::process::Command;

use gilk_engine::session::{Session, Workload};
use gilk_instruments::{Definition, Library, Native};

use crate::support::{Outcome, placement, pulsar, shared};

const ALWAYS: (f64, f64) = (0.0, 6.0);
/// A function called for each mapping of each process that forks, with two pointers.
const FUNCTION: &str = "anon_vma_fork";
const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../instruments/native");
const SOURCE: &str = "#include \"gilk.h\"
GILK_INSTRUMENT(\"hits(counter): Counts.\");
void hits(gilk_word counter) { gilk_count(counter, 1); }
GILK_INSTRUMENT(\"mixed(arg0, arg1, id) samples things: Combines two arguments.\");
gilk_word int_sqrt(gilk_word);
gilk_word mixed(gilk_word a, gilk_word b, gilk_word c) { return a * 3 + b * 5 + c + int_sqrt(144); }
";

/// Returns the library with the instruments of object files.
fn library(objects: &[Vec<u8>]) -> Library {
    let mut library = Library::builtin().unwrap();
    for object in objects {
        for definition in Definition::natives("own.o", object).unwrap() {
            library.add(definition).unwrap();
        }
    }
    library
}

/// Compiles a file with these arguments, to which the output is appended.
fn object(compiler: &str, arguments: &[&str], file: &Path) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let object = place.path().join("own.o");
    let mut command = Command::new(compiler);
    command.args(arguments).arg(file).arg("-o").arg(&object);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
    std::fs::read(&object).unwrap()
}

pub(super) fn object_of_c(file: &Path) -> Vec<u8> {
    object(
        "cc",
        &[&Native::C_FLAGS[..], &["-I", HEADER]].concat(),
        file,
    )
}

/// Compiles an example in Rust by the command in its first lines.
fn object_of_rust(file: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(file).unwrap();
    let (_, command) = text.split_once("//! rustc ").unwrap();
    let (command, _) = command.split_once("example.rs").unwrap();
    let words = command.split_whitespace();
    let arguments: Vec<&str> = words.filter(|word| !["\\", "//!"].contains(word)).collect();
    object("rustc", &arguments, file)
}

fn sampled(outcome: &Outcome, placement: usize) -> Vec<u64> {
    let id = outcome.id(placement).pack();
    let own = outcome.samples.iter().filter(|(_, sample)| sample.id == id);
    own.map(|(_, sample)| sample.value).collect()
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn native_instruments_agree_with_those_of_the_library() {
    let shared = shared();
    let turn = shared.turn();
    let instruments = ["counter", "hits", "argument-0", "mixed", "argument-1"];
    let placements = instruments.map(|name| placement(FUNCTION, 0, name, ALWAYS));
    let session = pulsar(6.0, 500, placements.into());
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("own.c");
    std::fs::write(&file, SOURCE).unwrap();
    let outcome = turn.run_with(&library(&[object_of_c(&file)]), &session);
    let hits = outcome.total(0);
    assert!(hits > 1000, "{hits} hits");
    assert_eq!(outcome.total(1), hits);
    let [first, mixed, second] = [2, 3, 4].map(|placement| sampled(&outcome, placement));
    assert_eq!(
        [first.len(), mixed.len(), second.len()].map(|length| length as u64),
        [hits; 3]
    );
    // The samples of one hit cannot be matched individually; their sums can.
    let sum = |all: &[u64]| all.iter().fold(0_u64, |sum, one| sum.wrapping_add(*one));
    let ids = (outcome.id(3).pack() + 12).wrapping_mul(hits);
    let arguments = sum(&first)
        .wrapping_mul(3)
        .wrapping_add(sum(&second).wrapping_mul(5));
    assert_eq!(sum(&mixed), arguments.wrapping_add(ids));
    assert_eq!((outcome.summary.lost(), outcome.summary.missing), (0, 0));
    turn.assert_untouched();
}

/// Tests the examples with the witness's advice about a file, whose printed offsets are whole
/// pages: so from its descriptor, which is no multiple of 4096, the distance is one page more.
#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn the_examples_in_c_and_rust_count_a_programs_reported_calls() {
    const ADVICE: &str = "ksys_fadvise64_64";
    let shared = shared();
    let turn = shared.turn();
    let instruments = ["count-natively", "pages", "pages-in-rust", "argument-1"];
    let placements = instruments.map(|name| placement(ADVICE, 0, name, (0.0, 10.0)));
    let workload = Workload {
        program: "/bin/witness".into(),
        arguments: Vec::new(),
        start: 0.5,
    };
    let session = Session {
        name: "Examples".into(),
        duration: 10.0,
        workload: Some(workload),
        placements: placements.into(),
        ..Session::empty()
    };
    let examples = Path::new(HEADER);
    let objects = [
        object_of_c(&examples.join("example.c")),
        object_of_rust(&examples.join("example.rs")),
    ];
    let outcome = turn.run_with(&library(&objects), &session);
    let offsets: Vec<u64> = outcome
        .said
        .iter()
        .filter_map(|line| line.strip_prefix("advice "))
        .map(|numbers| numbers.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(offsets.len() > 50, "{:?}", outcome.said);
    assert_eq!(outcome.total(0), offsets.len() as u64);
    let pages: Vec<u64> = offsets.iter().map(|offset| offset / 4096 + 1).collect();
    assert_eq!(sampled(&outcome, 1), pages);
    assert_eq!(sampled(&outcome, 2), pages);
    assert_eq!(sampled(&outcome, 3), offsets);
    turn.assert_untouched();
}
