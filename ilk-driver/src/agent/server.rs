//! The loop that serves the clients of one stream.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::board::Board;
use super::connection::ClientConnection;
use super::image::KernelCache;
use super::parking::{DISCONNECT_DELAY, Parking};
use super::stream::{Received, Stream};
use super::sys::Peer;
use super::trust::Trust;
use crate::protocol::{Decoder, Incoming, Message, Refusal, RefusalKind, Request, Status, encode};

/// Parts of an agent that all connections share.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) trust: Trust,
    pub(super) parking: Arc<Parking>,
    pub(super) kernel: Arc<KernelCache>,
    pub(super) board: Arc<Board>,
}

impl Common {
    pub(super) fn new(trust: Trust) -> Self {
        Self {
            trust,
            parking: Arc::default(),
            kernel: Arc::default(),
            board: Arc::default(),
        }
    }
}

/// Serves the clients of a stream: the single `peer` of a socket, or forever those of a port, which
/// reconnects to others.
pub(super) fn serve_stream(
    stream: &Arc<Stream>,
    common: &Common,
    peer: Option<Peer>,
) -> std::io::Result<()> {
    let mut connection: Option<ClientConnection> = None;
    let result = serve_clients(stream, common, peer, &mut connection);
    common.parking.park(connection);
    result
}

fn serve_clients(
    stream: &Arc<Stream>,
    common: &Common,
    peer: Option<Peer>,
    connection: &mut Option<ClientConnection>,
) -> std::io::Result<()> {
    let parking = &common.parking;
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 256 << 10];
    let mut disconnected: Option<Instant> = None;
    loop {
        let count = match stream.read(&mut buffer)? {
            Received::Bytes(count) => count,
            Received::Disconnected if peer.is_some() => return Ok(()),
            Received::Disconnected => {
                let since = disconnected.get_or_insert_with(Instant::now);
                if since.elapsed() > DISCONNECT_DELAY {
                    parking.park(connection.take());
                    common.board.release();
                }
                Stream::pause();
                continue;
            }
        };
        disconnected = None;
        // read(2) returns at most the buffer's length.
        debug_assert!(count <= buffer.len());
        decoder.push(buffer.get(..count).unwrap_or(&buffer));
        loop {
            match decoder.take::<Request>() {
                Ok(None) => break,
                Ok(Some(Incoming::Opening(opening))) => {
                    // The previous client's splices are removed before the next client is
                    // answered, unless its session is parked.
                    parking.park(connection.take());
                    if peer.is_none() {
                        common.board.hold(None);
                    }
                    stream.share(None);
                    *connection = Some(ClientConnection::open(
                        Arc::clone(stream),
                        opening,
                        common.trust,
                        (Arc::clone(&common.kernel), Arc::clone(&common.board)),
                        peer,
                    )?);
                }
                Ok(Some(Incoming::Message(request))) => {
                    *connection = match connection.take() {
                        Some(client) => answered(client, request, stream, common)?,
                        None => None,
                    };
                }
                Err(error) => {
                    if let Some(client) = &connection {
                        client.complain(&error);
                    }
                    break;
                }
            }
        }
    }
}

/// Carries out a request, and reports a panic to the client: dropping its connection has removed its
/// splices.
fn answered(
    client: ClientConnection,
    request: Request,
    stream: &Arc<Stream>,
    common: &Common,
) -> std::io::Result<Option<ClientConnection>> {
    let work = AssertUnwindSafe(|| answer(client, request, stream, common));
    catch_unwind(work).unwrap_or_else(|_| {
        let refusal = Refusal::new(
            RefusalKind::Request,
            "The agent's client thread ended by a bug in gilk; every splice was removed. The agent's \
             output says where.",
        );
        let report = encode(&Message::Refused(refusal)).map_err(std::io::Error::other)?;
        // A client that does not read loses only the report.
        let _best_effort = stream.write(&report);
        Err(std::io::Error::other("its thread panicked"))
    })
}

/// Carries out a request; returns `None` if the client is gone.
fn answer(
    mut client: ClientConnection,
    request: Request,
    stream: &Arc<Stream>,
    common: &Common,
) -> std::io::Result<Option<ClientConnection>> {
    let parking = &common.parking;
    match request {
        Request::Status => {
            let status = common.board.status(parking.remaining());
            client.reply(&Message::Status(Status {
                holder: None,
                ..status
            }));
            Ok(Some(client))
        }
        Request::End => {
            match parking.end(client.peer()) {
                Ok(()) => client.reply(&Message::Accepted),
                Err(refusal) => client.refuse(refusal),
            }
            Ok(Some(client))
        }
        Request::Resume { token, confirmed } => {
            parking.resume(client, stream, token, confirmed).map(Some)
        }
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
