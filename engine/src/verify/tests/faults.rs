//! Instructions that may fault, in patches.

use super::*;
use crate::Error;
use crate::patch::Recovery;
use crate::placement::{BlockOptions, Style, at_instruction, options};
use crate::plan::PatchFault;

/// `EX_TYPE_UACCESS` of arch/x86/include/asm/extable_fixup_types.h.
const UACCESS: u8 = 3;
/// `EX_TYPE_IMM_REG`.
const IMM_REG: u8 = 17;

/// Loads a selector again and again until it is one, as the kernel's `loadsegment` does; then one with
/// a fixup elsewhere; then reads memory of a process.
fn kernel_that_faults() -> Fixture {
    let at = Fixture::address(0);
    let mut fixture = Fixture::new()
        .compiled("loads", |a| {
            let (mut retry, mut out) = (a.create_label(), a.create_label());
            a.mov(eax, edi)?;
            a.test(esi, esi)?;
            a.je(out)?;
            a.set_label(&mut retry)?;
            a.mov(ds, eax)?; // + 11
            a.lea(rcx, ptr(rax + 5))?;
            a.mov(es, ecx)?; // + 17
            a.add(rcx, rdi)?;
            a.lea(rax, ptr(rcx + rax))?;
            a.set_label(&mut out)?; // + 26
            a.xor(edx, edx)?;
            a.ret()
        })
        .compiled("reads", |a| {
            a.mov(rax, qword_ptr(rdi))?;
            a.xor(edx, edx)?;
            a.xor(ecx, ecx)?;
            a.ret()
        });
    let reads = Fixture::address(1) + 5;
    fixture.exceptions = vec![(at + 11, at + 11), (at + 17, at + 26), (reads, reads + 7)];
    fixture.handlers = vec![IMM_REG, IMM_REG, UACCESS];
    fixture
}

fn plan_in(image: &Image, style: Style, hooks: &[(u32, HookType)]) -> Plan {
    let placements = hooks
        .iter()
        .map(|&(block, hook)| placement("loads", block, hook, "timestamp"));
    let session = Session {
        styles: [("loads".to_owned(), style)].into(),
        ..session(placements.collect())
    };
    let library = Library::builtin().unwrap();
    crate::plan::plan(image, &session, &library, &layout()).unwrap()
}

/// Every hook of `loads`.
fn all(image: &Image) -> Vec<(u32, HookType)> {
    let cfg = Cfg::of(image, image.functions()[0].id);
    let both = |(block, found): (u32, BlockOptions)| {
        let pre = found.pre.is_ok().then_some((block, HookType::Pre));
        let post = found.post.is_ok().then_some((block, HookType::Post));
        [pre, post].into_iter().flatten()
    };
    (0..).zip(options(image, &cfg)).flat_map(both).collect()
}

/// The moved instructions that load segments, by address, and what they are copies of.
fn loads(plan: &Plan) -> Vec<PatchFault> {
    let mut loads: Vec<PatchFault> = (plan.patches.iter())
        .flat_map(|patch| decoded(patch.address, &patch.code))
        .filter_map(|instruction| {
            let offset = match instruction.op0_register() {
                iced_x86::Register::DS => 11,
                iced_x86::Register::ES => 17,
                _ => return None,
            };
            Some(PatchFault {
                at: Addr(instruction.ip()),
                recovery: Recovery::Like(Addr(Fixture::address(0) + offset)),
            })
        })
        .collect();
    loads.sort_by_key(|fault| fault.at);
    loads
}

#[test]
fn what_loads_a_segment_is_moved_with_an_entry_like_its_own() {
    let image = kernel_that_faults().image();
    let all = all(&image);
    let cfg = Cfg::of(&image, image.functions()[0].id);
    let retry = cfg.block_at(Addr(Fixture::address(0) + 11)).unwrap();
    assert_eq!(retry.span.start, Addr(Fixture::address(0) + 11));
    assert!(all.contains(&(retry.index.0, HookType::Pre)));
    let mut moved = 0;
    for style in [Style::InPlace, Style::Whole] {
        let chosen = all.iter().map(std::slice::from_ref).chain([&all[..]]);
        for hooks in chosen {
            let plan = plan_in(&image, style, hooks);
            passes(&image, &plan);
            assert_eq!(plan.faults, loads(&plan), "{hooks:?}");
            moved += plan.faults.len();
        }
    }
    assert!(moved >= 8, "{moved}");
}

#[test]
fn every_entry_matters() {
    let image = kernel_that_faults().image();
    let good = &plan_in(&image, Style::InPlace, &all(&image));
    for number in 0..good.faults.len() {
        let PatchFault { at, recovery } = good.faults[number];
        let Recovery::Like(original) = recovery else {
            panic!("{recovery:?}")
        };
        refused(&image, good, "UnplannedFault", |plan| {
            plan.faults.remove(number);
        });
        for other in [
            Recovery::At(at),
            Recovery::At(original),
            Recovery::Like(original.add(1)),
            Recovery::Like(Addr(Fixture::address(0) + 28 - (original.0 & 0x1f))),
        ] {
            refused(&image, good, "OtherRecovery", |plan| {
                plan.faults[number].recovery = other;
            });
        }
        refused(&image, good, "NeverFaults", |plan| {
            plan.faults[number].at = at.add(1);
        });
        refused(&image, good, "FaultOrder", |plan| {
            plan.faults.insert(number, plan.faults[number]);
        });
    }
    let most = good.faults.len() as u32;
    refused(&image, good, "TooManyFaults", |plan| {
        plan.layout.faults = most - 1;
    });
}

#[test]
fn what_may_wait_for_a_page_stays() {
    let image = kernel_that_faults().image();
    let cfg = Cfg::of(&image, image.functions()[1].id);
    let found = at_instruction(&image, &cfg, Addr(Fixture::address(1) + 5));
    assert!(found.is_ok(), "after the tracer's site: {found:?}");
    // The same instruction with an entry for the processor's own state could be.
    let mut kernel = kernel_that_faults();
    kernel.handlers[2] = 6;
    let kernel = kernel.image();
    let good = &crate::plan::plan(
        &kernel,
        &session(vec![placement("reads", 0, HookType::Post, "counter")]),
        &Library::builtin().unwrap(),
        &layout(),
    )
    .unwrap();
    passes(&kernel, good);
    let Err(violations) = verify(&image, good.clone()) else {
        panic!("memory of a process is touched in a patch")
    };
    assert!(
        list(&violations)
            .contains("[FixedSite] an instruction with an exception-table entry is displaced")
    );
}

#[test]
fn a_target_without_room_for_entries_gets_none() {
    let image = kernel_that_faults().image();
    let session = session(vec![placement("loads", 1, HookType::Pre, "counter")]);
    let none = RuntimeLayout {
        faults: 0,
        ..layout()
    };
    let library = Library::builtin().unwrap();
    let refused = crate::plan::plan(&image, &session, &library, &none).unwrap_err();
    assert!(
        matches!(refused, Error::Full { available: 0, .. }),
        "{refused}"
    );
}

#[test]
fn where_nothing_in_the_arena_may_fault_no_load_is_moved() {
    let nothing = RuntimeLayout {
        faults: 0,
        ..layout()
    };
    let image = kernel_that_faults().image();
    let there = all(&image);
    let kept = image.on(&nothing);
    let left = all(&kept);
    assert!(left.len() < there.len(), "{left:?} of {there:?}");
    let placements = left
        .iter()
        .map(|&(block, hook)| placement("loads", block, hook, "timestamp"));
    let library = Library::builtin().unwrap();
    let session = session(placements.collect());
    let plan = crate::plan::plan(&kept, &session, &library, &nothing).unwrap();
    assert!(plan.faults.is_empty());
    passes(&kept, &plan);
}
