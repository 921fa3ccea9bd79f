//! The bytes of one write, held in place: a plan may have a million of them.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes that are written at once, or that a write expects in their place: [`PokeBytes::MOST`] at most.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PokeBytes {
    len: u8,
    /// Zeroes after the first `len`.
    bytes: [u8; Self::MOST],
}

impl PokeBytes {
    /// Maximum number of bytes that the driver writes at once.
    pub const MOST: usize = 8;

    /// Copies a slice; `None` if it is longer than [`PokeBytes::MOST`].
    #[must_use]
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MOST];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let len = u8::try_from(from.len()).ok()?;
        Some(Self { len, bytes })
    }

    /// All eight bytes, with zeroes after the last that is written.
    #[must_use]
    pub const fn padded(self) -> [u8; Self::MOST] {
        self.bytes
    }
}

impl Deref for PokeBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.bytes.get(..usize::from(self.len));
        debug_assert!(bytes.is_some(), "{} bytes", self.len);
        bytes.unwrap_or_default()
    }
}

impl DerefMut for PokeBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes.get_mut(..usize::from(self.len));
        debug_assert!(bytes.is_some(), "{} bytes", self.len);
        bytes.unwrap_or_default()
    }
}

impl fmt::Debug for PokeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_fit_and_nine_do_not() {
        for length in 0..=PokeBytes::MOST {
            let bytes: Vec<u8> = (1..).take(length).collect();
            let held = PokeBytes::new(&bytes).unwrap();
            assert_eq!(&*held, bytes);
            assert!(
                held.padded().starts_with(&bytes)
                    && held.padded()[length..].iter().all(|&byte| byte == 0)
            );
        }
        assert_eq!(PokeBytes::new(&[1; PokeBytes::MOST + 1]), None);
    }
}
