//! Programs in a process without restartable sequences (musl, glibc before 2.35): locked instructions update their words,
//! and all threads share a ring.

use gilk_instruments::program::Input;
use iced_x86::{Code, Mnemonic, OpKind, Register};

use super::sequence_programs::{
    PROGRAMS, instructions_of_instruments, layout_of_process, refused_without,
};
use super::*;
use crate::Rule;
use crate::layout::{RingOwner, Sequences};

/// The first words of the ring, of CPU 0.
const RING_WORDS: u64 = 0x2000_0000 + (8 << 14);
/// The address of its first slot.
const RING: u64 = 0x3000_0000;

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

/// Returns whether a program needs an area: it uses what is a CPU's, or has lines.
fn needs_an_area(source: &str) -> bool {
    source.contains("cpu") || source.contains("printf(\"%")
}

fn written(image: &Image, source: &str) -> Plan {
    let hook = ("kept", 0, HookType::Pre);
    let plan = of_source(image, hook, source, &layout_without());
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
    for (source, _) in PROGRAMS.iter().filter(|(source, _)| needs_an_area(source)) {
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
    type Which = fn(&Instruction) -> bool;
    const ROW: u64 = 5 << 18;
    let image = super::handmade::image();
    let good = written(&image, "entry { sample(arg1) }");
    passes(&image, &good);
    let refused = |rule: &str, which: Which, damage: &dyn Fn(&mut [u8])| {
        super::refused(&image, &good, rule, |plan| {
            let all = instructions_of_instruments(plan);
            let found = all.iter().find(|one| which(one)).unwrap();
            let patch = &mut plan.patches[0];
            let start = (found.ip() - patch.address.0) as usize;
            damage(&mut patch.code[start..start + found.len()]);
        });
    };
    fn nops(bytes: &mut [u8]) {
        bytes.fill(0x90);
    }
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
    let head: Which =
        |one| one.code() == Code::Mov_r64_rm64 && one.memory_displacement64() == RING_WORDS + ROW;
    let limit: Which = |one| one.code() == Code::Cmp_r64_rm64;
    let full: Which = |one| one.mnemonic() == Mnemonic::Je;
    let clock: Which = |one| one.mnemonic() == Mnemonic::Rdtscp;
    let next: Which = |one| one.mnemonic() == Mnemonic::Inc && one.op0_kind() == OpKind::Register;
    let claim: Which = |one| one.mnemonic() == Mnemonic::Cmpxchg;
    let retry: Which = |one| one.mnemonic() == Mnemonic::Jne;
    let lost: Which = |one| one.mnemonic() == Mnemonic::Inc && one.has_lock_prefix();
    let place: Which = |one| one.mnemonic() == Mnemonic::And && one.op0_register() != Register::ECX;
    let scale: Which = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 5;
    let mark: Which = |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING;
    let time: Which =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 16;
    let value: Which =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 8;
    let identifier: Which =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 24;
    let serial: Which = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 12;
    let cpu: Which = |one| one.mnemonic() == Mnemonic::And && one.op0_register() == Register::ECX;
    let both: Which = |one| one.mnemonic() == Mnemonic::Or && one.op1_register() == Register::RCX;

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
    let shifted: Which = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 32;
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

/// Two samples at one hook have a slot each, and rcx is saved where it is sampled or live.
#[test]
fn samples_of_rcx_and_several_samples_are_right() {
    let image = super::handmade::image();
    for source in [
        "entry { sample(arg3) }",
        "entry { sample(arg0); sample(arg3); sample(tsc - arg3) }",
        "entry / arg3 % 3 == 1 / { sample(arg3 << (arg2 & 7)); @n = count() }",
        "global @n; entry { sample(@n); @n = arg3 }",
    ] {
        passes(&image, &written(&image, source));
    }
}

#[test]
fn no_bit_of_a_sample_in_the_shared_ring_can_change() {
    let image = super::handmade::image();
    let good = written(&image, "entry { sample(arg1) }");
    let mut changed = 0;
    for instruction in instructions_of_instruments(&good) {
        let start = (instruction.ip() - good.patches[0].address.0) as usize;
        for bit in 0..8 * instruction.len() {
            let mut bad = good.clone();
            bad.patches[0].code[start + bit / 8] ^= 1 << (bit % 8);
            let other = decoded(Addr(instruction.ip()), &bad.patches[0].code[start..])[0];
            if !does_the_same(&instruction, &other) {
                changed += 1;
                assert!(verify(&image, bad).is_err(), "{instruction}: {other}");
            }
        }
    }
    assert!(changed > 900, "{changed}");
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
