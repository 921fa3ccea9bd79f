//! The questions: their order, texts and explanations.

/// A question about the target, or about its open function, that one session answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Durations of the system calls.
    SlowCalls,
    /// Number of times that each system call is made.
    FrequentCalls,
    /// Durations of the waits of threads for locks.
    Locks,
    /// Number of times that each function is called, but for those of the C library.
    FrequentFunctions,
    /// Durations of long calls, but for those of the C library.
    SlowFunctions,
    /// Durations of long calls of the C library that wait.
    Waits,
    /// Sizes of the blocks of memory that the process allocates, and its callers.
    Allocations,
    /// Functions that call the open function.
    Callers,
    /// Time that the open function spends in each of its callees.
    TimeInside,
    /// Ways that the branches of the open function take.
    Branches,
}

impl Question {
    /// All questions, in the order of the menu.
    pub const ALL: [Self; 10] = [
        Self::SlowCalls,
        Self::FrequentCalls,
        Self::Locks,
        Self::FrequentFunctions,
        Self::SlowFunctions,
        Self::Waits,
        Self::Allocations,
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
            Self::FrequentFunctions => "Which functions does the process call most?",
            Self::SlowFunctions => "Which functions of the process take long?",
            Self::Waits => "What does the process wait for?",
            Self::Allocations => "What memory does the process allocate?",
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
            Self::FrequentFunctions => {
                "Counts the calls of every function of the program, and of its libraries but for the C library."
            }
            Self::SlowFunctions => {
                "Times the calls that take 10,000 ticks (some µs) or more, of the program and its libraries but for the C library."
            }
            Self::Waits => {
                "Times the C library's calls that read, write, sleep, or wait for threads and locks, if they take \
                 10,000 ticks (some µs) or more."
            }
            Self::Allocations => {
                "Counts the sizes of allocated blocks, and adds them up by the function that requests them."
            }
            Self::Callers => "Counts the callers of the open function.",
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

    /// Returns whether it can be answered of a process, or else of a kernel.
    #[must_use]
    pub const fn fits(self, of_process: bool) -> bool {
        match self {
            Self::SlowCalls | Self::FrequentCalls | Self::Locks => !of_process,
            Self::FrequentFunctions | Self::SlowFunctions | Self::Waits | Self::Allocations => {
                of_process
            }
            Self::Callers | Self::TimeInside | Self::Branches => true,
        }
    }
}
