//! Stacks of the kernel that totals are counted by.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

/// Stacks of the kernel among the values and keys of aggregates, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelStacks {
    /// The frames of each stack, the hook's first: `vfs_read+0x1c`, or an address in code without a name.
    pub frames: BTreeMap<u64, Vec<String>>,
    /// Number of hits whose stack was not kept, because there were too many different ones.
    #[serde(default)]
    pub lost: u64,
}

impl KernelStacks {
    /// The end of a sentence about [`lost`](Self::lost) hits.
    pub const LOST: &str =
        "hits have stacks that were not kept, since there were too many different ones";

    /// Returns whether there is nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.lost == 0
    }

    /// Adds further stacks of the same run, and its number of lost hits up to now.
    pub fn extend(&mut self, later: Self) {
        self.frames.extend(later.frames);
        self.lost = later.lost;
    }

    /// Returns the frames of the stack with a number, if it is one.
    #[must_use]
    pub fn get(&self, number: i128) -> Option<&[String]> {
        let number = u64::try_from(number).ok()?;
        self.frames.get(&number).map(Vec::as_slice)
    }

    /// Returns the functions of a stack on one line, the outermost first: `do_syscall_64;ksys_read;vfs_read`.
    #[must_use]
    pub fn line(&self, number: i128) -> Option<String> {
        let functions: Vec<&str> = self
            .get(number)?
            .iter()
            .rev()
            .map(|frame| function(frame))
            .collect();
        Some(functions.join(";"))
    }

    /// Returns the name of a stack above its frames: `stack of 7 frames`.
    #[must_use]
    pub fn title(&self, number: i128) -> Option<String> {
        let count = self.get(number)?.len();
        let noun = if count == 1 { "frame" } else { "frames" };
        Some(format!("stack of {count} {noun}"))
    }

    /// Writes the frames of the stacks among numbers, a line each.
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
            .filter_map(|number| self.get(number))
            .flatten()
        {
            writeln!(out, "{:indent$}{frame}", "")?;
        }
        Ok(())
    }
}

/// Returns the function of a frame, without its offset; separators of the folded format do not occur in it.
#[must_use]
pub fn function(frame: &str) -> &str {
    frame.split('+').next().unwrap_or(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_a_line_or_a_list() {
        let frames = ["vfs_read+0x1c", "ksys_read+0x5f", "0xffffffffc0001000"];
        let stacks = KernelStacks {
            frames: [(7, frames.map(str::to_owned).to_vec())].into(),
            lost: 0,
        };
        let line = "0xffffffffc0001000;ksys_read;vfs_read";
        assert_eq!(stacks.line(7).as_deref(), Some(line));
        assert_eq!((stacks.line(8), stacks.line(-7)), (None, None));
        assert_eq!(stacks.title(7).as_deref(), Some("stack of 3 frames"));
        let mut out = String::new();
        stacks.write(&mut out, [3, 7], 2).unwrap();
        assert_eq!(
            out,
            "  vfs_read+0x1c\n  ksys_read+0x5f\n  0xffffffffc0001000\n"
        );
    }
}
