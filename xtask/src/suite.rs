//! The test programs: builds them once, lists their tests, and runs parts of them with a time for each test.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fail::{Fail, Result};
use crate::jobs::Timed;
use crate::log::Log;
use crate::stages::seconds;
use crate::tool;
use crate::watched::{End, Watched};

/// Separates arguments in the variable that `clippy-driver` reads.
const HACKERY: &str = "__CLIPPY_HACKERY__";

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// The name of its target: of a file in `tests`, or of a library or a program for the tests within.
    pub(crate) name: String,
    /// The folder of its package, in which it runs.
    pub(crate) home: PathBuf,
    /// The program.
    pub(crate) path: PathBuf,
}

/// Sets the variables by which cargo lints the workspace's crates while it compiles them.
///
/// `cargo clippy` would compile every dependency a second time, as metadata alone. As the compiler of the
/// workspace's own crates `clippy-driver` produces both: warnings, which are errors, and programs. It compiles no library
/// without its tests, which xtask/lint.sh decides: an eighth of the compilation is its own.
pub(crate) fn linted(cargo: &mut Command) -> &mut Command {
    let sysroot = tool::output(
        Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(tool::root()),
    );
    let beside = sysroot.map(|path| Path::new(path.trim()).join("bin/clippy-driver"));
    let driver = beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| "clippy-driver".into());
    cargo
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            tool::root().join("xtask/lint.sh"),
        )
        .env("GILK_LINTS", driver)
        .env("CLIPPY_ARGS", format!("-D{HACKERY}warnings{HACKERY}"))
}

/// Builds tests, programs and examples with one set of features, and lints them. `each` sees every test program
/// once it is there, while cargo compiles others.
pub(crate) fn build(log: &Log, each: impl FnMut(&Binary)) -> Result<Vec<Binary>> {
    // `--all-targets` would build examples as test programs, and the tests that start one would build it again.
    built(&[], log, each)
}

/// Builds and lints the test programs with a name.
pub(crate) fn build_named(name: &str, log: &Log) -> Result<Vec<Binary>> {
    built(&["--test", name], log, |_| ())
}

/// Builds and lints the benchmarks.
pub(crate) fn build_benchmarks(log: &Log) -> Result<()> {
    built(&["--benches"], log, |_| ()).map(drop)
}

/// Builds the targets that a selection of cargo's names.
fn built(selection: &[&str], log: &Log, each: impl FnMut(&Binary)) -> Result<Vec<Binary>> {
    let mut cargo = tool::cargo(&[
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    linted(cargo.args(selection))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.stdio()?);
    let mut child = cargo
        .spawn()
        .map_err(|error| Fail::new(format!("cannot start cargo: {error}")))?;
    let messages = child
        .stdout
        .take()
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufRead::lines);
    let binaries: Vec<Binary> = messages
        .map_while(std::io::Result::ok)
        .filter_map(|line| binary(&line))
        .inspect(each)
        .collect();
    let status = child
        .wait()
        .map_err(|error| Fail::new(format!("cannot wait for cargo: {error}")))?;
    if status.success() {
        Ok(binaries)
    } else {
        Err(Fail::new("cargo found errors or lints, printed above"))
    }
}

/// Reads a test program from a message of cargo's; benchmarks and examples are none.
fn binary(message: &str) -> Option<Binary> {
    let target = message.split_once(r#""target":{"#)?.1;
    let profile = message.split_once(r#""profile":{"#)?.1;
    let is_test = profile.split_once('}')?.0.contains(r#""test":true"#);
    if !is_test
        || target.starts_with(r#""kind":["bench"]"#)
        || target.starts_with(r#""kind":["example"]"#)
    {
        return None;
    }
    let manifest = PathBuf::from(text_of(message, "manifest_path")?);
    Some(Binary {
        name: text_of(target, "name")?,
        home: manifest.parent()?.to_path_buf(),
        path: text_of(message, "executable")?.into(),
    })
}

/// The text of a field. Paths of this workspace have no letter that JSON escapes but these two.
fn text_of(message: &str, field: &str) -> Option<String> {
    let start = message.split_once(&format!(r#""{field}":""#))?.1;
    let mut text = String::new();
    let mut letters = start.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => text.push(letters.next()?),
            letter => text.push(letter),
        }
    }
}

impl Binary {
    /// Its package's folder's name and its own.
    pub(crate) fn title(&self) -> String {
        let home = self.home.file_name().unwrap_or_default().to_string_lossy();
        if self.name.replace('_', "-").ends_with(&*home) {
            self.name.clone()
        } else {
            format!("{home}/{}", self.name)
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.home)
            .env("CARGO_MANIFEST_DIR", &self.home);
        command
    }

    fn listed(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let text = tool::output(self.command().arg("--list").args(arguments));
        let text = text
            .ok_or_else(|| Fail::new(format!("{} does not list its tests", self.path.display())))?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// The tests that plain `cargo test` runs, and those that it ignores.
    pub(crate) fn tests(&self) -> Result<[Vec<String>; 2]> {
        let ignored = self.listed(&["--ignored"])?;
        let mut plain = self.listed(&[])?;
        plain.retain(|name| !ignored.contains(name));
        Ok([plain, ignored])
    }

    /// Runs some of its tests one after the other and records the time of each. Kills the program if none ends
    /// within the limit.
    pub(crate) fn run(
        &self,
        tests: &[String],
        prefix: &str,
        variables: &[(&str, PathBuf)],
        limit: Duration,
        log: &Log,
    ) -> Result<Vec<Timed>> {
        let mut command = self.command();
        command
            .args([
                "--include-ignored",
                "--show-output",
                "--test-threads=1",
                "--exact",
            ])
            .args(tests)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(log.stdio()?);
        let mut program = Watched::start(&mut command, limit)?;
        let mut timed = Vec::new();
        let mut begun: Option<String> = None;
        let mut last = Instant::now();
        let mut before = Duration::ZERO;
        while let Some(line) = program.line()? {
            let line = String::from_utf8_lossy(&line).into_owned();
            // A program's own output separates a test's name from its result.
            let result = ended(&line).map(str::to_owned);
            let is_result = RESULTS.contains(&line.as_str());
            let result = result.or_else(|| begun.take_if(|_| is_result));
            if let Some(name) = begins(&line) {
                begun = Some(name.to_owned());
            }
            if let Some(name) = result {
                begun = None;
                program.has_advanced();
                let time = last.elapsed();
                last = Instant::now();
                // A process that was not waited for, and has ended, takes its time with it.
                let used = program.processor_time();
                let processor = used.saturating_sub(before);
                before = used;
                timed.push(Timed {
                    name: format!("{prefix}{}::{name}", self.title()),
                    time,
                    processor,
                });
                let [time, processor] = [time, processor].map(|time| time.as_secs_f32());
                log.say(&format!(
                    "{line}  {time:.1} s, {processor:.1} s of processor time"
                ));
            } else {
                log.say(&line);
            }
        }
        let End {
            status,
            is_late,
            left,
        } = program.end()?;
        if is_late {
            let during = begun.as_deref().unwrap_or("no test");
            return Err(Fail::new(format!(
                "{} was killed: no test ended in {}, during {during}",
                self.title(),
                seconds(limit)
            )));
        }
        if !status.success() {
            return Err(Fail::new(format!("{} ({status})", self.title())));
        }
        if timed.len() != tests.len() {
            let counts = format!("{} of {} tests", timed.len(), tests.len());
            return Err(Fail::new(format!("{} reported {counts}", self.title())));
        }
        if !left.is_empty() {
            let left = left.join(", ");
            return Err(Fail::new(format!("{} left {left}", self.title())));
        }
        Ok(timed)
    }
}

/// Results of a test, as the test programs print them.
const RESULTS: [&str; 3] = ["ok", "FAILED", "ignored"];

/// Returns the name of a test whose line begins here, and what follows it on the line.
fn line_of_test(line: &str) -> Option<(&str, &str)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name.strip_suffix(" - should panic").unwrap_or(name), result))
}

/// Returns the name of a test that has begun.
fn begins(line: &str) -> Option<&str> {
    line_of_test(line).map(|(name, _)| name)
}

/// Returns the name of a test that has just ended.
fn ended(line: &str) -> Option<&str> {
    let (name, result) = line_of_test(line)?;
    let mut results = RESULTS.iter();
    results.any(|word| result.starts_with(word)).then_some(name)
}

/// Times of tests that take more than a second, in this tree: the first run on a machine is divided by them. They are
/// the lines of `.cache/test-times` of a whole run without other work.
const SHIPPED: &str = include_str!("../test-times");

/// Times of tests on this machine, by which the next run is divided among cores.
#[derive(Default)]
pub(crate) struct Times(BTreeMap<String, f32>);

impl Times {
    fn path() -> PathBuf {
        tool::cache().join("test-times")
    }

    /// Reads the times of earlier runs, of another machine's where this one has none.
    pub(crate) fn read() -> Self {
        let own = fs::read_to_string(Self::path()).unwrap_or_default();
        let lines = SHIPPED.lines().chain(own.lines());
        Self(lines.filter_map(Self::parse).collect())
    }

    fn parse(line: &str) -> Option<(String, f32)> {
        let (time, name) = line.split_once(' ')?;
        Some((name.to_owned(), time.parse().ok()?))
    }

    /// Keeps new times beside those of tests that were not run.
    pub(crate) fn keep(mut self, tests: &[Timed]) {
        self.0.extend(
            tests
                .iter()
                .map(|test| (test.name.clone(), test.time.as_secs_f32())),
        );
        let lines: String = self
            .0
            .iter()
            .map(|(name, time)| format!("{time:.2} {name}\n"))
            .collect();
        // Without them the next run is only divided worse.
        let _ = fs::create_dir_all(tool::cache()).and_then(|()| fs::write(Self::path(), lines));
    }

    /// Returns whether a test took more than a second in the run whose times are in this tree.
    pub(crate) fn is_long(name: &str) -> bool {
        SHIPPED
            .lines()
            .any(|line| line.split_once(' ').is_some_and(|(_, of)| of == name))
    }

    /// The time of a test, or an estimate.
    fn of(&self, name: &str, estimate: f32) -> f32 {
        self.0.get(name).copied().unwrap_or(estimate)
    }

    /// Divides tests into so many parts of about the same time, the longest first, and gives the time of each part.
    pub(crate) fn divide(
        &self,
        title: &str,
        tests: Vec<String>,
        parts: usize,
        estimate: impl Fn(&str) -> f32,
    ) -> Vec<(Vec<String>, f32)> {
        let time = |name: &String| self.of(&format!("{title}::{name}"), estimate(name));
        let mut sorted: Vec<(f32, String)> =
            tests.into_iter().map(|name| (time(&name), name)).collect();
        sorted.sort_by(|first, second| second.0.total_cmp(&first.0));
        let mut divided = vec![(Vec::new(), 0.0_f32); parts.max(1)];
        for (time, name) in sorted {
            if let Some((names, sum)) = divided
                .iter_mut()
                .min_by(|first, second| first.1.total_cmp(&second.1))
            {
                names.push(name);
                *sum += time;
            }
        }
        divided.retain(|(names, _)| !names.is_empty());
        for (names, _) in &mut divided {
            names.sort();
        }
        divided
    }

    /// The sum of times of tests.
    pub(crate) fn sum(&self, title: &str, tests: &[String], estimate: impl Fn(&str) -> f32) -> f32 {
        tests
            .iter()
            .map(|name| self.of(&format!("{title}::{name}"), estimate(name)))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_read_from_a_message_and_a_benchmark_is_not() {
        let message = |kind: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///x/gui#gilk-gui@0.1.0","manifest_path":"/x/gui/Cargo.toml","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"live","src_path":"/x/gui/tests/live.rs","edition":"2024","doc":false,"doctest":false,"test":true}},"profile":{{"opt_level":"1","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":true}},"features":[],"filenames":["/x/target/debug/deps/live-1"],"executable":"/x/target/debug/deps/live-1","fresh":false}}"#
            )
        };
        let found = binary(&message("test")).unwrap();
        assert_eq!(
            (found.title().as_str(), found.path.to_str()),
            ("gui/live", Some("/x/target/debug/deps/live-1"))
        );
        assert_eq!(binary(&message("bench")), None);
        let program = message("bin").replace(
            r#"checks":true,"test":true"#,
            r#"checks":true,"test":false"#,
        );
        assert_eq!(binary(&program), None);
        assert_eq!(
            binary(r#"{"reason":"build-finished","success":true}"#),
            None
        );
    }

    #[test]
    fn long_tests_are_those_of_the_file() {
        let line = SHIPPED.lines().next().unwrap();
        let (time, name) = line.split_once(' ').unwrap();
        assert!(time.parse::<f32>().unwrap() > 1.0, "{line}");
        assert!(Times::is_long(name), "{line}");
        assert!(!Times::is_long("engine/kernel"));
    }

    #[test]
    fn the_end_of_a_test_is_recognised() {
        assert_eq!(ended("test a::b ... ok"), Some("a::b"));
        assert_eq!(ended("test a::b - should panic ... ok"), Some("a::b"));
        assert_eq!(ended("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(ended("test result: ok. 2 passed"), None);
        // `ilk show` prints while its test runs; the result is on a line of its own.
        assert_eq!(ended("test a::b ... 1  0.01/s"), None);
        assert_eq!(begins("test a::b ... 1  0.01/s"), Some("a::b"));
    }

    #[test]
    fn every_line_of_the_shipped_times_is_parsed() {
        let wrong = SHIPPED.lines().filter(|line| Times::parse(line).is_none());
        assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
        assert!(SHIPPED.lines().count() > 50);
    }

    #[test]
    fn parts_have_about_the_same_time_and_every_test_once() {
        let times = Times([("x::a".to_owned(), 9.0), ("x::b".to_owned(), 5.0)].into());
        let names = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let parts = times.divide("x", names, 2, |_| 2.0);
        let expected = [(vec!["a"], 9.0), (vec!["b", "c", "d"], 9.0)];
        let expected =
            expected.map(|(names, sum)| (names.into_iter().map(str::to_owned).collect(), sum));
        assert_eq!(parts, expected);
    }
}
