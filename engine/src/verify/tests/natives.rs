//! Calls of native functions: proven as they are, and found out when anything of them is changed.

use std::collections::BTreeSet;

use iced_x86::{Code, IcedError, Mnemonic, Register};

use super::caught::CODE;
use super::*;
use crate::kernel::fixture::TEXT;
use crate::native::NativeCode;
use crate::native::tests::{definitions, may_be_called};
use crate::patch::PieceKind;
use crate::verify::patch::native::left_alone;

const SOURCE: &str = "
    GILK_INSTRUMENT(\"hits(counter): Hits.\");
    void hits(gilk_word counter) { gilk_count(counter, 1); }
    GILK_INSTRUMENT(\"mixed(arg1, arg0, id, reg(bx)) samples things: Things.\");
    gilk_word mixed(gilk_word a, gilk_word b, gilk_word c, gilk_word d) { return a * 3 + b * 5 + c + d; }
    ";

fn natively(placements: Vec<Placement>) -> (Image, Plan) {
    let mut library = Library::builtin().unwrap();
    for definition in definitions(SOURCE) {
        library.add(definition).unwrap();
    }
    let image = kernel().image();
    let plan = plan(&image, &session(placements), &library, &layout()).unwrap();
    (image, plan)
}

/// Checks the callee contract of all functions of a file.
pub(crate) fn comes_back(code: &NativeCode) -> std::result::Result<(), String> {
    let entries = code.entries.iter().filter(|(name, _)| !name.contains('.'));
    let mut left: Vec<Addr> = entries.map(|(_, at)| *at).collect();
    let mut known = BTreeSet::new();
    while let Some(at) = left.pop() {
        if code.span().contains(at) && known.insert(at) {
            left.extend(
                crate::verify::patch::callee_contract::follow(code, at)
                    .map_err(|why| why.to_string())?,
            );
        }
    }
    Ok(())
}

fn mixed() -> (Image, Plan) {
    natively(vec![placement("helper", 0, HookType::Pre, "mixed")])
}

#[test]
fn calls_are_proven_among_other_instruments_and_at_every_hook() {
    let (image, plan) = mixed();
    passes(&image, &plan);
    let code = &plan.natives[0];
    assert_eq!(code.span().start, plan.layout.arena.start);
    assert!(
        plan.patches
            .iter()
            .all(|patch| code.span().end <= patch.address)
    );
    for (function, block, hook) in hooks(&kernel().image()) {
        let all =
            ["counter", "hits", "timestamp"].map(|one| placement(&function, block, hook, one));
        let (image, plan) = natively(all.into());
        passes(&image, &plan);
    }
}

/// Instructions of the patch that are the instrument's, its saves' or its restores', by offset.
pub(super) fn made(plan: &Plan) -> Vec<(usize, Instruction)> {
    let patch = &plan.patches[0];
    let ours = |kind: &PieceKind| {
        matches!(
            kind,
            PieceKind::Instrument(_) | PieceKind::Save | PieceKind::Restore
        )
    };
    let pieces = patch.pieces().filter(|piece| ours(&piece.kind));
    let decoded = pieces.flat_map(|piece| {
        let from = piece.range.start as usize;
        decoded(
            patch.address.add(from as u64),
            &patch.code[from..piece.range.end as usize],
        )
    });
    decoded
        .map(|one| ((one.ip() - patch.address.0) as usize, one))
        .collect()
}

#[test]
fn nothing_of_a_call_can_be_left_out() {
    let mut caught = Caught::new("instructions of calls left out", &[CODE]);
    for instrument in ["hits", "mixed"] {
        let (image, plan) = natively(vec![placement("helper", 0, HookType::Pre, instrument)]);
        passes(&image, &plan);
        let made = made(&plan);
        assert!(made.iter().any(|(_, one)| one.is_call_near()));
        for (at, one) in made {
            let mut bad = plan.clone();
            bad.patches[0].code[at..at + one.len()].fill(0x90);
            caught.must_refuse(&image, bad, format_args!("{instrument}: without `{one}`"));
        }
    }
}

#[test]
fn what_a_call_may_change_is_saved() {
    let (image, plan) = natively(vec![placement("helper", 0, HookType::Pre, "hits")]);
    passes(&image, &plan);
    let made = made(&plan);
    let mut calls = 0;
    for (save, pushed) in made
        .iter()
        .filter(|(_, instruction)| instruction.code() == Code::Push_r64)
    {
        let register = pushed.op0_register();
        let gives_back = |instruction: &Instruction| {
            instruction.code() == Code::Pop_r64 && instruction.op0_register() == register
        };
        let (restore, popped) = made
            .iter()
            .rfind(|(_, instruction)| gives_back(instruction))
            .unwrap();
        // Another register is saved and given back instead: the stack is as deep as before.
        refused(
            &image,
            &plan,
            "Instruction: does not have its value",
            |plan| {
                for (at, instruction) in [(save, pushed), (restore, popped)] {
                    plan.patches[0].code[*at..at + instruction.len()].fill(0x90);
                    plan.patches[0].code[at + instruction.len() - 1] =
                        if instruction == popped { 0x5d } else { 0x55 };
                }
            },
        );
        calls += 1;
    }
    assert!(calls > 1, "{calls}");
}

#[test]
fn what_is_called_is_what_the_instrument_names_and_lies_apart() {
    let (image, plan) = mixed();
    let (at, call) = made(&plan)
        .into_iter()
        .find(|(_, one)| one.is_call_near())
        .unwrap();
    refused(
        &image,
        &plan,
        "OtherFunction: does not call mixed",
        |plan| {
            plan.patches[0].code[at + call.len() - 4] ^= 0x10;
        },
    );
    refused(&image, &plan, "NoNativeCode", |plan| {
        plan.natives.clear();
    });
    refused(&image, &plan, "NativeOverwritten", |plan| {
        plan.natives[0].address = plan.patches[0].address;
    });
    refused(&image, &plan, "NativeOutsideArena", |plan| {
        plan.natives[0].address = plan.layout.arena.end;
    });
    // cli
    refused(&image, &plan, "NativeUnfollowed", |plan| {
        let offset = plan.natives[0].entry("mixed").unwrap().0 - plan.natives[0].address.0;
        plan.natives[0].bytes[offset as usize] = 0xfa;
    });
    // A counter that is another instrument's, or nobody's.
    let (image, plan) = natively(vec![
        placement("helper", 0, HookType::Pre, "hits"),
        placement("worker", 0, HookType::Pre, "counter"),
    ]);
    refused(&image, &plan, "SameCounter", |plan| {
        plan.instruments[1].counter = plan.instruments[0].counter;
    });
    refused(&image, &plan, "OtherParameter: parameter 0", |plan| {
        plan.instruments[0].counter.as_mut().unwrap().slot += 7;
    });
}

#[test]
fn a_function_that_does_not_come_back_as_it_was_called_is_found_out() {
    let source = "
        GILK_INSTRUMENT(\"deep(arg0, arg1) samples things: Things.\");
        gilk_word counted(gilk_word);
        static __attribute__((noinline)) gilk_word below(gilk_word a, gilk_word b) {
            gilk_word room[4] __attribute__((aligned(32)));
            for (int i = 0; i < 4; i++) room[i] = counted(a + i);
            return counted(room[b & 3]) + counted(a) + b;
        }
        gilk_word deep(gilk_word a, gilk_word b) {
            volatile gilk_word room[3] = { a, b, a };
            room[1] += counted(b);
            return below(a, b) + room[0] + room[1] + counted(a) + b;
        }";
    let mut library = Library::builtin().unwrap();
    for definition in definitions(source) {
        library.add(definition).unwrap();
    }
    let image = kernel().image();
    let placements = vec![placement("worker", 0, HookType::Pre, "deep")];
    let plan = plan(&image, &session(placements), &library, &layout()).unwrap();
    passes(&image, &plan);
    let code = &plan.natives[0];
    let all = decoded(code.address, &code.bytes[..code.text as usize]);
    // What gives back what was taken and saved.
    let made = |one: &&Instruction| match one.mnemonic() {
        Mnemonic::Push | Mnemonic::Pop | Mnemonic::Leave => true,
        Mnemonic::Add | Mnemonic::Lea => one.op0_register() == Register::RSP,
        _ => false,
    };
    let made: Vec<&Instruction> = all.iter().filter(made).collect();
    assert!(made.len() > 10, "{made:?}");
    let mut caught = Caught::new(
        "changes of a native function's stack",
        &[&[
            "NativeStackDepth",
            "NativeStackPointer",
            "NativeUnknownStack",
            "NativeOverwrites",
            "NativeRegister",
        ]],
    );
    for one in made {
        let at = (one.ip() - code.address.0) as usize;
        let mut found = |why: &str, change: &dyn Fn(&mut [u8])| {
            let mut bad = plan.clone();
            change(&mut bad.natives[0].bytes[at..at + one.len()]);
            caught.must_refuse(&image, bad, format_args!("{why} `{one}`"));
        };
        found("without", &|bytes| bytes.fill(0x90));
        if one.mnemonic() == Mnemonic::Pop {
            // Into the register beside it.
            found("otherwise", &|bytes| *bytes.last_mut().unwrap() ^= 1);
        }
        if matches!(one.mnemonic(), Mnemonic::Add | Mnemonic::Lea) {
            found("by more than", &|bytes| *bytes.last_mut().unwrap() ^= 8);
        }
    }
}

/// An instrument that calls a function of the kernel, at `worker`; and counters.
fn calling(function: &str, also: &[&str]) -> (Image, crate::Result<Plan>) {
    let source = format!(
        "GILK_INSTRUMENT(\"calls(arg0) samples things: Things.\");
        gilk_word {function}(gilk_word);
        gilk_word calls(gilk_word it) {{ return {function}(it) + 1; }}"
    );
    let mut library = Library::builtin().unwrap();
    for definition in definitions(&source) {
        library.add(definition).unwrap();
    }
    let mut placements = vec![placement("worker", 0, HookType::Pre, "calls")];
    placements.extend(
        also.iter()
            .map(|one| placement(one, 0, HookType::Pre, "counter")),
    );
    let image = kernel().image();
    let plan = plan(&image, &session(placements), &library, &layout());
    (image, plan)
}

#[test]
fn no_plan_calls_what_leads_to_an_instrument() {
    for (function, also) in [("helper", "helper"), ("tail", "helper"), ("tail", "tail")] {
        let (image, plan) = calling(function, &[]);
        passes(&image, &plan.unwrap());
        let refused = calling(function, &[also]).1.unwrap_err();
        let by_rule = matches!(
            &refused,
            crate::Error::Refused { refusal, .. } if refusal.rule == crate::Rule::NativeUnsafe
        );
        assert!(by_rule, "{function}: {refused:?}");
        assert!(
            refused
                .to_string()
                .contains("has instruments in this session"),
            "{refused}"
        );
    }
}

/// The first call in a plan's first native code.
fn call(plan: &Plan) -> Instruction {
    let code = &plan.natives[0];
    let text = decoded(code.address, &code.bytes[..code.text as usize]);
    text.into_iter().find(Instruction::is_call_near).unwrap()
}

/// Has it call something else.
fn call_instead(plan: &mut Plan, to: u64) {
    let call = call(plan);
    let code = &mut plan.natives[0];
    let from = (call.ip() - code.address.0) as usize;
    let to = to.wrapping_sub(call.next_ip()) as i32;
    code.bytes[from + 1..from + 5].copy_from_slice(&to.to_le_bytes());
}

#[test]
fn a_call_that_leads_to_an_instrument_is_found_out() {
    let (image, plan) = calling("counted", &["helper"]);
    let plan = plan.unwrap();
    assert_eq!(call(&plan).near_branch_target(), Fixture::address(3));
    // It calls the instrument's function, and one that goes there.
    for number in [1, 2] {
        let why = "ReachesFunction: helper, which this session does not leave alone";
        refused(&image, &plan, why, |plan| {
            call_instead(plan, Fixture::address(number));
        });
    }
}

#[test]
fn a_call_of_what_leads_out_of_the_text_is_found_out() {
    let strays = |write: fn(&mut CodeAssembler) -> std::result::Result<(), IcedError>| {
        kernel().compiled("strays", write).image()
    };
    const OUTSIDE: u64 = TEXT - 0x1_0000;
    let image = strays(|a| a.ret());
    let at = image.function_named("strays").unwrap().span.start;
    let (_, plan) = calling("counted", &["helper"]);
    let plan = plan.unwrap();
    for (image, why) in [
        (
            strays(|a| a.jmp(OUTSIDE)),
            "ReachesFunction: from which it goes to no function",
        ),
        (
            strays(|a| {
                a.call(OUTSIDE)?;
                a.ret()
            }),
            "ReachesFunction: from which it goes to no function",
        ),
        (
            strays(|a| a.jmp(rdi)),
            "ReachesFunction: from which it may go anywhere",
        ),
    ] {
        passes(&image, &plan);
        refused(&image, &plan, why, |plan| call_instead(plan, at.0));
    }
}

#[test]
fn two_files_of_one_name_are_two() {
    let mut library = Library::builtin().unwrap();
    for (name, more) in [("first", 1), ("second", 2)] {
        let source = format!(
            "GILK_INSTRUMENT(\"{name}(arg0) samples things: Things.\");
            gilk_word second(gilk_word it) {{ return it + {more}; }}
            gilk_word first(gilk_word it) {{ return it - {more}; }}"
        );
        for definition in definitions(&source) {
            library.add(definition).unwrap();
        }
    }
    let all = ["first", "second"].map(|one| placement("worker", 0, HookType::Pre, one));
    let image = kernel().image();
    let plan = plan(&image, &session(all.into()), &library, &layout()).unwrap();
    passes(&image, &plan);
    let [first, second] = plan.natives.as_slice() else {
        panic!("{:?}", plan.natives)
    };
    assert!(first.file == second.file && !first.span().overlaps(second.span()));
    let called: Vec<u64> = plan
        .patches
        .iter()
        .flat_map(|patch| decoded(patch.address, &patch.code))
        .filter(|one| one.is_call_near())
        .map(|one| one.near_branch_target())
        .collect();
    for entry in [
        first.entry("first").unwrap(),
        second.entry("second").unwrap(),
    ] {
        assert!(called.contains(&entry.0), "{entry}: {called:x?}");
    }
}

/// The verifier permits calls of real kernel functions that the planner permits.
#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn functions_of_a_real_kernel_that_may_be_called_are_left_alone() {
    let path = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE must name a saved live image; cargo xtask test makes one");
    let parts = postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    let image = Image::from_live(&parts).unwrap();
    let (mut called, mut plan) = (0, mixed().1);
    plan.functions.clear();
    for function in image.functions().iter().step_by(3) {
        let named = image.function_named(&function.name);
        if named.is_ok_and(|named| named.id == function.id) && may_be_called(&image, &function.name)
        {
            called += 1;
            left_alone(&image, &plan, function.span.start).unwrap();
        }
    }
    assert!(called > 1000, "{called}");
}

#[test]
fn no_native_function_is_called_by_other_conventions_than_the_kernels() {
    let (image, good) = mixed();
    refused(&image, &good, "NativeAbi", |plan| {
        plan.layout.abi.red_zone = 128;
    });
    let mut library = Library::builtin().unwrap();
    for definition in definitions(SOURCE) {
        library.add(definition).unwrap();
    }
    let mut layout = layout();
    layout.abi.red_zone = 128;
    let called = session(vec![placement("helper", 0, HookType::Pre, "mixed")]);
    let said = plan(&image, &called, &library, &layout).unwrap_err();
    assert!(said.to_string().contains("native-unsafe"), "{said}");
}
