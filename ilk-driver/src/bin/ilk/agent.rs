//! `ilk agent`: serves this machine's kernel to one client at a time.

use std::path::PathBuf;

use clap::Args;
use ilk_driver::agent::{Listen, SOCKET, ServeOptions, Trust, serve};
use ilk_driver::note;

/// Serve this machine's kernel (as root) to the window and to `ilk` elsewhere.
#[derive(Args)]
pub(crate) struct Agent {
    /// The device of a virtio port to serve, as in the lab.
    #[arg(long, value_name = "DEVICE", conflicts_with = "socket")]
    port: Option<PathBuf>,
    /// The unix socket to create and listen at, with access for root and the user that
    /// started the agent (by sudo, doas, run0 or pkexec). Not used if a service manager passes a socket.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Run the workload of a session. Every user that may connect can then run programs as root.
    #[arg(long)]
    allow_run: bool,
    /// Link native functions of sessions into the kernel. Nothing verifies them, so every user that
    /// may connect can then do anything to the kernel.
    #[arg(long)]
    allow_native: bool,
    /// Serve the users of this group too, for example ilk.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Permit reads of memory and splices in assembly on a kernel that the lists of functions were not compared with.
    #[arg(long)]
    unknown_kernel: bool,
    /// Read the kernel before the first client is served, and say so: for snapshots of the lab.
    #[arg(long, hide = true, requires = "port")]
    read_first: bool,
}

impl Agent {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let listen = match (self.port, Listen::activated()) {
            (Some(port), _) => Listen::Port(port),
            (None, Some(activated)) => {
                note!("Listening at the socket that the service manager has passed.");
                activated
            }
            (None, None) => {
                note!(
                    "Listening at {}; connect with `ilk … --socket {}`.",
                    self.socket.display(),
                    self.socket.display()
                );
                Listen::Socket(self.socket)
            }
        };
        Ok(serve(&ServeOptions {
            listen,
            trust: Trust {
                run: self.allow_run,
                native: self.allow_native,
                unknown_kernel: self.unknown_kernel,
            },
            group: self.group,
            read_first: self.read_first,
        })?)
    }
}
