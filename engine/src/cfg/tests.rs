//! The cases that kernels are full of, one by one.

use iced_x86::code_asm::{CodeAssembler, cr0, eax, ptr, rax, rbx, rdi};

use super::{BlockEnd, BlockIndex, Cfg, EdgeKind, dot, text};
use crate::Image;
use crate::code::FunctionId;
use crate::kernel::fixture::{Fixture, exchange};
use crate::{Addr, Rule};

fn first(fixture: &Fixture) -> (Image, Cfg) {
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    (image, cfg)
}

fn ends(cfg: &Cfg) -> Vec<BlockEnd> {
    cfg.blocks.iter().map(|block| block.end).collect()
}

#[test]
fn a_call_ends_a_block_only_without_code_after_it() {
    let callee = Fixture::address(1);
    let goes_on = Fixture::new().compiled("f", |a| {
        a.call(callee)?;
        a.mov(eax, 1_i32)?;
        a.ret()
    });
    let (_, cfg) = first(&goes_on.compiled("callee", CodeAssembler::ret));
    assert_eq!(ends(&cfg), [BlockEnd::Return]);

    let last = Fixture::new()
        .compiled("f", |a| a.call(callee))
        .compiled("callee", CodeAssembler::ret);
    assert_eq!(ends(&first(&last).1), [BlockEnd::NoReturn]);

    let listed = Fixture::new().compiled("f", |a| {
        a.call(callee)?;
        a.mov(eax, 1_i32)?;
        a.ret()
    });
    let (_, cfg) = first(&listed.compiled("do_exit", CodeAssembler::ud2));
    assert_eq!(ends(&cfg), [BlockEnd::NoReturn, BlockEnd::Return]);
    assert!(cfg.edges.is_empty());
    assert!(!cfg.exits(BlockIndex(0)) && cfg.exits(BlockIndex(1)));
}

#[test]
fn thunks_are_what_they_stand_for() {
    let (one, two) = (Fixture::address(1), Fixture::address(2));
    let kernel = |target: u64| {
        Fixture::new()
            .compiled("f", |a| a.jmp(target))
            .asm("__x86_return_thunk", CodeAssembler::ret)
            .asm("__x86_indirect_thunk_rax", |a| a.jmp(rax))
    };
    assert_eq!(ends(&first(&kernel(one)).1), [BlockEnd::Return]);
    assert_eq!(ends(&first(&kernel(two)).1), [BlockEnd::Indirect]);
    let image = kernel(one).image();
    assert_eq!(
        Cfg::of(&image, FunctionId(1)).refusal.unwrap().rule,
        Rule::Blacklisted
    );
}

#[test]
fn a_warn_goes_on_and_a_bug_does_not() {
    let kernel = |warn: Option<bool>| {
        let mut fixture = Fixture::new().compiled("f", |a| {
            a.mov(eax, 1_i32)?;
            a.ud2()?;
            a.ret()
        });
        fixture
            .bugs
            .extend(warn.map(|warn| (Fixture::address(0) + 10, warn)));
        fixture
    };
    assert_eq!(ends(&first(&kernel(Some(true))).1), [BlockEnd::Return]);
    assert_eq!(
        ends(&first(&kernel(Some(false))).1),
        [BlockEnd::NoReturn, BlockEnd::Return]
    );
    assert_eq!(
        ends(&first(&kernel(None)).1),
        [BlockEnd::NoReturn, BlockEnd::Return]
    );
}

#[test]
fn both_ways_of_a_static_key_are_edges() {
    let base = Fixture::address(0);
    // ftrace nop; key; mov eax, 1; ret; xor eax, eax; ret
    let code = |key: &[u8]| {
        [
            &[0x0f, 0x1f, 0x44, 0, 0],
            key,
            &[0xb8, 1, 0, 0, 0, 0xc3, 0x31, 0xc0, 0xc3][..],
        ]
        .concat()
    };
    let kernel = |key: &[u8]| {
        let mut fixture = Fixture::new().bytes("f", &code(key));
        fixture
            .jumps
            .push((base + 5, base + 5 + key.len() as u64 + 6));
        first(&fixture).1
    };
    for off in [&[0x66, 0x90][..], &[0x0f, 0x1f, 0x44, 0, 0]] {
        let kinds: Vec<_> = kernel(off)
            .edges
            .iter()
            .map(|edge| (edge.from.0, edge.to.0, edge.kind))
            .collect();
        assert_eq!(
            kinds,
            [(0, 1, EdgeKind::Fallthrough), (0, 2, EdgeKind::StaticKey)]
        );
    }
    for on in [&[0xeb, 6][..], &[0xe9, 6, 0, 0, 0]] {
        let cfg = kernel(on);
        let kinds: Vec<_> = cfg
            .edges
            .iter()
            .map(|edge| (edge.from.0, edge.to.0, edge.kind))
            .collect();
        assert_eq!(kinds, [(0, 1, EdgeKind::StaticKey), (0, 2, EdgeKind::Jump)]);
        assert_eq!(
            ends(&cfg),
            [BlockEnd::Conditional, BlockEnd::Return, BlockEnd::Return]
        );
    }
}

#[test]
fn functions_are_entered_in_the_middle() {
    let middle = Fixture::address(0) + 7;
    let code = [0x0f, 0x1f, 0x44, 0, 0, 0x31, 0xc0, 0x31, 0xd2, 0xc3];
    let starts = |fixture: &Fixture| -> Vec<u64> {
        first(fixture)
            .1
            .blocks
            .iter()
            .filter(|block| block.entered)
            .map(|block| block.span.start.0)
            .collect()
    };
    let plain = Fixture::new().bytes("f", &code);
    assert_eq!(starts(&plain), [Fixture::address(0)]);
    let branch = plain.clone().asm("f.cold", |a| a.jmp(middle));
    assert_eq!(starts(&branch), [Fixture::address(0), middle]);
    let value = plain.clone().compiled("g", |a| {
        a.lea(rax, ptr(middle))?;
        a.jmp(rax)
    });
    assert_eq!(starts(&value), [Fixture::address(0), middle]);
    let mut table = plain.clone();
    table.pointers = vec![middle, middle + 1, 0x8086, Fixture::address(0)];
    assert_eq!(
        starts(&table),
        [Fixture::address(0), middle],
        "what is no instruction is no address either"
    );
    let mut fault = plain;
    fault.exceptions.push((Fixture::address(0) + 5, middle));
    assert_eq!(starts(&fault), [Fixture::address(0), middle]);
    let edges = first(&fault).1.edges;
    assert!(edges.iter().any(|edge| edge.kind == EdgeKind::Fixup));
}

#[test]
fn every_way_into_a_block_is_known_or_known_to_be_missing() {
    let at = |number, offset: u64| Addr(Fixture::address(number) + offset);
    // f: ftrace nop; L: xor eax, eax; je M; call M; M: xor edx, edx; jmp L
    let f = [
        0x0f, 0x1f, 0x44, 0, 0, 0x31, 0xc0, 0x74, 5, 0xe8, 0, 0, 0, 0, 0x31, 0xd2, 0xeb, 0xf3,
    ];
    let mut fixture = Fixture::new()
        .bytes("f", &f)
        .asm("f.cold", |a| {
            a.xor(eax, eax)?;
            a.jmp(at(0, 14).0)
        })
        .compiled("g", |a| {
            a.je(at(0, 14).0)?;
            a.jmp(at(1, 0).0)
        });
    // A static key of g.
    fixture.jumps.push((at(2, 0).0, at(0, 9).0));
    let (image, cfg) = first(&fixture);
    let ways = |cfg: &Cfg, number: u32| {
        let ways = cfg.ways_in(&image, BlockIndex(number)).unwrap();
        let edges: Vec<u32> = ways.edges.iter().map(|edge| edge.from.0).collect();
        let sources: Vec<Addr> = ways.branches.iter().map(|branch| branch.source).collect();
        (edges, sources, ways.complete)
    };
    let starts: Vec<u64> = cfg
        .blocks
        .iter()
        .map(|block| block.span.start.0 - at(0, 0).0)
        .collect();
    assert_eq!(starts, [0, 5, 9, 14]);
    assert_eq!(ways(&cfg, 0), (vec![], vec![], false), "the entry");
    assert_eq!(
        ways(&cfg, 1),
        (vec![0, 3], vec![], false),
        "after the tracer's site"
    );
    assert_eq!(
        ways(&cfg, 2),
        (vec![1], vec![at(2, 0)], true),
        "a key of another function"
    );
    let handlers = vec![at(0, 9), at(1, 2), at(2, 5)];
    assert_eq!(ways(&cfg, 3), (vec![1, 2], handlers.clone(), true));
    let cold = Cfg::of(&image, FunctionId(1));
    assert_eq!(
        ways(&cold, 0),
        (vec![], vec![at(2, 11)], true),
        "a part has no entry but branches"
    );

    fixture.pointers = vec![at(0, 14).0, at(1, 0).0];
    let (image, cfg) = first(&fixture);
    let ways = cfg.ways_in(&image, BlockIndex(3)).unwrap();
    assert!(
        !ways.complete && ways.branches.len() == handlers.len(),
        "a table has its address"
    );
    let cold = Cfg::of(&image, FunctionId(1));
    assert!(cold.blocks[0].open);
}

#[test]
fn an_instruction_with_a_skipped_lock_prefix_is_a_block() {
    let (image, cfg) = first(&Fixture::new().compiled("f", |a| exchange(a, true)));
    assert_eq!(cfg.refusal, None);
    let ends = ends(&cfg);
    // The site of the function tracer is the first block, since the loop begins after it.
    let expected = [
        BlockEnd::FallThrough,
        BlockEnd::Conditional,
        BlockEnd::FallThrough,
        BlockEnd::Conditional,
        BlockEnd::Return,
    ];
    assert_eq!(ends, expected);
    let skipped: Vec<bool> = cfg.blocks.iter().map(|block| block.skipped).collect();
    assert_eq!(skipped, [false, false, true, false, false]);
    let exchanges = &cfg.blocks[2];
    assert_eq!(exchanges.instructions.len(), 1);
    assert!(exchanges.instructions.first().unwrap().has_lock_prefix());
    let into = cfg.ways_in(&image, BlockIndex(2)).unwrap();
    assert_eq!(into.edges.len(), 2, "both ways of the branch");

    let (_, whole) = first(&Fixture::new().compiled("f", |a| exchange(a, false)));
    assert!(whole.blocks.iter().all(|block| !block.skipped));
}

#[test]
fn code_that_cannot_be_read_with_certainty_is_refused() {
    let rule = |fixture: &Fixture| first(fixture).1.refusal.map(|refusal| refusal.rule);
    // 06 is no instruction of 64-bit code.
    assert_eq!(
        rule(&Fixture::new().bytes("f", &[0x31, 0xc0, 0x06, 0xc3])),
        Some(Rule::Undecodable)
    );
    // A branch into an immediate.
    assert_eq!(
        rule(&Fixture::new().bytes("f", &[0x74, 1, 0xb8, 1, 0, 0, 0, 0xc3])),
        Some(Rule::Undecodable)
    );
    // From another function.
    let into = Fixture::address(0) + 1;
    let other = Fixture::new()
        .bytes("f", &[0xb8, 1, 0, 0, 0, 0xc3])
        .asm("g", |a| a.jmp(into));
    assert_eq!(rule(&other), Some(Rule::Undecodable));
    // A kprobe, and an optimized one.
    assert_eq!(
        rule(&Fixture::new().bytes("f", &[0x31, 0xc0, 0xcc, 0xc0, 0xc3])),
        Some(Rule::Probed)
    );
    assert_eq!(
        rule(&Fixture::new().asm("f", |a| a.jmp(0xffff_ffff_c000_0000_u64))),
        Some(Rule::Probed)
    );
    let mut black = Fixture::new().bytes("f", &[0x31, 0xc0, 0xc3]);
    black
        .blacklist
        .push((Fixture::address(0) + 1, Fixture::address(0) + 2));
    assert_eq!(rule(&black), Some(Rule::Blacklisted));
    // What the compiler split off a function that is on the list.
    let part = Fixture::new().bytes("forbidden.part.0", &[0x31, 0xc0, 0xc3]);
    assert_eq!(rule(&part), Some(Rule::Blacklisted));
    let other = Fixture::new().bytes("allowed.part.0", &[0x31, 0xc0, 0xc3]);
    assert_eq!(rule(&other), None);
    assert_eq!(
        first(&black).1.blocks.len(),
        1,
        "it can be looked at all the same"
    );
}

#[test]
fn padding_belongs_to_no_block() {
    // ret; int3 ×4; nopw; xor eax, eax; ret, of which the last two are targets of a branch.
    let code = [
        0x74, 0x0b, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0x66, 0x0f, 0x1f, 0x44, 0, 0, 0x31, 0xc0, 0xc3,
    ];
    let (_, cfg) = first(&Fixture::new().bytes("f", &code));
    let spans: Vec<_> = cfg
        .blocks
        .iter()
        .map(|block| (block.span.start.0 - Fixture::address(0), block.span.len()))
        .collect();
    assert_eq!(spans, [(0, 2), (2, 1), (13, 3)]);
    assert_eq!(cfg.block_at(Addr(Fixture::address(0) + 4)), None);
}

#[test]
fn a_graph_can_be_read_and_drawn() {
    let fixture = Fixture::new().compiled("f\"x", |a| {
        let mut away = a.create_label();
        a.test(rdi, rdi)?;
        a.je(away)?;
        a.mov(rbx, cr0)?;
        a.set_label(&mut away)?;
        a.ret()
    });
    let (image, cfg) = first(&fixture);
    let listing = text::listing(&image, &cfg);
    for part in [
        "3 blocks, 3 edges",
        "block 0",
        "branches to 1, 2; entry",
        "falls through to 2",
        "mov rbx, cr0",
        "returns",
    ] {
        assert!(listing.contains(part), "{part} is not in\n{listing}");
    }
    let dot = dot::dot(&image, &cfg);
    for part in [
        "digraph \"f\\\"x\"",
        "b0 -> b2 [label=\"taken\"]",
        "b1 -> b2;",
        "mov rbx, cr0\\l",
    ] {
        assert!(dot.contains(part), "{part} is not in\n{dot}");
    }
}
