//! Groups, order and axes of the lanes.

/// Groups of the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// No groups: one lane per instrument.
    #[default]
    Session,
    /// Grouped by the function whose calls or blocks are measured.
    Function,
    /// Grouped by instrument.
    Instrument,
    /// Grouped by CPU, one lane per instrument that delivered samples there; then lanes without a
    /// CPU.
    Cpu,
    /// Grouped by thread, one lane per instrument that the thread hit; then lanes without a thread.
    Thread,
    /// Grouped by process, one lane per instrument that a thread of it hit.
    Process,
}

impl Stack {
    /// All groups, with their labels to the right of "lanes by".
    pub(crate) const ALL: [(Self, &'static str); 6] = [
        (Self::Session, "order"),
        (Self::Function, "function"),
        (Self::Instrument, "instrument"),
        (Self::Cpu, "CPU"),
        (Self::Thread, "thread"),
        (Self::Process, "process"),
    ];

    /// Returns whether lanes are split by thread.
    pub(crate) const fn is_of_threads(self) -> bool {
        matches!(self, Self::Thread | Self::Process)
    }
}

/// Order of the lanes in a group, and of the groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneSort {
    /// As in the session.
    #[default]
    Session,
    /// Most samples first.
    Count,
    /// Largest value first; lanes without values are last.
    Largest,
    /// By name.
    Name,
}

impl LaneSort {
    /// All orders.
    pub const ALL: [Self; 4] = [Self::Session, Self::Count, Self::Largest, Self::Name];
}

/// Axis of the values of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    /// Logarithmic if the values in view differ by a large factor.
    #[default]
    Automatic,
    /// Heights proportional to the difference from the least value.
    Linear,
    /// Heights proportional to the logarithm of one more than that difference.
    Logarithmic,
}

impl Axis {
    /// All axes.
    pub const ALL: [Self; 3] = [Self::Automatic, Self::Linear, Self::Logarithmic];
}
