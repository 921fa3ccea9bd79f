//! Stages of a command, one after the other: a bar while they run, and the time of each.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::fail::{Fail, Result};

/// Width of the bar, in characters.
const WIDTH: usize = 24;

/// Counts stages and times them.
pub(crate) struct Stages {
    of: usize,
    begin: Instant,
    done: Vec<(&'static str, Duration)>,
}

impl Stages {
    /// A command of so many stages.
    pub(crate) fn new(of: usize) -> Self {
        Self {
            of,
            begin: Instant::now(),
            done: Vec::new(),
        }
    }

    /// Runs one stage. A failure names it.
    pub(crate) fn stage<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let number = self.done.len() + 1;
        println!(
            "{} {number} of {}  {name}",
            bar(number - 1, self.of),
            self.of
        );
        let _ = io::stdout().flush();
        let begin = Instant::now();
        let outcome = work();
        self.done.push((name, begin.elapsed()));
        outcome.map_err(|fail| {
            self.report();
            Fail::new(format!("stage \"{name}\" failed: {fail}"))
        })
    }

    /// Prints the full bar and, where standard output is no terminal, every stage's time.
    pub(crate) fn finish(&self) {
        println!(
            "{} {} of {}  done in {}",
            bar(self.of, self.of),
            self.of,
            self.of,
            seconds(self.begin.elapsed())
        );
        if !io::stdout().is_terminal() {
            self.report();
        }
    }

    /// Prints how long each stage took.
    pub(crate) fn report(&self) {
        println!("\nStages:");
        for (name, time) in &self.done {
            println!("  {:>9}  {name}", seconds(*time));
        }
        println!("  {:>9}  in all", seconds(self.begin.elapsed()));
    }
}

fn bar(done: usize, of: usize) -> String {
    let filled = (WIDTH * done).checked_div(of).unwrap_or(WIDTH).min(WIDTH);
    format!("{}{}", "━".repeat(filled), "─".repeat(WIDTH - filled))
}

/// Formats a duration for a person.
pub(crate) fn seconds(time: Duration) -> String {
    let whole = time.as_secs();
    if whole < 60 {
        format!("{:.1} s", time.as_secs_f32())
    } else {
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

/// Processor seconds of all programs that this one has started and that have ended.
pub(crate) fn cpu_seconds() -> f32 {
    /// `sysconf(_SC_CLK_TCK)` on every Linux that Debian builds.
    const TICKS: f32 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // proc(5): cutime and cstime are the 16th and 17th field, and the state after the name is the 3rd.
    let ticks = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<f32>().ok());
    ticks.sum::<f32>() / TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_keeps_its_width() {
        for done in 0..=9 {
            assert_eq!(bar(done, 9).chars().count(), WIDTH);
        }
        assert_eq!(bar(0, 0), "━".repeat(WIDTH));
    }

    #[test]
    fn a_failed_stage_is_named() {
        let fail = Stages::new(1)
            .stage("lints", || Err::<(), _>(Fail::new("because")))
            .unwrap_err();
        assert_eq!(fail.to_string(), "stage \"lints\" failed: because");
    }
}
