//! The agent's unix socket: serves one client at a time and refuses others at once.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::server::{Common, serve_stream};
use super::stream::Stream;
use super::trust::Trust;
use super::{kernel, privileges, sys};
use crate::protocol::{self, Message, OPENING_BYTES, Opening, Refusal, RefusalKind};
use crate::{Error, Result};

/// Time limit for a refused client to send its opening.
const PATIENCE: Duration = Duration::from_secs(2);

/// Listens at `path` forever.
pub(super) fn serve(path: &Path, trust: Trust) -> Result<()> {
    let listener = listen(path)?;
    privileges::drop_all_but_needed(trust.run).map_err(Error::io(
        path,
        "The agent could not drop its privileges; run it as root",
    ))?;
    let busy = Arc::new(AtomicBool::new(false));
    let common = Common::new(trust);
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                continue;
            }
            Err(source) => {
                return Err(Error::Io {
                    path: path.to_owned(),
                    source,
                    hint: "Start the agent again",
                });
            }
        };
        let is_busy = busy.swap(true, Ordering::AcqRel);
        let flag = Arc::clone(&busy);
        let common = common.clone();
        let spawned = std::thread::Builder::new()
            .name(String::from("client"))
            .spawn(move || {
                if let Some(refusal) = refusal_of(&client, is_busy) {
                    let _client_gone = refuse(client, refusal);
                    if !is_busy {
                        flag.store(false, Ordering::Release);
                    }
                    return;
                }
                let result = Stream::socket(client)
                    .and_then(|stream| serve_stream(&Arc::new(stream), &common, false));
                if let Err(e) = result {
                    eprintln!("A client was dropped: {e}.");
                }
                flag.store(false, Ordering::Release);
            });
        if spawned.is_err() && !is_busy {
            busy.store(false, Ordering::Release);
        }
    }
}

/// Creates the socket with access for its owner only: root, or the user that called sudo.
fn listen(path: &Path) -> Result<UnixListener> {
    let hint = "Choose another path with --socket, or run the agent as root";
    if UnixStream::connect(path).is_ok() {
        return Err(Error::Busy {
            target: path.display().to_string(),
            by: String::from("an agent listens there already"),
        });
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
            std::fs::remove_file(path).map_err(Error::io(path, hint))?;
        }
        Ok(_) => {
            let source = std::io::Error::from(ErrorKind::AlreadyExists);
            return Err(Error::Io {
                path: path.to_owned(),
                source,
                hint: "It is not a socket; choose another path with --socket",
            });
        }
        Err(_) => {}
    }
    // Created inside a folder that no other user can enter, so that access is never wider.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let private = folder.join(format!(".ilk-{}", std::process::id()));
    std::fs::create_dir(&private).map_err(Error::io(&private, hint))?;
    let created = create(&private, path);
    let removed = std::fs::remove_dir_all(&private);
    let listener = created.map_err(Error::io(path, hint))?;
    removed.map_err(Error::io(&private, hint))?;
    Ok(listener)
}

fn create(private: &Path, path: &Path) -> std::io::Result<UnixListener> {
    std::fs::set_permissions(private, std::fs::Permissions::from_mode(0o700))?;
    let inside = private.join("s");
    let listener = UnixListener::bind(&inside)?;
    std::fs::set_permissions(&inside, std::fs::Permissions::from_mode(0o600))?;
    if let Some(user) = invoker() {
        chown(&inside, Some(user), None)?;
    }
    std::fs::rename(&inside, path)?;
    Ok(listener)
}

/// Returns the user that called sudo.
fn invoker() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}

/// Returns a refusal if another client is served, or if the client's user has no right to the
/// socket. (The socket's mode excludes other users, but a socket that was moved or passed on can
/// still be reached.)
fn refusal_of(client: &UnixStream, is_busy: bool) -> Option<Refusal> {
    let host = kernel::host();
    let text = match sys::peer_user(client) {
        Ok(user) if user == 0 || user == sys::own_user() || Some(user) == invoker() => {
            if !is_busy {
                return None;
            }
            format!("Another program is using the agent on {host}; close it and try again.")
        }
        Ok(user) => format!(
            "The agent on {host} does not serve user {user}; connect as root or as the user that started it."
        ),
        Err(e) => {
            format!("The agent on {host} cannot determine the client's user ({e}); start it again.")
        }
    };
    Some(Refusal::new(RefusalKind::Busy, text))
}

/// Sends a refusal to a client that is not served.
fn refuse(mut client: UnixStream, refusal: Refusal) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut hello = [0; OPENING_BYTES];
    client.read_exact(&mut hello)?;
    let Some((opening, _)) = Opening::find_last(&hello) else {
        return Ok(());
    };
    client.write_all(
        &Opening {
            version: protocol::VERSION,
            nonce: opening.nonce,
        }
        .to_bytes(),
    )?;
    let refused = Message::Refused(refusal);
    client.write_all(&protocol::encode(&refused).map_err(std::io::Error::other)?)?;
    // Read pending requests: closing a socket with unread bytes would discard the answer.
    let mut rest = [0; 4096];
    while client.read(&mut rest)? != 0 {}
    Ok(())
}
