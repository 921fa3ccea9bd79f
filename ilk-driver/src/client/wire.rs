//! The connection to an agent: the opening, then frames.

use std::fs::{File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::lock::Lock;
use crate::accounts;
use crate::protocol::{
    self, Decoder, FrameDecoder, MAGIC, Message, OPENING_BYTES, Opening, RefusalKind, Request,
};
use crate::shared::Shared;
use crate::{Error, Result};

/// Time limit for an agent to answer.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Interval at which empty shared memory is polled.
const EMPTY_POLL_INTERVAL: Duration = Duration::from_micros(500);
/// Time limit of one read.
const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// A stream of frames to and from an agent.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    decoder: FrameDecoder,
    buffer: Vec<u8>,
    target: String,
    socket: PathBuf,
    /// Replaces the stream for bytes from the agent.
    shared: Option<Shared>,
    /// The longest silence once it is connected: [`PATIENCE`], or more where an emulated target is slow.
    pub(super) patience: Duration,
    _lock: Option<Lock>,
}

impl Wire {
    /// Connects, takes the lock, and waits for the agent's answer to an opening. With `share` the
    /// agent then sends through shared memory if it exists.
    pub(super) fn open(socket: &Path, patience: Duration, share: bool) -> Result<Self> {
        // A link to a lab's socket must use the lock of the lab.
        let socket = std::fs::canonicalize(socket).unwrap_or_else(|_| socket.to_owned());
        let target = socket.display().to_string();
        let no_agent = |source| Error::NoAgent {
            target: target.clone(),
            source,
        };
        if !socket.exists() {
            return Err(no_agent(std::io::Error::from(ErrorKind::NotFound)));
        }
        let lock = Lock::take(&socket)?;
        let mut wire = Self::connected(socket, target, patience, Some(lock))?;
        if share {
            wire.share()?;
        }
        Ok(wire)
    }

    /// Connects without the lock, to look at an agent that may serve another client.
    pub(super) fn look(socket: &Path, patience: Duration) -> Result<Self> {
        let socket = std::fs::canonicalize(socket).unwrap_or_else(|_| socket.to_owned());
        let target = socket.display().to_string();
        Self::connected(socket, target, patience, None)
    }

    /// Connects to look at the kernel of an agent that serves another client: at the port that a lab has for it, where
    /// one looks after the other, or else at the agent's socket.
    pub(super) fn looking(socket: &Path, patience: Duration) -> Result<Self> {
        let socket = std::fs::canonicalize(socket).unwrap_or_else(|_| socket.to_owned());
        let port = socket.with_extension("look");
        if !port.exists() {
            return Self::look(&socket, patience);
        }
        let until = Instant::now() + patience;
        loop {
            match Self::open(&port, patience, false) {
                Err(Error::Busy { .. }) if Instant::now() < until => {
                    std::thread::sleep(READ_TIMEOUT);
                }
                opened => return opened,
            }
        }
    }

    fn connected(
        socket: PathBuf,
        target: String,
        patience: Duration,
        lock: Option<Lock>,
    ) -> Result<Self> {
        let mut wire = Self {
            stream: connect(&socket, &target, patience)?,
            patience: patience.max(PATIENCE),
            decoder: Decoder::frames_only(),
            buffer: vec![0; 256 << 10],
            target,
            socket,
            shared: None,
            _lock: lock,
        };
        wire.handshake(patience)?;
        Ok(wire)
    }

    /// Opens a connection to replace a lost one.
    pub(super) fn reopen(&mut self, patience: Duration) -> Result<()> {
        self.stream = connect(&self.socket, &self.target, patience)?;
        self.decoder = Decoder::frames_only();
        self.shared = None;
        self.handshake(patience)?;
        self.share()
    }

    /// Makes the agent send through shared memory if the lab offers it.
    fn share(&mut self) -> Result<()> {
        let path = self.socket.with_extension("shared");
        let file = File::options().read(true).write(true).open(path);
        let Some(shared) = file.ok().and_then(|file| Shared::map(&file).ok()) else {
            return Ok(());
        };
        let number = random_number();
        shared.begin(number);
        self.send(&Request::Share(number))?;
        match self.answer("at the handshake") {
            Ok(Message::Accepted) => self.shared = Some(shared),
            // The target's kernel lacks the device, or its agent may not use it.
            Err(Error::Refused(_)) => {}
            Ok(other) => return Err(unexpected(&other)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the agent's socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns whether the agent's messages come through shared memory.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    fn handshake(&mut self, patience: Duration) -> Result<()> {
        let nonce = random_number();
        self.write(
            &Opening {
                version: protocol::VERSION,
                nonce,
            }
            .to_bytes(),
        )?;
        let until = Instant::now() + patience;
        let mut stale = Vec::new();
        while Instant::now() < until {
            let Some(count) = self.read("at the handshake")? else {
                continue;
            };
            stale.extend_from_slice(self.received(count));
            if let Some((answer, end)) = find_answer(&stale, nonce) {
                if answer.version != protocol::VERSION {
                    return Err(Error::Version {
                        agent: answer.version,
                        own: protocol::VERSION,
                    });
                }
                self.decoder.push(stale.get(end..).unwrap_or_default());
                return Ok(());
            }
            // Bytes that the previous client did not read.
            let keep = stale.len().min(OPENING_BYTES - 1);
            stale.drain(..stale.len() - keep);
        }
        Err(self.silent(patience))
    }

    pub(super) fn send(&mut self, request: &Request) -> Result<()> {
        let frame = protocol::encode(request)?;
        self.write(&frame)
    }

    /// Returns the first `count` bytes of the buffer, the result of a read.
    fn received(&self, count: usize) -> &[u8] {
        // A read returns at most the buffer's length.
        debug_assert!(count <= self.buffer.len());
        self.buffer.get(..count).unwrap_or(&self.buffer)
    }

    /// Returns the next message, if one arrives within the read timeout.
    pub(super) fn poll(&mut self, doing: &str) -> Result<Option<Message>> {
        if !self.decoder.at_opening()
            && let Some(message) = self.decoder.take()?
        {
            return Ok(Some(message));
        }
        let Some(count) = self.read(doing)? else {
            return Ok(None);
        };
        let received = self.buffer.get(..count).unwrap_or(&self.buffer);
        self.decoder.push(received);
        if self.decoder.at_opening() {
            return Err(Error::Lost {
                doing: doing.to_owned(),
                reason: String::from("its agent was restarted"),
            });
        }
        self.decoder.take()
    }

    /// Returns the answer to a request; a refusal is an error.
    pub(super) fn answer(&mut self, doing: &str) -> Result<Message> {
        self.answer_within(self.patience, doing)
    }

    /// Returns the answer as [`answer`](Self::answer) does, with another time limit.
    pub(super) fn answer_within(&mut self, patience: Duration, doing: &str) -> Result<Message> {
        let mut until = Instant::now() + patience;
        while Instant::now() < until {
            let waiting = self.decoder.waiting();
            match self.poll(doing)? {
                Some(Message::Refused(refusal)) if refusal.kind == RefusalKind::Busy => {
                    return Err(Error::Busy {
                        target: self.target.clone(),
                        by: refusal.text.trim_end_matches('.').to_owned(),
                    });
                }
                Some(Message::Refused(refusal)) => return Err(Error::Refused(refusal)),
                // A pong to a ping of a session that has ended.
                Some(Message::Pong { number: 0, .. }) => {}
                Some(message) => return Ok(message),
                // Progress of a long message over a slow connection restarts the time limit.
                None if waiting != self.decoder.waiting() => until = Instant::now() + patience,
                None => {}
            }
        }
        Err(self.silent(patience))
    }

    /// Receives chunks up to their end, at most `limit` bytes, and returns the agent's note.
    pub(super) fn chunks(
        &mut self,
        limit: u64,
        into: &mut Vec<u8>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<String> {
        let begun = into.len();
        loop {
            match self.answer("while reading the kernel")? {
                Message::Chunk(chunk) => {
                    into.extend_from_slice(&chunk);
                    let length = into.len() - begun;
                    if length as u64 > limit {
                        return Err(Error::Protocol {
                            what: format!("more than the {limit} bytes that were requested"),
                        });
                    }
                    progress(length);
                }
                Message::End(note) => return Ok(note),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Sends a request that is answered by plain acceptance.
    pub(super) fn request(&mut self, request: &Request, doing: &str) -> Result<()> {
        self.send(request)?;
        match self.answer(doing)? {
            Message::Accepted => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(|e| Error::Lost {
            doing: String::from("while sending a request"),
            reason: match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    String::from("it accepts no more bytes")
                }
                _ => e.to_string(),
            },
        })
    }

    /// Reads bytes into the buffer; returns their count, or `None` if none arrived in time.
    fn read(&mut self, doing: &str) -> Result<Option<usize>> {
        let lost = |reason: String| {
            Err(Error::Lost {
                doing: doing.to_owned(),
                reason,
            })
        };
        if let Some(shared) = &self.shared {
            let until = Instant::now() + READ_TIMEOUT;
            loop {
                match shared.read(&mut self.buffer) {
                    0 if Instant::now() > until => break,
                    0 => std::thread::sleep(EMPTY_POLL_INTERVAL),
                    count => return Ok(Some(count)),
                }
            }
            // The stream now only carries the news that the agent is gone or was restarted.
        }
        match self.stream.read(&mut self.buffer) {
            Ok(0) => lost(String::from("the connection was closed")),
            Ok(count) => Ok(Some(count)),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(e) => lost(e.to_string()),
        }
    }

    pub(super) fn silent(&self, patience: Duration) -> Error {
        Error::Silent {
            target: self.target.clone(),
            seconds: patience.as_secs(),
        }
    }
}

fn connect(socket: &Path, target: &str, patience: Duration) -> Result<UnixStream> {
    let lost = |e: std::io::Error| Error::Lost {
        doing: String::from("at the handshake"),
        reason: e.to_string(),
    };
    let refused = |source: std::io::Error| {
        let target = target.to_owned();
        if source.kind() == ErrorKind::PermissionDenied {
            let remedy = remedy(std::fs::metadata(socket).ok().as_ref());
            Error::Forbidden { target, remedy }
        } else {
            Error::NoAgent { target, source }
        }
    };
    let stream = UnixStream::connect(socket).map_err(refused)?;
    stream.set_read_timeout(Some(READ_TIMEOUT)).map_err(lost)?;
    stream.set_write_timeout(Some(patience)).map_err(lost)?;
    Ok(stream)
}

/// Returns what a user does that may not write to a socket: connect(2) requires that.
fn remedy(socket: Option<&Metadata>) -> String {
    const GROUP_MAY_WRITE: u32 = 0o020;
    match socket.filter(|socket| socket.mode() & GROUP_MAY_WRITE != 0) {
        Some(socket) => {
            let group = socket.gid();
            let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
            let name = name_of_group(&groups, group).unwrap_or_else(|| group.to_string());
            format!("the group {name} may: `sudo usermod -aG {name} $USER`, then log in again")
        }
        None => "root may, and the user that started it with sudo".into(),
    }
}

/// Returns the name of a group by a text of group(5).
fn name_of_group(text: &str, group: u32) -> Option<String> {
    let mut entries = accounts::entries(text);
    entries.find_map(|(number, name)| (number == group).then(|| name.to_owned()))
}

/// Returns an unpredictable and practically unique number.
pub(super) fn random_number() -> u64 {
    // The standard library keys its hasher with the system's randomness, against collision attacks.
    RandomState::new().build_hasher().finish()
}

/// Returns the answer with this nonce, and the position of its end.
fn find_answer(stream: &[u8], nonce: u64) -> Option<(Opening, usize)> {
    let starts = stream
        .windows(OPENING_BYTES)
        .enumerate()
        .filter(|(_, window)| window.starts_with(&MAGIC));
    let mut answers =
        starts.filter_map(|(at, window)| Some((Opening::find_last(window)?.0, at + OPENING_BYTES)));
    answers.find(|(answer, _)| answer.nonce == nonce)
}

/// Returns the error for a message that answers no request.
pub(super) fn unexpected(message: &Message) -> Error {
    let mut what = format!("{message:?}");
    what.truncate(what.char_indices().nth(60).map_or(what.len(), |(at, _)| at));
    Error::Protocol {
        what: format!("an answer that fits no request ({what})"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_user_that_may_not_connect_reads_how_it_may() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let remedy = |mode| {
            fs::set_permissions(place.path(), Permissions::from_mode(mode)).unwrap();
            remedy(Some(&place.as_file().metadata().unwrap()))
        };
        let groups = fs::read_to_string("/etc/group").unwrap();
        let group = place.as_file().metadata().unwrap().gid();
        let name = name_of_group(&groups, group).unwrap_or_else(|| group.to_string());
        assert!(remedy(0o660).contains(&format!("usermod -aG {name} ")));
        assert!(remedy(0o600).starts_with("root may"));
        assert_eq!(
            name_of_group("root:x:0:\nilk:x:998:ann\n", 998).as_deref(),
            Some("ilk")
        );
        assert_eq!(name_of_group("root:x:0:\ndamaged\n", 998), None);
    }
}
