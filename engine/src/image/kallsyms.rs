//! The kernel's symbols, from the text of `/proc/kallsyms`.

use crate::{Addr, Error, Result, Span};

/// A symbol. Its name stands in [`Symbols`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) at: Addr,
    /// The letter of nm(1): `t` and `T` text, `w` and `W` weak …
    pub(crate) kind: u8,
    /// Whether a module, or what calls itself one (`bpf`, `__builtin__ftrace`), owns it.
    pub(crate) module: bool,
    start: u32,
    len: u32,
}

impl Symbol {
    /// Whether it is text of the core kernel (of init text too, which only the address can tell).
    pub(crate) fn is_text(&self) -> bool {
        !self.module && matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }

    /// Whether it is text of a module.
    pub(crate) fn is_module_text(&self) -> bool {
        self.module && matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

/// Every symbol, sorted by address; those at one address in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    names: String,
    entries: Vec<Symbol>,
}

/// Addresses below this are offsets into the per-CPU area, not addresses: x86-64 kernels have all
/// of theirs in the upper half (Documentation/arch/x86/x86_64/mm.rst).
const UPPER_HALF: u64 = 1 << 63;

impl Symbols {
    /// Reads the text.
    ///
    /// # Errors
    /// [`Error::Image`] for a line that is not one of kallsyms, and if every address is zero, as an
    /// unprivileged reader sees them.
    pub(crate) fn parse(kallsyms: &str) -> Result<Self> {
        let mut symbols = Self {
            names: String::with_capacity(kallsyms.len() / 2),
            entries: Vec::new(),
        };
        let mut seen = false;
        for (number, line) in kallsyms.lines().enumerate() {
            let bad = || Error::Image {
                reason: format!(
                    "line {} of kallsyms is {line:?}, and not an address, a letter and a name",
                    number + 1
                ),
            };
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(bad());
            };
            let at = u64::from_str_radix(address, 16).map_err(|_| bad())?;
            let kind = *kind.as_bytes().first().ok_or_else(bad)?;
            seen = true;
            if at < UPPER_HALF {
                continue;
            }
            let too_long = |_| Error::Image {
                reason: "kallsyms is longer than 4 GiB".to_owned(),
            };
            symbols.entries.push(Symbol {
                at: Addr(at),
                kind,
                module: fields.next().is_some(),
                start: u32::try_from(symbols.names.len()).map_err(too_long)?,
                len: u32::try_from(name.len()).map_err(too_long)?,
            });
            symbols.names.push_str(name);
        }
        if symbols.entries.is_empty() {
            let reason = if seen {
                "every address in kallsyms is zero, as the kernel shows them to a reader without privilege; \
                 read it as root, with kernel.kptr_restrict not 2"
            } else {
                "kallsyms is empty"
            };
            return Err(Error::Image {
                reason: reason.to_owned(),
            });
        }
        // Stable: aliases keep the file's order.
        symbols.entries.sort_by_key(|symbol| symbol.at);
        Ok(symbols)
    }

    /// A symbol's name.
    pub(crate) fn name(&self, symbol: &Symbol) -> &str {
        let start = symbol.start as usize;
        self.names
            .get(start..start + symbol.len as usize)
            .unwrap_or_default()
    }

    /// All of them, by address.
    pub(crate) fn entries(&self) -> &[Symbol] {
        &self.entries
    }

    /// Those in `span`.
    pub(crate) fn within(&self, span: Span) -> impl Iterator<Item = &Symbol> {
        let first = self
            .entries
            .partition_point(|symbol| symbol.at < span.start);
        let rest = self.entries.iter().skip(first);
        rest.take_while(move |symbol| symbol.at < span.end)
    }

    /// Those at exactly `at`.
    pub(crate) fn at(&self, at: Addr) -> impl Iterator<Item = &Symbol> {
        let first = self.entries.partition_point(|symbol| symbol.at < at);
        self.entries
            .iter()
            .skip(first)
            .take_while(move |symbol| symbol.at == at)
    }

    /// All symbols at the nearest address at or before `at`.
    pub(crate) fn at_or_before(&self, at: Addr) -> impl Iterator<Item = &Symbol> {
        let behind = self.entries.partition_point(|symbol| symbol.at <= at);
        let nearest = behind
            .checked_sub(1)
            .and_then(|last| self.entries.get(last))
            .map(|symbol| symbol.at);
        nearest.into_iter().flat_map(|nearest| self.at(nearest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0000000000000000 A fixed_percpu_data\n\
                        ffffffff81000020 t b\n\
                        ffffffff81000000 T _text\n\
                        ffffffff81000000 T a\n\
                        ffffffffc0000000 t m\t[virtio]\n";

    #[test]
    fn symbols_are_sorted_and_per_cpu_offsets_left_out() {
        let symbols = Symbols::parse(TEXT).unwrap();
        let names: Vec<_> = symbols
            .entries()
            .iter()
            .map(|symbol| symbols.name(symbol))
            .collect();
        assert_eq!(names, ["_text", "a", "b", "m"]);
        let modules: Vec<_> = symbols
            .entries()
            .iter()
            .map(|symbol| symbol.module)
            .collect();
        assert_eq!(modules, [false, false, false, true]);
        let near: Vec<_> = symbols
            .at_or_before(Addr(0xffff_ffff_8100_001f))
            .map(|s| symbols.name(s))
            .collect();
        assert_eq!(near, ["_text", "a"]);
        assert_eq!(symbols.at_or_before(Addr(0xffff_0000_0000_0000)).count(), 0);
    }

    #[test]
    fn addresses_hidden_by_the_kernel_are_one_clear_error() {
        let hidden = "0000000000000000 T _text\n0000000000000000 T a\n";
        let error = Symbols::parse(hidden).unwrap_err().to_string();
        assert!(error.contains("root"), "{error}");
    }

    #[test]
    fn a_damaged_line_is_named() {
        let error = Symbols::parse("ffffffff81000000 T _text\nffffffff81000 T\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(Symbols::parse("").is_err());
    }
}
