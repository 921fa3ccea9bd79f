//! Runs patches on numbers, with interrupts and migrations in between. It knows nothing of what a
//! patch should be: two patches that do the same on many worlds do the same, as far as that goes.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

use super::machine::{Interpreter, RSP};
use crate::Addr;
use crate::layout::RuntimeLayout;

const STACK: u64 = 0xffff_c900_0012_3450;

/// The environment of a patch when control reaches it.
#[derive(Clone, Debug)]
pub(super) struct PatchWorld {
    pub(super) seed: u64,
    pub(super) registers: [u64; 16],
    pub(super) flags: u32,
    /// Per-CPU words that are not what the seed says, of each of two CPUs.
    pub(super) gs: [HashMap<u64, u64>; 2],
    pub(super) memory: HashMap<u64, u64>,
    /// Before which of its instructions that read the clock or per-CPU words an interrupt samples
    /// something on the CPU. (Not before which instruction: one more or less of the others, or in
    /// another order, is no difference.)
    pub(super) interrupts: Vec<usize>,
    /// The same, before which the thread goes to the other CPU.
    pub(super) migrates: Option<usize>,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The address that control left to; `None` if it never left.
    pub(super) left_for: Option<u64>,
    pub(super) registers: [u64; 16],
    pub(super) flags: u32,
    /// Words of memory and per-CPU words that were written, by whichever CPU, in the end.
    pub(super) words: Vec<(usize, u64, u64)>,
    /// The effects of instructions that the interpreter does not model.
    pub(super) others: Vec<String>,
}

/// Runs a patch until control leaves it.
pub(super) fn run(layout: &RuntimeLayout, at: Addr, code: &[u8], world: &PatchWorld) -> Outcome {
    let mut machine = Interpreter::new(layout, at.0, world);
    machine.registers[RSP] = STACK;
    let span = crate::Span::new(at, code.len() as u64);
    let mut left_for = None;
    let mut event = 0;
    for _ in 0..3000 {
        if !span.contains(Addr(machine.ip)) {
            left_for = Some(machine.ip);
            break;
        }
        let offset = (machine.ip - at.0) as usize;
        let instruction =
            Decoder::with_ip(64, &code[offset..], machine.ip, DecoderOptions::NONE).decode();
        let reads =
            instruction.segment_prefix() == Register::GS && instruction.mnemonic() != Mnemonic::Nop;
        if instruction.mnemonic() == Mnemonic::Rdtsc || reads {
            if world.interrupts.contains(&event) {
                machine.interrupt();
            }
            if world.migrates == Some(event) {
                machine.cpu = 1;
            }
            event += 1;
        }
        machine.ip = instruction.next_ip();
        if machine.step(&instruction).is_none() {
            break;
        }
    }
    let mut words: Vec<(usize, u64, u64)> = machine
        .written
        .into_iter()
        .map(|((space, at), word)| (space, at, word))
        .collect();
    // What is below the stack pointer is nobody's.
    words.retain(|&(space, at, _)| {
        space != 2 || !(STACK - 4096..machine.registers[RSP]).contains(&at)
    });
    words.sort_unstable();
    Outcome {
        left_for,
        registers: machine.registers,
        flags: machine.flags,
        words,
        others: machine.others,
    }
}
