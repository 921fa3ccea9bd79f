//! The first bytes of a connection. Their layout may never change: it is how two versions find
//! out that they differ.

/// Stands before an opening and before an answer, and nowhere else on purpose.
pub const MAGIC: [u8; 16] = [
    0x9d, b'G', b'I', b'L', b'K', 0xf4, 0x1b, 0xe7, 0x53, 0xc8, 0x0e, 0xa2, 0x76, 0xdf, 0x31, 0x8c,
];

/// Bytes of an opening or an answer.
pub const OPENING_BYTES: usize = 28;

/// What a client says first: the magic, its version, a number of its own choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The protocol version that is spoken.
    pub version: u32,
    /// Makes the answer the client's own.
    pub nonce: u64,
}

/// What the agent says to that: the magic, its own version, the client's number.
pub type Answer = Opening;

impl Opening {
    /// As it travels.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [
            &MAGIC[..],
            &self.version.to_le_bytes(),
            &self.nonce.to_le_bytes(),
        ]
        .concat()
    }

    /// Finds the last whole opening in `stream`: it, and how many bytes up to its end are void.
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
