//! Reads of the running process: proven at every hook, and found out when anything of them is changed.

use super::caught::CODE;
use super::natives::made;
use super::*;

fn reading(
    image: &Image,
    hook: (&str, u32, HookType),
    source: &str,
    layout: &RuntimeLayout,
) -> crate::Result<Plan> {
    of_source(image, hook, &format!("hit {source}"), layout)
}

const SOURCES: [&str; 7] = [
    "{ @by[ustack] = count() }",
    "{ @opens[str(uptr(reg(\"si\"))), ustack(3)] = count() }",
    "{ sample(*(s16 *)uptr(reg(\"si\")) + *(u8 *)uptr(reg(\"di\") + 3)) }",
    "/ str(uptr(reg(\"si\"))) == \"/etc/passwd\" / { @bytes[comm] = sum(*(u32 *)uptr(reg(\"dx\"))) }",
    "{ printf(\"%s %s %s\", usym(reg(\"dx\")), ustack, str(uptr(reg(\"si\")))) }",
    "{ sample(ustack * 3 + (ustack ^ cpu)) }",
    "{ @by[kstack, usym(*(u64 *)uptr(reg(\"sp\")))] = count() }",
];

#[test]
fn processes_are_read_at_every_hook() {
    let image = kernel().image();
    let (mut counters, hooks) = (0, hooks(&image));
    for ((function, block, hook), source) in hooks.iter().zip(SOURCES.iter().cycle()) {
        let plan = reading(&image, (function, *block, *hook), source, &unwinding());
        let plan = plan.unwrap_or_else(|error| panic!("{source}: {error}"));
        passes(&image, &plan);
        counters += failure_counters(&plan);
    }
    assert!(counters > 20, "{counters}");
}

#[test]
fn nothing_of_a_read_can_be_left_out_or_changed() {
    let image = kernel().image();
    let mut left_out = Caught::new("instructions of reads of processes left out", &[CODE]);
    let mut changed = Caught::new("changed reads of processes", &[CODE]);
    for (source, block) in SOURCES.iter().zip([0, 0, 0, 0, 1, 1, 0]) {
        let hook = ("worker", block, HookType::Pre);
        let plan = reading(&image, hook, source, &unwinding()).unwrap();
        // The address of what is read.
        let is_address = |one: &Instruction| one.code() == Code::Push_r64;
        let caught = (&mut left_out, &mut changed);
        alters_calls(&image, (&plan, source), caught, is_address, [1, 4]);
    }
}

#[test]
fn a_process_is_read_by_programs_that_have_the_read_and_count_its_failure() {
    let image = kernel().image();
    let hook = ("helper", 0, HookType::Pre);
    let source = "{ sample(*(u32 *)uptr(reg(\"si\"))) }";
    let plan = reading(&image, hook, source, &unwinding()).unwrap();
    let find = |plan: &Plan, code: Code, number: usize| {
        let all = made(plan).into_iter();
        let mut all = all.filter(|(_, one)| one.code() == code);
        all.nth(number).unwrap()
    };
    // Two bytes instead of four, and the stack instead of memory.
    for kind in [0x200, 0x403] {
        refused(&image, &plan, "OtherUserRead", |plan| {
            let (at, _) = find(plan, Code::Pushq_imm32, 0);
            let request = i32::to_le_bytes(kind);
            plan.patches[0].code[at + 1..at + 5].copy_from_slice(&request);
        });
    }
    // Another counter than its own.
    refused(&image, &plan, "CountsForeign", |plan| {
        let constants = made(plan).into_iter();
        let mut constants = constants.filter(|(_, one)| one.code() == Code::Mov_r32_imm32);
        let (at, one) = constants.next().unwrap();
        let last = at + one.len() - 4;
        plan.patches[0].code[last] ^= 8;
    });
    // The code at the hook has another address.
    refused(&image, &plan, "UnplannedCall", |plan| {
        plan.layout.users = None;
        plan.layout.stacks = None;
    });
    refused(&image, &plan, "OtherFunction", |plan| {
        plan.layout.users = plan.layout.users.map(|at| at.add(16));
    });
}

#[test]
fn a_target_without_code_for_processes_refuses_them_by_name() {
    let image = kernel().image();
    let without = RuntimeLayout {
        users: None,
        ..unwinding()
    };
    for source in SOURCES {
        let refused = reading(&image, ("helper", 0, HookType::Pre), source, &without);
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("program-unsupported") && said.contains("process"),
            "{said}"
        );
    }
}
