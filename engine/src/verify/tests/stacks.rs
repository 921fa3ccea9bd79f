//! Reads of the kernel's stack: proven at every hook, and found out when anything of them is changed.

use super::caught::CODE;
use super::natives::made;
use super::*;

fn by_stack(
    image: &Image,
    hook: (&str, u32, HookType),
    source: &str,
    layout: &RuntimeLayout,
) -> crate::Result<Plan> {
    of_source(image, hook, &format!("hit {source}"), layout)
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
        let caught = (&mut left_out, &mut changed);
        alters_calls(&image, (&plan, source), caught, |_| false, [1, 8]);
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
