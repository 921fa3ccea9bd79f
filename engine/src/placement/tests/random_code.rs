//! Functions of random short pieces, every hook in random sessions.

use iced_x86::code_asm::{CodeAssembler, CodeLabel, eax, ebx, ecx, r8, rax, rbx, rdi};
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::bytes::{bytes, order};
use super::walk::{Double, Walks, all_ways};
use crate::cfg::Cfg;
use crate::code::FunctionId;
use crate::extent::few_cases;
use crate::kernel::fixture::{FTRACE_NOP, Fixture};
use crate::{HookType, Image, Refusal, Rule};

#[derive(Clone, Copy, Debug)]
enum PieceEnd {
    FallsThrough,
    Branches(usize),
    Jumps(usize),
    Returns,
    Key(usize, bool),
    Bug,
    Warn,
    Faults(usize),
    TailCalls,
}

#[derive(Clone, Debug)]
struct RandomPiece {
    /// Lengths of plain instructions; 0 is a call, 9 a static call.
    plain: Vec<u8>,
    ending: PieceEnd,
    padding: usize,
}

fn ending(pieces: usize) -> impl Strategy<Value = PieceEnd> {
    prop_oneof![
        3 => Just(PieceEnd::FallsThrough),
        6 => (0..pieces).prop_map(PieceEnd::Branches),
        2 => (0..pieces).prop_map(PieceEnd::Jumps),
        1 => Just(PieceEnd::Returns),
        4 => (0..pieces, any::<bool>()).prop_map(|(to, short)| PieceEnd::Key(to, short)),
        1 => Just(PieceEnd::Bug),
        1 => Just(PieceEnd::Warn),
        1 => (0..pieces).prop_map(PieceEnd::Faults),
        1 => Just(PieceEnd::TailCalls),
    ]
}

fn pieces() -> impl Strategy<Value = (bool, Vec<RandomPiece>)> {
    let pieces = (1_usize..14).prop_flat_map(|count| {
        let length = prop_oneof![4 => 1_u8..=5, 2 => Just(7_u8), 1 => Just(0_u8), 1 => Just(9_u8)];
        let piece = (
            proptest::collection::vec(length, 0..4),
            ending(count),
            0_usize..9,
        )
            .prop_map(|(plain, ending, padding)| RandomPiece {
                plain,
                ending,
                padding,
            });
        proptest::collection::vec(piece, count)
    });
    (any::<bool>(), pieces)
}

fn kernel(traced: bool, pieces: &[RandomPiece]) -> Fixture {
    let base = Fixture::address(0);
    let callee = Fixture::address(1);
    let mut a = CodeAssembler::new(64).unwrap();
    if traced {
        a.db(&FTRACE_NOP).unwrap();
    }
    let mut labels: Vec<CodeLabel> = pieces.iter().map(|_| a.create_label()).collect();
    let mut lasts: Vec<usize> = Vec::new();
    let mut statics: Vec<usize> = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        a.set_label(&mut labels[number]).unwrap();
        for &length in &piece.plain {
            match length {
                0 => a.call(callee).unwrap(),
                1 => a.push(rbx).unwrap(),
                2 => a.add(ecx, ebx).unwrap(),
                3 => a.add(rax, r8).unwrap(),
                4 => a.lea(rax, rbx + rdi).unwrap(),
                9 => {
                    statics.push(a.instructions().len());
                    a.call(callee).unwrap();
                }
                5 => a.mov(eax, 5_i32).unwrap(),
                _ => a.cmp(rdi, 0x1000_i32).unwrap(),
            }
            a.zero_bytes().unwrap();
        }
        lasts.push(a.instructions().len());
        match piece.ending {
            PieceEnd::FallsThrough => a.add(ecx, ebx).unwrap(),
            PieceEnd::Branches(to) => a.jne(labels[to]).unwrap(),
            PieceEnd::Jumps(to) => a.jmp(labels[to]).unwrap(),
            PieceEnd::Returns => a.ret().unwrap(),
            PieceEnd::Key(_, true) => a.db(&[0x66, 0x90]).unwrap(),
            PieceEnd::Key(_, false) => a.db(&[0x0f, 0x1f, 0x44, 0, 0]).unwrap(),
            PieceEnd::Bug | PieceEnd::Warn => a.ud2().unwrap(),
            PieceEnd::Faults(_) if piece.padding.is_multiple_of(2) => {
                a.mov(iced_x86::code_asm::es, ecx).unwrap();
            }
            PieceEnd::Faults(_) => a.add(rax, iced_x86::code_asm::qword_ptr(rdi)).unwrap(),
            PieceEnd::TailCalls => a.jmp(callee).unwrap(),
        }
        if matches!(
            piece.ending,
            PieceEnd::Jumps(_) | PieceEnd::Returns | PieceEnd::Bug | PieceEnd::TailCalls
        ) {
            a.db(&vec![0xcc; piece.padding]).unwrap();
        }
    }
    a.ret().unwrap();
    let result = a
        .assemble_options(
            base,
            iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS,
        )
        .unwrap();
    let at = |label: &CodeLabel| result.label_ip(label).unwrap();
    let index = |index: usize| base + u64::from(result.inner.new_instruction_offsets[index]);
    let mut fixture = Fixture::new();
    for (number, piece) in pieces.iter().enumerate() {
        let last = index(lasts[number]);
        match piece.ending {
            PieceEnd::Key(to, _) => fixture.jumps.push((last, at(&labels[to]))),
            PieceEnd::Bug => fixture.bugs.push((last, false)),
            PieceEnd::Warn => fixture.bugs.push((last, true)),
            PieceEnd::Faults(to) => {
                fixture.exceptions.push((last, at(&labels[to])));
                // EX_TYPE_IMM_REG, EX_TYPE_UACCESS.
                let register = piece.padding.is_multiple_of(2);
                fixture.handlers.push(if register { 17 } else { 3 });
            }
            _ => {}
        }
    }
    fixture
        .static_calls
        .extend(statics.iter().map(|&call| index(call)));
    fixture
        .bytes("random", &result.inner.code_buffer)
        .bytes("callee", &[0x0f, 0x1f, 0x44, 0, 0, 0xc3])
}

fn check(
    traced: bool,
    pieces: &[RandomPiece],
    chosen: &[bool],
    seed: u64,
) -> Result<(), TestCaseError> {
    let Ok(image) = kernel(traced, pieces).try_image() else {
        return Ok(());
    };
    let cfg = Cfg::of(&image, FunctionId(0));
    if cfg.refusal.is_some() {
        return Ok(());
    }
    let mut wanted = coverage::wanted(0, &image, &cfg);
    wanted.extend(coverage::ways_out(0, &image, &cfg));
    let mut choose = chosen.iter().cycle();
    wanted.retain(|_| *choose.next().unwrap());
    for style in [Style::InPlace, Style::Whole] {
        let styled = place_in_styles(&image, &[&cfg], &[style], &wanted);
        if style == Style::InPlace {
            prop_assert_eq!(&styled.solution, &place(&image, &[&cfg], &wanted));
        }
        walked(&image, &cfg, &wanted, &styled.solution, seed)?;
        let again = place_in_styles(&image, &[&cfg], &[style], &wanted);
        prop_assert_eq!(styled, again, "it is the same every time");
    }
    Ok(())
}

/// Checks the bytes, and all paths through the function.
fn walked(
    image: &Image,
    cfg: &Cfg,
    wanted: &[Wanted],
    placement: &Solution,
    seed: u64,
) -> Result<(), TestCaseError> {
    let fail = |why: String| {
        TestCaseError::fail(format!(
            "{why}\n{}\n{placement:#?}",
            crate::cfg::text::listing(image, cfg)
        ))
    };
    let callee = Cfg::of(image, FunctionId(1));
    bytes(image, &[cfg, &callee], placement).map_err(fail)?;
    let stands = |reached: &Reached| !reached.points.is_empty();
    prop_assert!(placement.hooks.iter().flatten().all(stands));
    order(placement).map_err(fail)?;
    let walks = Walks::of(image, &[cfg]);
    let own = BTreeMap::from([(0, cfg)]);
    let mut double = Double::new(&walks, &own, wanted, placement, |_| true);
    all_ways(&mut double).map_err(fail)?;
    // Some of the hooks active, and the sites that they require.
    let mut double = Double::new(&walks, &own, wanted, placement, |hook| {
        (seed >> (hook % 61)) & 1 == 0
    });
    all_ways(&mut double).map_err(fail)
}

/// A static key that is its own only predecessor, and the block after it.
#[test]
fn blocks_reachable_only_from_each_other_are_refused() {
    let piece = |ending| RandomPiece {
        plain: vec![],
        ending,
        padding: 0,
    };
    let pieces = [PieceEnd::TailCalls, PieceEnd::Key(1, false), PieceEnd::Bug].map(piece);
    check(false, &pieces, &[true], 1).unwrap();
    let image = kernel(false, &pieces).image();
    let cfg = Cfg::of(&image, FunctionId(0));
    let bug = cfg.blocks.iter().find(|block| {
        let first = block.instructions.first();
        first.is_some_and(|first| first.mnemonic() == iced_x86::Mnemonic::Ud2)
    });
    let (block, hook) = (bug.unwrap().index, HookType::Pre);
    let wanted = [Wanted {
        graph: 0,
        block,
        hook,
    }];
    for style in Style::ALL {
        let styled = place_in_styles(&image, &[&cfg], &[style], &wanted);
        let refusal = styled.solution.hooks[0].as_ref().unwrap_err();
        assert_eq!(refusal.rule, Rule::Unreached, "{style}: {refusal}");
    }
}

proptest! {
    #![proptest_config(few_cases(300))]

    #[test]
    fn each_hit_passes_one_point((traced, pieces) in pieces(), chosen in proptest::collection::vec(any::<bool>(), 1..40), seed in any::<u64>()) {
        check(traced, &pieces, &chosen, seed)?;
        check(traced, &pieces, &[true], seed)?;
    }

    #[test]
    fn options_match_placements((traced, pieces) in pieces()) {
        let Ok(image) = kernel(traced, &pieces).try_image() else { return Ok(()) };
        let cfg = Cfg::of(&image, FunctionId(0));
        for block in options(&image, &cfg) {
            let index = block.block;
            let hook = |hook| Wanted { graph: 0, block: index, hook };
            for (choice, hook) in [(&block.pre, hook(HookType::Pre)), (&block.post, hook(HookType::Post))] {
                let placement = place(&image, &[&cfg], &[hook]);
                let tactic = placement.hooks[0].as_ref().map(|reached| reached.tactic);
                prop_assert_eq!(choice.as_ref().map(|choice| choice.tactic), tactic);
                if let Ok(choice) = choice {
                    prop_assert_eq!(choice.cost.sites as usize, placement.sites.len());
                }
                let walks = Walks::of(&image, &[&cfg]);
                let own = BTreeMap::from([(0, &cfg)]);
                let hooks = [hook];
                let mut double = Double::new(&walks, &own, &hooks, &placement, |_| true);
                all_ways(&mut double).map_err(|why| TestCaseError::fail(format!("{why}\n{}\n{placement:#?}", crate::cfg::text::listing(&image, &cfg))))?;
            }
            let both = place(&image, &[&cfg], &[hook(HookType::Pre), hook(HookType::Post)]);
            let both: Option<Result<(), Refusal>> = (block.pre.is_ok() && block.post.is_ok()).then(|| both.hooks.into_iter().try_for_each(|hook| hook.map(|_| ())));
            prop_assert_eq!(block.both, both);
        }
    }
}
