//! Addresses of agents in the user's notation.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::agent::SOCKET;

/// The notation for this machine as a target.
const HERE: &str = "here";

/// The address of an agent: `root@web1`, a socket's path, or `here`, with an optional name as in
/// `web1=/run/a.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    /// Its name in recordings, if that is not the machine's own.
    pub name: Option<String>,
    /// The way to reach its agent.
    pub route: Route,
}

/// A route to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A unix socket.
    Socket(PathBuf),
    /// A host for ssh.
    Ssh(String),
}

impl FromStr for TargetAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = match text.split_once('=') {
            Some((name, address)) => (Some(name.trim().to_owned()), address.trim()),
            None => (None, text.trim()),
        };
        // A recording's file name contains this name.
        let bad = |name: &String| name.is_empty() || name.contains('/') || name.starts_with('.');
        if address.is_empty() || name.as_ref().is_some_and(bad) {
            return Err(format!(
                "{text:?} is not a machine; write user@machine, a socket's path, {HERE}, or NAME=one of these"
            ));
        }
        let route = if address == HERE {
            Route::Socket(PathBuf::from(SOCKET))
        } else if address.contains('/') {
            Route::Socket(PathBuf::from(address))
        } else {
            Route::Ssh(address.to_owned())
        };
        Ok(Self { name, route })
    }
}

impl TargetAddress {
    /// Parses a list separated by commas.
    ///
    /// # Errors
    /// A sentence on the first invalid address.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(str::parse).collect()
    }

    /// Returns the name to display before the machine has reported its own.
    #[must_use]
    pub fn display_name(&self) -> String {
        match (&self.name, &self.route) {
            (Some(name), _) => name.clone(),
            (None, Route::Ssh(host)) => host.clone(),
            (None, Route::Socket(path)) if path == Path::new(SOCKET) => HERE.to_owned(),
            (None, Route::Socket(path)) => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_or_refused() {
        let address = |name: Option<&str>, route| TargetAddress {
            name: name.map(str::to_owned),
            route,
        };
        let socket = Route::Socket(PathBuf::from("/run/x.sock"));
        assert_eq!("/run/x.sock".parse(), Ok(address(None, socket.clone())));
        assert_eq!("a=/run/x.sock".parse(), Ok(address(Some("a"), socket)));
        let host = || Route::Ssh("root@web1".to_owned());
        assert_eq!("root@web1".parse(), Ok(address(None, host())));
        assert_eq!("b = root@web1".parse(), Ok(address(Some("b"), host())));
        let local: TargetAddress = "here".parse().unwrap();
        assert_eq!(local, address(None, Route::Socket(PathBuf::from(SOCKET))));
        assert_eq!(local.display_name(), "here");
        for wrong in ["", "=web1", "a=", "a/b=web1", "..=web1"] {
            assert!(wrong.parse::<TargetAddress>().is_err(), "{wrong}");
        }
        let all = TargetAddress::parse_list("a=/run/x.sock, root@web1").unwrap();
        let names: Vec<String> = all.iter().map(TargetAddress::display_name).collect();
        assert_eq!(names, ["a", "root@web1"]);
        assert!(TargetAddress::parse_list("a=/run/x.sock,").is_err());
    }
}
