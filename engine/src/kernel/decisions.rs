//! The state that decides which bytes the kernel writes at static keys and static calls.
//!
//! A jump label jumps when its key is on, or when it is off: `jump_label_type` of
//! kernel/jump_label.c, with the meaning of `entry->key` of include/linux/jump_label.h. A static call
//! has the target of its trampoline, which the kernel rewrites first: `arch_static_call_transform`
//! of arch/x86/kernel/static_call.c.

use rustc_hash::FxHashMap;

use super::collect::Tables;
use crate::code::{Decided, Decision, Memory, Symbols, Transfer};
use crate::{Addr, Span};

/// Returns the decisions of the tables' sites as far as they are known, by address.
pub(super) fn decided(tables: &Tables, symbols: &Symbols, memory: &Memory) -> Vec<Decided> {
    // Every jump label and static call was given a site when the tables were read.
    let spans: FxHashMap<Addr, Span> = tables
        .sites
        .iter()
        .map(|site| (site.span.start, site.span))
        .collect();
    let keys = tables.jumps.iter().filter_map(|entry| {
        let by = Decision::StaticKey {
            key: entry.key,
            inverted: entry.inverted,
            target: entry.target,
        };
        Some(Decided {
            span: *spans.get(&entry.code)?,
            by,
        })
    });

    let trampolines: FxHashMap<&str, Addr> = symbols
        .entries()
        .iter()
        .filter(|symbol| symbol.is_text())
        .filter_map(|symbol| Some((symbols.name(symbol).strip_prefix("__SCT__")?, symbol.at)))
        .collect();
    let calls = tables.static_calls.iter().filter_map(|entry| {
        let trampoline = symbols
            .at(entry.key)
            .filter_map(|symbol| symbols.name(symbol).strip_prefix("__SCK__"))
            .find_map(|name| trampolines.get(name))?;
        let by = Decision::StaticCall {
            trampoline: *trampoline,
            transfer: transfer(memory.bytes_from(entry.code, 6)?, entry.tail)?,
        };
        Some(Decided {
            span: *spans.get(&entry.code)?,
            by,
        })
    });
    let mut decided: Vec<Decided> = keys.chain(calls).collect();
    decided.sort_unstable();
    decided.dedup_by_key(|decided| decided.span.start);
    decided
}

/// Returns the form of a static call that has the bytes `live`; `None` for bytes that `__sc_insn` never
/// writes for such a site.
fn transfer(live: &[u8], tail: bool) -> Option<Transfer> {
    match (live, tail) {
        ([0x0f, condition @ 0x80..=0x8f, ..], true) => Some(Transfer::Conditional(condition & 15)),
        ([0xe9 | 0xc3, ..], true) => Some(Transfer::Jump),
        // A call; the nop for no function; `xor eax, eax` for a function that returns 0.
        (
            [0xe8, ..]
            | [0x0f, 0x1f, 0x44, 0, 0, ..]
            | [0x66, 0x66, 0x48, 0x31, 0xc0, ..]
            | [0x2e, 0x2e, 0x2e, 0x31, 0xc0, ..],
            false,
        ) => Some(Transfer::Call),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{DATA, Fixture};
    use super::*;

    #[test]
    fn keys_and_trampolines_are_found() {
        let mut kernel = Fixture::new()
            .bytes("keyed", &[0x66, 0x90, 0x0f, 0x1f, 0x44, 0, 0, 0xc3])
            .bytes(
                "calls",
                &[0x0f, 0x1f, 0x44, 0, 0, 0xe8, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0],
            )
            .bytes("__SCT__hook", &[0xc3, 0xcc, 0xcc, 0xcc, 0xcc]);
        let at = Fixture::address;
        let (key, hook) = (DATA + 0x4000, DATA + 0x5000);
        kernel.jumps = vec![(at(0), at(0) + 7), (at(0) + 2, at(0) + 7)];
        kernel.jump_keys = vec![key, key | 1];
        kernel.static_calls = vec![at(1), at(1) + 5, at(1) + 10];
        kernel.static_call_keys = vec![hook, DATA + 0x6000, hook | 1];
        kernel.symbols = vec![(hook, 'D', "__SCK__hook".to_owned())];
        let image = kernel.image();
        let keyed = |inverted| Decision::StaticKey {
            key: Addr(key),
            inverted,
            target: Addr(at(0) + 7),
        };
        let called = |transfer| Decision::StaticCall {
            trampoline: Addr(at(2)),
            transfer,
        };
        for (site, len, by) in [
            (at(0), 2, Some(keyed(false))),
            (at(0) + 2, 5, Some(keyed(true))),
            (at(1), 5, Some(called(Transfer::Call))),
            // A key without a name.
            (at(1) + 5, 5, None),
            (at(1) + 10, 5, Some(called(Transfer::Jump))),
            (at(1) + 1, 5, None),
        ] {
            let expected = by.map(|by| Decided {
                span: Span::new(Addr(site), len),
                by,
            });
            assert_eq!(image.decided(Addr(site)), expected);
        }
    }

    #[test]
    fn an_inlined_unlock_and_a_warning_stay_and_control_falls_through_both() {
        let unlock = [0x3e, 0x3e, 0xc6, 0x07, 0];
        let warning = [0x67, 0x48, 0x0f, 0xb9, 0x3a];
        let mut kernel = Fixture::new().bytes("f", &[&unlock[..], &warning, &[0xc3]].concat());
        kernel.static_calls = (0..12).map(|n| Fixture::address(0) + 5 * (n % 2)).collect();
        let image = kernel.image();
        let function = image.functions().iter().next().unwrap();
        let cfg = crate::cfg::Cfg::of(&image, function.id);
        assert_eq!(cfg.blocks.len(), 1, "{:?}", cfg.blocks);
        for at in [0, 5] {
            assert_eq!(image.decided(Addr(Fixture::address(0) + at)), None);
        }
    }

    #[test]
    fn a_site_that_reads_as_it_never_should_is_left_out() {
        assert_eq!(transfer(&[0xe8, 0, 0, 0, 0, 0], true), None);
        assert_eq!(transfer(&[0xe9, 0, 0, 0, 0, 0], false), None);
        assert_eq!(transfer(&[0xcc, 0, 0, 0, 0, 0], false), None);
        assert_eq!(
            transfer(&[0x0f, 0x85, 0, 0, 0, 0], true),
            Some(Transfer::Conditional(5))
        );
    }
}
