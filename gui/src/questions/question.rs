//! The questions: their order, texts and explanations.

/// A question about the kernel, or about its open function, that one session answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Durations of the system calls.
    SlowCalls,
    /// Number of times that each system call is made.
    FrequentCalls,
    /// Durations of the waits of threads for locks.
    Locks,
    /// Functions that call the open function.
    Callers,
    /// Time that the open function spends in each of its callees.
    TimeInside,
    /// Ways that the branches of the open function take.
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

    /// Returns the question as the menu shows it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::SlowCalls => "Which system calls are slow?",
            Self::FrequentCalls => "Which system calls are made most often?",
            Self::Locks => "What waits for locks?",
            Self::Callers => "Which functions call this?",
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
}
