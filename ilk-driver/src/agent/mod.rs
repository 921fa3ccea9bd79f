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
mod events;
mod filter;
mod kernel;
mod modules;
mod outbox;
mod parking;
mod privileges;
mod retire;
mod rhythm;
mod rings;
mod served;
mod session;
mod socket;
mod stream;
mod sys;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::protocol::{self, Decoder, Incoming, Opening, Request};
use crate::{Error, Result};
use parking::{ALONE, Parking};
use served::Served;
use stream::{Read1, Stream};

/// Where the agent listens on a machine of one's own.
pub const SOCKET: &str = "/run/ilk.sock";

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
            privileges::drop_all_but_needed(options.allow_run).map_err(Error::io(
                path,
                "The agent could not drop its privileges; run it as root",
            ))?;
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
            serve_stream(&stream, options.allow_run, &Arc::default(), true)
                .map_err(Error::io(path, "The port broke; start the agent again"))
        }
        Listen::Socket(path) => socket::serve(path, options.allow_run),
    }
}

/// Serves whoever is at the other end: until nobody is, or for ever where somebody may come again.
fn serve_stream(
    stream: &Arc<Stream>,
    allow_run: bool,
    parking: &Arc<Parking>,
    come_again: bool,
) -> std::io::Result<()> {
    let mut served: Option<Served> = None;
    let result = serve_clients(stream, allow_run, parking, come_again, &mut served);
    parking.park(served);
    result
}

fn serve_clients(
    stream: &Arc<Stream>,
    allow_run: bool,
    parking: &Arc<Parking>,
    come_again: bool,
    served: &mut Option<Served>,
) -> std::io::Result<()> {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 256 << 10];
    let mut alone: Option<Instant> = None;
    loop {
        let count = match stream.read(&mut buffer)? {
            Read1::Bytes(count) => count,
            Read1::Nobody if !come_again => return Ok(()),
            Read1::Nobody => {
                if alone.get_or_insert_with(Instant::now).elapsed() > ALONE {
                    parking.park(served.take());
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
                    // The last client's splices come out before the next is answered, unless it is to
                    // be waited for.
                    parking.park(served.take());
                    stream.share(None);
                    *served = Some(Served::open(Arc::clone(stream), opening, allow_run)?);
                }
                Ok(Some(Incoming::Message(request))) => {
                    *served = match served.take() {
                        Some(client) => answer(client, request, stream, parking)?,
                        None => None,
                    };
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

/// Does what was asked; `None` if the client is gone.
fn answer(
    mut client: Served,
    request: Request,
    stream: &Arc<Stream>,
    parking: &Arc<Parking>,
) -> std::io::Result<Option<Served>> {
    match request {
        Request::Resume { token, taken } => parking.resume(client, stream, token, taken).map(Some),
        Request::Share(number) => Ok(client.share(stream, number).is_ok().then_some(client)),
        Request::Ping(_) | Request::Flood(_) => Ok(client.serve(request).is_ok().then_some(client)),
        _ => {
            if let Some(refusal) = parking.occupied() {
                client.refuse(refusal);
                return Ok(Some(client));
            }
            Ok(client.serve(request).is_ok().then_some(client))
        }
    }
}
