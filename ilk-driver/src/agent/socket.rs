//! The agent at a unix socket: one client is served, others are told so at once.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::parking::Parking;
use super::stream::Stream;
use super::{device, privileges, serve_stream, sys};
use crate::protocol::{self, Message, OPENING_BYTES, Opening, Refusal, RefusalKind};
use crate::{Error, Result};

/// How long a client that is turned away may take to say hello.
const PATIENCE: Duration = Duration::from_secs(2);

/// Listens at `path` for ever.
pub(super) fn serve(path: &Path, allow_run: bool) -> Result<()> {
    let listener = listen(path)?;
    privileges::drop_all_but_needed(allow_run).map_err(Error::io(
        path,
        "The agent could not drop its privileges; run it as root",
    ))?;
    let busy = Arc::new(AtomicBool::new(false));
    let parking = Arc::new(Parking::default());
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
        let taken = busy.swap(true, Ordering::AcqRel);
        let flag = Arc::clone(&busy);
        let parking = Arc::clone(&parking);
        let spawned = std::thread::Builder::new()
            .name(String::from("client"))
            .spawn(move || {
                if let Some(refusal) = unwelcome(&client, taken) {
                    let _left = turn_away(client, refusal);
                    if !taken {
                        flag.store(false, Ordering::Release);
                    }
                    return;
                }
                let result = Stream::socket(client)
                    .and_then(|stream| serve_stream(&Arc::new(stream), allow_run, &parking, false));
                if let Err(e) = result {
                    eprintln!("A client was dropped: {e}.");
                }
                flag.store(false, Ordering::Release);
            });
        if spawned.is_err() && !taken {
            busy.store(false, Ordering::Release);
        }
    }
}

/// Makes the socket, for its owner only: root, or who called sudo.
fn listen(path: &Path) -> Result<UnixListener> {
    let hint = "Choose another place with --socket, or run the agent as root";
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
                hint: "It is no socket; choose another place with --socket",
            });
        }
        Err(_) => {}
    }
    // Made inside a folder nobody else can enter, so that there is no moment of wider access.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let private = folder.join(format!(".ilk-{}", std::process::id()));
    std::fs::create_dir(&private).map_err(Error::io(&private, hint))?;
    let made = make(&private, path);
    let removed = std::fs::remove_dir_all(&private);
    let listener = made.map_err(Error::io(path, hint))?;
    removed.map_err(Error::io(&private, hint))?;
    Ok(listener)
}

fn make(private: &Path, path: &Path) -> std::io::Result<UnixListener> {
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

/// Who called sudo.
fn invoker() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}

/// Why this client is not served: another one is, or it is of a user that the socket is not for. (Its
/// mode says so already; a socket that was moved, or passed on, may be reached all the same.)
fn unwelcome(client: &UnixStream, taken: bool) -> Option<Refusal> {
    let host = device::host();
    let text = match sys::peer_user(client) {
        Ok(user) if user == 0 || user == sys::own_user() || Some(user) == invoker() => {
            if !taken {
                return None;
            }
            format!("Another program is using the agent on {host}; close it and try again.")
        }
        Ok(user) => format!(
            "The agent on {host} does not serve user {user}; connect as root, or as who started it."
        ),
        Err(e) => format!("The agent on {host} cannot tell who connects ({e}); start it again."),
    };
    Some(Refusal::new(RefusalKind::Busy, text))
}

/// One clear sentence for a client that is not served.
fn turn_away(mut client: UnixStream, refusal: Refusal) -> std::io::Result<()> {
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
    // Read what was asked meanwhile: closing on unread bytes would throw the answer away.
    let mut rest = [0; 4096];
    while client.read(&mut rest)? != 0 {}
    Ok(())
}
