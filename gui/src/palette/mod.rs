//! The palette: a searchable list of commands, of locations in the kernel, or of callers and callees.
//!
//! `view` draws it.

pub(crate) mod view;

/// State of the open palette.
#[derive(Clone, Debug)]
pub struct CommandPalette {
    pub(crate) kind: PaletteKind,
    pub(crate) text: String,
    pub(crate) row: usize,
}

/// Contents of the palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaletteKind {
    Commands,
    Places,
    References,
}

impl CommandPalette {
    /// Creates a palette of commands.
    #[must_use]
    pub const fn commands() -> Self {
        Self::of(PaletteKind::Commands)
    }

    /// Creates a palette of locations in the kernel.
    #[must_use]
    pub const fn places() -> Self {
        Self::of(PaletteKind::Places)
    }

    /// Creates a palette of the open function's callers and callees.
    #[must_use]
    pub const fn references() -> Self {
        Self::of(PaletteKind::References)
    }

    const fn of(kind: PaletteKind) -> Self {
        Self {
            kind,
            text: String::new(),
            row: 0,
        }
    }
}
