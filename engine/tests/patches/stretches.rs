//! Patches of several stretches, run beside the original: loops inside the patch, edges with lists,
//! and a static key that is emulated.

use gilk_engine::code::{Decided, Decision};
use gilk_engine::layout::CounterSlot;
use gilk_engine::liveness::Live;
use gilk_engine::patch::{Assembler, Hooked};
use gilk_engine::placement::{Continuation, InsnEdge, Point, Site, Splice};
use gilk_engine::{Addr, HookType, Span};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl};
use proptest::prelude::*;

use super::native::{GS, Machine, ORIGINAL, PATCH, Random, TABLES};
use super::sources::Kind;
use super::support::{COUNTERS, hooked, layout, pieces_are_whole, random_state, ready};
use super::text::Text;

/// The static key's count.
const KEY: u64 = TABLES + 0x9000;

/// `and ecx, 7; inc ecx; loop: add rdx, rsi; dec ecx; jnz loop; test dl, 1; jz exit 1;`
/// `static key to exit 2; add rax, rdx`
fn original(machine: &Machine, on: bool) -> Vec<u8> {
    let mut bytes = vec![0x83, 0xe1, 7, 0xff, 0xc1];
    bytes.extend([0x48, 0x01, 0xf2, 0xff, 0xc9, 0x75, 0xf9]);
    bytes.extend([0xf6, 0xc2, 1]);
    let rel32 = |end: u64, exit| {
        let end = machine.address(ORIGINAL) + end;
        (machine.exit(exit).wrapping_sub(end) as i32).to_le_bytes()
    };
    bytes.extend([0x0f, 0x84]);
    bytes.extend(rel32(21, 1));
    if on {
        bytes.push(0xe9);
        bytes.extend(rel32(26, 2));
    } else {
        bytes.extend([0x0f, 0x1f, 0x44, 0, 0]);
    }
    bytes.extend([0x48, 0x01, 0xd0]);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_patch_with_loops_edges_and_a_key_does_what_the_original_does(
        chosen in prop::sample::subsequence((0..9usize).collect::<Vec<_>>(), 0..=4),
        count in 0..=4usize,
        on: bool,
        seed: u64,
    ) {
        let mut machine = ready(8, 8);
        let layout = layout(&machine, 0);
        let bytes = original(&machine, on);
        let base = Addr(machine.address(ORIGINAL));
        let exits = [1, 2].map(|n| Addr(machine.exit(n)));
        let at = |offset| base.add(offset);
        let edge = |from, to| InsnEdge { from: at(from), to: at(to) };
        let out = |from, exit: usize| InsnEdge { from: at(from), to: exits[exit - 1] };
        // Each starts where the one before it ends, so any number of them are the first ones.
        let spans = [(edge(3, 5), 5, 12), (edge(10, 5), 5, 12), (edge(10, 12), 12, 21), (edge(15, 21), 21, 29)];
        let mut continuations: Vec<Continuation> = spans[..count]
            .iter()
            .map(|&(edge, from, to)| Continuation { edge, copied: Span { start: at(from), end: at(to) } })
            .collect();
        continuations.sort_unstable();
        let site = jumped_from(base, continuations);
        // A point, continuations without which it is not passed, and how often it is.
        let points = [
            (Point::Entry, 0),
            (Point::Before(at(3)), 0),
            (Point::On(edge(3, 5)), 0),
            (Point::Before(at(5)), 1),
            (Point::On(edge(10, 5)), 1),
            (Point::On(edge(10, 12)), 1),
            (Point::On(out(15, 1)), 3),
            (Point::On(out(21, 2)), 4),
            (Point::On(edge(21, 26)), 4),
        ];
        let mut hooks: Vec<(Point, Vec<Hooked<'_>>, usize)> = Vec::new();
        for (slot, &index) in (0..).zip(chosen.iter().filter(|&&index| points[index].1 <= count)) {
            let one = Hooked {
                counter: Some(CounterSlot { bank: 0, slot }),
                ..hooked(slot as u8, HookType::Pre, Kind::Count.program())
            };
            hooks.push((points[index].0, vec![one], index));
        }
        hooks.sort_unstable_by_key(|hook| hook.0);
        let lists: Vec<(Point, &[Hooked<'_>])> = hooks.iter().map(|(point, list, _)| (*point, &list[..])).collect();
        let text = Text {
            at: base,
            bytes: &bytes,
            decided: vec![Decided {
                span: Span::new(at(21), 5),
                by: Decision::StaticKey {
                    key: Addr(machine.address(KEY)),
                    inverted: false,
                    target: exits[1],
                },
            }],
        };
        // Everything is live, but flags before the key, as compilers take care of.
        let live = |point| Live { flags: point != Point::Before(at(21)), ..Live::ALL };
        let code = Assembler::new(&text, &layout)
            .assemble(Addr(machine.address(PATCH)), &site, &lists, &live)
            .unwrap();
        pieces_are_whole(&code);
        machine.write(ORIGINAL, &bytes);
        machine.write_exit_jump(ORIGINAL + bytes.len() as u64, 0);
        machine.write(PATCH, &code.bytes);
        machine.set_word(KEY, u64::from(on));

        let mut random = Random(seed);
        let mut expected = [0; 4];
        for _ in 0..20 {
            let before = random_state(&machine, &mut random);
            let mut plain = machine.run(ORIGINAL, &before);
            let patched = machine.run(PATCH, &before);
            if plain.exit == 2 && count == 4 {
                // The key was tested.
                plain.flags = patched.flags;
            }
            prop_assert_eq!(&plain, &patched);
            let loops = (before.registers[1] & 7) + 1;
            // Without the second continuation, the loop continues in the text.
            let inside = if count >= 2 { loops } else { 1 };
            // Whether the loop ends inside the patch.
            let ends = u64::from(count >= 2 || loops == 1);
            for (_, list, index) in &hooks {
                let slot = list[0].counter.unwrap().slot as usize;
                expected[slot] += match *index {
                    0..=2 => 1,
                    3 => inside,
                    4 => if count >= 2 { loops - 1 } else { u64::from(loops > 1) },
                    5 => ends,
                    6 => u64::from(plain.exit == 1),
                    7 => u64::from(plain.exit == 2),
                    _ => u64::from(plain.exit == 0),
                };
            }
            for (slot, &count) in (0..).zip(&expected) {
                prop_assert_eq!(machine.word(GS + COUNTERS + 8 * slot), count);
            }
        }
    }
}

/// The site of a jump over the first two instructions of [`original`].
fn jumped_from(base: Addr, continuations: impl Into<Box<[Continuation]>>) -> Site {
    Site {
        splice: Splice::Jump,
        displaced: Span::new(base, 5),
        overwritten: 2,
        filled: 0,
        continuations: continuations.into(),
    }
}

/// A pass of a loop in a patch takes one branch, whatever its edge has.
#[test]
fn a_loop_takes_no_jump_of_the_patch() {
    let machine = ready(8, 8);
    let layout = layout(&machine, 0);
    let bytes = original(&machine, false);
    let base = Addr(machine.address(ORIGINAL));
    let edge = |from, to| InsnEdge {
        from: base.add(from),
        to: base.add(to),
    };
    let copied = Span {
        start: base.add(5),
        end: base.add(12),
    };
    let into = [edge(3, 5), edge(10, 5)];
    let continuations = into.map(|edge| Continuation { edge, copied });
    let site = jumped_from(base, continuations);
    let text = Text {
        at: base,
        bytes: &bytes,
        decided: Vec::new(),
    };
    let count = [Hooked {
        counter: Some(CounterSlot { bank: 0, slot: 0 }),
        ..hooked(0, HookType::Pre, Kind::Count.program())
    }];
    let back = Point::On(into[1]);
    let at = machine.address(PATCH);
    for lists in [&[][..], &[(back, &count[..])]] {
        let code = Assembler::new(&text, &layout)
            .assemble(Addr(at), &site, lists, &|_| Live::ALL)
            .unwrap();
        let decoder = Decoder::with_ip(64, &code.bytes, at, DecoderOptions::NONE);
        let branches = decoder.into_iter().filter(|one| {
            use FlowControl::{ConditionalBranch, UnconditionalBranch};
            matches!(one.flow_control(), ConditionalBranch | UnconditionalBranch)
        });
        let (copy, next) = (at + 5, base.add(12).0);
        let branches: Vec<(Code, u64)> = branches
            .map(|one| (one.code(), one.near_branch_target()))
            .collect();
        let expected = match lists {
            [] => [(Code::Jne_rel32_64, copy), (Code::Jmp_rel32_64, next)],
            _ => [(Code::Je_rel32_64, next), (Code::Jmp_rel32_64, copy)],
        };
        assert_eq!(branches, expected, "{copy:#x} {next:#x}");
    }
}
