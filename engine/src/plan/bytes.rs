//! The few bytes of one write: there may be a million of them.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes that are written at once, or stand there before: [`PokeBytes::MOST`] at most.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PokeBytes {
    len: u8,
    /// Zeroes behind the first `len`.
    bytes: [u8; Self::MOST],
}

impl PokeBytes {
    /// As many as the driver writes at once, at most.
    pub const MOST: usize = 8;

    /// Those of a slice; `None` if they are more than [`PokeBytes::MOST`].
    #[must_use]
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MOST];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let len = u8::try_from(from.len()).ok()?;
        Some(Self { len, bytes })
    }

    /// All that there is room for, zeroes behind them.
    #[must_use]
    pub const fn padded(self) -> [u8; Self::MOST] {
        self.bytes
    }
}

impl Deref for PokeBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl DerefMut for PokeBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
            .get_mut(..usize::from(self.len))
            .unwrap_or_default()
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
    fn no_more_than_fit() {
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
