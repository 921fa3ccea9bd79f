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
    let has_unit = ["/usr/lib", "/lib", "/etc"]
        .iter()
        .any(|folder| machine.exists(&format!("{folder}/systemd/system/ilk.socket")));
    let (start, share) = if has_unit {
        (
            "sudo systemctl start ilk.socket",
            "sudo usermod -aG ilk $USER                           # then log in again",
        )
    } else {
        (
            "sudo ilk agent",
            "sudo ilk …                                            # as root",
        )
    };
    Some(match UnixStream::connect(&socket) {
        Ok(_) => Judgement::fine(format!("listens at {shown}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Judgement::fault(format!("no agent listens at {shown}"), &[start])
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Judgement::fault(
            format!(
                "{shown} does not let this user connect: access is root's, that of the user who started it, and that of its group"
            ),
            &[share, start],
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
