//! Output that may be longer than the screen.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

/// Prints `text` through a pager (`$PAGER`, otherwise `less`) if standard output is a terminal, and
/// directly otherwise.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if !out.is_terminal() || page(text).is_err() {
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

fn page(text: &str) -> std::io::Result<()> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    let mut words = pager.split_whitespace();
    let name = words.next().ok_or(std::io::ErrorKind::NotFound)?;
    let options = std::env::var("LESS");
    let mut child = Command::new(name)
        .args(words)
        // less: exit if the text fits the screen; scroll long lines sideways instead of wrapping.
        .env("LESS", options.unwrap_or_else(|_| "-FRSX".to_owned()))
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut to) = child.stdin.take() {
        // The user may quit the pager before the end.
        let _broken_pipe = to.write_all(text.as_bytes());
    }
    child.wait()?;
    Ok(())
}
