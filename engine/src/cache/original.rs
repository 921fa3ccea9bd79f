//! Original code, decoded with one decoder: making one takes longer than decoding an instruction.

use iced_x86::{Decoder, DecoderOptions};

use super::CodeBytes;
use crate::Addr;

/// A reader of original code.
pub(super) struct OriginalReader<'c> {
    code: &'c dyn CodeBytes,
    /// The code that was read last, from an address on.
    current: Option<(Addr, Decoder<'c>)>,
}

impl<'c> OriginalReader<'c> {
    pub(super) fn new(code: &'c dyn CodeBytes) -> Self {
        Self {
            code,
            current: None,
        }
    }

    /// Returns a decoder of the code from an address on; `None` if no code is there.
    pub(super) fn at(&mut self, at: Addr) -> Option<&mut Decoder<'c>> {
        let is_current = self.current.as_mut().is_some_and(|(start, decoder)| {
            at.0.checked_sub(start.0)
                .and_then(|offset| usize::try_from(offset).ok())
                .filter(|offset| *offset < decoder.max_position())
                .is_some_and(|offset| decoder.set_position(offset).is_ok())
        });
        if !is_current {
            let bytes = self.code.code_from(at)?;
            let decoder = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE);
            self.current = Some((at, decoder));
        }
        let (_, decoder) = self.current.as_mut()?;
        decoder.set_ip(at.0);
        Some(decoder)
    }
}
