//! Entries of functions that have lost their symbols.

use crate::{Addr, Image, Span};

impl Image {
    /// Returns bytes of padding that the kernel's tracer may still write. A weak function that another
    /// definition replaced keeps its code and the tracer's five bytes at its entry, but loses its symbol,
    /// so that its entry looks like padding; but padding is not aligned as functions are.
    #[must_use]
    pub fn entry_in(&self, padding: Span) -> Option<Span> {
        const NOP: &[u8] = &[0x0f, 0x1f, 0x44, 0, 0];
        const SEALED: [&[u8]; 4] = [
            &[],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x66, 0x0f, 0x1f, 0],
            &[0x0f, 0x1f, 0x40, 0xd6],
        ];
        let aligned = (padding.start.0 & !15..padding.end.0).step_by(16).map(Addr);
        aligned
            .filter_map(|at| {
                let bytes = self.bytes_from(at, 9)?;
                let begins = |sealed: &&&[u8]| bytes.starts_with(&[**sealed, NOP].concat());
                let sealed = SEALED.iter().find(begins)?;
                Some(Span::new(at, (sealed.len() + NOP.len()) as u64))
            })
            .filter(|entry| entry.start < padding.end && padding.start < entry.end)
            .last()
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::fixture::{FTRACE_NOP, Fixture, TEXT};
    use crate::{Addr, Span};

    #[test]
    fn the_entry_of_a_function_without_a_symbol_is_found() {
        let begins = [&[0xc3; 16][..], &FTRACE_NOP, &[0xcc; 29], &FTRACE_NOP].concat();
        let sealed = [&[0xcc; 9][..], &[0x66, 0x0f, 0x1f, 0], &FTRACE_NOP].concat();
        let bytes = [begins, sealed].concat();
        let image = Fixture::new().bytes("f", &bytes).image();
        let entry = |start, bytes| image.entry_in(Span::new(Addr(TEXT + start), bytes));
        let span = |start, bytes| Some(Span::new(Addr(TEXT + start), bytes));
        // Whole, or a byte of it.
        assert_eq!(entry(1, 30), span(16, 5));
        assert_eq!((entry(20, 1), entry(21, 11)), (span(16, 5), None));
        // Of two the last, and after a sealed `endbr64`.
        assert_eq!(entry(1, 100), span(64, 9));
        // A nop that begins where functions do not is padding.
        assert_eq!((entry(50, 5), entry(32, 32)), (None, None));
    }
}
