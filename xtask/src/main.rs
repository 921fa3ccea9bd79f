//! `cargo xtask`: sets this machine up, and runs, tests and measures gilk on it.
//!
//! | command | what it does |
//! |---|---|
//! | `run` | installs what is missing, builds, prepares the lab, opens the window (or, without a display, runs the demonstration) |
//! | `test` | installs what tests need, then everything: format, lints, documentation, tests, the live kernel; `--quick` without the lab, `--long` with soaks |
//! | `package` | makes Debian packages |
//! | `bare` | runs both commands in a Debian root that has nothing but Rust |
//! | `kernels` | live tests on every kernel that Debian's archive has; writes the table of docs/kernels.md |
//! | `language` | refuses the words that CODE_STYLE.md replaces |
//! | `circles` | refuses files of a crate that import each other in a circle |
//! | `picture` | makes the README's picture of the window |
//! | `bench` | the benchmarks; `bench native` the cost of a hit on this processor |
//! | `evaluate` | the papers' experiments in the lab; writes docs/evaluation.md |
//!
//! It uses nothing but the standard library, so that it compiles in seconds.

mod apt;
mod bare;
mod bench;
mod circles;
mod debugging;
mod documentation;
mod evaluate;
mod fail;
mod jobs;
mod kernels;
mod language;
mod log;
mod matrix;
mod native;
mod package;
mod packages;
mod picture;
mod python;
mod root;
mod run;
mod stages;
mod suite;
mod test;
mod tool;
mod watched;

use std::process::ExitCode;

use fail::{Fail, Result};

const USAGE: &str = "\
Usage: cargo xtask <command>

  run [--headless] [--yes] [--series 6.12] [--flavour cloud|full|rt] [--kernel FILE --headers DIR]
        Sets this machine up, prepares the lab and opens the window, connected to it.
        Without a display, or with --headless, it runs the demonstration session
        instead and leaves its recording and a picture of the timeline in target/gilk.
  test [--yes] [--quick | --long]
        Everything that must hold: format, lints, documentation, tests, and the tests
        on live kernels in the lab. --quick leaves out what needs a kernel, a display or another
        program, or took more than a second; --long adds soaks, every experiment, `bare` and
        the packages for each release.
  bare [--suite bookworm|trixie]
        Makes a minimal Debian root with gcc, libc6-dev, git and this machine's Rust, and
        runs `cargo xtask test` and `cargo xtask run` in a copy of the tree there. As root.
  package [--yes] [--trial [--suite bookworm|trixie]]
        Makes Debian packages of ilk, gilk and ilk-dkms. --trial installs, uses and removes them
        in clean Debian roots. As root.
  bench [--yes]
        The benchmarks.
  bench native [--quick] [--only TEXT] [--against FILE]
        The cost of a hit on this machine's processor, in nanoseconds: writes target/gilk/native.ron
        and native.md, and, if it is neither --quick nor --only, the tables of docs/cost.md.
        --against marks what takes longer than in an earlier native.ron, and fails then.
  bench native --model [--keep]
        Fits the times of the engine's estimates on random functions, and checks them on others;
        writes target/gilk/fitted.rs, with --keep engine/src/nanoseconds/fitted.rs.
  bench lab [--yes]
        The cost of a hit in the lab, next to the kernel's own tracers: the experiments hits,
        grain, inlining and many, with their tables.
  evaluate [--yes] [--quick] [--runs N] [PART...]
        The papers' experiments in the lab, or those named: correlation, overhead, hits,
        grain, inlining, web, hunt, coverage, many. Checks the claims about them and writes docs/evaluation.md;
        --quick runs short forms, as the tests do, and writes nothing there.
  evaluate user [--yes] [--quick] [--runs N] [--peers [--recorder CLIENT]] [branches|gzip|sqlite3|perl|python3...]
        Every block of programs of this machine counted, by splices and in the code cache, and every access
        recorded: processor time over the native time, in one run. --peers has other tools execute them,
        too: Valgrind, QEMU, DynamoRIO (drrun) and Frida (its Python module), where they are found.
        Writes nothing.
  kernels [--yes] [--debug | TEXT...]
        Live tests on every kernel of Debian's archive that has headers, or on those whose options of
        `ilk lab` contain TEXT, and their rows of the table in docs/kernels.md. Takes an hour or two.
        --debug builds a kernel with lockdep, KASAN and RCU debugging, and tests on that one.
  language [PATH...]
        Refuses the words that CODE_STYLE.md replaces, in all tracked files or those below PATH.
  circles
        Refuses files of a crate that import each other in a circle.
  picture [--yes]
        Runs the demonstration and has the window draw docs/window.png, and docs/tour
        where `evaluate hunt` has been run.

  --yes              installs missing system packages without confirmation (so does CI=true)
  --series, --flavour  which of Debian's kernels, where it is not the cloud kernel of your release
  --kernel, --headers  a kernel image of yours and the headers to build modules for it,
                     instead of Debian's cloud kernel";

fn main() -> ExitCode {
    if let Some(status) = documentation::stand_in() {
        return status;
    }
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
            let extent = match (given.flag("--quick"), given.flag("--long")) {
                (true, true) => return Err(Fail::new("--quick and --long exclude each other")),
                (true, false) => test::Extent::Quick,
                (false, true) => test::Extent::Long,
                (false, false) => test::Extent::Full,
            };
            given.nothing_else()?;
            test::test(yes, extent)
        }
        "bare" => {
            let suite = given.value("--suite")?;
            given.nothing_else()?;
            bare::bare(suite.as_deref().unwrap_or(root::SUITES[0]), yes)
        }
        "package" => {
            let (is_trial, suite) = (given.flag("--trial"), given.value("--suite")?);
            given.nothing_else()?;
            let suites = match (is_trial, suite) {
                (true, Some(suite)) => vec![suite],
                (true, None) => root::SUITES.map(str::to_owned).to_vec(),
                (false, None) => Vec::new(),
                (false, Some(_)) => return Err(Fail::new("--suite needs --trial")),
            };
            package::package(yes, &suites)
        }
        "kernels" if given.flag("--debug") => {
            given.nothing_else()?;
            matrix::debugging(yes)
        }
        "kernels" => {
            // Lines of the matrix begin with it, so that each would be chosen.
            given.flag("--");
            matrix::kernels(yes, &given.rest)
        }
        "language" => language::check(&given.rest),
        "circles" => {
            given.nothing_else()?;
            circles::check()
        }
        "picture" => {
            given.nothing_else()?;
            picture::picture(yes)
        }
        "bench" => {
            if given.flag("native") {
                return native::native(&given.rest);
            }
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

/// Arguments that no option has claimed yet.
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
            return Err(Fail::new(format!("{name} needs a value")));
        }
        self.rest.remove(at);
        Ok(Some(self.rest.remove(at)))
    }

    fn nothing_else(&self) -> Result<()> {
        match self.rest.first() {
            None => Ok(()),
            Some(unknown) => Err(Fail::new(format!(
                "\"{unknown}\" is no argument of this command.\n{USAGE}"
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
    fn flags_and_values_are_accepted_in_any_order() {
        let mut some = given(&["--headers", "/h", "--yes", "--kernel=/k"]);
        assert!(some.flag("--yes") && !some.flag("--headless"));
        assert_eq!(some.value("--kernel").unwrap().as_deref(), Some("/k"));
        assert_eq!(some.value("--headers").unwrap().as_deref(), Some("/h"));
        assert!(some.nothing_else().is_ok());
    }

    #[test]
    fn an_unknown_argument_is_named() {
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
