//! Property tests: functions made of random pieces.

use iced_x86::FlowControl;
use iced_x86::code_asm::{CodeAssembler, CodeLabel, byte_ptr, eax, ecx, edx, rax, rbx, rdi};
use proptest::prelude::*;

use super::{BlockEnd, Cfg, EdgeKind};
use crate::code::FunctionId;
use crate::isa::abi::ARGUMENTS;
use crate::isa::decode::branch_target;
use crate::kernel::fixture::{FTRACE_NOP, Fixture};
use crate::liveness::{Analysis, Arguments, Liveness, RegisterSet};
use crate::{Addr, Image};

/// The end of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    RunsOn,
    Branches(usize),
    Jumps(usize),
    Returns,
    /// Returns, with the bytes after a return thunk.
    ReturnsPadded,
    /// A static key, off or on.
    Key(usize, bool),
    Bug,
    Warn,
    TailCalls,
    /// An instruction that may fault, with the fixup in another piece.
    Faults(usize),
}

/// A piece: so many plain instructions, perhaps a call, and an ending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodePiece {
    plain: u8,
    calls: bool,
    ending: Ending,
}

impl CodePiece {
    /// A piece of one instruction and an ending.
    pub(crate) const fn ending_in(ending: Ending) -> Self {
        Self {
            plain: 0,
            calls: false,
            ending,
        }
    }
}

fn ending(pieces: usize) -> impl Strategy<Value = Ending> {
    prop_oneof![
        3 => Just(Ending::RunsOn),
        4 => (0..pieces).prop_map(Ending::Branches),
        2 => (0..pieces).prop_map(Ending::Jumps),
        1 => Just(Ending::Returns),
        1 => Just(Ending::ReturnsPadded),
        1 => (0..pieces, any::<bool>()).prop_map(|(to, on)| Ending::Key(to, on)),
        1 => Just(Ending::Bug),
        1 => Just(Ending::Warn),
        1 => Just(Ending::TailCalls),
        1 => (0..pieces).prop_map(Ending::Faults),
    ]
}

pub(crate) fn pieces() -> impl Strategy<Value = Vec<CodePiece>> {
    (1_usize..12).prop_flat_map(|count| {
        let piece =
            (0_u8..5, any::<bool>(), ending(count)).prop_map(|(plain, calls, ending)| CodePiece {
                plain,
                calls,
                ending,
            });
        proptest::collection::vec(piece, count)
    })
}

/// The kernel with the random code as function 0 and a compiled function after it; and the address of
/// each piece, and of its last instruction.
pub(crate) fn kernel(pieces: &[CodePiece]) -> (Fixture, Vec<u64>, Vec<u64>) {
    let base = Fixture::address(0);
    let callee = Fixture::address(1);
    let mut a = CodeAssembler::new(64).unwrap();
    a.db(&FTRACE_NOP).unwrap();
    let mut labels: Vec<CodeLabel> = pieces.iter().map(|_| a.create_label()).collect();
    let mut lasts: Vec<CodeLabel> = pieces.iter().map(|_| a.create_label()).collect();
    for (number, piece) in pieces.iter().enumerate() {
        a.set_label(&mut labels[number]).unwrap();
        // So that no label is without instruction.
        a.lea(rax, rbx + rdi).unwrap();
        for plain in 0..piece.plain {
            match plain {
                0 => a.mov(eax, 5_i32).unwrap(),
                1 => a.add(ecx, edx).unwrap(),
                2 => a.cmp(rdi, 0x1000_i32).unwrap(),
                _ => a.push(rbx).unwrap(),
            }
        }
        if piece.calls {
            a.call(callee).unwrap();
        }
        a.set_label(&mut lasts[number]).unwrap();
        match piece.ending {
            Ending::RunsOn => a.xor(eax, eax).unwrap(),
            Ending::Branches(to) => a.jne(labels[to]).unwrap(),
            Ending::Jumps(to) => a.jmp(labels[to]).unwrap(),
            Ending::Returns => a.ret().unwrap(),
            Ending::ReturnsPadded => {
                a.ret().unwrap();
                a.db(&[0xcc; 4]).unwrap();
            }
            Ending::Key(_, false) => a.db(&[0x0f, 0x1f, 0x44, 0, 0]).unwrap(),
            // Near enough to be short, so written by hand below.
            Ending::Key(_, true) => a.db(&[0xe9, 0, 0, 0, 0]).unwrap(),
            Ending::Bug | Ending::Warn => a.ud2().unwrap(),
            Ending::TailCalls => a.jmp(callee).unwrap(),
            Ending::Faults(_) => a.mov(byte_ptr(rdi), 1_i32).unwrap(),
        }
    }
    // Code after the last piece must end.
    a.ret().unwrap();
    let result = a
        .assemble_options(
            base,
            iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS,
        )
        .unwrap();
    let mut bytes = result.inner.code_buffer.clone();
    let at: Vec<u64> = labels
        .iter()
        .map(|label| result.label_ip(label).unwrap())
        .collect();
    let last: Vec<u64> = lasts
        .iter()
        .map(|label| result.label_ip(label).unwrap())
        .collect();
    let mut fixture = Fixture::new();
    for (number, piece) in pieces.iter().enumerate() {
        match piece.ending {
            Ending::Key(to, on) => {
                fixture.jumps.push((last[number], at[to]));
                if on {
                    let field = (last[number] - base + 1) as usize;
                    let distance = at[to].wrapping_sub(last[number] + 5) as i32;
                    bytes[field..field + 4].copy_from_slice(&distance.to_le_bytes());
                }
            }
            Ending::Bug => fixture.bugs.push((last[number], false)),
            Ending::Warn => fixture.bugs.push((last[number], true)),
            Ending::Faults(to) => fixture.exceptions.push((last[number], at[to])),
            _ => {}
        }
    }
    let fixture = fixture
        .bytes("soup", &bytes)
        .bytes("callee", &[0x0f, 0x1f, 0x44, 0, 0, 0xc3]);
    (fixture, at, last)
}

/// The properties of every graph.
pub(super) fn check_graph(image: &Image, cfg: &Cfg) -> std::result::Result<(), TestCaseError> {
    let function = image.function(cfg.function).unwrap();
    prop_assert_eq!(cfg.span, function.span);
    let mut end = cfg.span.start;
    for (position, block) in cfg.blocks.iter().enumerate() {
        prop_assert_eq!(block.index.0 as usize, position);
        // Between blocks there is nothing but padding.
        let gap = image
            .bytes(crate::Span {
                start: end,
                end: block.span.start,
            })
            .unwrap_or_default();
        prop_assert!(gap.iter().all(|byte| matches!(
            byte,
            0xcc | 0x90 | 0x66 | 0x0f | 0x1f | 0x2e | 0x44 | 0x84 | 0x40 | 0x80 | 0
        )));
        prop_assert!(block.span.start >= end);
        // The block is its instructions.
        prop_assert!(!block.instructions.is_empty());
        let mut at = block.span.start;
        for instruction in &block.instructions {
            prop_assert_eq!(instruction.ip(), at.0);
            at = Addr(instruction.next_ip());
        }
        prop_assert_eq!(at, block.span.end);
        end = block.span.end;
        // No branch before its end, and no branch into its middle.
        for instruction in block.instructions.to_vec().iter().rev().skip(1) {
            let flow = instruction.flow_control();
            prop_assert!(!matches!(
                flow,
                FlowControl::ConditionalBranch
                    | FlowControl::UnconditionalBranch
                    | FlowControl::Return
            ));
        }
        let kinds: Vec<EdgeKind> = cfg
            .successors(block.index)
            .map(|edge| edge.kind)
            .filter(|kind| *kind != EdgeKind::Fixup)
            .collect();
        let ways = kinds.len();
        match block.end {
            BlockEnd::FallThrough => {
                prop_assert!(kinds.iter().all(|kind| *kind == EdgeKind::Fallthrough) && ways <= 1);
            }
            BlockEnd::Jump => prop_assert_eq!(kinds, [EdgeKind::Jump]),
            BlockEnd::Conditional => {
                prop_assert!((1..=2).contains(&ways) || cfg.exits(block.index));
            }
            BlockEnd::Return | BlockEnd::TailCall | BlockEnd::Indirect | BlockEnd::NoReturn => {
                prop_assert_eq!(ways, 0);
            }
        }
        if let Some(to) = block.instructions.last().as_ref().and_then(branch_target) {
            let inside = cfg.block_at(to).map(|block| block.span.start);
            if cfg.span.contains(to) {
                prop_assert_eq!(inside, Some(to), "a branch targets the start of a block");
                let flow = block.instructions.last().unwrap().flow_control();
                if flow != FlowControl::Call {
                    prop_assert!(
                        cfg.successors(block.index).any(|edge| cfg
                            .block(edge.to)
                            .unwrap()
                            .span
                            .start
                            == to)
                    );
                }
            }
        }
    }
    for &at in image.entered(cfg.span) {
        prop_assert!(
            cfg.block_at(at)
                .is_some_and(|block| block.span.start == at && block.entered)
        );
    }
    prop_assert!(cfg.edges.is_sorted_by_key(|edge| (edge.from, edge.to)));
    for edge in &cfg.edges {
        prop_assert!(cfg.block(edge.from).is_some() && cfg.block(edge.to).is_some());
        prop_assert!(cfg.predecessors(edge.to).any(|back| back == edge));
    }
    prop_assert!(
        cfg.blocks
            .first()
            .is_none_or(|block| block.entered && block.span.start == cfg.span.start)
    );
    Ok(())
}

proptest! {
    #[test]
    fn graphs_of_random_functions_are_what_was_written(pieces in pieces()) {
        let (fixture, at, last) = kernel(&pieces);
        let image = fixture.try_image().unwrap();
        let cfg = Cfg::of(&image, FunctionId(0));
        prop_assert_eq!(&cfg.refusal, &None);
        check_graph(&image, &cfg)?;
        let start_of = |number: usize| cfg.block_at(Addr(at[number])).unwrap();
        for (number, piece) in pieces.iter().enumerate() {
            let block = cfg.block_at(Addr(last[number])).unwrap();
            prop_assert!(block.span.contains(Addr(at[number])), "a piece is in one block");
            let leads = |to: usize, kind: EdgeKind| {
                let to = start_of(to);
                cfg.successors(block.index).any(|edge| edge.to == to.index && edge.kind == kind)
            };
            let next = |kind: EdgeKind| cfg.successors(block.index).any(|edge| edge.kind == kind && edge.to.0 == block.index.0 + 1);
            match piece.ending {
                Ending::RunsOn | Ending::Warn => prop_assert!(block.end != BlockEnd::NoReturn || block.span.end > Addr(last[number]).add(2)),
                Ending::Branches(to) => prop_assert!(block.end == BlockEnd::Conditional && next(EdgeKind::Fallthrough) && leads(to, EdgeKind::Taken)),
                Ending::Jumps(to) => prop_assert!(block.end == BlockEnd::Jump && leads(to, EdgeKind::Jump)),
                Ending::Returns | Ending::ReturnsPadded => prop_assert_eq!(block.end, BlockEnd::Return),
                Ending::Key(to, false) => prop_assert!(next(EdgeKind::Fallthrough) && leads(to, EdgeKind::StaticKey)),
                Ending::Key(to, true) => prop_assert!(next(EdgeKind::StaticKey) && leads(to, EdgeKind::Jump)),
                Ending::Bug => prop_assert_eq!(block.end, BlockEnd::NoReturn),
                Ending::TailCalls => prop_assert!(block.end == BlockEnd::TailCall && cfg.exits(block.index)),
                Ending::Faults(to) => prop_assert!(leads(to, EdgeKind::Fixup) && start_of(to).entered),
            }
        }
    }

    #[test]
    fn random_bytes_never_break_the_analysis(bytes in proptest::collection::vec(any::<u8>(), 1..400)) {
        let image = Fixture::new().bytes("noise", &bytes).bytes("next", &[0xc3]).image();
        for function in image.functions() {
            let cfg = Cfg::of(&image, function.id);
            check_graph(&image, &cfg)?;
            prop_assert!(!cfg.blocks.is_empty() || cfg.refusal.is_some());
            let live = Liveness::of(&Analysis::new(&image), &cfg);
            let arguments = Arguments::of(&image, &cfg);
            for block in &cfg.blocks {
                prop_assert!(live.before(block.span.start).registers.contains(iced_x86::Register::RSP));
                prop_assert!(arguments.intact(block.span.start).difference(RegisterSet::of(&ARGUMENTS)).is_empty());
            }
        }
    }
}
