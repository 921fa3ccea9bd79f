//! How far something is: one line that changes on a terminal, one line a step elsewhere.

use std::io::{IsTerminal, Write};

use ilk_driver::lab::Step;

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

    /// A share (0 to 1) of something, and what is being done.
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

    /// A step of the lab.
    pub(crate) fn step(&mut self, step: &Step) {
        if self.live {
            self.share(step.overall(), &format!("{}: {}", step.name, step.detail));
        } else if step.fraction == Some(1.0) && self.last != step.name {
            step.name.clone_into(&mut self.last);
            eprintln!("{}: {}", step.name, step.detail);
        }
    }

    /// A line that replaces the last one; nothing where there is no terminal.
    pub(crate) fn draw(&mut self, line: &str) {
        if !self.live {
            return;
        }
        let width = columns().saturating_sub(1);
        let cut: String = line.chars().take(width).collect();
        self.shown = true;
        // A terminal that has gone away is no reason to stop.
        let _ = write!(std::io::stderr(), "\r\x1b[2K{cut}");
    }

    /// A line that stays.
    pub(crate) fn say(&mut self, line: &str) {
        self.clear();
        eprintln!("{line}");
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Characters in a line of the terminal, as the shell says, else 100.
pub(crate) fn columns() -> usize {
    std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok())
        .unwrap_or(100)
}
