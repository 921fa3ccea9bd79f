//! Numbers of stacks and addresses of a process: proven at every hook, and found out when anything of them is changed. The
//! code that numbers them is proven with no other bit.

use super::caught::CODE;
use super::natives::made;
use super::sequence_programs::layout_of_process;
use super::*;
use crate::layout::{ReadGate, StackTables};
use crate::reads::MemoryReader;
use crate::stacks::StackReader;
use crate::verify::listing::ListingViolation;
use crate::verify::reads::{ReaderViolation, verify};

const GATE: ReadGate = ReadGate {
    closed: Addr(0x2000_0f00),
};

const SOURCES: [&str; 6] = [
    "{ @by[ustack] = count() }",
    "{ sample(ustack(9)) }",
    "/ ustack != ustack(2) / { @bytes[ustack] = sum(*(u32 *)uptr(reg(\"si\"))) }",
    "{ @by[usym(*(u64 *)uptr(reg(\"sp\")))] = count(); @again[ustack] = hist(tsc) }",
    "{ sample(usym(reg(\"dx\")) * 3 + (ustack ^ cpu)) }",
    "{ @by[ustack(1), usym(reg(\"si\"))] = count() }",
];

fn with_stacks() -> RuntimeLayout {
    let tables = StackTables {
        start: Addr(0x4000_0000),
    };
    RuntimeLayout {
        stack_tables: Some(tables),
        ..layout_of_process()
    }
}

fn numbering(image: &Image, hook: (&str, u32, HookType), source: &str) -> crate::Result<Plan> {
    of_source(image, hook, &format!("hit {source}"), &with_stacks())
}

#[test]
fn stacks_are_numbered_at_every_hook() {
    let image = kernel().image();
    let (mut counters, hooks) = (0, hooks(&image));
    for ((function, block, hook), source) in hooks.iter().zip(SOURCES.iter().cycle()) {
        let plan = numbering(&image, (function, *block, *hook), source);
        let plan = match plan {
            Ok(plan) => plan,
            // A process has no handler of traps.
            Err(error) if error.to_string().contains("int3") => continue,
            Err(error) => panic!("{source}: {error}"),
        };
        passes(&image, &plan);
        counters += failure_counters(&plan);
    }
    assert!(counters > 20, "{counters}");
}

#[test]
fn nothing_of_a_number_can_be_left_out_or_changed() {
    let image = super::handmade::image();
    let mut left_out = Caught::new(
        "instructions of numbers of stacks left out",
        &[CODE, &["SteppedOver"]],
    );
    let mut changed = Caught::new("changed numbers of stacks", &[CODE, &["OutsideSequence"]]);
    for source in SOURCES {
        let plan = numbering(&image, ("kept", 0, HookType::Pre), source).unwrap();
        let is_address = |one: &Instruction| one.code() == Code::Push_r64;
        let caught = (&mut left_out, &mut changed);
        alters_calls(&image, (&plan, source), caught, is_address, [1, 4]);
    }
}

#[test]
fn a_number_is_of_the_original_frame_and_of_a_request_of_the_program() {
    let image = super::handmade::image();
    let hook = ("kept", 0, HookType::Pre);
    let plan = numbering(&image, hook, "{ sample(ustack(9)) }").unwrap();
    let find = |plan: &Plan, which: &dyn Fn(&Instruction) -> bool| {
        let mut all = made(plan).into_iter();
        all.find(|(_, one)| which(one)).unwrap()
    };
    let request = |plan: &Plan| find(plan, &|one| one.code() == Code::Pushq_imm32).0;
    let alter = |byte: usize, bits: u8| {
        move |plan: &mut Plan| {
            let at = request(plan);
            plan.patches[0].code[at + 1 + byte] ^= bits;
        }
    };
    // Bytes that were pushed, frames, and the kind.
    refused(&image, &plan, "OtherFrame", alter(0, 8));
    refused(&image, &plan, "OtherFrame", alter(1, 1));
    refused(&image, &plan, "OtherUserRead", alter(2, 1));
    refused(&image, &plan, "OtherUserRead", alter(3, 1));
    refused(&image, &plan, "OtherUserRead", alter(3, 2));
    // Another address, counter and code; code of no table.
    let constant = |number: usize| {
        move |plan: &mut Plan| {
            let constants = made(plan).into_iter();
            let is_load = |one: &Instruction| {
                matches!(
                    one.code(),
                    Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32
                )
            };
            let mut constants = constants.filter(|(_, one)| is_load(one));
            let (at, one) = constants.nth(number).unwrap();
            plan.patches[0].code[at + one.len() - 4] ^= 8;
        }
    };
    refused(&image, &plan, "OtherFrame", constant(0));
    refused(&image, &plan, "CountsForeign", constant(1));
    refused(&image, &plan, "OutsideSequence", |plan| {
        let (at, one) = find(plan, &|one| one.is_call_near());
        plan.patches[0].code[at + one.len() - 4] ^= 4;
    });
    refused(&image, &plan, "OutsideSequence", |plan| {
        plan.layout.stack_tables = None;
    });
    // A name is of the address that its program computes, and has one frame.
    let plan = numbering(&image, hook, "{ sample(usym(reg(\"dx\"))) }").unwrap();
    refused(&image, &plan, "OtherUserRead", alter(0, 8));
    refused(&image, &plan, "OtherUserRead", alter(2, 2));
}

fn sound(layout: &RuntimeLayout) -> MemoryReader {
    let mut all = MemoryReader::all(layout, GATE);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn listing(start: Addr, code: &[u8]) -> Vec<String> {
    let all = decoded(start, code).into_iter();
    all.map(|one| one.to_string()).collect()
}

fn changed(sound: &MemoryReader, change: impl FnOnce(&mut StackReader)) -> MemoryReader {
    let mut changed = sound.clone();
    change(changed.stacks.as_mut().unwrap());
    changed
}

#[test]
fn no_bit_of_the_code_that_numbers_stacks_may_change() {
    let layout = with_stacks();
    let good = sound(&layout);
    let proven = verify(&layout, GATE, vec![good.clone()]).unwrap();
    assert_eq!(proven.readers(), std::slice::from_ref(&good));
    let stacks = good.stacks.clone().unwrap();
    let start = good.start.add(StackReader::OFFSET);
    let instructions = listing(start, &stacks.code);
    for bit in 0..stacks.code.len() * 8 {
        let mut code = stacks.code.clone();
        code[bit / 8] ^= 1 << (bit % 8);
        let is_same = listing(start, &code) == instructions;
        let verdict = verify(
            &layout,
            GATE,
            vec![changed(&good, |stacks| stacks.code = code)],
        );
        assert_eq!(verdict.is_ok(), is_same, "{bit}: {verdict:?}");
        // Bits of a prefix or of a scale that the processor ignores.
        let byte = stacks.code[bit / 8];
        assert!(
            !is_same || matches!(byte, 0x40..=0x4f | 0x04 | 0x24 | 0x25 | 0x89 | 0xc6),
            "{bit}: {byte:#x}"
        );
    }
}

#[test]
fn code_that_numbers_stacks_elsewhere_or_with_other_tables_is_refused() {
    let layout = with_stacks();
    let good = sound(&layout);
    let refused = |layout: &RuntimeLayout, reader: MemoryReader| {
        verify(layout, GATE, vec![reader]).map(drop).unwrap_err()
    };
    let none = MemoryReader {
        stacks: None,
        ..good.clone()
    };
    assert_eq!(refused(&layout, none), ReaderViolation::Stacks);
    let without = layout_of_process();
    assert_eq!(refused(&without, good.clone()), ReaderViolation::Stacks);
    let other = StackTables {
        start: Addr(0x4000_1000),
    };
    let elsewhere = changed(&good, |stacks| stacks.tables = other);
    assert_eq!(refused(&layout, elsewhere.clone()), ReaderViolation::Stacks);
    // Its code has the addresses of the first.
    let of_other = RuntimeLayout {
        stack_tables: Some(other),
        ..layout.clone()
    };
    let ReaderViolation::Listing(ListingViolation::Instruction { .. }) =
        refused(&of_other, elsewhere)
    else {
        panic!("other tables");
    };
    for start in [Addr(0x4000_0008), Addr(0x7ff0_0000)] {
        let tables = StackTables { start };
        let layout = RuntimeLayout {
            stack_tables: Some(tables),
            ..layout.clone()
        };
        let reader = changed(&good, |stacks| stacks.tables = tables);
        assert_eq!(refused(&layout, reader), ReaderViolation::Tables(start));
    }
    let longer = changed(&good, |stacks| {
        stacks.code.resize(StackReader::BYTES as usize + 1, 0x90);
    });
    let at = good.start.add(StackReader::OFFSET);
    assert_eq!(refused(&layout, longer), ReaderViolation::Longer(at));
    let overlapping = MemoryReader {
        code: [&*good.code, &[0x90; 200]].concat(),
        ..good.clone()
    };
    assert!(matches!(
        refused(&layout, overlapping),
        ReaderViolation::Listing(_) | ReaderViolation::Longer(_)
    ));
}
