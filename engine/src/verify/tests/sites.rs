//! Places where no splice may be, and sites that are not what they say.

use super::*;
use crate::code::FunctionId;
use crate::kernel::fixture::exchange;
use crate::placement::{Site, Splice, at_hook};
use crate::verify::text::callee::Callees;
use crate::verify::text::liveness::{LiveSets, SampledAt};
use crate::verify::text::originals::OriginalCode;
use crate::verify::text::routine::Routine;
use crate::verify::text::site::judge;
use crate::{Image, Rule};

/// Address of `f`; its block is `mov rax, rdi; lea rax, [rax+9]; mov rdx, rax; add rdx, 77` at +5,
/// +8, +12, +15.
const F: u64 = 0xffff_ffff_8100_0000;
const FIRST: u64 = F + 5;

fn f(landing: u64) -> Fixture {
    Fixture::new()
        .compiled("f", |a| {
            a.mov(rax, rdi)?;
            a.lea(rax, ptr(rax + 9))?;
            a.mov(rdx, rax)?;
            a.add(rdx, 77)?;
            a.jne(landing)?;
            a.ret()
        })
        .compiled("g", |a| a.jmp(F))
}

fn good() -> Plan {
    planned_close(
        &f(FIRST).image(),
        vec![
            placement("f", 1, HookType::Pre, "counter"),
            placement("f", 1, HookType::Pre, "timestamp"),
        ],
    )
}

fn routine(image: &Image) -> Routine {
    Routine::read(&Callees::new(image), image.function_named("f").unwrap()).unwrap()
}

fn originals(image: &Image) -> OriginalCode<'_> {
    let routine = routine(image);
    let live = LiveSets::of(&routine, &SampledAt::default());
    OriginalCode::new(image, vec![(routine, live)])
}

fn site(displaced: Span, overwritten: u32) -> Site {
    Site {
        splice: Splice::Jump,
        displaced,
        overwritten,
        filled: 0,
        continuations: Box::default(),
    }
}

/// The plan for a harmless kernel, verified against one with the same bytes where something is amiss.
#[track_caller]
fn refused_by(image: &Image, rule: &str) {
    let plan = good();
    passes(&f(FIRST).image(), &plan);
    refused_there(image, plan, rule);
}

/// Sees that a plan is refused for an image that it was not made for, by the rule.
#[track_caller]
fn refused_there(image: &Image, plan: Plan, rule: &str) {
    let Err(violations) = verify(image, plan) else {
        panic!("it passes, and should be {rule:?}")
    };
    assert!(
        has_rule(&violations, rule),
        "it should be {rule:?}, and is\n{}",
        list(&violations)
    );
}

#[test]
fn sites_of_the_kernel() {
    assert!(
        good()
            .sites
            .iter()
            .any(|site| site.displaced == Span::new(Addr(FIRST), 7))
    );
    for at in [FIRST, FIRST + 3] {
        let with = |change: &dyn Fn(&mut Fixture)| {
            let mut fixture = f(FIRST);
            change(&mut fixture);
            fixture.image()
        };
        refused_by(
            &with(&|f| f.static_calls.push(at)),
            "FixedSite: a static call",
        );
        refused_by(
            &with(&|f| f.exceptions.push((at, F + 12))),
            "FixedSite: an exception-table entry",
        );
        refused_by(
            &with(&|f| f.bugs.push((at, true))),
            "FixedSite: the bug table",
        );
        refused_by(
            &with(&|f| f.bugs.push((at, false))),
            "FixedSite: the bug table",
        );
        refused_by(
            &with(&|f| f.blacklist.push((at, at + 1))),
            "FixedSite: forbids probes",
        );
    }
    let mut fixture = f(FIRST);
    fixture.blacklist.push((F, F + 0x20));
    refused_by(&fixture.image(), "FixedSite: forbids probes");
}

#[test]
fn landings_from_elsewhere() {
    let mut pointed = f(FIRST);
    pointed.pointers.push(FIRST + 3);
    refused_by(&pointed.image(), "TargetInside");
    // After the splice nothing is overwritten, but it is the middle of the hook's block.
    for offset in [7, 10, 14] {
        let mut pointed = f(FIRST);
        pointed.pointers.push(FIRST + offset);
        refused_by(&pointed.image(), "EntersBlock");
    }
    let mut pointed = f(FIRST);
    pointed.pointers.push(FIRST + 60);
    passes(&pointed.image(), &good());
    let mut fixed_up = f(FIRST);
    fixed_up.exceptions.push((F + 15, FIRST + 3));
    refused_by(&fixed_up.image(), "TargetInside");
}

#[test]
fn landings_from_the_function_itself() {
    for offset in 1..5 {
        refused_by(&f(FIRST + offset).image(), "StrayBranch|TargetInside");
    }
    // A branch into an instruction of its own function, and from there into the splice.
    let hidden = Fixture::new().compiled("f", |a| {
        let mut inside = a.create_label();
        a.mov(rax, rdi)?;
        a.lea(rax, ptr(rax + 9))?;
        a.mov(rdx, rax)?;
        a.jne(inside)?;
        a.db(&[0xb8])?;
        a.set_label(&mut inside)?;
        // As four bytes of a `mov eax, imm32`; by itself a jump to the lea.
        a.db(&[
            0xeb,
            (FIRST as i64 + 3 - (F as i64 + 5 + 10 + 2 + 1 + 2)) as u8,
            0,
            0,
        ])?;
        a.ret()
    });
    let image = hidden.image();
    let routine = routine(&image);
    assert!(
        routine.strays && routine.targets.contains(&(FIRST + 3)),
        "{:x?}",
        routine.targets
    );
}

/// Hooks all code around the instruction, and both ways of the branch to it; a plan that displaces it is
/// refused.
#[test]
fn an_instruction_with_a_skipped_lock_prefix_stays() {
    let exchanging = |skips| {
        let kernel = Fixture::new().compiled("f", |a| exchange(a, skips));
        kernel.image()
    };
    let image = exchanging(true);
    let library = Library::builtin().unwrap();
    let plan_of = |image: &Image, block, hook, instrument| {
        let session = session(vec![placement("f", block, hook, instrument)]);
        crate::plan::plan(image, &session, &library, &layout()).unwrap()
    };
    let cfg = Cfg::of(&image, FunctionId(0));
    let mut hooked = 0;
    for block in cfg.blocks.iter().map(|block| block.index) {
        for hook in ALL {
            let choice = at_hook(&image, &cfg, block, hook);
            let is_branch = matches!(hook, HookType::Taken | HookType::Untaken);
            if cfg[block].skipped && !is_branch {
                assert_eq!(choice.unwrap_err().rule, Rule::SkippedPrefix);
                continue;
            }
            if choice.is_ok() {
                hooked += 1;
                for instrument in ["counter", "timestamp"] {
                    passes(&image, &plan_of(&image, block.0, hook, instrument));
                }
            }
        }
    }
    assert!(hooked > 8, "{hooked}");

    let whole = exchanging(false);
    for hook in [HookType::Pre, HookType::Post] {
        let good = plan_of(&whole, 2, hook, "counter");
        passes(&whole, &good);
        refused_there(&image, good, "TargetInside|EntersBlock");
    }
}

#[test]
fn returns_into_the_splice() {
    let kernel = Fixture::new().compiled("f", |a| {
        a.push(rbx)?;
        a.mov(eax, 5)?;
        a.call(Fixture::address(1))?;
        a.mov(rbx, rax)?;
        a.mov(rax, rbx)?;
        a.pop(rbx)?;
        a.ret()
    });
    let image = kernel.compiled("g", |a| a.ret()).image();
    let originals = originals(&image);
    let call = Addr(F + 5 + 6);
    let (routine, _) = originals.around(F).unwrap();
    assert!(routine.returns.contains(&(call.0 + 5)));
    let faults = judge(&originals, &site(Span::new(call, 11), 1), false, &[]).unwrap_err();
    let found = |rule: &str| faults.iter().any(|(_, why)| why.rule() == rule);
    assert!(found("EndsEarly") && found("ReturnInside"), "{faults:?}");
    assert!(judge(&originals, &site(Span::new(call, 5), 1), false, &[]).is_ok());
    // Not even where nothing is overwritten after it: a thread that returns there meets no splice.
    assert!(judge(&originals, &site(Span::new(Addr(FIRST), 14), 1), false, &[]).is_err());
}

#[test]
fn sites_that_are_not_what_they_say() {
    let image = f(FIRST).image();
    let good = good();
    let site = good
        .sites
        .iter()
        .position(|site| site.displaced.start == Addr(FIRST))
        .unwrap();
    let shift = |by: u64| {
        move |plan: &mut Plan| {
            let start = &mut plan.sites[site].displaced.start;
            *start = start.add(by);
            for batch in &mut plan.batches {
                batch
                    .pokes
                    .iter_mut()
                    .for_each(|poke| poke.at = poke.at.add(by));
            }
        }
    };
    refused(&image, &good, "NotWhole", shift(1));
    refused(&image, &good, "OtherBytes: Poke", shift(1));
    refused(&image, &good, "Executes: its splice needs 5", shift(3));
    refused(
        &image,
        &good,
        "FixedSite: the function tracer's bytes",
        shift(0_u64.wrapping_sub(5)),
    );
    for overwritten in [0, 1, 3] {
        refused(
            &image,
            &good,
            "OverwrittenCount: are overwritten, and 2 are",
            |plan| {
                plan.sites[site].overwritten = overwritten;
            },
        );
    }
    // The splice leaves the last two bytes of `lea rax, [rax+9]`, and `mov rdx, rax` follows.
    let mut filled = good.clone();
    filled.sites[site].filled = 0b11;
    passes(&image, &filled);
    for more in [0b111, 0b100, 1 << 63] {
        refused(&image, &good, "FilledByte", |plan| {
            plan.sites[site].filled = more;
        });
    }
    refused(&image, &good, "NotWhole", |plan| {
        plan.sites[site].displaced.end = Addr(FIRST + 6);
    });
    refused(&image, &good, "OutsideFunction", |plan| {
        plan.sites[site].displaced.end = Addr(F + 0x200);
    });
    refused(&image, &good, "OutsideFunction", |plan| {
        plan.sites[site].displaced.end = plan.sites[site].displaced.start;
    });
    refused(&image, &good, "NoFunction", |plan| {
        plan.sites[site].displaced = Span::new(Addr(ARENA), 7);
    });
    refused(&image, &good, "NoSite", |plan| {
        plan.patches[0].site.0 = 99;
    });
    refused(&image, &good, "ForeignPoint", |plan| {
        plan.instruments[1].points[0].1 = crate::placement::Point::Before(Addr(FIRST + 3));
    });
    // More is displaced than the patch has a copy of.
    refused(&image, &good, "NotOriginal", |plan| {
        plan.sites[site].displaced.end = Addr(FIRST + 10);
    });
}

#[test]
fn hooks_of_another_block() {
    let image = kernel().image();
    let good = planned(
        &image,
        vec![
            placement("worker", 1, HookType::Pre, "counter"),
            placement("worker", 3, HookType::Post, "counter"),
        ],
    );
    refused(&image, &good, "WrongHits", |plan| {
        plan.instruments[0].id.block = 2;
        let ids = plan.patches.iter_mut().flat_map(|patch| &mut patch.hooks);
        ids.flat_map(|(_, ids)| ids)
            .filter(|id| id.block == 1)
            .for_each(|id| id.block = 2);
        plan.batches.iter_mut().for_each(|batch| {
            batch
                .launched
                .iter_mut()
                .chain(&mut batch.splashed)
                .filter(|id| id.block == 1)
                .for_each(|id| id.block = 2);
        });
    });
    refused(&image, &good, "InstrumentFunction", |plan| {
        plan.instruments[0].id.major = 7;
    });
    // A graph that runs two blocks together: control may come into the middle.
    refused(&image, &good, "EntersBlock", |plan| {
        let mut blocks = plan.functions[0].outline.blocks.to_vec();
        blocks[1].end = blocks.remove(2).end;
        plan.functions[0].outline.blocks = blocks.into();
    });
    // One that ends a block early: the hook is not at its end.
    refused(&image, &good, "WrongHits", |plan| {
        let cfg = Cfg::of(&image, plan.functions[0].outline.function);
        let instructions = cfg.blocks[3].instructions.to_vec();
        plan.functions[0].outline.blocks[3].end =
            Addr(instructions.iter().nth_back(1).unwrap().ip());
    });
    refused(&image, &good, "BlockBoundary", |plan| {
        plan.functions[0].outline.blocks[1].start.0 += 1;
    });
}

/// Instructions that may never be moved, each at the start of a block that would otherwise serve.
#[test]
fn immovable_instructions() {
    let forbidden: [(&str, &[u8]); 22] = [
        ("endbr64", &[0xf3, 0x0f, 0x1e, 0xfa]),
        ("ud2", &[0x0f, 0x0b]),
        ("ud1", &[0x0f, 0xb9, 0xc0]),
        ("int3", &[0xcc]),
        ("int 0x80", &[0xcd, 0x80]),
        ("sti", &[0xfb]),
        ("hlt", &[0xf4]),
        ("mov ss, eax", &[0x8e, 0xd0]),
        ("mov gs, eax", &[0x8e, 0xe8]),
        ("mov cr3, rax", &[0x0f, 0x22, 0xd8]),
        ("mov dr7, rax", &[0x0f, 0x23, 0xf8]),
        ("wrmsr", &[0x0f, 0x30]),
        ("swapgs", &[0x0f, 0x01, 0xf8]),
        ("lgdt [rax]", &[0x0f, 0x01, 0x10]),
        ("iretq", &[0x48, 0xcf]),
        ("sysret", &[0x48, 0x0f, 0x07]),
        ("syscall", &[0x0f, 0x05]),
        ("retf", &[0xcb]),
        ("jmp rax", &[0xff, 0xe0]),
        ("call rax", &[0xff, 0xd0]),
        ("xbegin", &[0xc7, 0xf8, 0, 0, 0, 0]),
        ("add [rax], unlocked", &[0x3e, 0x48, 0x01, 0x18]),
    ];
    for (name, bytes) in forbidden {
        let kernel = Fixture::new().compiled("f", |a| {
            a.db(bytes)?;
            a.mov(eax, 5)?;
            a.mov(edx, 6)?;
            a.ret()
        });
        let image = kernel.image();
        let originals = originals(&image);
        let len = bytes.len() as u64;
        for displaced in [Span::new(Addr(FIRST), len + 5), Span::new(Addr(FIRST), len)] {
            let faults = judge(&originals, &site(displaced, 2), false, &[]).expect_err(name);
            assert!(
                faults.iter().any(|(at, _)| *at == displaced.start),
                "{name}: {faults:?}"
            );
        }
    }
}
