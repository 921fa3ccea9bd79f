//! The agent, and whether this user reaches it.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use super::{Judgement, Machine};

/// The agent listens, and this user may connect.
pub(super) fn agent(machine: &Machine) -> Option<Judgement> {
    let socket = machine.socket();
    // A socket of files that another machine's owner sent has no listener.
    if !machine.is_this() {
        return None;
    }
    let shown = socket.display();
    let start = "sudo ilk agent";
    Some(match UnixStream::connect(&socket) {
        Ok(_) => Judgement::fine(format!("listens at {shown}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Judgement::fault(format!("no agent listens at {shown}"), &[start])
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Judgement::fault(
            format!(
                "{shown} does not let this user connect: access is root's and that of the user who started it"
            ),
            &[
                "sudo ilk …                                            # as root",
                start,
            ],
        ),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Judgement::fault(
            format!("{shown} is left over from an agent that has ended"),
            &[start],
        ),
        Err(error) => {
            Judgement::fault(format!("{shown} cannot be connected to: {error}"), &[start])
        }
    })
}
