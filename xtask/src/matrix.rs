//! `cargo xtask kernels`: live tests on every kernel that the archive has, and the table of docs/kernels.md.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::debugging::Built;
use crate::fail::{Fail, Result};
use crate::jobs::{Graph, Job, Outcome, Timed};
use crate::log::Log;
use crate::packages::Purpose;
use crate::suite::{self, Binary};
use crate::{apt, tool};

/// The text with the table.
const TEXT: &str = "docs/kernels.md";
/// The test program of the lab.
const PROGRAM: &str = "lab";
/// Time after which a test is taken to hang: 7.3's are slower, and so are flavours for every machine.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// The same on the kernel for debugging.
const DEBUGGING_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// Columns of the table, and the prefixes of their tests' names.
const COLUMNS: [(&str, &str); 8] = [
    ("demonstration", "live::pulsar::"),
    ("blocks of functions", "live::conservation::"),
    (
        "`kernel/sched` at once",
        "live::everywhere::flow_is_conserved_in_a_whole_directory_at_once",
    ),
    ("true values", "live::truth::"),
    ("under load", "live::soak::"),
    ("modules", "live::modules::"),
    ("removal", "live::restoration::"),
    ("faults", "live::executed::faulted::"),
];
/// The first cells of the table's head.
const HEAD: &str = "| options of `ilk lab` | kernel |";

/// A line of kernels: options by which the lab takes its newest.
#[derive(Clone, Copy)]
struct Line {
    suite: Option<&'static str>,
    series: Option<&'static str>,
    flavour: &'static str,
    /// It is the kernel that is built for debugging.
    is_debugging: bool,
}

/// The kernel that is built for debugging.
const DEBUGGING: Line = Line {
    is_debugging: true,
    ..Line::of_host(None, "cloud")
};

impl Line {
    const fn of_host(series: Option<&'static str>, flavour: &'static str) -> Self {
        Self {
            suite: None,
            series,
            flavour,
            is_debugging: false,
        }
    }

    const fn of_suite(suite: &'static str, flavour: &'static str) -> Self {
        Self {
            suite: Some(suite),
            series: None,
            flavour,
            is_debugging: false,
        }
    }

    fn options(self) -> Vec<(&'static str, &'static str)> {
        let suite = self.suite.map(|suite| ("--suite", suite));
        let series = self.series.map(|series| ("--series", series));
        let flavour = (self.flavour != "cloud").then_some(("--flavour", self.flavour));
        [suite, series, flavour].into_iter().flatten().collect()
    }

    /// The options as one types them; the table's first cell.
    fn name(self) -> String {
        if self.is_debugging {
            return "`--kernel`, `--headers` of `cargo xtask kernels --debug`".to_owned();
        }
        let options = self.options();
        let words: Vec<String> = options
            .iter()
            .map(|(option, value)| format!("{option} {value}"))
            .collect();
        if words.is_empty() {
            "none, on Debian 12".to_owned()
        } else {
            format!("`{}`", words.join(" "))
        }
    }

    /// The file in which the lab keeps its choice.
    fn choice(self) -> PathBuf {
        let values: String = self
            .options()
            .iter()
            .map(|(_, value)| format!("-{value}"))
            .collect();
        tool::cache().join(format!("kernel/current{values}"))
    }

    /// The release that the lab has chosen, as `uname -r` prints it.
    fn release(self) -> Result<String> {
        if self.is_debugging {
            return Built::at_its_place().release();
        }
        let choice = self.choice();
        let text = fs::read_to_string(&choice)
            .map_err(|error| Fail::new(format!("cannot read {}: {error}", choice.display())))?;
        let package = text.split('_').next().unwrap_or_default();
        let release = package.strip_prefix("linux-image-");
        release
            .map(str::to_owned)
            .ok_or_else(|| Fail::new(format!("{} names no kernel: {text:?}", choice.display())))
    }

    /// Variables by which tests boot it.
    fn variables(self) -> Vec<(&'static str, PathBuf)> {
        let mut variables = vec![("GILK_AGENT", tool::target().join("debug/ilk"))];
        if self.is_debugging {
            // No snapshot: the load of the module is looked at in each lab.
            variables.extend(Built::at_its_place().variables());
            return variables;
        }
        let given = [
            ("GILK_SUITE", self.suite),
            ("GILK_SERIES", self.series),
            ("GILK_FLAVOUR", Some(self.flavour)),
            ("GILK_LAB_SNAPSHOT", Some("1")),
        ];
        let given = given.into_iter();
        variables.extend(given.filter_map(|(name, value)| Some((name, value?.into()))));
        variables
    }

    /// Prepares the lab, and runs the tests of every column.
    fn run(self, program: &Binary, tests: &[String], log: &Log) -> Result<Outcome> {
        if self.is_debugging {
            Built::at_its_place().build(log)?;
        }
        let mut ilk = Command::new(tool::target().join("debug/ilk"));
        ilk.args(["lab", "--prepare"]).envs(self.variables());
        for (option, value) in self.options() {
            ilk.args([option, value]);
        }
        log.run(&mut ilk)?;
        let prefix = format!("{} ", self.name());
        let limit = if self.is_debugging {
            DEBUGGING_LIMIT
        } else {
            LIMIT
        };
        let tests = program.run(tests, &prefix, &self.variables(), limit, log)?;
        Ok(Outcome {
            tests,
            ..Outcome::default()
        })
    }

    /// Its row of the table, if its tests have passed.
    fn row(self, tests: &[Timed]) -> Result<Option<String>> {
        let (name, mut cells) = (self.name(), String::new());
        for (_, prefix) in COLUMNS {
            let start = format!("{name} ilk-driver/{PROGRAM}::{prefix}");
            let passed = tests.iter().filter(|test| test.name.starts_with(&start));
            let count = passed.count();
            if count == 0 {
                return Ok(None);
            }
            cells.push_str(&format!(" {count} |"));
        }
        Ok(Some(format!("| {name} | {} |{cells}\n", self.release()?)))
    }
}

/// The lines of Debian's archive with headers.
const LINES: [Line; 15] = [
    Line::of_host(None, "cloud"),
    Line::of_host(None, "full"),
    Line::of_host(None, "rt"),
    Line::of_host(Some("6.12"), "cloud"),
    Line::of_host(Some("6.12"), "full"),
    Line::of_host(Some("6.12"), "rt"),
    Line::of_suite("trixie", "cloud"),
    Line::of_suite("trixie-backports", "cloud"),
    Line::of_suite("sid", "cloud"),
    Line::of_suite("trixie", "full"),
    Line::of_suite("trixie", "rt"),
    Line::of_suite("trixie-backports", "full"),
    Line::of_suite("trixie-backports", "rt"),
    Line::of_suite("sid", "full"),
    Line::of_suite("sid", "rt"),
];

/// Runs the tests on the lines whose name contains one of `only`, or on all, and writes their rows.
pub(crate) fn kernels(yes: bool, only: &[String]) -> Result<()> {
    let is_wanted =
        |line: &Line| only.is_empty() || only.iter().any(|text| line.name().contains(text));
    let lines: Vec<Line> = LINES.into_iter().filter(is_wanted).collect();
    if lines.is_empty() {
        let names: Vec<String> = LINES.iter().map(|line| line.name()).collect();
        return Err(Fail::new(format!(
            "no line of kernels has {} in its name; there are: {}",
            only.join(" or "),
            names.join("; ")
        )));
    }
    tested(Purpose::Tests, yes, &lines)
}

/// Builds the kernel for debugging, runs the tests on it, and writes its row.
pub(crate) fn debugging(yes: bool) -> Result<()> {
    tested(Purpose::Debugging, yes, &[DEBUGGING])
}

fn tested(purpose: Purpose, yes: bool, lines: &[Line]) -> Result<()> {
    println!("System packages:");
    apt::provide(purpose, yes, false)?;
    let logs = tool::results()?.join("kernels");
    fs::create_dir_all(&logs)
        .map_err(|error| Fail::new(format!("cannot create {}: {error}", logs.display())))?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let build = {
        let lines = lines.to_owned();
        move |log: &Log| {
            let binaries = suite::build_named(PROGRAM, log)?;
            let program = binaries.into_iter().find(|binary| binary.name == PROGRAM);
            let program = program
                .ok_or_else(|| Fail::new("internal error: cargo built no tests of the lab"))?;
            let [_, mut tests] = program.tests()?;
            tests.retain(|name| COLUMNS.iter().any(|(_, prefix)| name.starts_with(prefix)));
            let job = |line: Line| {
                let (program, tests) = (program.clone(), tests.clone());
                let run = move |log: &Log| line.run(&program, &tests, log);
                Job::new(format!("kernel: {}", line.name().replace('`', "")), run)
            };
            Ok(Outcome {
                jobs: lines.into_iter().map(job).collect(),
                ..Outcome::default()
            })
        }
    };
    let jobs = vec![
        Job::new("build and lints", build)
            .cores(cores)
            .on_terminal(),
    ];
    println!(
        "Jobs on {cores} cores; their output is in {}:",
        logs.display()
    );
    let (tests, outcome) = Graph::new(&logs, cores, jobs).run();
    let path = tool::root().join(TEXT);
    let failed = |error| Fail::new(format!("{TEXT}: {error}"));
    let mut text = fs::read_to_string(&path).map_err(failed)?;
    for line in lines {
        if let Some(row) = line.row(&tests)? {
            text = with_row(&text, &row).ok_or_else(|| {
                Fail::new(format!("{TEXT} has no table that begins with {HEAD:?}"))
            })?;
        }
    }
    fs::write(&path, text).map_err(failed)?;
    outcome?;
    println!("\nThe table is in {TEXT}.");
    Ok(())
}

/// Replaces the row with the same first cell, or adds it at the end of the table; `None` if there is no table.
fn with_row(text: &str, row: &str) -> Option<String> {
    let head = text.find(HEAD)?;
    let (before, table) = text.split_at(head);
    let end = table.find("\n\n").map_or(table.len(), |end| end + 1);
    let (table, after) = table.split_at(end);
    let cell = |row: &str| row.split('|').nth(1).map(str::to_owned);
    let mut rows: Vec<&str> = table.split_inclusive('\n').collect();
    match rows.iter().position(|old| cell(old) == cell(row)) {
        Some(at) => rows.splice(at..=at, [row]).for_each(drop),
        None => rows.push(row),
    }
    Some(format!("{before}{}{after}", rows.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_replaces_that_of_the_same_line_or_is_added() {
        let text =
            format!("a\n\n{HEAD} x |\n|---|---|---|\n| one | 1 | 2 |\n| two | 3 | 4 |\n\nb\n");
        let new = with_row(&text, "| one | 5 | 6 |\n").unwrap();
        assert_eq!(new, text.replace("| one | 1 | 2 |", "| one | 5 | 6 |"));
        let more = with_row(&new, "| three | 7 | 8 |\n").unwrap();
        assert_eq!(
            more,
            new.replace("| two | 3 | 4 |\n", "| two | 3 | 4 |\n| three | 7 | 8 |\n")
        );
        assert_eq!(with_row("no table\n", "| one |\n"), None);
    }

    #[test]
    fn the_text_has_the_tables_columns_and_every_line_another_name() {
        let text = fs::read_to_string(tool::root().join(TEXT)).unwrap();
        let columns: String = COLUMNS
            .iter()
            .map(|(name, _)| format!(" {name} |"))
            .collect();
        assert!(text.contains(&format!("{HEAD}{columns}\n")));
        let mut names = LINES.map(Line::name).to_vec();
        names.push(DEBUGGING.name());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), LINES.len() + 1);
    }

    #[test]
    fn a_row_has_the_count_of_each_columns_tests() {
        let timed = |prefix: &str| Timed {
            name: format!("{} ilk-driver/lab::{prefix}x", LINES[7].name()),
            time: Duration::ZERO,
            processor: Duration::ZERO,
        };
        let mut tests: Vec<Timed> = COLUMNS
            .iter()
            .skip(1)
            .map(|(_, prefix)| timed(prefix))
            .collect();
        assert!(LINES[7].row(&tests).unwrap().is_none());
        tests.push(timed(COLUMNS[0].1));
        tests.push(timed(COLUMNS[0].1));
        let row = LINES[7].row(&tests);
        // The release is that which the lab of this tree has chosen, if it has.
        if let Ok(row) = row {
            let row = row.unwrap();
            assert!(
                row.starts_with("| `--suite trixie-backports` | ")
                    && row.ends_with(" | 2 | 1 | 1 | 1 | 1 | 1 | 1 | 1 |\n"),
                "{row}"
            );
        }
    }
}
