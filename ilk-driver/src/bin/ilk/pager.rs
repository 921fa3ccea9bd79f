//! Text that may be longer than the screen.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

/// Prints `text`: by a pager (`$PAGER`, else `less`) if standard output is a terminal, and as it is
/// otherwise.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if !out.is_terminal() || paged(text).is_err() {
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

fn paged(text: &str) -> std::io::Result<()> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    let mut words = pager.split_whitespace();
    let name = words.next().ok_or(std::io::ErrorKind::NotFound)?;
    let options = std::env::var("LESS");
    let mut child = Command::new(name)
        .args(words)
        // Of less: what fits the screen is only printed; long lines are moved sideways, not broken.
        .env("LESS", options.unwrap_or_else(|_| "-FRSX".to_owned()))
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut to) = child.stdin.take() {
        // Whoever leaves the pager has read enough.
        let _ = to.write_all(text.as_bytes());
    }
    child.wait()?;
    Ok(())
}
