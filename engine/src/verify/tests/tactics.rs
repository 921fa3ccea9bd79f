//! Plans for each tactic: they pass, and broken on purpose they do not.

mod bounces;
mod call_splices;
mod last_resorts;
mod ways;

use super::*;
use crate::InstrumentId;
use crate::placement::{
    Bounce, BounceIndex, Continuation, InsnEdge, Point, Reached, Site, SiteIndex, Slot, Solution,
    Splice, Tactic,
};
use crate::plan::{Batch, Part, PokeKind};

/// Functions for which every tactic is needed.
pub(super) fn fixture() -> Fixture {
    let mut fixture = Fixture::new()
        .compiled("hosted", |a| {
            // A block of two bytes, entered by a branch, between two that are long.
            let (mut short, mut next) = (a.create_label(), a.create_label());
            a.mov(rax, rdi)?;
            a.test(rdi, rdi)?;
            a.je(short)?;
            a.mov(eax, 1)?;
            a.set_label(&mut short)?;
            a.inc(eax)?;
            a.set_label(&mut next)?;
            a.lea(rax, qword_ptr(rax + rdx * 4 + 0x40))?;
            a.mov(rcx, 0x1234_5678_9abc_def0u64)?;
            a.mov(r8, 0x1234_5678_9abc_def0u64)?;
            a.sub(rsi, 1)?;
            a.jne(next)?;
            a.ret()
        })
        .compiled("arrives", |a| {
            let (mut join, mut call) = (a.create_label(), a.create_label());
            a.push(rbx)?;
            a.mov(rbx, rdi)?;
            a.test(rdi, rdi)?;
            a.jne(call)?;
            a.lea(rax, qword_ptr(rdi + 3))?;
            a.jmp(join)?;
            a.set_label(&mut call)?;
            a.mov(esi, 1)?;
            a.call(Fixture::address(0))?;
            a.set_label(&mut join)?;
            a.add(rax, rbx)?;
            a.mov(edx, 7)?;
            a.pop(rbx)?;
            a.ret()
        })
        .compiled("keyed", |a| {
            // After the key come a block of one byte, then one that the slow way enters.
            let (mut slow, mut on) = (a.create_label(), a.create_label());
            a.mov(rax, rdi)?;
            a.mov(edx, 6)?;
            a.db(&[0x0f, 0x1f, 0x44, 0, 0])?;
            a.cdq()?;
            a.set_label(&mut on)?;
            a.lea(rax, qword_ptr(rax + rdx))?;
            a.add(rax, 5)?;
            a.ret()?;
            a.set_label(&mut slow)?;
            a.shl(rax, 2)?;
            a.jmp(on)
        })
        .compiled("traced", |a| {
            // A static call at once.
            a.call(Fixture::address(4))?;
            a.mov(edx, 9)?;
            a.ret()
        })
        .asm("__SCT__told", |a| a.jmp(Fixture::address(0)))
        .asm("__SCT__other", |a| a.jmp(Fixture::address(0)))
        .compiled("edges", |a| {
            // A block of one byte with two incoming edges.
            let (mut one, mut two) = (a.create_label(), a.create_label());
            a.mov(rax, rdi)?;
            a.test(rdi, rdi)?;
            a.je(one)?;
            a.mov(eax, 1)?;
            a.lea(rdx, qword_ptr(rax + 5))?;
            a.set_label(&mut one)?;
            a.cmc()?;
            a.set_label(&mut two)?;
            a.lea(rax, qword_ptr(rax + rdx * 4 + 0x40))?;
            a.sub(rsi, 1)?;
            a.jne(two)?;
            a.ret()
        })
        .compiled("trapped", |a| {
            a.lea(rax, qword_ptr(rdi + 9))?;
            a.db(&[0x3e])?;
            a.mov(rdx, rax)?;
            a.ret()
        })
        .compiled("decides", |a| {
            // A static key after a call.
            a.push(rbx)?;
            a.mov(rbx, rdi)?;
            a.call(Fixture::address(0))?;
            a.db(&[0x0f, 0x1f, 0x44, 0, 0])?;
            a.lea(rax, qword_ptr(rax + rbx))?;
            a.mov(edx, 7)?;
            a.mov(rcx, rax)?;
            a.lea(rax, qword_ptr(rcx + 9))?;
            a.pop(rbx)?;
            a.ret()
        })
        .compiled("called", |a| {
            // A block that begins with a call, and is branched to.
            let mut call = a.create_label();
            a.push(rbx)?;
            a.mov(rbx, rdi)?;
            a.test(rdi, rdi)?;
            a.je(call)?;
            a.lea(rbx, qword_ptr(rdi + 3))?;
            a.set_label(&mut call)?;
            a.call(Fixture::address(0))?;
            a.add(rax, rbx)?;
            a.pop(rbx)?;
            a.ret()
        })
        .compiled("overriding", |a| {
            // A weak function without a symbol lies after it: nothing refers to it, and an `endbr64` begins it.
            a.lea(rax, qword_ptr(rdi + 9))?;
            a.ret()?;
            a.nops_with_size(8)?;
            a.endbr64()?;
            a.lea(rax, qword_ptr(rdi + 5))?;
            a.ret()
        });
    let keyed = Fixture::address(2) + 5 + 8;
    let image = fixture.image();
    let slow = Cfg::of(&image, image.function_named("keyed").unwrap().id)
        .blocks
        .iter()
        .flat_map(|block| &block.instructions)
        .find(|one| one.mnemonic() == iced_x86::Mnemonic::Shl)
        .unwrap()
        .ip();
    let decides = Fixture::address(8) + 5 + 9;
    fixture.jumps = vec![(keyed, slow), (decides, decides + 5 + 9)];
    fixture.jump_keys = vec![DATA + 0x3000, DATA + 0x3020];
    fixture.static_calls = vec![Fixture::address(3) + 5];
    fixture.static_call_keys = vec![DATA + 0x3100];
    fixture.symbols = vec![(DATA + 0x3100, 'D', "__SCK__told".into())];
    fixture
}

fn real(image: &Image, placements: Vec<Placement>) -> Plan {
    let library = Library::builtin().unwrap();
    crate::plan::plan(image, &session(placements), &library, &layout()).unwrap()
}

/// A plan with sites that are given; all instruments are at `points`.
fn given(
    image: &Image,
    placements: Vec<Placement>,
    layout: &RuntimeLayout,
    sites: Vec<Site>,
    points: &[(SiteIndex, Point)],
) -> Plan {
    let library = Library::builtin().unwrap();
    plan_placed(
        image,
        &session(placements),
        &library,
        layout,
        |_, wanted| Solution {
            sites,
            bounces: vec![],
            hooks: wanted
                .iter()
                .map(|_| {
                    Ok(Reached {
                        tactic: Tactic::Tracer,
                        points: points.to_vec().into(),
                        needs: vec![].into(),
                    })
                })
                .collect(),
        },
    )
    .unwrap()
}

/// Every hook of the fixture, by the real placement: alone, and all at once.
#[test]
fn good_ones() {
    let image = fixture().image();
    let library = Library::builtin().unwrap();
    let mut all = Vec::new();
    let mut tactics = std::collections::BTreeSet::new();
    for function in image.functions() {
        for block in 0..Cfg::of(&image, function.id).blocks.len() as u32 {
            for hook in [HookType::Pre, HookType::Post] {
                let own = placement(&function.name, block, hook, "counter");
                let session = session(vec![own.clone()]);
                if let Ok(plan) = crate::plan::plan(&image, &session, &library, &layout()) {
                    tactics.insert(plan.instruments[0].tactic);
                    passes(&image, &plan);
                    all.push(own);
                }
            }
        }
    }
    passes(&image, &real(&image, all));
    println!("{tactics:?}");
    for tactic in [
        Tactic::CallSplice,
        Tactic::DirectSplice,
        Tactic::BlockRelocation,
        Tactic::Edges,
        Tactic::Arrivals,
        Tactic::Tracer,
    ] {
        assert!(tactics.contains(&tactic), "{tactic:?} of {tactics:?}");
    }
}

fn number(plan: &Plan, part: Part, batch: usize) -> usize {
    let pokes = &plan.batches[batch].pokes;
    pokes.iter().position(|poke| poke.part == part).unwrap()
}
