//! The stream to an agent: the opening, then frames.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::lock::Lock;
use crate::protocol::{
    self, Decoder, FrameDecoder, MAGIC, Message, OPENING_BYTES, Opening, RefusalKind, Request,
};
use crate::shared::Shared;
use crate::{Error, Result};

/// How soon memory that is empty is looked at again.
const SOON: Duration = Duration::from_micros(500);
/// The longest wait in one read.
const GLANCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    decoder: FrameDecoder,
    buffer: Vec<u8>,
    target: String,
    socket: PathBuf,
    /// What the agent sends comes by there, if it is there.
    shared: Option<Shared>,
    _lock: Lock,
}

impl Wire {
    /// Connects, takes the lock, and waits for the agent's answer to an opening. Then `share` has the
    /// agent send by memory, where there is some.
    pub(super) fn open(socket: &Path, patience: Duration, share: bool) -> Result<Self> {
        // A link to a lab's socket has the lock of the lab.
        let socket = std::fs::canonicalize(socket).unwrap_or_else(|_| socket.to_owned());
        let target = socket.display().to_string();
        let nobody = |source| Error::NoAgent {
            target: target.clone(),
            source,
        };
        if !socket.exists() {
            return Err(nobody(std::io::Error::from(ErrorKind::NotFound)));
        }
        let lock = Lock::take(&socket)?;
        let mut wire = Self {
            stream: connect(&socket, &target, patience)?,
            decoder: Decoder::frames_only(),
            buffer: vec![0; 256 << 10],
            target,
            socket,
            shared: None,
            _lock: lock,
        };
        wire.shake_hands(patience)?;
        if share {
            wire.share()?;
        }
        Ok(wire)
    }

    /// Opens a connection in place of one that was lost.
    pub(super) fn reopen(&mut self, patience: Duration) -> Result<()> {
        self.stream = connect(&self.socket, &self.target, patience)?;
        self.decoder = Decoder::frames_only();
        self.shared = None;
        self.shake_hands(patience)?;
        self.share()
    }

    /// Has the agent send by memory, where a lab shares some.
    fn share(&mut self) -> Result<()> {
        let path = self.socket.with_extension("shared");
        let file = File::options().read(true).write(true).open(path);
        let Some(shared) = file.ok().and_then(|file| Shared::map(&file).ok()) else {
            return Ok(());
        };
        let number = unguessable();
        shared.begin(number);
        self.send(&Request::Share(number))?;
        match self.answer(super::PATIENCE, "at the handshake") {
            Ok(Message::Accepted) => self.shared = Some(shared),
            // Its kernel does not show the memory, or its agent may not use it.
            Err(Error::Refused(_)) => {}
            Ok(other) => return Err(unexpected(&other)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Where the agent is.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether the agent's messages come by memory.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    fn shake_hands(&mut self, patience: Duration) -> Result<()> {
        let nonce = unguessable();
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
            stale.extend_from_slice(self.buffer.get(..count).unwrap_or_default());
            if let Some((answer, end)) = find(&stale, nonce) {
                if answer.version != protocol::VERSION {
                    return Err(Error::Version {
                        agent: answer.version,
                        own: protocol::VERSION,
                    });
                }
                self.decoder.push(stale.get(end..).unwrap_or_default());
                return Ok(());
            }
            // What the last client left unread.
            let keep = stale.len().min(OPENING_BYTES - 1);
            stale.drain(..stale.len() - keep);
        }
        Err(self.silent(patience))
    }

    pub(super) fn send(&mut self, request: &Request) -> Result<()> {
        let frame = protocol::encode(request)?;
        self.write(&frame)
    }

    /// The next message, if one comes within the blink of an eye.
    pub(super) fn glance(&mut self, doing: &str) -> Result<Option<Message>> {
        if !self.decoder.at_opening()
            && let Some(message) = self.decoder.take()?
        {
            return Ok(Some(message));
        }
        let Some(count) = self.read(doing)? else {
            return Ok(None);
        };
        self.decoder
            .push(self.buffer.get(..count).unwrap_or_default());
        if self.decoder.at_opening() {
            return Err(Error::Lost {
                doing: doing.to_owned(),
                reason: String::from("its agent ended and was started again"),
            });
        }
        self.decoder.take()
    }

    /// The answer to a request; a refusal is an error.
    pub(super) fn answer(&mut self, patience: Duration, doing: &str) -> Result<Message> {
        let mut until = Instant::now() + patience;
        while Instant::now() < until {
            let waiting = self.decoder.waiting();
            match self.glance(doing)? {
                Some(Message::Refused(refusal)) if refusal.kind == RefusalKind::Busy => {
                    return Err(Error::Busy {
                        target: self.target.clone(),
                        by: refusal.text.trim_end_matches('.').to_owned(),
                    });
                }
                Some(Message::Refused(refusal)) => return Err(Error::Refused(refusal)),
                // A run asks so whether the agent is there, and may be over before the answer comes.
                Some(Message::Pong { number: 0, .. }) => {}
                Some(message) => return Ok(message),
                // A long message on a slow way is no silence.
                None if waiting != self.decoder.waiting() => until = Instant::now() + patience,
                None => {}
            }
        }
        Err(self.silent(patience))
    }

    /// Takes chunks up to their end, at most `limit` bytes, and returns the agent's note.
    pub(super) fn chunks(
        &mut self,
        limit: u64,
        into: &mut Vec<u8>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<String> {
        let begun = into.len();
        loop {
            match self.answer(super::PATIENCE, "while reading the kernel")? {
                Message::Chunk(chunk) => {
                    into.extend_from_slice(&chunk.0);
                    let got = into.len() - begun;
                    if got as u64 > limit {
                        return Err(Error::Protocol {
                            what: format!("more than the {limit} bytes that were asked for"),
                        });
                    }
                    progress(got);
                }
                Message::End(note) => return Ok(note),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Sends a request that is answered with a plain yes.
    pub(super) fn ask(&mut self, request: &Request, doing: &str) -> Result<()> {
        self.send(request)?;
        match self.answer(super::PATIENCE, doing)? {
            Message::Accepted => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(|e| Error::Lost {
            doing: String::from("while a request was sent"),
            reason: match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    String::from("it takes no more bytes")
                }
                _ => e.to_string(),
            },
        })
    }

    /// Bytes read into the buffer, or `None` if there are none for now.
    fn read(&mut self, doing: &str) -> Result<Option<usize>> {
        let lost = |reason: String| {
            Err(Error::Lost {
                doing: doing.to_owned(),
                reason,
            })
        };
        if let Some(shared) = &self.shared {
            let until = Instant::now() + GLANCE;
            loop {
                match shared.read(&mut self.buffer) {
                    0 if Instant::now() > until => break,
                    0 => std::thread::sleep(SOON),
                    count => return Ok(Some(count)),
                }
            }
            // Nothing comes by there but the news that the agent is gone or was started again.
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
    let stream = UnixStream::connect(socket).map_err(|source| Error::NoAgent {
        target: target.to_owned(),
        source,
    })?;
    stream.set_read_timeout(Some(GLANCE)).map_err(lost)?;
    stream.set_write_timeout(Some(patience)).map_err(lost)?;
    Ok(stream)
}

/// A number that nobody guesses, nor has had before.
pub(super) fn unguessable() -> u64 {
    // Two words of the system's randomness, mixed: made for tables that strangers may not break.
    RandomState::new().build_hasher().finish()
}

/// The answer with this nonce, and where it ends.
fn find(stream: &[u8], nonce: u64) -> Option<(Opening, usize)> {
    let starts = stream
        .windows(OPENING_BYTES)
        .enumerate()
        .filter(|(_, window)| window.starts_with(&MAGIC));
    let mut answers =
        starts.filter_map(|(at, window)| Some((Opening::find_last(window)?.0, at + OPENING_BYTES)));
    answers.find(|(answer, _)| answer.nonce == nonce)
}

/// For an answer that fits no question.
pub(super) fn unexpected(message: &Message) -> Error {
    let mut what = format!("{message:?}");
    what.truncate(what.char_indices().nth(60).map_or(what.len(), |(at, _)| at));
    Error::Protocol {
        what: format!("an answer that fits no question ({what})"),
    }
}
