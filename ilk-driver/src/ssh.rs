//! A tunnel to an agent on another machine: its socket, forwarded by the system's ssh.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Limit on the time that ssh takes to connect.
const PATIENCE: Duration = Duration::from_secs(30);

/// A forwarded socket. Dropping it ends ssh and removes the socket.
#[derive(Debug)]
pub struct Tunnel {
    ssh: Child,
    folder: PathBuf,
}

impl Tunnel {
    /// Starts `ssh` to forward the agent's socket on `host`, with the user's own ssh keys and
    /// configuration. `go_on` is polled while waiting.
    ///
    /// # Errors
    /// [`Error::Ssh`] with ssh's output if ssh cannot be started, ends, or takes too long.
    pub fn open(host: &str, go_on: &dyn Fn() -> bool) -> Result<Self> {
        let failed = |reason: String| Error::Ssh {
            host: host.to_owned(),
            reason,
        };
        if host.is_empty() || host.starts_with('-') {
            return Err(failed(
                "the host name is empty or begins with '-'; write it as user@machine".to_owned(),
            ));
        }
        let base =
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let folder = base.join(format!("gilk-ssh-{}", std::process::id()));
        let folder = (0..1000u32)
            .map(|number| folder.with_extension(number.to_string()))
            .find(|folder| private(folder).is_ok())
            .ok_or_else(|| failed(format!("no folder could be created in {}", base.display())))?;
        let socket = folder.join("ilk.sock");
        let forward = format!("{}:{}", socket.display(), crate::agent::SOCKET);
        let ssh = Command::new("ssh")
            .args([
                "-N",
                "-T",
                "-o",
                "BatchMode=yes",
                "-o",
                "ExitOnForwardFailure=yes",
            ])
            .args(["-o", "ServerAliveInterval=5", "-L", &forward, "--", host])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("ssh could not be started: {error}")))?;
        let mut tunnel = Self { ssh, folder };
        let began = Instant::now();
        while !socket.exists() {
            if let Ok(Some(_)) = tunnel.ssh.try_wait() {
                let mut output = String::new();
                if let Some(mut stderr) = tunnel.ssh.stderr.take() {
                    let _partial = stderr.read_to_string(&mut output);
                }
                let output = output.trim();
                return Err(failed(if output.is_empty() {
                    "ssh ended at once".to_owned()
                } else {
                    format!("ssh reports: {output}")
                }));
            }
            if began.elapsed() > PATIENCE || !go_on() {
                return Err(failed("ssh did not connect in half a minute".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(tunnel)
    }

    /// The socket on this machine.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("ilk.sock")
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ended = self.ssh.kill();
        let _waited = self.ssh.wait();
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

/// Creates a folder that is accessible to this user only.
fn private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}
