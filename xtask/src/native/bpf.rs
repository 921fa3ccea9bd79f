//! The work of BPF programs on this machine's own kernel, in nanoseconds: `rivals bpf`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::tool;

/// Sources of the program, which the lab's experiments have, too.
const SOURCES: &str = "ilk-driver/rivals/program";
/// Loads of each program, and runs of one load.
const BURSTS: &str = "20";
const RUNS: &str = "200";

/// Returns the table, or the reason why this kernel runs no BPF program for this user.
pub(super) fn table(folder: &Path, machine: &str) -> Result<std::result::Result<String, String>> {
    let failed = |error: std::io::Error| Fail::new(format!("{SOURCES}: {error}"));
    let mut sources = Vec::new();
    for entry in fs::read_dir(tool::root().join(SOURCES)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        sources.extend(
            path.extension()
                .is_some_and(|end| end == "c")
                .then_some(path),
        );
    }
    let program = folder.join("rivals");
    tool::run(
        Command::new("cc")
            .args(["-O2", "-o"])
            .arg(&program)
            .args(sources),
    )?;
    let output = Command::new(&program)
        .args(["bpf", BURSTS, RUNS])
        .output()
        .map_err(failed)?;
    Ok(of_lines(&String::from_utf8_lossy(&output.stdout), machine))
}

fn of_lines(lines: &str, machine: &str) -> std::result::Result<String, String> {
    let said = || {
        lines
            .lines()
            .filter_map(|line| line.strip_prefix("rivals: "))
    };
    if let Some(reason) = said().find_map(|line| line.strip_prefix("failed: ")) {
        return Err(reason.to_owned());
    }
    let hz = said().find_map(|line| numbers(line.strip_prefix("frequency: ")?).first().copied());
    let hz = hz.ok_or_else(|| format!("the program printed no frequency, but {lines:?}"))?;
    let mut table = format!(
        "{machine}.\n\n| A BPF program's work, compiled by the kernel | ns |\n|---|---:|\n"
    );
    let mut rows = 0;
    for line in said() {
        let Some((name, figures)) = line.split_once(": ") else {
            continue;
        };
        let [times, with, without, frames] = numbers(figures)[..] else {
            continue;
        };
        let ns = (with - without) / times / hz * 1e9;
        let of = match frames {
            0.0 => String::new(),
            frames => format!(", of {frames} frames"),
        };
        // Writing to a String cannot fail.
        let _infallible = writeln!(table, "| {name}{of} | {ns:.1} |");
        rows += 1;
    }
    match rows {
        0 => Err(format!("the program printed no figures, but {lines:?}")),
        _ => Ok(table),
    }
}

fn numbers(text: &str) -> Vec<f64> {
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_many_times_are_nanoseconds_of_one() {
        let lines = "rivals: frequency: 2000000000 ticks a second\n\
             rivals: count by process: 256 times take 14848 ticks, and 2048 without; 0 frames\n\
             rivals: count by stack: 256 times take 258048 ticks, and 2048 without; 7 frames\n";
        let table = of_lines(lines, "Some machine; Linux 6.1").unwrap();
        assert!(
            table.starts_with("Some machine; Linux 6.1.\n\n| "),
            "{table}"
        );
        assert!(
            table
                .contains("| count by process | 25.0 |\n| count by stack, of 7 frames | 500.0 |\n"),
            "{table}"
        );
        let refused = of_lines("rivals: failed: a BPF map cannot be created: no\n", "");
        assert_eq!(refused.unwrap_err(), "a BPF map cannot be created: no");
        assert!(of_lines("", "").is_err());
    }
}
