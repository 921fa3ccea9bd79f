//! The code by which instruments in a process read its memory: it is proven, and none with another bit.

use super::sequences::process;
use super::*;
use crate::reads::MemoryReader;
use crate::verify::reads::{ReaderViolation, verify};

fn sound() -> MemoryReader {
    let mut all = MemoryReader::all(&process());
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn listing(reader: &MemoryReader) -> Vec<String> {
    let all = decoded(reader.start, &reader.code).into_iter();
    all.map(|one| one.to_string()).collect()
}

#[test]
fn no_bit_of_the_code_that_reads_memory_may_change() {
    let layout = process();
    let sound = sound();
    let proven = verify(&layout, vec![sound.clone()]).unwrap();
    assert_eq!(proven.readers(), std::slice::from_ref(&sound));
    let instructions = listing(&sound);
    for bit in 0..sound.code.len() * 8 {
        let mut changed = sound.clone();
        changed.code[bit / 8] ^= 1 << (bit % 8);
        let is_same = listing(&changed) == instructions;
        let verdict = verify(&layout, vec![changed]);
        assert_eq!(verdict.is_ok(), is_same, "{bit}: {verdict:?}");
        // Bits of a prefix or of a scale that the processor ignores.
        let byte = sound.code[bit / 8];
        assert!(
            verdict.is_err() || matches!(byte, 0x40..=0x4f | 0x24),
            "{bit}"
        );
    }
    let mut longer = sound.clone();
    longer.code.push(0x90);
    let refused = verify(&layout, vec![longer]).unwrap_err();
    assert!(matches!(refused, ReaderViolation::Longer(_)), "{refused}");
    let elsewhere = MemoryReader {
        start: sound.start.add(16),
        ..sound.clone()
    };
    let other_row = MemoryReader {
        row: sound.row + 8,
        ..sound
    };
    assert_eq!(
        verify(&layout, Vec::new()).unwrap_err(),
        ReaderViolation::Place
    );
    assert_eq!(
        verify(&layout, vec![elsewhere]).unwrap_err(),
        ReaderViolation::Place
    );
    let refused = verify(&layout, vec![other_row]).unwrap_err();
    assert!(matches!(refused, ReaderViolation::Row(_)), "{refused}");
}
