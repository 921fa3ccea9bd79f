//! Progress: one changing line on a terminal, one line per step elsewhere.

use std::io::{IsTerminal, Write};

use ilk_driver::lab::Step;
use ilk_driver::note;

const BAR: usize = 24;

/// A line on standard error. Cleared when dropped.
pub(crate) struct Progress {
    live: bool,
    shown: bool,
    last: String,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            live: std::io::stderr().is_terminal(),
            shown: false,
            last: String::new(),
        }
    }

    /// Shows a finished share (0 to 1) and the current activity.
    pub(crate) fn share(&mut self, share: f32, what: &str) {
        if !self.live {
            return;
        }
        let full = (share.clamp(0.0, 1.0) * BAR as f32) as usize;
        self.draw(&format!(
            "[{}{}] {what}",
            "█".repeat(full),
            " ".repeat(BAR - full)
        ));
    }

    /// Shows a step of the lab.
    pub(crate) fn step(&mut self, step: &Step) {
        if self.live {
            self.share(step.overall(), &format!("{}: {}", step.name, step.detail));
        } else if step.fraction == Some(1.0) && self.last != step.name {
            step.name.clone_into(&mut self.last);
            note!("{}: {}", step.name, step.detail);
        }
    }

    /// Replaces the last line; does nothing without a terminal.
    pub(crate) fn draw(&mut self, line: &str) {
        if !self.live {
            return;
        }
        let width = columns().saturating_sub(1);
        let cut: String = line.chars().take(width).collect();
        self.shown = true;
        // A closed terminal must not stop the command.
        let _closed = write!(std::io::stderr(), "\r\x1b[2K{cut}");
    }

    /// Prints a permanent line.
    pub(crate) fn print(&mut self, line: &str) {
        self.clear();
        note!("{line}");
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _closed = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the width of the terminal according to the shell, otherwise 100.
pub(crate) fn columns() -> usize {
    std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok())
        .unwrap_or(100)
}
