//! The kernel's symbols, from the text of `/proc/kallsyms`.

use super::names::strangeness;
use crate::code::Symbols;
use crate::{Addr, Error, Result};

/// Addresses below this are offsets into the per-CPU area, not addresses: x86-64 kernels have all
/// of theirs in the upper half (Documentation/arch/x86/x86_64/mm.rst).
const UPPER_HALF: u64 = 1 << 63;

/// Reads the text.
///
/// # Errors
/// [`Error::Image`] for a line that is not one of kallsyms, and if every address is zero, as an
/// unprivileged reader sees them.
pub(crate) fn parse(kallsyms: &str) -> Result<Symbols> {
    let mut symbols = Symbols::with_capacity(kallsyms.len() / 2);
    let mut lines = 0_usize;
    for (number, line) in kallsyms.lines().enumerate() {
        let bad = || Error::Image {
            reason: format!(
                "line {} of kallsyms is {line:?}, and not an address, a letter and a name",
                number + 1
            ),
        };
        let mut fields = line.split_ascii_whitespace();
        let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err(bad());
        };
        let at = u64::from_str_radix(address, 16).map_err(|_| bad())?;
        let kind = *kind.as_bytes().first().ok_or_else(bad)?;
        lines += 1;
        if at < UPPER_HALF {
            continue;
        }
        let pushed = symbols.push(Addr(at), kind, fields.next(), name);
        pushed.ok_or_else(|| Error::Image {
            reason: "kallsyms is longer than 4 GiB".to_owned(),
        })?;
    }
    if symbols.entries().is_empty() {
        let reason = if lines > 0 {
            "every address in kallsyms is zero, as the kernel shows them to a reader without privilege; \
             read it as root, with kernel.kptr_restrict not 2"
        } else {
            "kallsyms is empty"
        };
        return Err(Error::Image {
            reason: reason.to_owned(),
        });
    }
    symbols.sort(|name, symbol| strangeness(name, symbol.is_weak()));
    Ok(symbols)
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
        let symbols = parse(TEXT).unwrap();
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
        let error = parse(hidden).unwrap_err().to_string();
        assert!(error.contains("root"), "{error}");
    }

    #[test]
    fn a_damaged_line_is_named() {
        let error = parse("ffffffff81000000 T _text\nffffffff81000 T\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(parse("").is_err());
    }
}
