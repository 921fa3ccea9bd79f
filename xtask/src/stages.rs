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
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    processor_times(&stat).map_or(0.0, |[_, children]| children.as_secs_f32())
}

/// Processor times of a process and of its children that have ended, from `/proc/PID/stat`.
pub(crate) fn processor_times(stat: &str) -> Option<[Duration; 2]> {
    /// Milliseconds of a tick: `sysconf(_SC_CLK_TCK)` is 100 on every Linux that Debian builds.
    const TICK: u64 = 10;
    // The name, in parentheses, may have spaces and parentheses itself.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    // proc(5): utime, stime, cutime and cstime are the 14th to 17th field, and the state after the name is the 3rd.
    let mut ticks = fields.skip(11).map_while(|field| field.parse::<u64>().ok());
    let mut both = || {
        Some(Duration::from_millis(
            (ticks.next()? + ticks.next()?) * TICK,
        ))
    };
    Some([both()?, both()?])
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
    fn processor_times_are_read_beside_a_name_with_parentheses() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 9 0 0 0 25 50 100 200 20 0 1 0 9 0 0";
        let expected = [750, 3000].map(Duration::from_millis);
        assert_eq!(processor_times(stat), Some(expected));
        assert_eq!(processor_times("7 (a) R 1 7 7 0 -1"), None);
    }

    #[test]
    fn a_failed_stage_is_named() {
        let fail = Stages::new(1)
            .stage("lints", || Err::<(), _>(Fail::new("because")))
            .unwrap_err();
        assert_eq!(fail.to_string(), "stage \"lints\" failed: because");
    }
}
