//! Questions about a kernel: each is a session made in one step, with the view that answers it.
//!
//! `session` places the instruments, `answer` makes the session and chooses the view.

mod answer;
mod session;

use crate::state::{State, TargetState};

pub use session::Made;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// How long each system call takes.
    SlowCalls,
    /// How often each system call is made.
    FrequentCalls,
    /// How long threads wait for locks.
    Locks,
    /// Who calls the open function.
    Callers,
    /// Which of its callees the open function spends its time in.
    TimeInside,
    /// Which ways the branches of the open function take.
    Branches,
}

impl Question {
    /// All questions, in the order of the menu.
    pub const ALL: [Self; 6] = [
        Self::SlowCalls,
        Self::FrequentCalls,
        Self::Locks,
        Self::TimeInside,
        Self::Callers,
        Self::Branches,
    ];

    /// Returns the question.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::SlowCalls => "Which system calls are slow?",
            Self::FrequentCalls => "Which system calls are made most often?",
            Self::Locks => "What waits for locks?",
            Self::Callers => "Who calls this function?",
            Self::TimeInside => "Where does this function spend its time?",
            Self::Branches => "Which branches does this function take?",
        }
    }

    /// Returns the tooltip: the instruments, and the view.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::SlowCalls => {
                "Times every system call; the table of statistics has its percentiles."
            }
            Self::FrequentCalls => "Counts every system call.",
            Self::Locks => "Times every wait in the slow paths of the kernel's locks.",
            Self::Callers => "Counts the return addresses of the open function.",
            Self::TimeInside => {
                "Times the open function and the functions that it calls, and counts its blocks."
            }
            Self::Branches => "Counts both ways of every branch of the open function.",
        }
    }

    /// Returns whether it is about the open function.
    #[must_use]
    pub const fn is_about_function(self) -> bool {
        matches!(self, Self::Callers | Self::TimeInside | Self::Branches)
    }

    /// Returns the reason why it cannot be answered now, as a whole sentence, if any.
    #[must_use]
    pub fn hindrance(self, state: &State) -> Option<&'static str> {
        if state.run.active.is_some() {
            return Some("A session is running; stop it first.");
        }
        if self.is_about_function() && state.graph.scene.is_none() {
            return Some("Open a function first.");
        }
        match state.target {
            TargetState::Busy(_) => Some("The target is not ready yet."),
            _ => None,
        }
    }
}
