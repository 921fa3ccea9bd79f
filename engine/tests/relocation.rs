//! Relocated instructions against the originals, run natively with the same registers, flags and
//! memory.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "relocation/case.rs"]
mod case;
#[path = "relocation/emulated.rs"]
mod emulated;
#[path = "relocation/native.rs"]
mod native;
#[path = "relocation/runnable.rs"]
mod runnable;
#[path = "relocation/sequences.rs"]
mod sequences;

use std::collections::BTreeMap;

use case::{Case, STEPPING_STONE, form, windows};
use gilk_engine::isa::relocate::relocate;
use gilk_engine::kernel::LiveParts;
use gilk_engine::layout::{Abi, ReturnPush, WordSegment};
use gilk_engine::{Addr, Refusal, Rule};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use native::{Machine, ORIGINAL, PATCH, Random, STACK, STATUS, State};
use runnable::system;

/// Instructions of every form that Debian's cloud kernels 6.1.0-56 and 6.12.117 have, one a line in
/// hexadecimal, as they stand there.
const FORMS: &str = include_str!("relocation/forms.txt");

/// Runs the code of a case where it stands and relocated, and compares all there is to compare.
fn agree(machine: &mut Machine, case: &Case, seed: u64) -> Result<(), String> {
    let (from, to) = (machine.address(ORIGINAL), machine.address(PATCH));
    let moved = relocate(&case.code, Addr(from), Addr(to), &Abi::KERNEL)
        .map_err(|refusal| refusal.to_string())?;
    machine.write(ORIGINAL, &case.code);
    machine.write_exit_jump(ORIGINAL + case.code.len() as u64, 0);
    machine.write_exit_jump(STEPPING_STONE, 1);
    machine.write(PATCH, &moved.bytes);
    if moved.falls_through {
        machine.write_exit_jump(PATCH + moved.bytes.len() as u64, 0);
    }
    let mut outcomes = Vec::new();
    for place in [ORIGINAL, PATCH] {
        case.fill(machine, seed);
        let state = machine.run(place, &case.state);
        let memory: Vec<Vec<u8>> = windows()
            .into_iter()
            .map(|window| machine.memory()[window].to_vec())
            .collect();
        outcomes.push((state, memory));
    }
    if outcomes[0].0 != outcomes[1].0 {
        return Err(format!(
            "{:x?}\nbecame\n{:x?}",
            outcomes[0].0, outcomes[1].0
        ));
    }
    if outcomes[0].1 == outcomes[1].1 {
        Ok(())
    } else {
        Err("memory differs".into())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(line: &str) -> Vec<u8> {
    (0..line.len() / 2)
        .map(|n| u8::from_str_radix(&line[2 * n..2 * n + 2], 16).unwrap())
        .collect()
}

/// The kernel that `GILK_IMAGE` names.
fn image() -> LiveParts {
    let path = std::env::var_os("GILK_IMAGE").expect("GILK_IMAGE must name a saved live image");
    postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

/// Every instruction of a kernel's text, decoded from one symbol to the next.
fn every_instruction(parts: &LiveParts, visit: &mut dyn FnMut(&Instruction, &[u8])) {
    let mut symbols: Vec<u64> = parts
        .kallsyms
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (at, kind) = (words.next()?, words.next()?);
            let core = words.nth(1).is_none();
            (core && kind.eq_ignore_ascii_case("t"))
                .then(|| u64::from_str_radix(at, 16).ok())
                .flatten()
        })
        .collect();
    symbols.sort_unstable();
    symbols.dedup();
    for pair in symbols.windows(2) {
        let region = parts.memory.iter().find_map(|(start, bytes)| {
            let offset = pair[0].checked_sub(start.0)? as usize;
            bytes.get(offset..offset + (pair[1] - pair[0]) as usize)
        });
        let Some(bytes) = region else { continue };
        let mut decoder = Decoder::with_ip(64, bytes, pair[0], DecoderOptions::NONE);
        while decoder.can_decode() {
            let position = decoder.position();
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                break;
            }
            visit(&instruction, &bytes[position..decoder.position()]);
        }
    }
}

fn forms_of(instructions: impl FnOnce(&mut dyn FnMut(&Instruction, &[u8]))) -> Vec<Vec<u8>> {
    let mut forms = BTreeMap::new();
    instructions(&mut |instruction, bytes| {
        forms
            .entry(form(instruction))
            .or_insert_with(|| bytes.to_vec());
    });
    forms.into_values().collect()
}

/// The forms that are kept, and what `parts` has beside them.
fn with_known(parts: &LiveParts) -> Vec<Vec<u8>> {
    forms_of(|visit| {
        for bytes in FORMS.lines().map(unhex) {
            visit(
                &Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE).decode(),
                &bytes,
            );
        }
        every_instruction(parts, visit);
    })
}

/// Tally of forms.
#[derive(Debug, Default)]
struct Tally {
    ran: usize,
    /// May not be moved.
    refused: BTreeMap<Rule, usize>,
    /// May be moved, but not be run here; only decoded again. By the reason.
    decoded: BTreeMap<&'static str, Vec<String>>,
}

/// Runs every form with several states, and decodes again what cannot be run.
fn try_forms(forms: &[Vec<u8>]) -> Tally {
    let mut machine = Machine::new();
    let mut tally = Tally::default();
    for (number, bytes) in forms.iter().enumerate() {
        let from = Addr(0xffff_ffff_8100_0000);
        let moved = Decoder::with_ip(64, bytes, from.0, DecoderOptions::NONE).decode();
        if let Err(refusal) = refers_alike(&moved, bytes) {
            *tally.refused.entry(refusal.rule).or_default() += 1;
            continue;
        }
        let mut any = false;
        for round in 0..8 {
            let seed = (number as u64) << 8 | round;
            let Some(case) = Case::of(&machine, bytes, &mut Random(seed)) else {
                continue;
            };
            any = true;
            if let Err(difference) = agree(&mut machine, &case, seed) {
                panic!("{} ({moved}), seed {seed}: {difference}", hex(&case.code));
            }
        }
        if any {
            tally.ran += 1;
        } else {
            let why = system(&moved).unwrap_or("this processor does not have it");
            tally
                .decoded
                .entry(why)
                .or_default()
                .push(moved.to_string());
        }
    }
    tally
}

/// The forms of two kernels. To take in those of another one:
/// `GILK_IMAGE=… GILK_WRITE_FORMS=1 cargo test -p gilk-engine --test relocation -- --ignored corpus`.
#[test]
fn every_form_of_instruction_in_a_kernel_does_the_same_in_a_patch() {
    let forms: Vec<Vec<u8>> = FORMS.lines().map(unhex).collect();
    let tally = try_forms(&forms);
    eprintln!("{} of {} forms ran; {tally:#?}", tally.ran, forms.len());
    // What is left cannot be run in user space, or not everywhere.
    let decoded: usize = tally.decoded.values().map(Vec::len).sum();
    assert!(
        tally.ran * 100 > forms.len() * 96 && decoded < 130,
        "{tally:#?}"
    );
    let missing = tally
        .decoded
        .get("this processor does not have it")
        .map_or(0, Vec::len);
    assert!(missing < 40, "{tally:#?}");
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn every_form_of_instruction_in_the_image_does_the_same_in_a_patch() {
    let forms = with_known(&image());
    let tally = try_forms(&forms);
    eprintln!("{} of {} forms ran; {tally:#?}", tally.ran, forms.len());
    assert!(tally.ran * 100 > forms.len() * 95, "{tally:#?}");
}

/// Adds the forms of the image to the file, if requested.
#[test]
#[ignore = "needs GILK_IMAGE, and writes forms.txt if GILK_WRITE_FORMS is set"]
fn corpus_has_the_forms_of_the_image() {
    let (known, all) = (FORMS.lines().count(), with_known(&image()));
    eprintln!(
        "{known} forms are kept; with the image's they are {}",
        all.len()
    );
    if std::env::var_os("GILK_WRITE_FORMS").is_some() {
        let lines: String = all.iter().map(|bytes| hex(bytes) + "\n").collect();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/relocation/forms.txt");
        std::fs::write(file, lines).unwrap();
    }
    // Another kernel has few that the kept ones do not stand for.
    assert!(all.len() < known + known / 4);
}

/// Moves the instruction far away and decodes it again: all that may differ is where things are
/// written from.
fn refers_alike(instruction: &Instruction, bytes: &[u8]) -> Result<(), Refusal> {
    let to = Addr(0xffff_ffff_c012_3457);
    let done = relocate(bytes, Addr(instruction.ip()), to, &Abi::KERNEL)?;
    let again: Vec<Instruction> = Decoder::with_ip(64, &done.bytes, to.0, DecoderOptions::NONE)
        .into_iter()
        .collect();
    let text = hex(bytes);
    let last = again.iter().rfind(|i| i.code() != Code::Int3).unwrap();
    let branches = instruction.op0_kind() == OpKind::NearBranch64;
    match instruction.flow_control() {
        FlowControl::Call => {
            assert_eq!(again[0].code(), Code::Pushq_imm32, "{text}");
            assert_eq!(again[0].immediate(0), instruction.next_ip(), "{text}");
            assert_eq!(
                last.near_branch_target(),
                instruction.near_branch_target(),
                "{text}"
            );
        }
        _ if branches => {
            assert_eq!(
                last.near_branch_target(),
                instruction.near_branch_target(),
                "{text}"
            );
            assert_eq!(
                again[0].condition_code(),
                instruction.condition_code(),
                "{text}"
            );
        }
        // A return that ends in the upper half of a cache line stays in one, after nothing but nops.
        FlowControl::Return => {
            let before = usize::try_from(last.ip() - to.0).unwrap();
            assert_eq!(&done.bytes[before..][..bytes.len()], bytes);
            let mut nops = again.iter().take_while(|i| i.ip() < last.ip());
            assert!(nops.all(|i| i.mnemonic() == Mnemonic::Nop), "{text}");
        }
        _ if instruction.is_ip_rel_memory_operand() => {
            assert_eq!(again.len(), 1);
            let mut same = again[0];
            same.set_ip(instruction.ip());
            assert_eq!(same, *instruction, "{text}");
            assert_eq!(same.segment_prefix(), instruction.segment_prefix());
        }
        _ => assert_eq!(done.bytes, bytes),
    }
    Ok(())
}

/// Not run, but decoded again.
#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn every_instruction_of_the_image_refers_to_the_same_place_from_a_patch() {
    let (mut moved, mut stayed) = (0u32, BTreeMap::<Rule, u32>::new());
    every_instruction(
        &image(),
        &mut |instruction, bytes| match refers_alike(instruction, bytes) {
            Ok(()) => moved += 1,
            Err(_) if instruction.code() == Code::Int3 => {}
            Err(refusal) => {
                assert_eq!(refusal.at, Addr(instruction.ip()));
                *stayed.entry(refusal.rule).or_default() += 1;
            }
        },
    );
    eprintln!("{moved} moved; stayed: {stayed:?}");
    assert!(moved > 1_000_000);
}

#[test]
fn indirect_jumps_are_moved_in_user_space_only() {
    let (from, to) = (Addr(0x7f00_0000_1000), Addr(0x7f00_0010_0000));
    // jmp qword ptr [rip + 0x2ff0]; notrack jmp rax; jmp qword ptr [rdx + rax*8]
    let of_word = [0xff, 0x25, 0xf0, 0x2f, 0, 0];
    for code in [&of_word[..], &[0x3e, 0xff, 0xe0], &[0xff, 0x24, 0xc2]] {
        let refused = relocate(code, from, to, &Abi::KERNEL).unwrap_err();
        assert_eq!(refused.rule, Rule::Unrelocatable);
        let moved = relocate(code, from, to, &Abi::PROCESS).unwrap();
        assert!(!moved.falls_through);
        // The processor does not execute past the jump, speculation included.
        assert_eq!(moved.bytes.last(), Some(&0xcc));
        let [original, moved] = [(code, from), (moved.bytes.as_slice(), to)]
            .map(|(code, at)| Decoder::with_ip(64, code, at.0, DecoderOptions::NONE).decode());
        assert_eq!(original.code(), moved.code());
        let word = |jump: &Instruction| {
            let relative = jump.is_ip_rel_memory_operand();
            relative.then(|| jump.ip_rel_memory_address())
        };
        assert_eq!(word(&original), word(&moved));
    }
    // An indirect call pushes a return address, and a far jump changes the code segment.
    for code in [&[0xff, 0xd0][..], &[0xff, 0x28]] {
        let refused = relocate(code, from, to, &Abi::PROCESS).unwrap_err();
        assert_eq!(refused.rule, Rule::Unrelocatable);
    }
}

#[test]
fn what_cannot_be_moved_is_refused_by_name() {
    let far = Addr(0xffff_ffff_8100_0000);
    let rule = |code: &[u8], to: Addr| {
        relocate(code, far, to, &Abi::KERNEL).map_err(|refusal| (refusal.rule, refusal.at))
    };
    let near = Addr(0xffff_ffff_c000_0000);
    for (code, expected) in [
        (&[0xf3, 0x0f, 0x1e, 0xfa][..], Rule::Endbr),
        (&[0x0f, 0x0b], Rule::Trap),
        (&[0x0f, 0xb9, 0xc0], Rule::Trap),
        (&[0xcc], Rule::System),
        (&[0xcd, 0x80], Rule::System),
        (&[0x48, 0xcf], Rule::System),
        (&[0x0f, 0x05], Rule::System),
        (&[0xfb], Rule::System),
        (&[0xf4], Rule::System),
        (&[0x8e, 0xd0], Rule::System),
        (&[0x0f, 0x01, 0xf8], Rule::System),
        (&[0x0f, 0x22, 0xd8], Rule::System),
        (&[0x48, 0xcb], Rule::System),
        (&[0xff, 0xe0], Rule::Unrelocatable),
        (&[0xff, 0xd0], Rule::Unrelocatable),
        (&[0xff, 0x15, 0, 0, 0, 0], Rule::Unrelocatable),
        (&[0xc7, 0xf8, 0, 0, 0, 0], Rule::Unrelocatable),
        (&[0x67, 0x8b, 0x05, 0, 0, 0, 0], Rule::Unrelocatable),
        (&[0x06], Rule::Undecodable),
        (&[0x48], Rule::Undecodable),
    ] {
        assert_eq!(rule(code, near), Err((expected, far)), "{}", hex(code));
    }
    // An instruction after one that does not fall through, and a call that is not the last.
    assert_eq!(
        rule(&[0xeb, 0, 0x90], near),
        Err((Rule::Unrelocatable, far.add(2)))
    );
    assert_eq!(
        rule(&[0xe8, 0, 0, 0, 0, 0x90], near),
        Err((Rule::Unrelocatable, far.add(5)))
    );
    // 2 GiB are the limit, for operands, branches and return addresses.
    let away = far.add(0x8100_0000);
    for code in [
        &[0x8b, 0x05, 0, 0, 0, 0][..],
        &[0x74, 0],
        &[0xe9, 0, 0, 0, 0],
        &[0xe3, 0],
    ] {
        assert_eq!(
            rule(code, away),
            Err((Rule::OutOfReach, far)),
            "{}",
            hex(code)
        );
    }
    let user = Addr(0x7fff_1234_5678);
    assert_eq!(
        relocate(&[0xe8, 0, 0, 0, 0], user, user.add(64), &Abi::KERNEL)
            .unwrap_err()
            .rule,
        Rule::OutOfReach
    );
}

/// Pushes return addresses by the lower half, and writes the upper half after it: run for
/// addresses that a push of 32 bits would extend by ones, and decoded for others.
#[test]
fn a_return_address_is_pushed_by_halves() {
    let halves = Abi {
        return_push: ReturnPush::Halves,
        ..Abi::KERNEL
    };
    let mut machine = Machine::new();
    let to = Addr(machine.address(PATCH));
    let (base, target) = (machine.address(0), machine.exit(2));
    for distance in [0x1000_0000_u64, 0x3fff_fff1, 0x7000_0003] {
        let from = Addr(base + distance);
        let displacement = target.wrapping_sub(from.0 + 5) as i32;
        let call = [&[0xe8][..], &displacement.to_le_bytes()].concat();
        let moved = relocate(&call, from, to, &halves).unwrap();
        machine.write(PATCH, &moved.bytes);
        machine.set_word(STACK - 8, 0x5555_5555_5555_5555);
        let before = State {
            flags: STATUS,
            registers: [machine.address(STACK); 16],
            ..State::default()
        };
        let after = machine.run(PATCH, &before);
        assert_eq!(after.exit, 2);
        assert_eq!(after.registers[4], before.registers[4] - 8);
        assert_eq!(after.flags & STATUS, STATUS);
        assert_eq!(machine.word(STACK - 8), from.0 + 5);
    }
    for from in [0x7fff_1234_5678, 0xffff_ffff_8100_0000].map(Addr) {
        let moved = relocate(&[0xe8, 0, 1, 0, 0], from, from.add(0x4000), &halves).unwrap();
        let decoded = Decoder::with_ip(64, &moved.bytes, from.0 + 0x4000, DecoderOptions::NONE);
        let all: Vec<Instruction> = decoded.into_iter().collect();
        let end = from.0 + 5;
        assert_eq!(all[0].immediate(0) as u32, end as u32);
        assert_eq!(u64::from(all[1].immediate32()), end >> 32);
        assert_eq!(
            (all[1].memory_base(), all[1].memory_displacement64()),
            (Register::RSP, 4)
        );
        assert_eq!(all[2].near_branch_target(), end + 0x100);
        // The push moves the stack; so the rows of what follows say.
        assert_eq!(
            moved.rows.last().map(|row| (row.at, row.pushed)),
            Some((5, 8))
        );
    }
}

/// Refusals by the target's conventions.
#[test]
fn no_call_is_moved_under_a_shadow_stack_and_no_base_is_loaded_that_words_are_reached_by() {
    let from = Addr(0xffff_ffff_8100_0000);
    let rule =
        |code: &[u8], abi: &Abi| relocate(code, from, from.add(64), abi).map_err(|one| one.rule);
    let call = &[0xe8, 0, 0, 0, 0];
    let shadow = Abi {
        shadow_stack: true,
        ..Abi::KERNEL
    };
    assert_eq!(rule(call, &shadow), Err(Rule::ShadowStack));
    assert!(rule(call, &Abi::KERNEL).is_ok());
    let by_fs = Abi {
        segment: WordSegment::Fs,
        ..Abi::KERNEL
    };
    // mov fs, eax; pop fs; wrfsbase rax.
    for code in [
        &[0x8e, 0xe0][..],
        &[0x0f, 0xa1],
        &[0xf3, 0x48, 0x0f, 0xae, 0xd0],
    ] {
        assert_eq!(rule(code, &by_fs), Err(Rule::System), "{code:x?}");
        assert!(rule(code, &Abi::KERNEL).is_ok(), "{code:x?}");
    }
}

/// The target's conventions decide it, not the segment of its words.
#[test]
fn indirect_jumps_are_moved_where_the_conventions_permit_it() {
    let moves = Abi {
        moves_indirect_jumps: true,
        ..Abi::KERNEL
    };
    let stays = Abi {
        moves_indirect_jumps: false,
        ..Abi::PROCESS
    };
    let from = Addr(0x40_1000);
    // jmp rax; jmp [rip + 8].
    for code in [&[0xff, 0xe0][..], &[0xff, 0x25, 8, 0, 0, 0]] {
        assert!(relocate(code, from, from.add(64), &moves).is_ok());
        let refused = relocate(code, from, from.add(64), &stays).map_err(|one| one.rule);
        assert_eq!(refused, Err(Rule::Unrelocatable));
    }
}

/// A return that ends in the upper half of a cache line does so at every address, after nothing but
/// nops, and has the same length everywhere.
#[test]
fn returns_keep_the_upper_half_of_a_cache_line() {
    let base = 0xffff_ffff_8100_0000_u64;
    for original in [&[0xc3_u8][..], &[0xf3, 0xc3], &[0xc2, 8, 0]] {
        for from in (0..64).map(|offset| Addr(base + offset)) {
            let upper = |end: u64| (end - 1) & 0x20 != 0;
            let mut lengths = Vec::new();
            for to in (0..64).map(|offset| Addr(base + 0x1000 + offset)) {
                let done = relocate(original, from, to, &Abi::KERNEL).unwrap();
                lengths.push(done.bytes.len());
                let mut moved = Decoder::with_ip(64, &done.bytes, to.0, DecoderOptions::NONE)
                    .into_iter()
                    .skip_while(|instruction| instruction.mnemonic() == Mnemonic::Nop);
                let ret = moved.next().unwrap();
                assert_eq!(ret.mnemonic(), Mnemonic::Ret);
                assert!(upper(ret.next_ip()) || !upper(from.0 + original.len() as u64));
                assert!(moved.all(|next| next.code() == Code::Int3));
            }
            lengths.dedup();
            assert_eq!(lengths.len(), 1);
        }
    }
}
