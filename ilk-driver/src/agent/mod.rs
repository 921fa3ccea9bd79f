//! `ilk agent`: the only privileged program. Serves one client at a time and keeps a session's
//! clock where the target is.
//!
//! stream (socket or port) → served (requests) → session (clockwork and drain) → device (`/dev/ilk`);
//! everything for the client goes through the outbox.

pub mod abi;
mod clock;
mod clockwork;
mod counters;
mod device;
mod drain;
mod kernel;
mod modules;
mod outbox;
mod rings;
mod served;
mod session;
mod socket;
mod stream;
mod sys;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{self, Decoder, Incoming, Opening, Request};
use crate::{Error, Result};
use served::Served;
use stream::{Read1, Stream};

/// Where the agent listens on a machine of one's own.
pub const SOCKET: &str = "/run/ilk.sock";

/// How long nobody must be at a port before its client counts as gone. The news that a client has
/// come travels beside the data, and may arrive after the client's first words.
const GRACE: Duration = Duration::from_millis(200);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A virtio port's device.
    Port(PathBuf),
    /// A unix socket, to be made.
    Socket(PathBuf),
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub listen: Listen,
    /// Whether a session's workload is run. Whoever may connect may then run programs as root.
    pub allow_run: bool,
}

/// Serves clients, one after the other, for ever.
///
/// # Errors
/// [`Error::Io`] if the port or the socket cannot be had or breaks.
pub fn serve(options: &Options) -> Result<()> {
    match &options.listen {
        Listen::Port(path) => {
            let stream = Arc::new(Stream::port(path)?);
            // Tells a client of the agent before this one that its session is over. If nobody is there,
            // or nobody listens, nothing is lost.
            let _told = std::io::Write::write(
                &mut &stream.file,
                &Opening {
                    version: protocol::VERSION,
                    nonce: 0,
                }
                .to_bytes(),
            );
            serve_stream(&stream, options.allow_run, Some(GRACE))
                .map_err(Error::io(path, "The port broke; start the agent again"))
        }
        Listen::Socket(path) => socket::serve(path, options.allow_run),
    }
}

/// Serves whoever is at the other end: until nobody is, or for ever where somebody may come after
/// `grace`.
fn serve_stream(
    stream: &Arc<Stream>,
    allow_run: bool,
    grace: Option<Duration>,
) -> std::io::Result<()> {
    let mut decoder = Decoder::new();
    let mut served: Option<Served> = None;
    let mut buffer = vec![0; 256 << 10];
    let mut alone: Option<Instant> = None;
    loop {
        let count = match (stream.read(&mut buffer)?, grace) {
            (Read1::Bytes(count), _) => count,
            (Read1::Nobody, None) => return Ok(()),
            (Read1::Nobody, Some(grace)) => {
                if alone.get_or_insert_with(Instant::now).elapsed() > grace {
                    served = None;
                }
                Stream::pause();
                continue;
            }
        };
        alone = None;
        decoder.push(buffer.get(..count).unwrap_or_default());
        loop {
            match decoder.take::<Request>() {
                Ok(None) => break,
                Ok(Some(Incoming::Opening(opening))) => {
                    // The last client's splices come out before the next is answered.
                    drop(served.take());
                    served = Some(Served::open(Arc::clone(stream), opening, allow_run)?);
                }
                Ok(Some(Incoming::Message(request))) => {
                    if let Some(client) = &mut served
                        && client.serve(request).is_err()
                    {
                        served = None;
                    }
                }
                Err(error) => {
                    if let Some(client) = &served {
                        client.complain(&error);
                    }
                    break;
                }
            }
        }
    }
}
