//! `cargo xtask`: sets this machine up, and runs, tests and measures gilk on it.
//!
//! | command | what it does |
//! |---|---|
//! | `run` | installs what is missing, builds, prepares the lab, opens the window (or, without a display, runs the demonstration) |
//! | `test` | installs what tests need, then everything: format, lints, documentation, tests, the live kernel |
//! | `language` | refuses the words that CODE_STYLE.md replaces |
//! | `picture` | makes the README's picture of the window |
//! | `bench` | the benchmarks |
//! | `evaluate` | the papers' experiments in the lab; writes docs/evaluation.md |
//!
//! It needs nothing but the standard library, so that it is there at once.

mod apt;
mod bench;
mod evaluate;
mod fail;
mod kernels;
mod language;
mod packages;
mod picture;
mod python;
mod run;
mod stages;
mod test;
mod tool;

use std::process::ExitCode;

use fail::{Fail, Result};

const USAGE: &str = "\
Usage: cargo xtask <command>

  run [--headless] [--yes] [--series 6.12] [--flavour cloud|full|rt] [--kernel FILE --headers DIR]
        Sets this machine up, prepares the lab and opens the window, connected to it.
        Without a display, or with --headless, it runs the demonstration session
        instead and leaves its recording and a picture of the timeline in target/gilk.
  test [--yes]
        Everything that must hold: format, lints, documentation, tests, and the tests
        on a live kernel in the lab.
  bench [--yes]
        The benchmarks.
  bench lab [--yes]
        What each hit costs in the lab, beside the kernel's own ways: the experiments hits,
        grain, inlining and many, with their tables.
  evaluate [--yes] [--quick] [--runs N] [PART...]
        The papers' experiments in the lab, or those named: correlation, overhead, hits,
        grain, inlining, web, hunt, coverage, many. Checks what is claimed of them and writes docs/evaluation.md;
        --quick does less of each, as the tests do, and writes nothing there.
  language [PATH...]
        Refuses the words that CODE_STYLE.md replaces, in all tracked files or those below PATH.
  picture [--yes]
        Runs the demonstration and has the window draw docs/window.png, and docs/tour
        where `evaluate hunt` has been run.

  --yes              installs missing system packages without asking (so does CI=true)
  --series, --flavour  which of Debian's kernels, where it is not the cloud kernel of your release
  --kernel, --headers  a kernel image of yours and the headers to build modules for it,
                     instead of Debian's cloud kernel";

fn main() -> ExitCode {
    match dispatch(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => {
            eprintln!("\nxtask: {fail}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(mut arguments: Vec<String>) -> Result<()> {
    if arguments.is_empty()
        || arguments
            .iter()
            .any(|argument| argument == "--help" || argument == "-h")
    {
        println!("{USAGE}");
        return Ok(());
    }
    let command = arguments.remove(0);
    let mut given = Given { rest: arguments };
    let yes = given.flag("--yes")
        || std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    match command.as_str() {
        "run" => {
            let options = run::Options {
                yes,
                headless: given.flag("--headless"),
                kernel: given.value("--kernel")?,
                headers: given.value("--headers")?,
                series: given.value("--series")?,
                flavour: given.value("--flavour")?,
            };
            given.nothing_else()?;
            run::run(&options)
        }
        "test" => {
            given.nothing_else()?;
            test::test(yes)
        }
        "language" => language::check(&given.rest),
        "picture" => {
            given.nothing_else()?;
            picture::picture(yes)
        }
        "bench" => {
            let lab = given.flag("lab");
            given.nothing_else()?;
            if lab {
                evaluate::evaluate(yes, &evaluate::COSTS.map(str::to_owned))
            } else {
                bench::bench(yes)
            }
        }
        "evaluate" => evaluate::evaluate(yes, &given.rest),
        other => Err(Fail::new(format!(
            "there is no command \"{other}\".\n{USAGE}"
        ))),
    }
}

/// Arguments that were given and not yet understood.
struct Given {
    rest: Vec<String>,
}

impl Given {
    fn flag(&mut self, name: &str) -> bool {
        let before = self.rest.len();
        self.rest.retain(|argument| argument != name);
        self.rest.len() < before
    }

    fn value(&mut self, name: &str) -> Result<Option<String>> {
        let joined = format!("{name}=");
        if let Some(at) = self
            .rest
            .iter()
            .position(|argument| argument.starts_with(&joined))
        {
            return Ok(self
                .rest
                .remove(at)
                .strip_prefix(&joined)
                .map(str::to_owned));
        }
        let Some(at) = self.rest.iter().position(|argument| argument == name) else {
            return Ok(None);
        };
        if at + 1 >= self.rest.len() {
            return Err(Fail::new(format!("{name} needs a word after it")));
        }
        self.rest.remove(at);
        Ok(Some(self.rest.remove(at)))
    }

    fn nothing_else(&self) -> Result<()> {
        match self.rest.first() {
            None => Ok(()),
            Some(unknown) => Err(Fail::new(format!(
                "\"{unknown}\" is not understood here.\n{USAGE}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(arguments: &[&str]) -> Given {
        Given {
            rest: arguments.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn flags_and_values_are_taken_in_any_order() {
        let mut some = given(&["--headers", "/h", "--yes", "--kernel=/k"]);
        assert!(some.flag("--yes") && !some.flag("--headless"));
        assert_eq!(some.value("--kernel").unwrap().as_deref(), Some("/k"));
        assert_eq!(some.value("--headers").unwrap().as_deref(), Some("/h"));
        assert!(some.nothing_else().is_ok());
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!(given(&["--kernel"]).value("--kernel").is_err());
        assert!(
            given(&["--hedless"])
                .nothing_else()
                .unwrap_err()
                .to_string()
                .contains("--hedless")
        );
    }
}
