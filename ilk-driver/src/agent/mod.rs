//! `ilk agent`: the only privileged program. It serves one client at a time and runs the session's
//! clock on the target; others may look at the kernel meanwhile.
//!
//! Layers: stream (socket or port) → connection (requests) → planning (on the image, which is kept
//! between clients) → session (scheduler and drain) → device (`/dev/ilk`); everything for the client
//! passes through the outbox.

pub mod abi;
mod access;
mod activation;
mod board;
mod clock;
mod connection;
mod counters;
mod device;
mod drain;
mod events;
mod filter;
mod image;
mod kernel;
mod look;
mod modules;
mod outbox;
mod parking;
mod planning;
mod privileges;
mod replaced;
mod retire;
mod rings;
mod scheduler;
mod server;
mod session;
mod signal;
mod socket;
mod stream;
mod sys;
mod ticker;
mod trust;
mod watch;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::protocol::{self, Opening, Started};
use crate::{Error, Result};
pub(crate) use clock::{StartMoment, begin_calibration};
use server::Common;
use stream::Stream;
pub use trust::Trust;

/// The agent's socket on a machine without a lab.
pub const SOCKET: &str = "/run/ilk.sock";
/// The endpoint at which the agent serves clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A virtio port's device.
    Port(PathBuf),
    /// A unix socket, created by the agent.
    Socket(PathBuf),
    /// The listening unix socket that a service manager has passed (sd_listen_fds(3)).
    Activated,
}

impl Listen {
    /// Returns [`Listen::Activated`] if a service manager has passed sockets to this process.
    #[must_use]
    pub fn activated() -> Option<Self> {
        activation::is_activated().then_some(Self::Activated)
    }
}

/// The agent's options.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The endpoint.
    pub listen: Listen,
    /// The permissions of clients.
    pub trust: Trust,
    /// The group whose users may connect to the socket too.
    pub group: Option<String>,
    /// Reads the kernel before the first client of a port is served, which spares its first session that.
    pub read_first: bool,
}

/// The first words of the agent's line about [`ServeOptions::read_first`].
pub(crate) const READ_FIRST: &str = "The kernel was read first: ";

/// Serves clients, one after another, forever.
///
/// # Errors
/// [`Error::Io`] if the port or the socket cannot be opened or breaks; [`Error::Target`] if the group
/// does not exist; [`Error::Processor`] if patches cannot execute here.
pub fn serve(options: &ServeOptions) -> Result<()> {
    crate::processor::check()?;
    match &options.listen {
        Listen::Port(path) => {
            let stream = Arc::new(Stream::port(path)?);
            let common = Common::new(options.trust);
            look::serve_port(&common).map_err(Error::io(
                path,
                "The port for clients that look cannot be served; start the agent again",
            ))?;
            privileges::drop_all_but_needed(options.trust.run).map_err(Error::io(
                path,
                "The agent could not drop its privileges; run it as root",
            ))?;
            if options.read_first {
                let outcome = match common.kernel.image() {
                    Ok(image) => {
                        let types = if image.types().is_some() { "" } else { "no " };
                        format!("{} functions, {types}types", image.functions().len())
                    }
                    Err(refusal) => refusal.text,
                };
                // Without a reader there is no snapshot to wait for.
                let _no_reader = writeln!(std::io::stdout(), "{READ_FIRST}{outcome}.");
            }
            // Informs a client of the previous agent that its session is over. Without a listening
            // client the write fails, which is harmless.
            let _no_client = std::io::Write::write(
                &mut &stream.file,
                &Opening {
                    version: protocol::VERSION,
                    nonce: 0,
                }
                .to_bytes(),
            );
            server::serve_stream(&stream, &common, None)
                .map_err(Error::io(path, "The port broke; start the agent again"))
        }
        Listen::Socket(path) => {
            let endpoint = socket::Endpoint::Create(path);
            socket::serve(&endpoint, options.trust, options.group.as_deref())
        }
        Listen::Activated => socket::serve(
            &socket::Endpoint::Activated,
            options.trust,
            options.group.as_deref(),
        ),
    }
}

/// Returns second 0 of a session that begins now, on this machine.
pub(crate) fn started() -> Started {
    StartMoment::now().started(tsc_hz())
}

/// Returns the kernel's monotonic clock, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let time = sys::time_of(libc::CLOCK_MONOTONIC);
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// Returns this machine's TSC ticks per second, which are measured once.
pub(crate) fn tsc_hz() -> u64 {
    static MEASURED: OnceLock<u64> = OnceLock::new();
    *MEASURED.get_or_init(|| clock::tsc_hz(0))
}
