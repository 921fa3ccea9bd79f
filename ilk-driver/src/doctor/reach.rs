//! The agent, and whether this user reaches it.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use super::{Machine, Verdict};

/// The agent listens, and this user may connect.
pub(super) fn agent(machine: &Machine) -> Option<Verdict> {
    let socket = machine.socket();
    // A socket of files that another machine's owner sent has no listener.
    if !machine.is_this() {
        return None;
    }
    let shown = socket.display();
    let start = "sudo ilk agent";
    Some(match UnixStream::connect(&socket) {
        Ok(_) => Verdict::fine(format!("listens at {shown}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Verdict::fault(format!("no agent listens at {shown}"), &[start])
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Verdict::fault(
            format!(
                "{shown} does not let this user connect: access is root's and that of the user who started it"
            ),
            &[
                "sudo ilk …                                            # as root",
                start,
            ],
        ),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Verdict::fault(
            format!("{shown} is left over from an agent that has ended"),
            &[start],
        ),
        Err(error) => Verdict::fault(format!("{shown} cannot be connected to: {error}"), &[start]),
    })
}
