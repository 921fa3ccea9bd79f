//! `ilk process --supervise` and `--clean`: what killed clients have left is removed.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use anyhow::ensure;
use gilk_samples::chart::scale;
use ilk_driver::process::{Cleaned, Client, clean_leftovers};

/// Waits for the end of a client, and removes what it leaves.
pub(crate) fn supervise(client: Client) -> anyhow::Result<ExitCode> {
    let cleaned = ilk_driver::process::supervise(client)?;
    if !cleaned.processes.is_empty() || !cleaned.failed.is_empty() {
        // The terminal of the client may be gone.
        let _gone = writeln!(
            std::io::stderr(),
            "The program that instrumented processes was killed.\n{}",
            text(&cleaned).trim_end()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes what killed clients have left, and prints it.
pub(crate) fn clean(pid: Option<u32>) -> anyhow::Result<ExitCode> {
    let cleaned = clean_leftovers(pid)?;
    let lines = text(&cleaned);
    match (cleaned.processes.as_slice(), pid) {
        ([], None) if cleaned.failed.is_empty() => {
            writeln!(
                std::io::stdout(),
                "Nothing of a killed ilk is left in a process that you may trace."
            )?;
        }
        ([], Some(pid)) if cleaned.failed.is_empty() => {
            writeln!(
                std::io::stdout(),
                "Nothing of a killed ilk is left in process {pid}."
            )?;
        }
        _ => write!(std::io::stdout(), "{lines}")?,
    }
    ensure!(
        cleaned.failed.is_empty(),
        "Not all processes could be cleaned; try again."
    );
    Ok(ExitCode::SUCCESS)
}

/// Describes a removal, a line each.
pub(crate) fn text(cleaned: &Cleaned) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    for pid in &cleaned.processes {
        let _infallible = writeln!(out, "Every splice is removed from process {pid}.");
    }
    for why in &cleaned.remains {
        let _infallible = writeln!(
            out,
            "The patches remain there, unused: {why}. `ilk process --clean` removes them later."
        );
    }
    if cleaned.overwritten > 0 {
        let _infallible = writeln!(
            out,
            "Overwritten by another tool before: {}.",
            scale::counted(cleaned.overwritten as u64, "splice")
        );
    }
    for why in &cleaned.failed {
        let _infallible = writeln!(out, "{why}");
    }
    out
}
