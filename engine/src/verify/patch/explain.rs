//! Reasons for wrong instructions in patches.

use crate::verify::reason::Reason;
use iced_x86::Instruction;

use super::hit::Progress;
use super::phase::{Aim, By};
use super::walk::Walk;
use crate::Addr;
use crate::placement::Point;

impl Walk<'_> {
    /// Adds the expected instruction to a reason.
    pub(crate) fn explain(&self, why: Reason, at: (Option<Point>, usize, Progress, Aim)) -> Reason {
        let (point, done, progress, goal) = at;
        if let Some(expected) = point.and_then(|point| self.list(point).get(done)) {
            return Reason::Unfinished {
                why: why.into(),
                id: expected.id,
                missing: progress.missing(),
            };
        }
        let because = self
            .not_yet
            .as_ref()
            .map_or_else(String::new, |reason| format!(", and {reason}"));
        Reason::Awaited {
            why: why.into(),
            awaited: self.awaited(goal),
            because,
        }
    }

    /// Returns the reason for an instruction in place of an original one.
    pub(crate) fn should(&self, instruction: &Instruction, goal: Aim) -> Reason {
        let because = self
            .not_yet
            .as_ref()
            .map_or_else(String::new, |reason| format!("; {reason}"));
        Reason::NotOriginal {
            instruction: instruction.to_string(),
            awaited: self.awaited(goal),
            because,
        }
    }

    /// Returns the reason why live registers are not as in the original code.
    pub(crate) fn not_restored(&self) -> Reason {
        let missing = "the value that is not restored";
        self.not_yet.clone().unwrap_or(Reason::Internal { missing })
    }

    fn awaited(&self, goal: Aim) -> String {
        match (goal.by, self.originals.instruction(goal.at)) {
            (By::Text { .. }, _) => format!("the jump to {}", Addr(goal.at)),
            (By::Fragment { place, .. }, _) => format!("the jump to {}", Addr(place)),
            (By::Copy(_), Some((_, original))) => {
                format!("`{}` at {}", original.instruction, Addr(goal.at))
            }
            (By::Copy(_), None) => format!("the instruction at {}", Addr(goal.at)),
        }
    }
}
