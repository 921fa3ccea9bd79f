//! Frames and openings, extracted from a byte stream.

use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{MAGIC, MAX_FRAME, OPENING_BYTES, Opening};
use crate::{Error, Result};

/// Encodes a message as a frame.
///
/// # Errors
/// [`Error::Protocol`] if the message is larger than [`MAX_FRAME`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    let framed = postcard::to_io(message, vec![0; 4])
        .map_err(|e| wrong(format!("a message that cannot be encoded ({e})")))?;
    let length = framed.len().saturating_sub(4);
    if length > MAX_FRAME {
        return Err(wrong(format!(
            "a message of {length} bytes, over the limit of {MAX_FRAME}"
        )));
    }
    let mut framed = framed;
    for (to, from) in framed.iter_mut().zip((length as u32).to_le_bytes()) {
        *to = from;
    }
    Ok(framed)
}

/// An item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming<T> {
    /// A client opens a new connection: everything before it is void.
    Opening(Opening),
    /// A decoded message.
    Message(T),
}

/// Splits a stream into openings and messages. Buffers at most one frame and the bytes received
/// with it.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: VecDeque<u8>,
    /// An opening was received: bytes before the first opening are no frames.
    open: bool,
    pending: Option<Opening>,
    /// The last bytes of the stream, in which an opening may have begun, even if they were also
    /// decoded as part of a frame.
    tail: Vec<u8>,
}

impl Decoder {
    /// Creates a decoder for the end that accepts openings, of which a stream may hold several.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a decoder for a stream whose opening or answer was read already: nothing in it is an
    /// opening.
    #[must_use]
    pub fn frames_only() -> FrameDecoder {
        FrameDecoder(Self {
            open: true,
            ..Self::default()
        })
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut stream = std::mem::take(&mut self.tail);
        stream.extend_from_slice(bytes);
        if let Some((opening, end)) = Opening::find_last(&stream) {
            self.pending = Some(opening);
            self.open = true;
            stream.drain(..end);
            self.buffer.clear();
            self.buffer.extend(&stream);
        } else if self.open {
            self.buffer.extend(bytes);
        }
        stream.drain(..stream.len().saturating_sub(OPENING_BYTES - 1));
        self.tail = stream;
    }

    /// Returns the next item of the stream if it is complete.
    ///
    /// # Errors
    /// [`Error::Protocol`] if a frame is too long or is no message; the rest of the stream up to
    /// the next opening is discarded.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<Incoming<T>>> {
        if let Some(opening) = self.pending.take() {
            return Ok(Some(Incoming::Opening(opening)));
        }
        if !self.open {
            return Ok(None);
        }
        let result = self.frame();
        if result.is_err() {
            self.open = false;
            self.buffer.clear();
        }
        result.map(|message| message.map(Incoming::Message))
    }

    fn frame<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let stream = &*self.buffer.make_contiguous();
        let Some((length, rest)) = stream.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(wrong(format!(
                "a frame of {length} bytes, over the limit of {MAX_FRAME}"
            )));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let (message, left) = postcard::take_from_bytes(body)
            .map_err(|e| wrong(format!("a frame that is no message ({e})")))?;
        if !left.is_empty() {
            return Err(wrong(format!("a frame with {} bytes too many", left.len())));
        }
        self.buffer.drain(..4 + length);
        Ok(Some(message))
    }
}

/// A [`Decoder`] that treats every byte as part of a frame.
#[derive(Debug)]
pub struct FrameDecoder(Decoder);

impl FrameDecoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.buffer.extend(bytes);
    }

    /// Returns whether an opening is in the place of a message: the other end is a new agent. (As
    /// the length of a frame, its first bytes are over the limit.)
    #[must_use]
    pub fn at_opening(&self) -> bool {
        self.0.buffer.len() >= 4
            && self
                .0
                .buffer
                .iter()
                .zip(MAGIC)
                .take(4)
                .all(|(byte, magic)| *byte == magic)
    }

    /// Returns the number of buffered bytes of messages not taken yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.buffer.len()
    }

    /// Returns the next message if it is complete.
    ///
    /// # Errors
    /// As [`Decoder::take`].
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.0.frame()
    }
}

fn wrong(what: String) -> Error {
    Error::Protocol { what }
}
