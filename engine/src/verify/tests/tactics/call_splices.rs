//! Calls of patches over calls.

use super::*;
use crate::plan::PatchIndex;

/// The call of `called`: its site is the call alone.
fn site(image: &Image) -> Site {
    let cfg = Cfg::of(image, image.function_named("called").unwrap().id);
    let instructions = cfg.blocks.iter().flat_map(|block| &block.instructions);
    let mut calls = instructions.filter(|one| one.flow_control() == iced_x86::FlowControl::Call);
    let call = calls.next().unwrap();
    Site {
        splice: Splice::Call,
        displaced: Span::new(Addr(call.ip()), call.len() as u64),
        overwritten: 1,
        filled: 0,
        continuations: Box::default(),
    }
}

fn splices(image: &Image, instruments: &[&str]) -> Plan {
    let one = |instrument: &&str| placement("called", 2, HookType::Pre, instrument);
    let placements = instruments.iter().map(one).collect();
    let points = vec![(SiteIndex(0), Point::Entry)];
    given(image, placements, &layout(), vec![site(image)], &points)
}

/// Offset of the jump to the callee.
fn jump(plan: &Plan) -> usize {
    let patch = &plan.patches[0];
    let all = decoded(patch.address, &patch.code);
    let jump = all.iter().rfind(|one| one.is_jmp_short_or_near()).unwrap();
    (jump.ip() - patch.address.0) as usize
}

#[test]
fn a_call_is_spliced_by_the_planner_and_nothing_is_moved() {
    let image = fixture().image();
    let plan = real(
        &image,
        vec![placement("called", 2, HookType::Pre, "counter")],
    );
    passes(&image, &plan);
    assert_eq!(plan.instruments[0].tactic, Tactic::CallSplice);
    assert_eq!(plan.sites, &[site(&image)]);
    let install = &plan.batches[0].pokes[0];
    assert_eq!((install.expect[0], install.write[0]), (0xe8, 0xe8));
    assert_eq!(install.quiesce(), crate::plan::Quiesce::None);
}

#[test]
fn a_call_splice_has_one_form() {
    let image = fixture().image();
    let good = splices(&image, &["counter"]);
    // Another opcode, another target.
    refused(&image, &good, "NotCall", |plan| {
        plan.batches[0].pokes[0].write[0] = 0xe9;
    });
    for byte in 1..5 {
        refused(&image, &good, "NotCall", |plan| {
            plan.batches[0].pokes[0].write[byte] ^= 1;
        });
    }
    // It is said to be a jump: then no return address is on the stack.
    refused(&image, &good, "NotJump", |plan| {
        plan.sites[0].splice = Splice::Jump;
    });
    // What it displaces is no call, or more than one.
    for (back, displaced) in [(4, 9), (4, 4)] {
        refused(&image, &good, "NotOverCall", |plan| {
            let start = plan.sites[0].displaced.start;
            plan.sites[0].displaced = Span::new(Addr(start.0 - back), displaced);
        });
    }
    refused(&image, &good, "NotOverCall", |plan| {
        let displaced = plan.sites[0].displaced;
        plan.sites[0].continuations = [Continuation {
            edge: InsnEdge {
                from: displaced.start,
                to: displaced.end,
            },
            copied: Span::new(displaced.end, 3),
        }]
        .into();
    });
}

#[test]
fn the_patch_of_a_call_jumps_to_the_callee_with_the_stack_as_it_is() {
    let image = fixture().image();
    let good = splices(&image, &["counter"]);
    let at = jump(&good);
    // To another function, or by another call.
    refused(&image, &good, "OtherCallee", |plan| {
        plan.patches[0].code[at + 2] ^= 1;
    });
    refused(
        &image,
        &good,
        "NotOriginal|Instruction|UnplannedCall",
        |plan| {
            plan.patches[0].code[at] = 0xe8;
        },
    );
    // The return address is pushed again, as in a moved call.
    refused(
        &image,
        &good,
        "NarrowMemory|Instruction|BytesPushed",
        |plan| {
            let next = plan.sites[0].displaced.end;
            let patch = &mut plan.patches[0];
            let mut push = vec![0x68];
            push.extend((next.0 as u32).to_le_bytes());
            let target = at + 5;
            let old = i32::from_le_bytes(patch.code[at + 1..target].try_into().unwrap());
            patch.code[at + 1..target].copy_from_slice(&(old - 5).to_le_bytes());
            let mut code = patch.code.to_vec();
            code.splice(at..at, push);
            patch.code = code.into();
        },
    );
    // The return address is popped, and pushed: an interrupt between would unwind nothing.
    refused(&image, &good, "PopsOriginal", |plan| {
        let mut code = plan.patches[0].code.to_vec();
        code.splice(0..0, [0x58, 0x50]);
        plan.patches[0].code = code.into();
    });
}

#[test]
fn rows_of_a_called_patch_have_the_return_address_below() {
    let image = fixture().image();
    let layout = RuntimeLayout {
        unwinds: true,
        ..layout()
    };
    let placements = vec![placement("called", 2, HookType::Pre, "timestamp")];
    let points = vec![(SiteIndex(0), Point::Entry)];
    let good = given(&image, placements, &layout, vec![site(&image)], &points);
    assert!(good.patches[0].rows.iter().all(|row| row.pushed >= 8));
    for row in 0..good.patches[0].rows.len() {
        refused(&image, &good, "OtherRow", |plan| {
            plan.patches[0].rows[row].pushed -= 8;
        });
    }
}

/// Programs read the stack pointer of the code at the hook, not that of the patch.
#[test]
fn the_return_address_is_not_on_the_stack_of_a_program() {
    let image = fixture().image();
    let mut session = session(vec![placement("called", 2, HookType::Pre, "stack")]);
    let source = r#"instrument stack "Samples the stack pointer." value;
hit { sample(reg("sp")) }
"#;
    session.sources = [("stack".to_owned(), source.to_owned())].into();
    let library = Library::builtin().unwrap();
    let good = crate::plan::plan(&image, &session, &library, &layout()).unwrap();
    let patch = &good.patches[0];
    let all = decoded(patch.address, &patch.code);
    let from_stack = |one: &&Instruction| {
        one.mnemonic() == iced_x86::Mnemonic::Lea && one.memory_base() == iced_x86::Register::RSP
    };
    let lea = all.iter().find(from_stack).unwrap();
    let displacement = (lea.next_ip() - patch.address.0 - 1) as usize;
    refused(&image, &good, "OtherValue", |plan| {
        plan.patches[0].code[displacement] -= 8;
    });
}

/// A version of a patch is called as another was.
#[test]
fn a_call_splice_is_retargeted() {
    let image = fixture().image();
    let early = placement("called", 2, HookType::Pre, "counter");
    let late = Placement {
        launch: 1.5,
        ..placement("called", 2, HookType::Pre, "timestamp")
    };
    let points = vec![(SiteIndex(0), Point::Entry)];
    let good = given(
        &image,
        vec![early, late],
        &layout(),
        vec![site(&image)],
        &points,
    );
    let poke = &good.batches[1].pokes[0];
    assert_eq!(poke.kind, crate::plan::PokeKind::Retarget);
    refused(&image, &good, "NotCall|OtherBytes", |plan| {
        plan.batches[1].pokes[0].write[0] = 0xe9;
    });
    refused(&image, &good, "HookedDetour", |plan| {
        let first = plan.batches[0].pokes[0].patch;
        plan.batches[1].pokes[0].patch = PatchIndex(first.0);
    });
}
