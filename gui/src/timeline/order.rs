//! Orders of the lanes.

/// Order of the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// One lane per instrument, in session order.
    #[default]
    Session,
    /// One lane per instrument, grouped by instrument.
    Instrument,
    /// Grouped by CPU, one lane per instrument that delivered samples there; then lanes without a
    /// CPU.
    Cpu,
    /// Grouped by thread, one lane per instrument that the thread hit; then lanes without a thread.
    Thread,
}

impl Stack {
    /// All orders, with their labels to the right of "lanes by".
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Session, "order"),
        (Self::Instrument, "instrument"),
        (Self::Cpu, "CPU"),
        (Self::Thread, "thread"),
    ];
}
