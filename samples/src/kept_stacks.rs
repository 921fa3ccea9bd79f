//! Stacks of the kernel and of processes that totals are counted by, and that samples are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

/// Stacks among the values and keys of aggregates and in samples, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStacks {
    /// The frames of each stack, the innermost first: `vfs_read+0x1c` of the kernel, `work+0x12 (program)` of a process,
    /// or an address in code without a name.
    pub frames: BTreeMap<u64, Vec<String>>,
    /// Numbers of the stacks of processes. Written also if there are none: the formats of the files beside a recording
    /// know no field that is absent.
    #[serde(default)]
    pub of_processes: BTreeSet<u64>,
    /// Number of hits whose stack was not kept, because there were too many different ones.
    #[serde(default)]
    pub lost: u64,
    /// Sentences about objects of processes in which stacks end early, each with its reason.
    #[serde(default)]
    pub limits: BTreeSet<String>,
}

impl KeptStacks {
    /// The end of a sentence about [`lost`](Self::lost) hits.
    pub const LOST: &str =
        "hits have stacks that were not kept, since there were too many different ones";

    /// The end of a sentence about [`unnamed`](Self::unnamed) frames.
    pub const UNNAMED: &str = "frames of processes have no name: the process had ended, or no file is mapped at the address";

    /// Returns the number of frames of processes that are addresses.
    #[must_use]
    pub fn unnamed(&self) -> u64 {
        let stacks = self.of_processes.iter();
        let frames = stacks
            .filter_map(|number| self.frames.get(number))
            .flatten();
        frames.filter(|frame| frame.starts_with("0x")).count() as u64
    }

    /// Returns the frames without what is said of all stacks.
    #[must_use]
    pub fn without_incidents(self) -> Self {
        Self {
            frames: self.frames,
            ..Self::default()
        }
    }

    /// Returns whether there is nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.lost == 0 && self.limits.is_empty()
    }

    /// Adds further stacks of the same run, and its number of lost hits up to now.
    pub fn extend(&mut self, later: Self) {
        self.frames.extend(later.frames);
        self.of_processes.extend(later.of_processes);
        self.limits.extend(later.limits);
        self.lost = later.lost;
    }

    /// Adds the stacks of another table, with its lost hits.
    pub fn add(&mut self, other: Self) {
        let lost = self.lost + other.lost;
        self.extend(Self { lost, ..other });
    }

    /// Returns the frames of the stack with a number, if it is one.
    #[must_use]
    pub fn get(&self, number: i128) -> Option<&[String]> {
        let number = u64::try_from(number).ok()?;
        self.frames.get(&number).map(Vec::as_slice)
    }

    /// Returns whether a number is of a stack of a process.
    #[must_use]
    pub fn is_of_process(&self, number: i128) -> bool {
        u64::try_from(number).is_ok_and(|number| self.of_processes.contains(&number))
    }

    /// Returns the functions of a stack on one line, the outermost first: `do_syscall_64;ksys_read;vfs_read`; of a
    /// single frame all of it.
    #[must_use]
    pub fn line(&self, number: i128) -> Option<String> {
        let functions: Vec<&str> = match self.get(number)? {
            [frame] => vec![frame],
            frames => frames.iter().rev().map(|frame| function(frame)).collect(),
        };
        Some(functions.join(";"))
    }

    /// Returns the name of a stack above its frames: `stack of 7 frames`, or the frame if it has no others.
    #[must_use]
    pub fn title(&self, number: i128) -> Option<String> {
        Some(match self.get(number)? {
            [frame] => frame.clone(),
            frames => format!("stack of {} frames", frames.len()),
        })
    }

    /// Writes the frames of the stacks among numbers, a line each, but of single frames, which are their titles.
    ///
    /// # Errors
    /// As for `out`.
    pub fn write(
        &self,
        out: &mut impl Write,
        numbers: impl IntoIterator<Item = i128>,
        indent: usize,
    ) -> fmt::Result {
        for frame in numbers
            .into_iter()
            .filter_map(|number| self.get(number).filter(|frames| frames.len() > 1))
            .flatten()
        {
            writeln!(out, "{:indent$}{frame}", "")?;
        }
        Ok(())
    }
}

/// Returns the function of a frame, without its offset and its file; separators of the folded format do not occur in it.
#[must_use]
pub fn function(frame: &str) -> &str {
    frame.rfind("+0x").map_or(frame, |end| &frame[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_a_line_or_a_list() {
        let frames = ["vfs_read+0x1c", "ksys_read+0x5f", "0xffffffffc0001000"];
        let stacks = KeptStacks {
            frames: [
                (7, frames.map(str::to_owned).to_vec()),
                (9, vec!["main+0x12 (a program)".to_owned()]),
                (
                    11,
                    vec!["0x7f12".to_owned(), "main+0x4 (a program)".to_owned()],
                ),
            ]
            .into(),
            of_processes: [9, 11].into(),
            ..KeptStacks::default()
        };
        let line = "0xffffffffc0001000;ksys_read;vfs_read";
        assert_eq!(stacks.line(7).as_deref(), Some(line));
        assert_eq!((stacks.line(8), stacks.line(-7)), (None, None));
        assert_eq!(stacks.title(7).as_deref(), Some("stack of 3 frames"));
        let single = Some("main+0x12 (a program)");
        assert_eq!(stacks.title(9).as_deref(), single);
        assert_eq!(stacks.line(9).as_deref(), single);
        assert!(stacks.is_of_process(9) && !stacks.is_of_process(7));
        assert_eq!(function("libstdc++.so.6+0x1f"), "libstdc++.so.6");
        assert_eq!(stacks.unnamed(), 1);
        let mut out = String::new();
        stacks.write(&mut out, [3, 7, 9], 2).unwrap();
        assert_eq!(
            out,
            "  vfs_read+0x1c\n  ksys_read+0x5f\n  0xffffffffc0001000\n"
        );
    }
}
