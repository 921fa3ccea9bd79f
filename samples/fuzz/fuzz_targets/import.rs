//! Fuzz target: any text is imported or refused, an imported recording opens, and nothing panics.

#![no_main]

#[expect(dead_code, reason = "the other target tries the other half")]
#[path = "../../tests/support/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzed::imported(bytes));
