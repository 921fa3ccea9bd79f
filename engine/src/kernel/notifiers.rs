//! Notifiers of traps that are called before the driver's (`die_chain` of kernel/notifier.c): a kernel calls them for
//! each `int3`, so that an `int3` of a splice in one of them would recurse without end.
//!
//! The driver's notifier has the highest priority. Of notifiers with one priority the first that was registered is
//! called first, so those of the highest priority that are there already are called before the driver's. A running
//! kernel has them in its chain; in a file they are the arguments of `register_die_notifier`.

use std::fmt::Write as _;

use crate::code::{Memory, Symbols};
use crate::isa::decode::computed_address;
use crate::{Addr, Error, Result, Span};
use iced_x86::{Decoder, DecoderOptions, Instruction, Register};

/// The head of the chain.
const CHAIN: &str = "die_chain";
/// The function that adds to it.
const REGISTER: &str = "register_die_notifier";
/// The driver's notifier, in its module.
const OWN: &str = "ilk_die";
/// The priority of the driver's notifier: no other is higher.
const HIGHEST: i32 = i32::MAX;
/// A chain that is longer is none.
const LONGEST: usize = 256;
/// Bytes of a head at most: its lock is longer on kernels that check locks.
const HEAD: u64 = 256;
/// Begins the line of a notifier in [`LiveParts::blacklist`](super::LiveParts::blacklist).
pub(super) const LINE: &str = "notifier ";

/// `struct notifier_block` of include/linux/notifier.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Notifier {
    function: Addr,
    next: u64,
    priority: i32,
}

impl Notifier {
    const BYTES: usize = 24;

    fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let [f0, f1, f2, f3, f4, f5, f6, f7, rest @ ..] = *bytes;
        let [n0, n1, n2, n3, n4, n5, n6, n7, p0, p1, p2, p3, ..] = rest;
        Self {
            function: Addr(u64::from_le_bytes([f0, f1, f2, f3, f4, f5, f6, f7])),
            next: u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
            priority: i32::from_le_bytes([p0, p1, p2, p3]),
        }
    }
}

/// Returns lines for the notifiers of a running kernel that are called before the driver's, given a function that fills
/// a buffer with the kernel's memory and returns whether it could.
///
/// The head's lock has another length on each kind of kernel. Its list begins at the only word from which notifiers
/// follow: each calls a function that has a symbol, and none has a higher priority than the one before it.
///
/// # Errors
/// [`Error::Image`] if there is no such word, or more than one.
pub(super) fn of_a_running_kernel(
    symbols: &Symbols,
    mut read: impl FnMut(Addr, &mut [u8]) -> bool,
) -> Result<String> {
    let head = symbols
        .entries()
        .iter()
        .find(|symbol| !symbol.module && symbols.name(symbol) == CHAIN);
    let head = head.ok_or_else(|| unknown(format!("kallsyms has no symbol {CHAIN}")))?;
    let limit = end(symbols, head.at).unwrap_or(head.at.add(HEAD));
    let words = Span {
        start: head.at,
        end: limit,
    }
    .len()
    .min(HEAD)
        / 8;
    let mut chains = (0..words).filter_map(|word| {
        let mut first = [0; 8];
        read(head.at.add(8 * word), &mut first).then_some(())?;
        chain(u64::from_le_bytes(first), symbols, &mut read)
    });
    let (Some(chain), None) = (chains.next(), chains.next()) else {
        return Err(unknown(format!(
            "the notifiers of traps at {} ({CHAIN}) are not a list of a form that is known",
            head.at
        )));
    };
    Ok(lines(&chain, symbols))
}

/// Follows a list; `None` if it is none of notifiers.
fn chain(
    first: u64,
    symbols: &Symbols,
    read: &mut impl FnMut(Addr, &mut [u8]) -> bool,
) -> Option<Vec<Notifier>> {
    let mut found: Vec<Notifier> = Vec::new();
    let mut next = first;
    while next != 0 {
        let mut bytes = [0; Notifier::BYTES];
        read(Addr(next), &mut bytes).then_some(())?;
        let notifier = Notifier::parse(&bytes);
        let is_later = found
            .last()
            .is_none_or(|last| last.priority >= notifier.priority);
        let mut names = symbols.at(notifier.function);
        let is_code = names.any(|symbol| symbol.is_text() || symbol.is_module_text());
        if !is_later || !is_code || found.len() == LONGEST {
            return None;
        }
        next = notifier.next;
        found.push(notifier);
    }
    (!found.is_empty()).then_some(found)
}

/// Returns lines for the notifiers that a kernel's file registers with the highest priority.
///
/// # Errors
/// [`Error::Image`] if there is none: that of kprobes is one, without which there is no kernel for the driver.
pub(super) fn of_a_file(symbols: &Symbols, memory: &Memory) -> Result<String> {
    let named = |name: &str| {
        let mut all = symbols.entries().iter();
        all.find(|symbol| symbols.name(symbol) == name)
            .map(|symbol| symbol.at)
    };
    let target = named(REGISTER)
        .ok_or_else(|| unknown(format!("the kernel's file has no symbol {REGISTER}")))?;
    let mut found = Vec::new();
    for area in [("_stext", "_etext"), ("_sinittext", "_einittext")] {
        let (Some(start), Some(end)) = (named(area.0), named(area.1)) else {
            continue;
        };
        let arguments = arguments(Span { start, end }, target, symbols, memory);
        found.extend(arguments.filter_map(|at| {
            let bytes = memory.bytes_from(at, Notifier::BYTES)?;
            Some(Notifier::parse(bytes.first_chunk()?))
        }));
    }
    found.retain(|notifier| symbols.at(notifier.function).next().is_some());
    let all = lines(&found, symbols);
    if all.is_empty() {
        return Err(unknown(format!(
            "the kernel's file registers no notifier of traps with the highest priority by {REGISTER}"
        )));
    }
    Ok(all)
}

/// Constant addresses that code passes as the first argument of a function.
fn arguments<'m>(
    text: Span,
    target: Addr,
    symbols: &'m Symbols,
    memory: &'m Memory,
) -> impl Iterator<Item = Addr> + 'm {
    let bytes = memory
        .bytes_from(
            text.start,
            usize::try_from(text.len()).unwrap_or(usize::MAX),
        )
        .unwrap_or_default();
    let calls = bytes.windows(5).zip(0_u64..);
    let calls = calls.filter_map(move |(window, offset)| {
        let [0xe8 | 0xe9, a, b, c, d] = *window else {
            return None;
        };
        let at = text.start.add(offset);
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        (at.add(5).add(distance.cast_unsigned()) == target).then_some(at)
    });
    calls.filter_map(|call| {
        let function = symbols.at_or_before(call).next()?.at;
        let code = memory.bytes(Span {
            start: function,
            end: call,
        })?;
        let decoder = Decoder::with_ip(64, code, function.0, DecoderOptions::NONE);
        let sets = |instruction: &Instruction| {
            instruction.op_count() == 2
                && instruction.op0_register().full_register() == Register::RDI
        };
        let last = decoder.into_iter().filter(sets).last()?;
        computed_address(&last)
    })
}

/// A line for each function that a notifier of the highest priority calls, in order of address.
fn lines(notifiers: &[Notifier], symbols: &Symbols) -> String {
    let before = notifiers
        .iter()
        .filter(|notifier| notifier.priority == HIGHEST);
    let mut functions: Vec<Addr> = before.map(|notifier| notifier.function).collect();
    functions.sort_unstable();
    functions.dedup();
    let mut all = String::new();
    for at in functions {
        let Some(symbol) = symbols.preferred(at) else {
            continue;
        };
        let name = symbols.name(symbol);
        if symbol.module && name == OWN {
            continue;
        }
        let end = end(symbols, at).unwrap_or(at.add(1));
        // Writing to a string does not fail.
        let _ = writeln!(all, "{LINE}{:#018x}-{:#018x}\t{name}", at.0, end.0);
    }
    all
}

/// The address of the next symbol.
fn end(symbols: &Symbols, at: Addr) -> Option<Addr> {
    let next = symbols.entries().partition_point(|symbol| symbol.at <= at);
    symbols.entries().get(next).map(|symbol| symbol.at)
}

fn unknown(reason: String) -> Error {
    Error::Image { reason }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::kernel::kallsyms;

    const HEAD_AT: u64 = 0xffff_ffff_8280_0000;
    const TEXT: u64 = 0xffff_ffff_8100_0000;
    const SYMBOLS: &str = "ffffffff81000000 t kprobes\n\
                           ffffffff81000100 T breakpoints\n\
                           ffffffff81000200 t uprobes\n\
                           ffffffff82800000 d die_chain\n\
                           ffffffff82800048 d reboot_list\n\
                           ffffffffc0000000 t module_first\t[m]\n\
                           ffffffffc0000080 t ilk_die\t[ilk]\n";
    const MODULE: u64 = 0xffff_ffff_c000_0000;

    /// A list of notifiers, each with its function and priority, whose first address is at an offset of the head.
    fn memory(offset: u64, notifiers: &[(u64, i32)]) -> HashMap<u64, u64> {
        let node = |number: usize| HEAD_AT + 0x1000 * (number as u64 + 1);
        let mut words = HashMap::from([(HEAD_AT + offset, node(0))]);
        for (number, (function, priority)) in notifiers.iter().enumerate() {
            let is_last = number + 1 == notifiers.len();
            let next = if is_last { 0 } else { node(number + 1) };
            let words_of_it = [*function, next, u64::from(priority.cast_unsigned())];
            words.extend((0..).map(|word| node(number) + 8 * word).zip(words_of_it));
        }
        words
    }

    fn found(words: &HashMap<u64, u64>) -> Result<Vec<String>> {
        let symbols = kallsyms::parse(SYMBOLS).unwrap();
        let text = of_a_running_kernel(&symbols, |at, buffer| {
            for (number, word) in buffer.chunks_exact_mut(8).enumerate() {
                let at = at.0 + 8 * number as u64;
                let is_head = (HEAD_AT..HEAD_AT + HEAD).contains(&at);
                let Some(value) = words.get(&at).copied().or(is_head.then_some(0)) else {
                    return false;
                };
                word.copy_from_slice(&value.to_le_bytes());
            }
            true
        })?;
        let lines = text.lines();
        Ok(lines
            .map(|line| line.strip_prefix(LINE).unwrap().to_owned())
            .collect())
    }

    #[test]
    fn notifiers_of_the_highest_priority_are_found_wherever_the_list_begins() {
        let all = [
            (TEXT, i32::MAX),
            (MODULE, i32::MAX),
            (MODULE + 0x80, i32::MAX),
            (TEXT + 0x200, i32::MAX - 1),
            (TEXT + 0x100, -7),
        ];
        for offset in [8, 40, 64] {
            let expected = [
                "0xffffffff81000000-0xffffffff81000100\tkprobes",
                "0xffffffffc0000000-0xffffffffc0000080\tmodule_first",
            ];
            assert_eq!(found(&memory(offset, &all)).unwrap(), expected);
        }
    }

    #[test]
    fn a_list_of_another_form_is_refused() {
        let rising = memory(8, &[(TEXT, 0), (TEXT + 0x100, 1)]);
        let no_code = memory(8, &[(TEXT, 0), (TEXT + 0x101, 0)]);
        let outside = memory(0x48, &[(TEXT, 0)]);
        let mut two = memory(8, &[(TEXT, 0)]);
        two.insert(HEAD_AT + 16, HEAD_AT + 0x1000);
        let mut circle = memory(8, &[(TEXT, 0)]);
        circle.insert(HEAD_AT + 0x1008, HEAD_AT + 0x1000);
        for words in [rising, no_code, outside, two, circle, HashMap::new()] {
            let error = found(&words).unwrap_err().to_string();
            assert!(error.contains("die_chain"), "{error}");
        }
    }
}
