//! Programs in a process without restartable sequences (musl, glibc before 2.35): locked instructions update their words,
//! and all threads share a ring.

use gilk_instruments::program::Input;
use iced_x86::{Code, Mnemonic, OpKind, Register};

use super::sequence_programs::{
    InstructionKind, PROGRAMS, byte, damaged, instructions_of_instruments, layout_of_process, nops,
    refused_without,
};
use super::*;
use crate::Rule;
use crate::layout::{RingOwner, Sequences};

/// The first words of the ring, of CPU 0.
const RING_WORDS: u64 = 0x2000_0000 + (8 << 14);
/// The address of its first slot.
const RING: u64 = 0x3000_0000;

/// The layout of processes with sequences, without areas. The ring has slots of lines.
fn layout_with_lines() -> RuntimeLayout {
    let mut layout = layout_without();
    layout.rings = layout.rings.with_lines();
    layout
}

/// The layout of processes with sequences, without areas.
fn layout_without() -> RuntimeLayout {
    let mut layout = layout_of_process();
    let RingOwner::Rseq(sequences) = layout.rings.per else {
        panic!("it is a process's");
    };
    let sequences = Sequences {
        area: None,
        ..sequences
    };
    layout.rings = Rings::of_sequences(sequences, (Addr(RING), 10), RING_WORDS);
    layout.inputs.set(Input::Cpu, None);
    layout
}

/// Returns whether a program needs an area: it uses what is a CPU's.
fn needs_an_area(source: &str) -> bool {
    source.contains("cpu")
}

/// Returns whether a program has lines of several words.
fn has_lines(source: &str) -> bool {
    source.contains("printf(\"%")
}

fn written(image: &Image, source: &str) -> Plan {
    let hook = ("kept", 0, HookType::Pre);
    let layout = match has_lines(source) {
        true => layout_with_lines(),
        false => layout_without(),
    };
    let plan = of_source(image, hook, source, &layout);
    plan.unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// The plans of the programs that need none.
fn plans(image: &Image) -> impl Iterator<Item = (&'static str, Plan)> {
    let sources = PROGRAMS.iter().map(|(source, _)| *source);
    let sources = sources.filter(|source| !needs_an_area(source));
    sources.map(|source| (source, written(image, source)))
}

#[test]
fn words_are_updated_without_sequences() {
    let image = super::handmade::image();
    let mut count = 0;
    for (source, plan) in plans(&image) {
        assert_eq!(plan.patches[0].sequences, 0, "{source}");
        passes(&image, &plan);
        count += 1;
    }
    assert!(count > 18, "{count}");
}

#[test]
fn words_of_a_cpu_are_refused() {
    let image = super::handmade::image();
    // Those with lines need slots of lines.
    let refused = |source: &str| needs_an_area(source) || has_lines(source);
    for (source, _) in PROGRAMS.iter().filter(|(source, _)| refused(source)) {
        let hook = ("kept", 0, HookType::Pre);
        let error = of_source(&image, hook, source, &layout_without()).unwrap_err();
        let crate::Error::Refused { refusal, .. } = error else {
            panic!("{source}: {error}");
        };
        assert_eq!(refusal.rule, Rule::RingOwner, "{source}: {refusal}");
        assert!(refusal.why.contains("glibc from 2.35"), "{refusal}");
    }
}

#[test]
fn every_instruction_and_every_prefix_matters() {
    let image = super::handmade::image();
    let mut locked = 0;
    for (source, good) in plans(&image) {
        for instruction in instructions_of_instruments(&good) {
            refused_without(&image, (source, &good), &instruction, instruction.len());
            if instruction.has_lock_prefix() {
                locked += 1;
                refused_without(&image, (source, &good), &instruction, 1);
            }
        }
    }
    assert!(locked > 24, "{locked}");
}

/// Takes the word of another row, as a thread with an area updates it, for that of all threads.
#[test]
fn the_words_of_a_cpu_are_not_updated() {
    let image = super::handmade::image();
    for (source, good) in plans(&image) {
        let RingOwner::Rseq(sequences) = good.layout.rings.per else {
            panic!("{source} is not for a process");
        };
        for cpus in [sequences.cpus - 1, sequences.cpus + 1] {
            let mut bad = good.clone();
            bad.layout.rings.per = RingOwner::Rseq(Sequences { cpus, ..sequences });
            assert!(verify(&image, bad).is_err(), "{source}: {cpus}");
        }
    }
}

/// Each damage of a sample in the shared ring, with the rule that catches it.
#[test]
fn each_part_of_a_sample_in_the_shared_ring_is_proven() {
    const ROW: u64 = 5 << 18;
    let image = super::handmade::image();
    let good = written(&image, "entry { sample(arg1) }");
    passes(&image, &good);
    let refused = |rule: &str, which: InstructionKind, damage: &dyn Fn(&mut [u8])| {
        super::refused(&image, &good, rule, |plan| {
            let all = instructions_of_instruments(plan);
            let found = all.iter().find(|one| which(one)).unwrap();
            let patch = &mut plan.patches[0];
            let start = (found.ip() - patch.address.0) as usize;
            damage(&mut patch.code[start..start + found.len()]);
        });
    };
    /// Changes the lowest byte of the displacement or number at the end.
    fn last(by: u8) -> impl Fn(&mut [u8]) {
        move |bytes| {
            let place = bytes.len() - 4;
            bytes[place] ^= by;
        }
    }
    fn unlocked(bytes: &mut [u8]) {
        assert_eq!(bytes[0], 0xf0);
        bytes[0] = 0x3e;
    }
    let head: InstructionKind =
        |one| one.code() == Code::Mov_r64_rm64 && one.memory_displacement64() == RING_WORDS + ROW;
    let limit: InstructionKind = |one| one.code() == Code::Cmp_r64_rm64;
    let full: InstructionKind = |one| one.mnemonic() == Mnemonic::Je;
    let clock: InstructionKind = |one| one.mnemonic() == Mnemonic::Rdtscp;
    let next: InstructionKind =
        |one| one.mnemonic() == Mnemonic::Inc && one.op0_kind() == OpKind::Register;
    let claim: InstructionKind = |one| one.mnemonic() == Mnemonic::Cmpxchg;
    let retry: InstructionKind = |one| one.mnemonic() == Mnemonic::Jne;
    let lost: InstructionKind = |one| one.mnemonic() == Mnemonic::Inc && one.has_lock_prefix();
    let place: InstructionKind =
        |one| one.mnemonic() == Mnemonic::And && one.op0_register() != Register::ECX;
    let scale: InstructionKind = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 5;
    let mark: InstructionKind =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING;
    let time: InstructionKind =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 16;
    let value: InstructionKind =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 8;
    let identifier: InstructionKind =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 24;
    let serial: InstructionKind = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 12;
    let cpu: InstructionKind =
        |one| one.mnemonic() == Mnemonic::And && one.op0_register() == Register::ECX;
    let both: InstructionKind =
        |one| one.mnemonic() == Mnemonic::Or && one.op1_register() == Register::RCX;

    // The room is looked at, of this ring's words, after the head is loaded.
    refused("ReservesOtherHead", head, &last(8));
    refused("ForeignMemory", head, &last(32));
    refused("RingFull", limit, &last(8));
    refused("RingFull", full, &nops);
    refused("RingFull|CountsLoss", full, &|bytes| bytes[1] ^= 1);
    // One slot is claimed, by one locked exchange of the head that was read, and its result is looked at.
    refused("StaleClock", clock, &nops);
    refused("HeadStep", next, &nops);
    refused("OtherMaximum", claim, &last(8));
    refused("UnlockedRing", claim, &unlocked);
    refused("NeedlessSlot|UntestedExchange", retry, &nops);
    refused("UntestedExchange", retry, &|bytes| bytes[0] = 0x72);
    // Nothing is stored before.
    let shifted: InstructionKind = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 32;
    refused("OutsideSample", shifted, &|bytes| {
        // mov [rdi], rdx
        bytes.copy_from_slice(&[0x48, 0x89, 0x17, 0x90]);
    });
    // The words of its own slot, each once and with its value.
    refused("OutsideSlot", place, &last(1));
    refused("OutsideSlot", scale, &|bytes| bytes[3] ^= 1);
    for (which, rule) in [
        (time, "EarlyMark|OtherValue"),
        (value, "OtherTime"),
        (identifier, "EarlyMark"),
    ] {
        refused(rule, which, &last(24));
        refused("OutsideSlot", which, &last(32));
        refused("EarlyMark", which, &nops);
    }
    // The mark is the last store, and names the sample and the CPU of its clock.
    refused("EarlyMark", time, &last(16));
    refused("OutsideSlot", mark, &last(32));
    refused("Instruction: has no mark yet", mark, &nops);
    refused("OtherMark", serial, &nops);
    refused("OtherMark", serial, &|bytes| bytes[3] ^= 1);
    refused("OtherMark", cpu, &last(1));
    refused("OtherMark", cpu, &nops);
    refused("OtherMark", both, &nops);
    refused("OtherMark", clock, &|bytes| {
        bytes.copy_from_slice(&[0x0f, 0x31, 0x90]);
    });
    // A loss is one locked increment of the word of losses.
    refused("OtherRingWord", lost, &last(8));
    refused("UnlockedRing", lost, &unlocked);
    refused("Instruction: it has done nothing yet", lost, &nops);
    // Where threads have areas, the ring is not shared.
    super::refused(
        &image,
        &good,
        "OutsideSequence|Instruction|ForeignMemory",
        |plan| {
            plan.layout = layout_of_process();
        },
    );
}

/// Each damage of a line of three words in the shared ring, with the rule that catches it.
#[test]
fn each_part_of_a_line_in_the_shared_ring_is_proven() {
    let image = super::handmade::image();
    let good = written(&image, "entry { printf(\"%d %d\", arg1, arg2 + 1) }");
    passes(&image, &good);
    let refused =
        |rule: &str, which: InstructionKind, number: usize, damage: &dyn Fn(&mut [u8])| {
            damaged(&image, &good, rule, (which, number), damage);
        };
    /// Returns whether an instruction stores a register so far into the words of a line.
    fn stores(one: &Instruction, offset: u64) -> bool {
        let place = one.memory_displacement64().wrapping_sub(RING);
        one.code() == Code::Mov_rm64_r64 && place < 256 && place % 32 == offset
    }
    let next: InstructionKind =
        |one| one.mnemonic() == Mnemonic::Inc && one.op0_kind() == OpKind::Register;
    let place: InstructionKind =
        |one| one.mnemonic() == Mnemonic::And && one.op0_register() != Register::ECX;
    let scale: InstructionKind = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 8;
    let mark: InstructionKind = |one| stores(one, 0);
    let value: InstructionKind = |one| stores(one, 8);
    let time: InstructionKind = |one| stores(one, 16);
    let identifier: InstructionKind = |one| stores(one, 24);
    let id: InstructionKind = |one| one.code() == Code::Mov_r64_imm64;
    let format: InstructionKind =
        |one| one.code() == Code::Mov_rm64_imm32 && one.memory_displacement64() == RING + 8;
    let serial: InstructionKind = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 12;
    let both: InstructionKind =
        |one| one.mnemonic() == Mnemonic::Or && one.op1_register() == Register::RCX;
    let full: InstructionKind = |one| one.mnemonic() == Mnemonic::Je;
    let lost: InstructionKind = |one| one.mnemonic() == Mnemonic::Inc && one.has_lock_prefix();

    // One slot is reserved for all words, and is that of the head.
    refused("HeadStep", next, 0, &nops);
    refused("OutsideSlot", place, 0, &byte(4, 1));
    refused("OutsideSlot", scale, 0, &byte(1, 1));
    refused("OutsideSlot", scale, 0, &byte(1, 0xd));
    refused("RingFull", full, 0, &nops);
    // Each part of each word: missing, of another word, in another line, and in another place of its own.
    for word in 0..3 {
        for which in [time, identifier] {
            refused("EarlyMark|OutsideSlot", which, word, &nops);
            for by in [0x20, 0x40, 0x80] {
                refused("OutsideSlot", which, word, &byte(4, by));
            }
            refused("OutsideSlot", which, word, &byte(3, 1));
            refused(
                "OutsideSlot|OtherValue|OtherTime|OtherIdentifier|EarlyMark|OtherMark",
                which,
                word,
                &byte(4, 24),
            );
        }
    }
    for word in 0..2 {
        refused("EarlyMark|OutsideSlot", value, word, &nops);
        refused("OutsideSlot", value, word, &byte(4, 0x60));
    }
    refused("EarlyMark|OutsideSlot", format, 0, &nops);
    refused("OtherValue", format, 0, &byte(1, 1));
    // Another identifier, and the mark of a further word where there is none, or none where there is one.
    for number in 0..2 {
        refused("OtherIdentifier", id, number, &byte(8, 1));
        refused("OtherIdentifier", id, number, &byte(2, 1));
    }
    // The mark names the line, is that of its first word, and is stored after the last.
    refused("OtherMark", serial, 0, &nops);
    refused("OtherMark", both, 0, &nops);
    refused("Instruction: has no mark yet", mark, 0, &nops);
    for by in [0x20, 0x40, 0x80] {
        refused("OutsideSlot", mark, 0, &byte(4, by));
    }
    for word in 0..3 {
        refused("EarlyMark", time, word, &|bytes| {
            // mov [rdi + slot], rax in its place, with the same registers.
            let end = bytes.len() - 4;
            bytes[end..].copy_from_slice(&(RING as u32).to_le_bytes());
        });
    }
    // A loss is one.
    refused("UnlockedRing", lost, 0, &|bytes| bytes[0] = 0x3e);
    refused("Instruction: it has done nothing yet", lost, 0, &nops);
    // Slots of fewer words than the line has, though each of its stores is in the ring.
    super::refused(&image, &good, "LongLine", |plan| {
        let rings = &mut plan.layout.rings;
        rings.slots_log2 = rings.stride_log2 - 6;
        let all = instructions_of_instruments(plan);
        let slots = u32::to_le_bytes((1 << plan.layout.rings.slots_log2) - 1);
        for (which, bytes) in [(place, &slots[..]), (scale, &[6])] {
            let found = all.iter().find(|one| which(one)).unwrap();
            let end = (found.ip() - plan.patches[0].address.0) as usize + found.len();
            plan.patches[0].code[end - bytes.len()..end].copy_from_slice(bytes);
        }
    });
    // Slots are of 32 bytes for each word, at most eight, in the shared ring alone.
    for log2 in [4, 9] {
        super::refused(&image, &good, "RingSize", |plan| {
            let rings = &mut plan.layout.rings;
            rings.slots_log2 = rings.stride_log2 - log2;
        });
    }
    super::refused(&image, &good, "RingSize", |plan| {
        let layout = layout_of_process();
        plan.layout.rings.per = layout.rings.per;
    });
    // Another program: values in other words, fewer words, and more.
    for arguments in [
        "\"%d %d\", arg2 + 1, arg1",
        "\"%d\", arg1",
        "\"%d %d %d\", arg1, arg2 + 1, 3",
    ] {
        let mut bad = good.clone();
        let other = written(&image, &format!("entry {{ printf({arguments}) }}"));
        bad.instruments = other.instruments;
        assert!(verify(&image, bad).is_err(), "{arguments}");
    }
}

/// Two samples at one hook have a slot each, and rcx is saved where it is sampled or live.
#[test]
fn samples_of_rcx_and_several_samples_are_right() {
    let image = super::handmade::image();
    for source in [
        "entry { sample(arg3) }",
        "entry { sample(arg0); sample(arg3); sample(tsc - arg3) }",
        "entry / arg3 % 3 == 1 / { sample(arg3 << (arg2 & 7)); @n = count() }",
        "global @n; entry { sample(@n); @n = arg3 }",
        "entry { printf(\"%d %d %d %d\", arg3, arg2 << (arg3 & 7), tsc, 5); printf(\"%d\", arg0) }",
        "entry { printf(\"%d %d %d %d %d %d\", arg0, arg1, arg2, arg3, arg4, arg5); printf(\"x\"); @n = count() }",
    ] {
        passes(&image, &written(&image, source));
    }
}

#[test]
fn no_bit_of_a_sample_in_the_shared_ring_can_change() {
    no_bit_can_change("entry { sample(arg1) }", 900);
}

#[test]
fn no_bit_of_a_line_in_the_shared_ring_can_change() {
    no_bit_can_change("entry { printf(\"%d %d\", arg1 + 3, arg2 + 1) }", 1500);
}

fn no_bit_can_change(source: &str, least: u32) {
    let image = super::handmade::image();
    let good = written(&image, source);
    let mut changed = 0;
    for instruction in instructions_of_instruments(&good) {
        let start = (instruction.ip() - good.patches[0].address.0) as usize;
        for bit in 0..8 * instruction.len() {
            let mut bad = good.clone();
            bad.patches[0].code[start + bit / 8] ^= 1 << (bit % 8);
            let other = decoded(Addr(instruction.ip()), &bad.patches[0].code[start..])[0];
            if !does_the_same(&instruction, &other) && !is_wider(&instruction, &other) {
                changed += 1;
                assert!(verify(&image, bad).is_err(), "{instruction}: {other}");
            }
        }
    }
    assert!(changed > least, "{changed}");
}

/// Returns whether another instruction does the same with more bits of the same registers: of the number of a slot the low
/// ones are taken.
fn is_wider(one: &Instruction, other: &Instruction) -> bool {
    let registers =
        |one: &Instruction| [0, 1].map(|operand| one.op_register(operand).full_register());
    let computes = matches!(
        (one.code(), other.code()),
        (Code::Mov_r32_rm32, Code::Mov_r64_rm64) | (Code::And_rm32_imm32, Code::And_rm64_imm32)
    );
    let has_memory = (0..2).any(|operand| other.op_kind(operand) == OpKind::Memory);
    let number = one.try_immediate(1).ok() == other.try_immediate(1).ok();
    computes && !has_memory && number && registers(one) == registers(other)
}

/// Returns whether another instruction has the same effect in the place of one of a sample.
pub(super) fn does_the_same(one: &Instruction, other: &Instruction) -> bool {
    match (one.mnemonic(), other.mnemonic()) {
        // No bit is shifted out, and the operands have no bit in common.
        (Mnemonic::Shl, Mnemonic::Shl | Mnemonic::Rol) => {
            let same = one.op0_register().full_register() == other.op0_register().full_register();
            same && one.immediate8() % 64 == other.immediate8() % 64
        }
        (Mnemonic::Or, Mnemonic::Add) => {
            one.op0_register() == other.op0_register() && one.op1_register() == other.op1_register()
        }
        // The head and the limit are compared for equality, in either order.
        (Mnemonic::Cmp, Mnemonic::Cmp) if other.op0_kind() == OpKind::Memory => {
            one.op0_register() == other.op1_register()
                && one.memory_displacement64() == other.memory_displacement64()
        }
        // Bits of a prefix without a use.
        _ => one.to_string() == other.to_string(),
    }
}
