//! The supervisor of a client: a process that removes what the client leaves in other processes when it is killed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

use super::launched::end_stopped;
use super::record::Client;
use super::removal::{Cleaned, clean_after};
use crate::{Error, Result, programs};

/// Lines to the supervisor.
const RELEASED: &str = "released";
const DISMISSED: &str = "dismissed";

/// A running supervisor. It removes everything once this process ends, however it does, unless it is dismissed.
///
/// It reads lines: of a started program, which it ends with this process until it is released; and of its dismissal.
#[derive(Debug)]
pub struct Supervisor {
    child: Child,
}

impl Supervisor {
    /// Starts the supervisor of this process: `ilk process --supervise`.
    ///
    /// # Errors
    /// [`Error::Io`] if `ilk` is not found, or does not start.
    pub fn start() -> Result<Self> {
        let Client { pid, started } = Client::current()?;
        let program = programs::ilk()?;
        let mut command = Command::new(&program);
        command
            .args(["process", "--supervise", &format!("{pid}:{started}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A Ctrl-C of the terminal is the client's.
            .process_group(0);
        let child = command.spawn().map_err(Error::io(
            program,
            "It removes the instruments if this program is killed; build it, or install both",
        ))?;
        Ok(Self { child })
    }

    /// Gives it a started program, which is stopped: it ends it if this process ends.
    ///
    /// # Errors
    /// It has ended.
    pub fn guard(&mut self, program: Client) -> std::io::Result<()> {
        let Client { pid, started } = program;
        self.line(&format!("{pid}:{started}"))
    }

    /// Takes the started program from it.
    ///
    /// # Errors
    /// [`Error::Io`] if it has ended.
    pub fn released(&mut self) -> Result<()> {
        let line = self.line(RELEASED);
        line.map_err(Error::io("ilk process --supervise", "It has ended"))
    }

    fn line(&mut self, line: &str) -> std::io::Result<()> {
        match &mut self.child.stdin {
            Some(input) => writeln!(input, "{line}"),
            None => Ok(()),
        }
    }

    /// Ends it: nothing is left to remove.
    pub fn dismiss(&mut self) {
        // It may have been killed.
        let _killed = self.line(DISMISSED);
        drop(self.child.stdin.take());
        let _killed = self.child.wait();
    }
}

impl FromStr for Client {
    type Err = String;

    /// Reads `PID:START`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let parts = text.split_once(':');
        let client = parts.and_then(|(pid, started)| {
            let (pid, started) = (pid.parse().ok()?, started.parse().ok()?);
            Some(Self { pid, started })
        });
        client.ok_or_else(|| format!("{text:?} is not PID:START"))
    }
}

/// Waits for the end of a client, which writes to the standard input, and removes what it leaves: a program, too, that it
/// has not released. A client that has dismissed its supervisor leaves nothing.
///
/// # Errors
/// [`Error::Protocol`] if the client writes another line than a [`Supervisor`] does; as [`clean_leftovers`](super::clean_leftovers).
pub fn supervise(client: Client) -> Result<Cleaned> {
    let mut program = None;
    for line in std::io::stdin().lines() {
        let line = line.map_err(Error::io("stdin", "It is the pipe from the client"))?;
        match line.as_str() {
            RELEASED => program = None,
            DISMISSED => return Ok(Cleaned::default()),
            started => {
                let started = started.parse();
                program = Some(started.map_err(|what| Error::Protocol { what })?);
            }
        }
    }
    if let Some(program) = program {
        // It has executed nothing of its own, and nothing else would let it continue.
        end_stopped(program);
    }
    clean_after(client)
}
