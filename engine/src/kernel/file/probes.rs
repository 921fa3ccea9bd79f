//! The text in which a kernel forbids probes, from the tables that boot makes its list of (`init_kprobes` of
//! kernel/kprobes.c, `arch_populate_kprobe_blacklist` of arch/x86/kernel/kprobes/core.c).

use std::fmt::Write as _;

use super::bytes::{address, bad, u64_at};
use crate::code::{Memory, Symbols};
use crate::{Addr, Result, Span};

/// Bytes of an address in the table.
const ENTRY: usize = 8;

/// Text in which every function is on the list.
const AREAS: [(&str, &str); 3] = [
    ("__kprobes_text_start", "__kprobes_text_end"),
    ("__noinstr_text_start", "__noinstr_text_end"),
    ("__entry_text_start", "__entry_text_end"),
];

/// The text that `/sys/kernel/debug/kprobes/blacklist` would be, without modules.
///
/// # Errors
/// [`crate::Error::Image`] if the kernel has no such table (`CONFIG_KPROBES`).
pub(super) fn blacklist(symbols: &Symbols, memory: &Memory) -> Result<String> {
    let table = span(
        symbols,
        ("__start_kprobe_blacklist", "__stop_kprobe_blacklist"),
    );
    let bytes = table.and_then(|table| memory.bytes(table)).ok_or_else(|| {
        bad("it has no list of functions that must not be probed; the kernel needs CONFIG_KPROBES")
    })?;
    let mut list = String::new();
    let listed = (0..bytes.len()).step_by(ENTRY);
    for at in listed.filter_map(|at| u64_at(bytes, at)) {
        add(&mut list, symbols, Addr(at));
    }
    for area in AREAS.into_iter().filter_map(|area| span(symbols, area)) {
        let mut at = area.start;
        while at < area.end {
            at = add(&mut list, symbols, at).unwrap_or(area.end);
        }
    }
    Ok(list)
}

fn span(symbols: &Symbols, (start, end): (&str, &str)) -> Option<Span> {
    Some(Span {
        start: address(symbols, start)?,
        end: address(symbols, end)?,
    })
}

/// Adds the symbol at `at`, up to the next one, where the answer is.
fn add(list: &mut String, symbols: &Symbols, at: Addr) -> Option<Addr> {
    let first_symbol = symbols.at(at).next()?;
    let next = symbols.entries().partition_point(|symbol| symbol.at <= at);
    let end = symbols.entries().get(next)?.at;
    // Writing to a string does not fail.
    let _ = writeln!(
        list,
        "{:#018x}-{:#018x}\t{}",
        at.0,
        end.0,
        symbols.name(first_symbol)
    );
    Some(end)
}
