//! The state of an agent, also of one that serves another client, and the end of its parked session.

use std::path::Path;
use std::time::Duration;

use super::lock::Lock;
use super::wire::{PATIENCE, Wire, unexpected};
use crate::protocol::{Message, Request, Status};
use crate::{Error, Result};

/// Time limit for an agent to show its state.
const LOOK: Duration = Duration::from_secs(3);

/// Returns the state of the agent at a socket. Another client may be served there: a lab has a port for those that look.
///
/// # Errors
/// [`Error::NoAgent`], [`Error::Busy`] if a client is served at the only port, [`Error::Silent`],
/// [`Error::Version`], and [`Error::Refused`] if the agent does not serve this user.
pub fn status(socket: &Path) -> Result<Status> {
    let socket = std::fs::canonicalize(socket).unwrap_or_else(|_| socket.to_owned());
    let is_held = Lock::take(&socket).is_err();
    let wire = match is_held {
        true => Wire::looking(&socket, LOOK),
        false => Wire::look(&socket, LOOK),
    };
    let looked = wire.and_then(|mut wire| {
        wire.send(&Request::Status)?;
        match wire.answer_within(LOOK, "at the handshake")? {
            Message::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    });
    match looked {
        // The holder of the lock is the client of the port.
        Err(silent @ Error::Silent { .. }) => Err(Lock::take(&socket).err().unwrap_or(silent)),
        looked => looked,
    }
}

/// Ends the session at a socket whose client was lost.
///
/// # Errors
/// As [`status`]; [`Error::Busy`] if a client is served; [`Error::Refused`] if there is no such
/// session, or it is another user's.
pub fn end(socket: &Path) -> Result<()> {
    let mut wire = Wire::open(socket, PATIENCE, false)?;
    wire.request(&Request::End, "while the session was ended")
}
