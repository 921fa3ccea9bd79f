//! The code by which instruments in a process read its memory, and that ends the reads: it is proven, and none with another
//! bit.

use super::sequences::process;
use super::*;
use crate::layout::ReadGate;
use crate::reads::{MemoryReader, ReadsEnd};
use crate::verify::listing::ListingViolation;
use crate::verify::reads::{ReaderViolation, verify, verify_ends};

const GATE: ReadGate = ReadGate {
    closed: Addr(0x2000_0f00),
};
const PATIENCE: u64 = 0xb_1234_5678;

fn sound() -> MemoryReader {
    let mut all = MemoryReader::all(&process(), GATE);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn sound_end() -> ReadsEnd {
    let mut all = ReadsEnd::all(&process(), GATE, PATIENCE);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn listing(start: Addr, code: &[u8]) -> Vec<String> {
    let all = decoded(start, code).into_iter();
    all.map(|one| one.to_string()).collect()
}

/// Changes each bit of code, and judges the result.
fn no_bit_may_change(
    (start, code): (Addr, &[u8]),
    mut verdict: impl FnMut(Vec<u8>) -> Result<(), ReaderViolation>,
) {
    let instructions = listing(start, code);
    for bit in 0..code.len() * 8 {
        let mut changed = code.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        let is_same = listing(start, &changed) == instructions;
        let verdict = verdict(changed);
        assert_eq!(verdict.is_ok(), is_same, "{bit}: {verdict:?}");
        // Bits of a prefix or of a scale that the processor ignores.
        let byte = code[bit / 8];
        assert!(
            verdict.is_err() || matches!(byte, 0x40..=0x4f | 0x24 | 0x25),
            "{bit}"
        );
    }
}

#[test]
fn no_bit_of_the_code_that_reads_memory_may_change() {
    let layout = process();
    let sound = sound();
    let proven = verify(&layout, GATE, vec![sound.clone()]).unwrap();
    assert_eq!(proven.readers(), std::slice::from_ref(&sound));
    no_bit_may_change((sound.start, &sound.code), |code| {
        let changed = MemoryReader {
            code,
            ..sound.clone()
        };
        verify(&layout, GATE, vec![changed]).map(drop)
    });
    let mut longer = sound.clone();
    longer.code.push(0x90);
    let refused = verify(&layout, GATE, vec![longer]).unwrap_err();
    let longer = ListingViolation::Longer(sound.start);
    assert_eq!(refused, ReaderViolation::Listing(longer));
    let mut outside = sound.clone();
    outside.code.resize(MemoryReader::BYTES as usize + 1, 0x90);
    let refused = verify(&layout, GATE, vec![outside]).unwrap_err();
    assert_eq!(refused, ReaderViolation::Longer(sound.start));
    let elsewhere = MemoryReader {
        start: sound.start.add(16),
        ..sound.clone()
    };
    let other_row = MemoryReader {
        row: sound.row + 8,
        ..sound.clone()
    };
    let gate = ReadGate {
        closed: GATE.closed.add(8),
    };
    let other_gate = MemoryReader { gate, ..sound };
    assert_eq!(
        verify(&layout, GATE, Vec::new()).unwrap_err(),
        ReaderViolation::Place
    );
    assert_eq!(
        verify(&layout, GATE, vec![elsewhere]).unwrap_err(),
        ReaderViolation::Place
    );
    let refused = verify(&layout, GATE, vec![other_row]).unwrap_err();
    assert!(matches!(refused, ReaderViolation::Row(_)), "{refused}");
    let refused = verify(&layout, GATE, vec![other_gate.clone()]).unwrap_err();
    assert!(matches!(refused, ReaderViolation::Gate(_)), "{refused}");
    // Its code has the words of the other gate.
    let refused = verify(&layout, gate, vec![other_gate]).unwrap_err();
    let ReaderViolation::Listing(ListingViolation::Instruction { .. }) = refused else {
        panic!("{refused}");
    };
}

#[test]
fn no_bit_of_the_code_that_ends_reads_may_change() {
    let layout = process();
    let sound = sound_end();
    let proven = verify_ends(&layout, GATE, vec![sound.clone()]).unwrap();
    assert_eq!(proven.ends(), std::slice::from_ref(&sound));
    no_bit_may_change((sound.start, &sound.code), |code| {
        let changed = ReadsEnd {
            code,
            ..sound.clone()
        };
        verify_ends(&layout, GATE, vec![changed]).map(drop)
    });
    for closed in [GATE.closed.add(4), Addr(1 << 31)] {
        let gate = ReadGate { closed };
        let ends = ReadsEnd::all(&layout, gate, PATIENCE);
        let refused = verify_ends(&layout, gate, ends).unwrap_err();
        assert!(matches!(refused, ReaderViolation::Gate(_)), "{refused}");
    }
    assert_eq!(
        verify_ends(&layout, GATE, Vec::new()).unwrap_err(),
        ReaderViolation::Place
    );
}
