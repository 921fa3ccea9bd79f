//! The end of a process's execution in the code cache, and the words for it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The sentence about a process whose memory was not read any more.
pub const READS_ENDED: &str = "It was about to filter its system calls (seccomp), or may have been: its memory was not read after that, nor were `pid`, `comm` and callers.";

/// The end of an execution in the code cache: of a process, in one of its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// The name of the machine; empty in a recording of one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The number of the process.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// The way it ended.
    pub way: EndWay,
    /// Instruments have not read its memory since it was about to filter its system calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads_ended: bool,
}

/// A way that an execution in the code cache ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndWay {
    /// The process was let go, since this was requested, or its time was over.
    #[default]
    Requested,
    /// The process has ended, with this status of `waitpid`.
    Ended(i32),
    /// The process has executed another program.
    Executed,
    /// The process was let go by a rule.
    LetGo {
        /// The name of the rule.
        rule: String,
        /// The address of the instruction or byte that the rule is about.
        at: u64,
        /// The obstacle, as a clause.
        why: String,
    },
}

impl ProcessEnd {
    /// Returns the end as sentences; nothing if it was requested.
    #[must_use]
    pub fn sentence(&self) -> String {
        let way = self.way.to_string();
        match self.reads_ended {
            true => format!("{way} {READS_ENDED}").trim_start().to_owned(),
            false => way,
        }
    }

    /// Returns a line for each end that was not requested, with the name of its process if there are several.
    #[must_use]
    pub fn lines(ends: &[Self]) -> Vec<String> {
        let is_one = matches!(ends, [one] if one.machine.is_empty());
        let ends = ends.iter().map(|end| (end, end.sentence()));
        ends.filter(|(_, sentence)| !sentence.is_empty())
            .map(|(end, sentence)| if is_one { sentence } else { end.to_string() })
            .collect()
    }
}

impl fmt::Display for ProcessEnd {
    /// Writes the sentences after the name of the process: *process 7 sh: The process has ended.*
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.machine.is_empty() {
            write!(f, "{}: ", self.machine)?;
        }
        write!(
            f,
            "process {} {}: {}",
            self.pid,
            self.program,
            self.sentence()
        )
    }
}

impl fmt::Display for EndWay {
    /// Writes a sentence; nothing if it was requested.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => Ok(()),
            Self::Ended(_) => write!(f, "The process has ended."),
            Self::Executed => write!(f, "The process has executed another program."),
            Self::LetGo { rule, at, why } => write!(
                f,
                "The process was let go, and continues in its original code: {rule} at {at:#018x}: {why}."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(pid: u32, program: &str, way: EndWay) -> ProcessEnd {
        ProcessEnd {
            pid,
            program: program.to_owned(),
            way,
            ..ProcessEnd::default()
        }
    }

    #[test]
    fn ends_are_named_by_their_processes_if_there_are_several() {
        let rule = EndWay::LetGo {
            rule: "may-change".to_owned(),
            at: 0x7fff,
            why: "code on a stack".to_owned(),
        };
        let ends = [
            end(7, "sh", EndWay::Executed),
            end(7, "a", EndWay::Requested),
            end(8, "b: c", rule),
        ];
        let lines = [
            "process 7 sh: The process has executed another program.",
            "process 8 b: c: The process was let go, and continues in its original code: may-change at \
             0x0000000000007fff: code on a stack.",
        ];
        assert_eq!(ProcessEnd::lines(&ends), lines);
        assert_eq!(
            ProcessEnd::lines(&ends[..1]),
            ["The process has executed another program."]
        );
        let elsewhere = ProcessEnd {
            machine: "left".to_owned(),
            ..ends[0].clone()
        };
        let line = "left: process 7 sh: The process has executed another program.";
        assert_eq!(ProcessEnd::lines(&[elsewhere]), [line]);
        let unread = ProcessEnd {
            reads_ended: true,
            ..ends[1].clone()
        };
        assert_eq!(ProcessEnd::lines(&[unread]), [READS_ENDED]);
    }
}
