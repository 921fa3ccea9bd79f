//! The socket that a service manager passes to the agent that it activates (sd_listen_fds(3)).

use std::io;
use std::os::unix::net::UnixListener;

use super::sys;

/// Returns whether a service manager has passed sockets to this process.
pub(super) fn is_activated() -> bool {
    let variable = |name: &str| std::env::var(name).ok();
    is_for(variable, std::process::id())
}

/// Returns whether the variables name this process, and not one that it was started by.
fn is_for(variable: impl Fn(&str) -> Option<String>, process: u32) -> bool {
    let named = variable("LISTEN_PID").and_then(|text| text.parse().ok());
    named == Some(process) && variable("LISTEN_FDS").is_some()
}

/// Takes the only socket that was passed.
///
/// # Errors
/// If more sockets or none were passed, or if it is no unix socket that listens for streams.
pub(super) fn take() -> io::Result<UnixListener> {
    let count = std::env::var("LISTEN_FDS").unwrap_or_default();
    if count != "1" {
        return Err(io::Error::other(format!(
            "LISTEN_FDS is {count:?}: the agent serves exactly one socket"
        )));
    }
    sys::passed_listener()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_another_process_are_not_taken() {
        let with = |set: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            }
        };
        assert!(is_for(with(&[("LISTEN_PID", "7"), ("LISTEN_FDS", "1")]), 7));
        assert!(!is_for(
            with(&[("LISTEN_PID", "6"), ("LISTEN_FDS", "1")]),
            7
        ));
        assert!(!is_for(with(&[("LISTEN_PID", "7")]), 7));
        assert!(!is_for(with(&[("LISTEN_FDS", "1")]), 7));
    }
}
