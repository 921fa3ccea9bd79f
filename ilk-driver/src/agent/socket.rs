//! The agent's unix socket: serves one client at a time; others may look at its state and at the kernel, and are
//! refused everything else.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::access::Access;
use super::server::{Common, serve_stream};
use super::stream::Stream;
use super::sys::Peer;
use super::trust::Trust;
use super::{activation, kernel, look, privileges};
use crate::note;
use crate::protocol::{
    self, Decoder, FrameDecoder, Message, OPENING_BYTES, Opening, Refusal, RefusalKind, Request,
};
use crate::{Error, Result};

/// Time limit for a client that is not served to send its opening and each request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of attempts to accept a client while this process or the machine is out of descriptors
/// or memory.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Limit on the clients that are answered at a time without being served.
const MAX_LOOKING: usize = 64;

/// The socket to serve.
pub(super) enum Endpoint<'p> {
    /// One to create at a path.
    Create(&'p Path),
    /// The one that a service manager has passed. Its owner and mode are the manager's; clients
    /// are checked all the same.
    Activated,
}

impl Endpoint<'_> {
    /// Returns a path for messages.
    fn path(&self) -> &Path {
        match self {
            Self::Create(path) => path,
            Self::Activated => Path::new("the socket of the service manager"),
        }
    }

    fn listener(&self, access: &Access) -> Result<UnixListener> {
        match self {
            Self::Create(path) => listen(path, access),
            Self::Activated => activation::take().map_err(Error::io(
                self.path(),
                "Pass one listening unix socket, as ilk.socket does",
            )),
        }
    }
}

/// Listens at an endpoint forever.
pub(super) fn serve(endpoint: &Endpoint<'_>, trust: Trust, group: Option<&str>) -> Result<()> {
    let path = endpoint.path();
    let access = Access::new(group).map_err(Error::Target)?;
    let listener = endpoint.listener(&access)?;
    privileges::drop_all_but_needed(trust.run).map_err(Error::io(
        path,
        "The agent could not drop its privileges; run it as root",
    ))?;
    let busy = Arc::new(AtomicBool::new(false));
    let looking = Arc::new(AtomicUsize::new(0));
    let common = Common::new(trust);
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(source) => match retry_after(&source) {
                Some(interval) => {
                    std::thread::sleep(interval);
                    continue;
                }
                None => {
                    return Err(Error::Io {
                        path: path.to_owned(),
                        source,
                        hint: "Start the agent again",
                    });
                }
            },
        };
        let thread = std::thread::Builder::new().name(String::from("client"));
        let common = common.clone();
        let checked = access.check(&client, &kernel::host());
        // Without a thread the client is dropped, and its place is free again.
        let _dropped = match checked.map(|peer| (peer, ServedPlace::take(&busy))) {
            Ok((peer, Some(place))) => thread.spawn(move || {
                if let Err(e) = serve_client(client, peer, &common) {
                    note!("A client was dropped: {e}.");
                }
                drop(place);
            }),
            not_served => {
                let Some(place) = Looking::begin(&looking) else {
                    continue;
                };
                thread.spawn(move || {
                    let _client_gone = answer_looking(client, not_served.err(), &common);
                    drop(place);
                })
            }
        };
    }
}

/// Returns the time after which to accept again: 0 for an accident of one client, longer if
/// descriptors or memory have to become free; `None` if the listener is broken (accept(2)).
fn retry_after(error: &std::io::Error) -> Option<Duration> {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::ECONNABORTED) => Some(Duration::ZERO),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Some(RETRY_INTERVAL),
        _ => None,
    }
}

/// The place of the client that is served; dropping it frees the place, also after a panic.
struct ServedPlace(Arc<AtomicBool>);

impl ServedPlace {
    fn take(busy: &Arc<AtomicBool>) -> Option<Self> {
        let is_free = !busy.swap(true, Ordering::AcqRel);
        is_free.then(|| Self(Arc::clone(busy)))
    }
}

impl Drop for ServedPlace {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// One of the clients that are answered without being served.
struct Looking(Arc<AtomicUsize>);

impl Looking {
    fn begin(looking: &Arc<AtomicUsize>) -> Option<Self> {
        let this = Self(Arc::clone(looking));
        // The drop of one too many corrects the count.
        (looking.fetch_add(1, Ordering::AcqRel) < MAX_LOOKING).then_some(this)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves a client until it is gone.
fn serve_client(client: UnixStream, peer: Peer, common: &Common) -> std::io::Result<()> {
    common.board.hold(Some(peer));
    let served = Stream::socket(client)
        .and_then(|stream| serve_stream(&Arc::new(stream), common, Some(peer)));
    common.board.release();
    served
}

/// Creates the socket with access for its owner, root or the user that started the agent, and for
/// the group, if there is one.
fn listen(path: &Path, access: &Access) -> Result<UnixListener> {
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
    let created = create(&private, path, access);
    let removed = std::fs::remove_dir_all(&private);
    let listener = created.map_err(Error::io(path, hint))?;
    removed.map_err(Error::io(&private, hint))?;
    Ok(listener)
}

fn create(private: &Path, path: &Path, access: &Access) -> std::io::Result<UnixListener> {
    std::fs::set_permissions(private, std::fs::Permissions::from_mode(0o700))?;
    let inside = private.join("s");
    let listener = UnixListener::bind(&inside)?;
    let group = access.group.as_ref().map(|(number, _)| *number);
    chown(&inside, access.invoker, group)?;
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    std::fs::set_permissions(&inside, std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&inside, path)?;
    Ok(listener)
}

/// Answers a client that may not connect (`forbidden`), or that comes while another one is served: that
/// one may look, and everything else is refused.
fn answer_looking(
    client: UnixStream,
    forbidden: Option<String>,
    common: &Common,
) -> std::io::Result<()> {
    let Some(mut client) = opened(client)? else {
        return Ok(());
    };
    if let Some(text) = forbidden {
        let refused = Message::Refused(Refusal::new(RefusalKind::Busy, text));
        return reply(&mut client, &refused);
    }
    let mut decoder = Decoder::frames_only();
    while let Some(request) = next_request(&mut client, &mut decoder)? {
        look::answer(&request, common, &mut client)?;
    }
    Ok(())
}

/// Reads and answers a client's opening; returns `None` if it is none.
fn opened(mut client: UnixStream) -> std::io::Result<Option<UnixStream>> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut hello = [0; OPENING_BYTES];
    client.read_exact(&mut hello)?;
    let Some((opening, _)) = Opening::find_last(&hello) else {
        return Ok(None);
    };
    let answer = Opening {
        version: protocol::VERSION,
        nonce: opening.nonce,
    };
    client.write_all(&answer.to_bytes())?;
    Ok(Some(client))
}

/// Reads the next request; `None` at the end, or if it is none of this version.
fn next_request(
    client: &mut UnixStream,
    decoder: &mut FrameDecoder,
) -> std::io::Result<Option<Request>> {
    let mut bytes = [0; 4096];
    loop {
        match decoder.take() {
            Ok(None) => {}
            Ok(request) => return Ok(request),
            Err(_) => return Ok(None),
        }
        match client.read(&mut bytes)? {
            0 => return Ok(None),
            count => decoder.push(bytes.get(..count).unwrap_or_default()),
        }
    }
}

/// Sends the only message of a connection, and ends it.
fn reply(client: &mut UnixStream, message: &Message) -> std::io::Result<()> {
    client.write_all(&protocol::encode(message).map_err(std::io::Error::other)?)?;
    // Closing a socket with unread bytes would discard the answer.
    client.shutdown(Shutdown::Write)?;
    let (begun, mut rest) = (Instant::now(), [0; 4096]);
    while begun.elapsed() < PATIENCE && client.read(&mut rest)? != 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_out_of_descriptors_waits_and_a_broken_listener_ends_it() {
        let after = |code| retry_after(&std::io::Error::from_raw_os_error(code));
        assert_eq!(after(libc::EINTR), Some(Duration::ZERO));
        assert_eq!(after(libc::EMFILE), Some(RETRY_INTERVAL));
        assert_eq!(after(libc::ENFILE), Some(RETRY_INTERVAL));
        assert_eq!(after(libc::EBADF), None);
    }

    #[test]
    fn places_are_free_again_after_a_panic() {
        let busy = Arc::new(AtomicBool::new(false));
        let looking = Arc::new(AtomicUsize::new(0));
        let place = ServedPlace::take(&busy).unwrap();
        assert!(ServedPlace::take(&busy).is_none());
        let panicked = std::thread::spawn(move || {
            let _place = place;
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert!(ServedPlace::take(&busy).is_some());
        let all: Vec<_> = (0..MAX_LOOKING)
            .map(|_| Looking::begin(&looking).unwrap())
            .collect();
        assert!(Looking::begin(&looking).is_none());
        drop(all);
        assert!(Looking::begin(&looking).is_some());
    }
}
