//! The libraries' documentation and the examples in it, from the libraries that the tests were built with.
//!
//! `cargo doc` would compile every dependency again, as metadata alone. `cargo test --doc` runs rustdoc with the
//! libraries at hand; in the place of rustdoc this program runs it twice, for the examples and for the pages.

use std::process::{Command, ExitCode};

use crate::fail::Result;
use crate::log::Log;
use crate::{suite, tool};

/// Names the true rustdoc, in the environment of this program in its place.
const RUSTDOC: &str = "GILK_RUSTDOC";
/// Options of rustdoc's for examples, each with a value.
const FOR_EXAMPLES: [&str; 5] = [
    "--test-run-directory",
    "--test-args",
    "--test-runtool",
    "--test-runtool-arg",
    "--doctest-build-arg",
];

/// Writes the pages of all libraries, refusing every warning, and runs the examples in them.
pub(crate) fn check(log: &Log) -> Result<()> {
    let mut cargo = tool::cargo(&["test", "--workspace", "--doc"]);
    suite::linted(&mut cargo);
    cargo
        .env("RUSTDOC", tool::target().join("debug/xtask"))
        .env(RUSTDOC, "rustdoc");
    log.run(&mut cargo)
}

/// Runs rustdoc, if this program was started in its place.
pub(crate) fn stand_in() -> Option<ExitCode> {
    let rustdoc = std::env::var_os(RUSTDOC)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let status = |arguments: &[String]| {
        let status = Command::new(&rustdoc)
            .args(arguments)
            .env_remove(RUSTDOC)
            .status();
        status.is_ok_and(|status| status.success())
    };
    let passed = status(&arguments) && pages(&arguments).is_none_or(|arguments| status(&arguments));
    Some(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The arguments that write pages, from those that run examples.
fn pages(arguments: &[String]) -> Option<Vec<String>> {
    if !arguments.iter().any(|argument| argument == "--test") {
        return None;
    }
    let mut pages = vec![
        "--document-private-items".to_owned(),
        "-Dwarnings".to_owned(),
        // As in `cargo doc`: private items are on the pages, so links to them resolve.
        "-Arustdoc::private-intra-doc-links".to_owned(),
    ];
    pages.extend([
        "-o".to_owned(),
        tool::root().join("target/gilk/doc").display().to_string(),
    ]);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if FOR_EXAMPLES.contains(&argument.as_str()) {
            rest.next();
        } else if argument != "--test" && argument != "--no-run" {
            pages.push(argument.clone());
        }
    }
    Some(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_same_libraries_and_no_examples() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let arguments = words(
            "--edition=2024 --crate-name x --test lib.rs --test-run-directory /y --extern z=z.rlib",
        );
        let pages = pages(&arguments).unwrap();
        assert!(pages.ends_with(&words(
            "--edition=2024 --crate-name x lib.rs --extern z=z.rlib"
        )));
        assert_eq!(super::pages(&words("-vV")), None);
    }
}
