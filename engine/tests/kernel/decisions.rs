//! Static keys and static calls of a real kernel: the bytes that their decisions imply, against the bytes there.

use gilk_engine::code::{Decision, Transfer, Why};
use gilk_engine::isa::relocate::emulate;
use gilk_engine::{Addr, Image, Span};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, RflagsBits};

use super::saved::image;

/// Flags that a comparison sets.
const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

fn instruction(image: &Image, at: Addr) -> Instruction {
    let bytes = image.bytes_from(at, 15).expect("text is read");
    Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode()
}

fn name_of(image: &Image, at: u64) -> &str {
    image.symbol_at(Addr(at)).map_or("", |(name, _)| name)
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn keys_and_trampolines_decide_as_the_kernel_did() {
    let image = image();
    let (mut keys, mut judged, mut calls, mut targeted, mut unknown) = (0, 0, 0, 0, 0);
    for site in image.fixed().iter() {
        let trampoline = image
            .symbol_at(site.span.start)
            .is_some_and(|(name, offset)| offset == 0 && name.starts_with("__SCT__"));
        let (Why::StaticKey | Why::StaticCall, false) = (site.why, trampoline) else {
            continue;
        };
        let Some(decided) = image.decided(site.span.start) else {
            unknown += 1;
            continue;
        };
        assert_eq!(decided.span, site.span);
        let live = instruction(&image, site.span.start);
        assert!(live.len() as u64 <= site.span.len());
        match decided.by {
            Decision::StaticKey {
                key,
                inverted,
                target,
            } => {
                keys += 1;
                assert_eq!(Some(target), site.target);
                assert!(image.extent().contains(key), "{key} of {}", site.span.start);
                // Of keys that boot settles, the count is in read-only data.
                let Some(&[a, b, c, d]) = image.bytes(Span::new(key, 4)) else {
                    continue;
                };
                judged += 1;
                let enabled = i32::from_le_bytes([a, b, c, d]) != 0;
                let jumps = matches!(live.code(), Code::Jmp_rel8_64 | Code::Jmp_rel32_64);
                assert_eq!(jumps, enabled ^ inverted, "{}", site.span.start);
                assert!(!jumps || live.near_branch_target() == target.0);
            }
            Decision::StaticCall {
                trampoline,
                transfer,
            } => {
                calls += 1;
                let there = instruction(&image, trampoline);
                let tail = transfer != Transfer::Call;
                match there.code() {
                    // No function: a return, or a nop where the site would have called.
                    Code::Retnq => assert!(
                        matches!(live.code(), Code::Retnq | Code::Nop_rm32),
                        "{}",
                        site.span.start
                    ),
                    Code::Jmp_rel32_64
                        if name_of(&image, there.near_branch_target()).contains("return_thunk") =>
                    {
                        assert!(tail || live.code() == Code::Nop_rm32);
                    }
                    Code::Jmp_rel32_64
                        if live.code() == Code::Xor_rm32_r32
                            || live.code() == Code::Xor_rm64_r64 =>
                    {
                        let name = name_of(&image, there.near_branch_target());
                        assert_eq!(name, "__static_call_return0", "{}", site.span.start);
                    }
                    Code::Jmp_rel32_64 => {
                        targeted += 1;
                        assert_eq!(
                            live.near_branch_target(),
                            there.near_branch_target(),
                            "{}",
                            site.span.start
                        );
                    }
                    other => panic!("the trampoline at {trampoline} begins with {other:?}"),
                }
            }
        }
        let patch = image.extent().end.add(0x100_0000);
        let done = emulate(&decided, patch, &gilk_engine::layout::Abi::KERNEL)
            .expect("all of the kernel is within reach");
        assert!(done.bytes.len() <= 13);
    }
    println!(
        "{keys} static keys, {judged} judged; {calls} static calls, {targeted} with a target; {unknown} unknown"
    );
    // Few keys lie in data that is saved: 10 of 6.1, 113 of 6.12.
    assert!(keys > 4_000 && judged >= 10 && calls > 3_000 && targeted > 300);
    assert!(unknown < 40);
}

/// So a comparison may stand for a jump label. On x86 every `asm` of C changes the flags
/// (`ix86_md_asm_adjust` of GCC): whichever way a label goes, something sets them before anything
/// reads them. Looked at until the first call, jump or return, where another rule takes over.
#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn no_flag_is_read_after_a_static_key() {
    let image = image();
    let mut ways = 0;
    for site in image.fixed().iter() {
        let (Why::StaticKey, Some(target)) = (site.why, site.target) else {
            continue;
        };
        for start in [site.span.end, target] {
            let bytes = image.bytes_from(start, 256).expect("text is read");
            let mut unset = STATUS;
            for next in Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE) {
                let reads = next.rflags_read() & unset != 0 && next.code() != Code::Pushfq;
                assert!(!reads, "{:#x} after {}", next.ip(), site.span.start);
                unset &= !next.rflags_modified();
                if next.flow_control() != FlowControl::Next {
                    break;
                }
            }
            ways += 1;
        }
    }
    println!("{ways} ways looked at");
    assert!(ways > 8_000);
}
