//! The supervisor of `ilk process`: a process that removes what its client leaves when it is killed.

use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, anyhow, ensure};
use ilk_driver::process::{Cleaned, Client, clean_after, clean_leftovers, end_stopped};

/// A running supervisor. It removes everything once this process ends, however it does, unless it is dismissed.
///
/// It reads lines: of a started program, which it ends with this process until it is released; and of its dismissal.
pub(crate) struct Supervisor {
    child: Child,
}

/// Lines to the supervisor.
const RELEASED: &str = "released";
const DISMISSED: &str = "dismissed";

impl Supervisor {
    /// Starts the supervisor of this process.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let Client { pid, started } = Client::current()?;
        let program = std::env::current_exe().context("The path of ilk is not known.")?;
        let mut command = Command::new(program);
        command
            .args(["process", "--supervise", &format!("{pid}:{started}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A Ctrl-C of the terminal is the client's.
            .process_group(0);
        let child = command.spawn();
        let child = child.context("The supervisor, ilk process --supervise, does not start.")?;
        Ok(Self { child })
    }

    /// Gives it a started program, which is stopped: it ends it if this process ends.
    pub(crate) fn guard(&mut self, program: Client) -> std::io::Result<()> {
        let Client { pid, started } = program;
        self.line(&format!("{pid}:{started}"))
    }

    /// Takes the started program from it.
    pub(crate) fn released(&mut self) -> std::io::Result<()> {
        self.line(RELEASED)
    }

    fn line(&mut self, line: &str) -> std::io::Result<()> {
        match &mut self.child.stdin {
            Some(input) => writeln!(input, "{line}"),
            None => Ok(()),
        }
    }

    /// Ends it: nothing is left to remove.
    pub(crate) fn dismiss(mut self) -> anyhow::Result<()> {
        // It may have been killed.
        let _killed = self.line(DISMISSED);
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

/// Reads a client: `PID:START`.
pub(crate) fn client(text: &str) -> Result<Client, String> {
    let parts = text.split_once(':');
    let client = parts.and_then(|(pid, started)| {
        let (pid, started) = (pid.parse().ok()?, started.parse().ok()?);
        Some(Client { pid, started })
    });
    client.ok_or_else(|| format!("{text:?} is not PID:START"))
}

/// Waits for the end of a client, and removes what it leaves, a program that it has not released too.
pub(crate) fn supervise(client: Client) -> anyhow::Result<ExitCode> {
    let mut program = None;
    for line in std::io::stdin().lines() {
        match line?.as_str() {
            RELEASED => program = None,
            DISMISSED => return Ok(ExitCode::SUCCESS),
            started => program = Some(self::client(started).map_err(|why| anyhow!(why))?),
        }
    }
    if let Some(program) = program {
        // It has executed nothing of its own, and nothing else would let it continue.
        end_stopped(program);
    }
    let cleaned = clean_after(client)?;
    if !cleaned.processes.is_empty() || !cleaned.failed.is_empty() {
        // The terminal of the client may be gone.
        let _gone = writeln!(
            std::io::stderr(),
            "ilk process was killed.\n{}",
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
            println!("Nothing of a killed ilk is left in a process that you may trace.");
        }
        ([], Some(pid)) if cleaned.failed.is_empty() => {
            println!("Nothing of a killed ilk is left in process {pid}.");
        }
        _ => print!("{lines}"),
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
            "{} splices had been overwritten by another tool.",
            cleaned.overwritten
        );
    }
    for why in &cleaned.failed {
        let _infallible = writeln!(out, "{why}");
    }
    out
}
