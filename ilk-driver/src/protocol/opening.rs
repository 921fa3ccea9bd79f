//! The first bytes of a connection. Their layout may never change: through it two versions detect
//! that they differ.

/// Begins an opening and an answer, and occurs nowhere else on purpose.
pub const MAGIC: [u8; 16] = [
    0x9d, b'G', b'I', b'L', b'K', 0xf4, 0x1b, 0xe7, 0x53, 0xc8, 0x0e, 0xa2, 0x76, 0xdf, 0x31, 0x8c,
];

/// Bytes of an opening or an answer.
pub const OPENING_BYTES: usize = 28;

/// A client's first bytes: the magic, its version, a number of its own choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The sender's protocol version.
    pub version: u32,
    /// Identifies the answer to this client's opening.
    pub nonce: u64,
}

/// The agent's reply: the magic, its own version, the client's number.
pub type Answer = Opening;

impl Opening {
    /// Encodes the opening.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [
            &MAGIC[..],
            &self.version.to_le_bytes(),
            &self.nonce.to_le_bytes(),
        ]
        .concat()
    }

    /// Finds the last complete opening in `stream`; returns it and the number of bytes up to its
    /// end, which are void.
    #[must_use]
    pub fn find_last(stream: &[u8]) -> Option<(Self, usize)> {
        let mut windows = stream.windows(OPENING_BYTES);
        let at = windows.rposition(|window| window.starts_with(&MAGIC))?;
        let body = stream.get(at + MAGIC.len()..at + OPENING_BYTES)?;
        let (version, nonce) = body.split_first_chunk::<4>()?;
        let opening = Self {
            version: u32::from_le_bytes(*version),
            nonce: u64::from_le_bytes(nonce.try_into().ok()?),
        };
        Some((opening, at + OPENING_BYTES))
    }
}
