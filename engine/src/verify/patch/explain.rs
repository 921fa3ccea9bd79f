//! What is wrong with a patch, in words.

use iced_x86::Instruction;

use super::hit::Progress;
use super::phase::{By, Goal};
use super::walk::Walk;
use crate::Addr;
use crate::placement::Point;

impl Walk<'_> {
    /// Adds what should have come instead.
    pub(crate) fn explain(&self, why: &str, at: (Option<Point>, usize, Progress, Goal)) -> String {
        let (point, done, progress, goal) = at;
        if let Some(expected) = point.and_then(|point| self.list(point).get(done)) {
            return format!(
                "{why}; instrument {} is not done here: {}",
                expected.id,
                progress.missing()
            );
        }
        let reason = self
            .not_yet
            .as_ref()
            .map_or_else(String::new, |reason| format!(", and {reason}"));
        format!("{why}; {} should come next{reason}", self.awaited(goal))
    }

    /// What an original instruction should have stood for.
    pub(crate) fn should(&self, instruction: &Instruction, goal: Goal) -> String {
        let reason = self
            .not_yet
            .as_ref()
            .map_or_else(String::new, |reason| format!("; {reason}"));
        format!(
            "it is `{instruction}` where {} should stand{reason}",
            self.awaited(goal)
        )
    }

    /// Why what may be used is not as the original code has it.
    pub(crate) fn not_restored(&self) -> String {
        self.not_yet.clone().unwrap_or_default()
    }

    fn awaited(&self, goal: Goal) -> String {
        match (goal.by, self.originals.instruction(goal.at)) {
            (By::Text { .. }, _) => format!("the jump to {}", Addr(goal.at)),
            (By::Copy(_), Some((_, original))) => {
                format!("`{}` of {}", original.instruction, Addr(goal.at))
            }
            (By::Copy(_), None) => format!("the instruction of {}", Addr(goal.at)),
        }
    }
}
