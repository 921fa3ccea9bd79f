//! The users that the agent serves: root, the user that started it, and a group by choice.
//!
//! User and groups are those at the time of connect(2) (`SO_PEERCRED`). The number of the process is shown and decides
//! nothing, so no reference to the process is held (`SO_PEERPIDFD`).

use std::os::unix::net::UnixStream;

use super::sys::{self, Peer};
use crate::accounts;

/// The users that may connect besides root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// The user that started the agent through another one.
    pub(super) invoker: Option<u32>,
    /// A group by its number, with its name for messages.
    pub(super) group: Option<(u32, String)>,
}

impl Access {
    /// Determines the user by the variables of sudo, run0, pkexec and doas, and the group by name.
    ///
    /// # Errors
    /// A sentence if this machine has no such group.
    pub(super) fn new(group: Option<&str>) -> Result<Self, String> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let variable = |name: &str| std::env::var(name).ok();
        let group = match group {
            None => None,
            Some(name) => {
                let number = number_of(&read("/etc/group"), name).ok_or_else(|| {
                    format!(
                        "There is no group {name} in /etc/group; create it with `groupadd {name}`, \
                         or name another one with --group."
                    )
                })?;
                Some((number, name.to_owned()))
            }
        };
        Ok(Self {
            invoker: invoker(variable, &read("/etc/passwd")),
            group,
        })
    }

    /// Returns the user at the other end of a connection if it may connect.
    ///
    /// # Errors
    /// A sentence about the user, and what it can do.
    pub(super) fn check(&self, client: &UnixStream, host: &str) -> Result<Peer, String> {
        let unknown = |e| {
            format!("The agent on {host} cannot determine the client's user ({e}); start it again.")
        };
        let (peer, group) = sys::peer(client).map_err(unknown)?;
        let groups = || -> std::io::Result<Vec<u32>> {
            let mut groups = sys::peer_groups(client)?;
            groups.push(group);
            Ok(groups)
        };
        let by_group = match &self.group {
            Some((number, _)) => groups().map_err(unknown)?.contains(number),
            None => false,
        };
        let by_user =
            peer.user == 0 || peer.user == sys::own_user() || Some(peer.user) == self.invoker;
        if by_user || by_group {
            return Ok(peer);
        }
        let advice = match &self.group {
            Some((_, name)) => format!("join the group {name} (`usermod -aG {name} USER`)"),
            None => String::from("start the agent with `--group NAME` for the users of a group"),
        };
        Err(format!(
            "The agent on {host} does not serve user {}; connect as root or as the user that \
             started it, or {advice}.",
            peer.user
        ))
    }
}

/// Returns the user that started this program through sudo or run0 (`SUDO_UID`), pkexec
/// (`PKEXEC_UID`) or doas (`DOAS_USER`, a name).
fn invoker(variable: impl Fn(&str) -> Option<String>, accounts: &str) -> Option<u32> {
    let number = |name| variable(name)?.parse().ok();
    let named = || number_of(accounts, &variable("DOAS_USER")?);
    number("SUDO_UID")
        .or_else(|| number("PKEXEC_UID"))
        .or_else(named)
}

/// Returns the number of an account or group of that name.
fn number_of(text: &str, name: &str) -> Option<u32> {
    let mut entries = accounts::entries(text);
    entries.find_map(|(number, known)| (known == name).then_some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1001:1001::/home/ann:/bin/sh\n";

    #[test]
    fn the_invoker_is_found_by_the_variables_of_each_program() {
        let with = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            invoker(
                |name| {
                    let mut set = set.iter();
                    set.find_map(|(known, value)| (known == name).then(|| value.clone()))
                },
                PASSWD,
            )
        };
        assert_eq!(with(&[("SUDO_UID", "1000")]), Some(1000));
        assert_eq!(with(&[("PKEXEC_UID", "1002")]), Some(1002));
        assert_eq!(with(&[("DOAS_USER", "ann")]), Some(1001));
        assert_eq!(with(&[("DOAS_USER", "bob")]), None);
        assert_eq!(with(&[("SUDO_UID", "x")]), None);
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "ilk-old:x:7:\nilk:x:990:ann,bob\nbad\nworse:x:n:\n";
        assert_eq!(number_of(groups, "ilk"), Some(990));
        for absent in ["il", "bad", "worse", ""] {
            assert_eq!(number_of(groups, absent), None);
        }
    }

    #[test]
    fn the_user_of_an_own_socket_is_served() {
        let (own, _other) = UnixStream::pair().unwrap();
        let peer = Access::default().check(&own, "here").unwrap();
        assert_eq!(peer.process, std::process::id());
        let groups = sys::peer_groups(&own);
        assert!(groups.is_ok(), "{groups:?}");
    }
}
