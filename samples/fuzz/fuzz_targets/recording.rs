//! Fuzz target: any bytes open as a recording or are refused, what opens can be read, and nothing
//! panics.

#![no_main]

#[expect(dead_code, reason = "the other target tries the other half")]
#[path = "../../tests/support/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzed::recording(bytes));
