//! Reads of the kernel's stack: proven at every hook, and found out when anything of them is changed.

use iced_x86::{Code, Mnemonic};

use super::caught::CODE;
use super::natives::made;
use super::*;

fn unwinding() -> RuntimeLayout {
    RuntimeLayout {
        unwinds: true,
        ..layout()
    }
}

fn by_stack(
    image: &Image,
    hook: (&str, u32, HookType),
    source: &str,
    layout: &RuntimeLayout,
) -> crate::Result<Plan> {
    let (function, block, hook) = hook;
    let mut session = session(vec![placement(function, block, hook, "mine")]);
    let source = format!("instrument mine \"x.\"; hit {source}");
    session.sources.insert("mine".into(), source);
    plan(image, &session, &Library::builtin().unwrap(), layout)
}

const SOURCES: [&str; 5] = [
    "{ @by[kstack] = count() }",
    "{ sample(kstack(9)) }",
    "/ kstack != kstack(2) / { @bytes[comm, kstack] = sum(arg0) }",
    "{ @by[kstack] = count(); @again[kstack, pid] = hist(tsc) }",
    "{ sample(kstack * 3 + (kstack ^ cpu)) }",
];

#[test]
fn stacks_are_read_at_every_hook() {
    let image = kernel().image();
    let (mut pushed, hooks) = (0, hooks(&image));
    for ((function, block, hook), source) in hooks.iter().zip(SOURCES.iter().cycle()) {
        match by_stack(&image, (function, *block, *hook), source, &unwinding()) {
            Ok(plan) => {
                passes(&image, &plan);
                let rows = plan.patches.iter().flat_map(|patch| &patch.rows);
                pushed += rows.filter(|row| row.pushed > 16).count();
            }
            // An argument may be gone there.
            Err(error) => assert!(error.to_string().contains("argument-gone"), "{error}"),
        }
    }
    assert!(pushed > 20, "{pushed} rows below pushed registers");
}

#[test]
fn nothing_of_a_read_can_be_left_out_or_changed() {
    let image = kernel().image();
    let mut left_out = Caught::new("instructions of reads of stacks left out", &[CODE]);
    let mut changed = Caught::new("changed reads of stacks", &[CODE]);
    for (source, block) in SOURCES.iter().zip([0, 0, 0, 0, 1]) {
        let hook = ("worker", block, HookType::Pre);
        let plan = by_stack(&image, hook, source, &unwinding()).unwrap();
        passes(&image, &plan);
        let made = made(&plan);
        assert!(made.iter().any(|(_, one)| one.is_call_near()));
        for (at, one) in made {
            let is_push = one.code() == Code::Pushq_imm32;
            let is_word = is_push || one.mnemonic() == Mnemonic::Pop || one.is_call_near();
            if is_word {
                let mut bad = plan.clone();
                bad.patches[0].code[at..at + one.len()].fill(0x90);
                left_out.must_refuse(&image, bad, format_args!("{source}: without `{one}`"));
            }
            // The frame, its depth, the function.
            let places = if is_push || one.is_call_near() {
                1..5
            } else {
                0..0
            };
            for place in places {
                for bit in [1, 8] {
                    let mut bad = plan.clone();
                    bad.patches[0].code[at + place] ^= bit;
                    changed.must_refuse(
                        &image,
                        bad,
                        format_args!("{source}: `{one}`, byte {place}"),
                    );
                }
            }
        }
    }
}

#[test]
fn a_stack_is_read_by_programs_that_have_it_and_from_the_original_frame() {
    let image = kernel().image();
    let hook = ("helper", 0, HookType::Pre);
    let plan = by_stack(&image, hook, "{ sample(kstack(9)) }", &unwinding()).unwrap();
    let push = |plan: &Plan, number: usize| {
        let pushes = made(plan).into_iter();
        let mut pushes = pushes.filter(|(_, one)| one.code() == Code::Pushq_imm32);
        pushes.nth(number).unwrap().0
    };
    refused(&image, &plan, "OtherFrame", |plan| {
        let at = push(plan, 0);
        plan.patches[0].code[at + 1] ^= 8;
    });
    refused(&image, &plan, "OtherFrame", |plan| {
        let at = push(plan, 1);
        plan.patches[0].code[at + 1] ^= 1;
    });
    // A depth that its program does not have.
    refused(&image, &plan, "OtherStack", |plan| {
        let at = push(plan, 0);
        plan.patches[0].code[at + 3] ^= 1;
    });
    refused(&image, &plan, "OtherFunction", |plan| {
        plan.layout.stacks = plan.layout.stacks.map(|at| at.add(16));
    });
    refused(&image, &plan, "UnplannedCall", |plan| {
        plan.layout.stacks = None;
    });
}

#[test]
fn a_target_without_code_for_stacks_refuses_them_by_name() {
    let image = kernel().image();
    let without = RuntimeLayout {
        stacks: None,
        ..unwinding()
    };
    for layout in [layout(), without] {
        let refused = by_stack(&image, ("helper", 0, HookType::Pre), SOURCES[0], &layout);
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("program-unsupported") && said.contains("stack"),
            "{said}"
        );
    }
}
