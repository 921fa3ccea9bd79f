//! Where an agent is, as a person says it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::agent::SOCKET;

/// What this machine is called as a target.
const HERE: &str = "here";

/// Where an agent is: `root@web1`, a socket's path, or `here`; and a name may stand before it, as in
/// `web1=/run/a.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name in recordings, where that is not the machine's own.
    pub name: Option<String>,
    /// How to come there.
    pub way: Way,
}

/// How to come to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a unix socket.
    Socket(PathBuf),
    /// Over ssh.
    Ssh(String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, place) = match text.split_once('=') {
            Some((name, place)) => (Some(name.trim().to_owned()), place.trim()),
            None => (None, text.trim()),
        };
        // A recording is a file of this name.
        let bad = |name: &String| name.is_empty() || name.contains('/') || name.starts_with('.');
        if place.is_empty() || name.as_ref().is_some_and(bad) {
            return Err(format!(
                "{text:?} is no machine; write user@machine, a socket's path, {HERE}, or NAME=one of these"
            ));
        }
        let way = if place == HERE {
            Way::Socket(PathBuf::from(SOCKET))
        } else if place.contains('/') {
            Way::Socket(PathBuf::from(place))
        } else {
            Way::Ssh(place.to_owned())
        };
        Ok(Self { name, way })
    }
}

impl Place {
    /// Several, with commas between.
    ///
    /// # Errors
    /// A sentence on the first that is none.
    pub fn several(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(str::parse).collect()
    }

    /// What it is called until it has told its name.
    #[must_use]
    pub fn called(&self) -> String {
        match (&self.name, &self.way) {
            (Some(name), _) => name.clone(),
            (None, Way::Ssh(host)) => host.clone(),
            (None, Way::Socket(path)) if path == Path::new(SOCKET) => HERE.to_owned(),
            (None, Way::Socket(path)) => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_read_or_refused() {
        let place = |name: Option<&str>, way| Place {
            name: name.map(str::to_owned),
            way,
        };
        let socket = Way::Socket(PathBuf::from("/run/x.sock"));
        assert_eq!("/run/x.sock".parse(), Ok(place(None, socket.clone())));
        assert_eq!("a=/run/x.sock".parse(), Ok(place(Some("a"), socket)));
        let host = || Way::Ssh("root@web1".to_owned());
        assert_eq!("root@web1".parse(), Ok(place(None, host())));
        assert_eq!("b = root@web1".parse(), Ok(place(Some("b"), host())));
        let here: Place = "here".parse().unwrap();
        assert_eq!(here, place(None, Way::Socket(PathBuf::from(SOCKET))));
        assert_eq!(here.called(), "here");
        for wrong in ["", "=web1", "a=", "a/b=web1", "..=web1"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
        let all = Place::several("a=/run/x.sock, root@web1").unwrap();
        let called: Vec<String> = all.iter().map(Place::called).collect();
        assert_eq!(called, ["a", "root@web1"]);
        assert!(Place::several("a=/run/x.sock,").is_err());
    }
}
