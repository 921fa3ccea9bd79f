//! Loads of programs: what a failed one yields, what tests its address, and where none may stand.

use iced_x86::Code;

use super::caught::CODE;
use super::programs::{instrument, programs, written};
use super::*;
use crate::patch::Recovery;

/// The recovery of a failed load, and the set of instructions that may fault, are derived by the
/// proof.
#[test]
fn no_read_of_memory_can_go_on_elsewhere() {
    let image = kernel().image();
    let mut entries = 0;
    let mut without = Caught::new("loads without a recovery", &[CODE]);
    let mut elsewhere = Caught::new("other recoveries of loads", &[CODE]);
    for (number, plan) in programs().enumerate() {
        let all: Vec<Addr> = decoded(plan.patches[0].address, &plan.patches[0].code)
            .iter()
            .map(|one| Addr(one.ip()))
            .collect();
        for entry in 0..plan.faults.len() {
            entries += 1;
            let mut bad = plan.clone();
            bad.faults.remove(entry);
            without.must_refuse(&image, bad, format_args!("{number}: entry {entry}"));
            let Recovery::At(right) = plan.faults[entry].recovery else {
                panic!("{:?}", plan.faults)
            };
            let others = all.iter().map(|&at| Recovery::At(at));
            for other in others.chain([Recovery::Like(right), Recovery::At(Addr(0x10))]) {
                let mut bad = plan.clone();
                bad.faults[entry].recovery = other;
                let same = bad == plan;
                let refused = elsewhere.refuses(&image, bad, format_args!("{number}: {other:?}"));
                assert_eq!(refused, !same, "{number}: {other:?}");
            }
        }
    }
    assert_eq!(
        entries,
        2 + 3 + 1 + 4 + 3 + 4 + 2 + 4 + 2 + 1,
        "constant addresses of a process are not read"
    );
}

/// A read is counted as failed, and gives 0, where its own test has found that it may not be read, and nowhere else.
#[test]
fn no_test_of_an_address_can_lead_elsewhere() {
    let image = kernel().image();
    let mut tried = 0;
    let mut caught = Caught::new("other targets of tests of addresses", &[CODE]);
    for (number, plan) in programs().enumerate().skip(10) {
        let patch = &plan.patches[0];
        let all = decoded(patch.address, &patch.code);
        for (at, one) in instrument(&plan) {
            if one.code() != Code::Jge_rel32_64 {
                continue;
            }
            for to in &all {
                // This is its target already.
                if to.ip() == one.near_branch_target() {
                    continue;
                }
                let mut bad = plan.clone();
                let far = i32::try_from(to.ip().wrapping_sub(one.next_ip()).cast_signed()).unwrap();
                bad.patches[0].code[at + 2..at + 6].copy_from_slice(&far.to_le_bytes());
                tried += 1;
                let what = format_args!("program {number}: `{one}` to `{to}`");
                caught.must_refuse(&image, bad, what);
            }
        }
    }
    assert!(tried > 100, "{tried} ways");
}

/// On a kernel that was not compared with the lists of handlers, a program that loads memory is refused
/// everywhere, by the planner and by the proof, until the user insists; a counter of hits is not.
#[test]
fn no_read_stands_in_an_unknown_kernel_unless_the_user_insists() {
    let fixture = Fixture::new().compiled("other", |a| {
        a.mov(eax, edi)?;
        a.add(rax, rsi)?;
        a.lea(rax, ptr(rax + 8))?;
        a.ret()
    });
    let mut parts = fixture.parts();
    parts.release = "6.6.0-other".into();
    let unknown = crate::Image::from_live(&parts).unwrap();
    let source = "instrument mine \"x.\"; hit { sample(*(u64 *)arg0) }";
    let refused = written(&unknown, "other", 0, source);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("unknown-kernel"), "{said}");
    let harmless = "instrument mine \"x.\"; hit { sample(arg0) }";
    passes(&unknown, &written(&unknown, "other", 0, harmless).unwrap());
    let insisted = unknown.clone().taken_as_known();
    let plan = written(&insisted, "other", 0, source).unwrap();
    passes(&insisted, &plan);
    let Err(violations) = verify(&unknown, plan) else {
        panic!("it is sent")
    };
    let said = list(&violations);
    assert!(said.contains("[LoadsInHandler]"), "{said}");
}

/// On such a kernel, code without a site of the function tracer is refused for every instrument, by the planner and by the
/// proof: it may be assembly that the lists lack.
#[test]
fn no_splice_stands_in_assembly_of_an_unknown_kernel_unless_the_user_insists() {
    let fixture = Fixture::new().asm("assembly", |a| {
        a.mov(eax, edi)?;
        a.add(rax, rsi)?;
        a.lea(rax, ptr(rax + 8))?;
        a.ret()
    });
    let source = "instrument mine \"x.\"; hit { sample(1) }";
    passes(
        &fixture.image(),
        &written(&fixture.image(), "assembly", 0, source).unwrap(),
    );
    let mut parts = fixture.parts();
    parts.release = "6.6.0-other".into();
    let unknown = crate::Image::from_live(&parts).unwrap();
    let said = written(&unknown, "assembly", 0, source).unwrap_err();
    assert!(said.to_string().contains("unknown-kernel"), "{said}");
    let insisted = unknown.clone().taken_as_known();
    let plan = written(&insisted, "assembly", 0, source).unwrap();
    passes(&insisted, &plan);
    let Err(violations) = verify(&unknown, plan) else {
        panic!("it is sent")
    };
    let said = list(&violations);
    assert!(said.contains("forbids probes"), "{said}");
}

/// A program that loads memory is refused in the kernel's handlers of failed loads, by the planner
/// and by the proof.
#[test]
fn no_read_stands_where_its_fault_is_handled() {
    let handler = |name: &str| {
        Fixture::new()
            .compiled(name, |a| {
                a.mov(eax, edi)?;
                a.add(rax, rsi)?;
                a.lea(rax, ptr(rax + 8))?;
                a.ret()
            })
            .image()
    };
    let source = "instrument mine \"x.\"; hit { sample(*(u64 *)arg0) }";
    let refused = written(&handler("fixup_exception"), "fixup_exception", 0, source);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("would fault recursively"), "{said}");
    // The same code by another name.
    let other = handler("other");
    let mut plan = written(&other, "other", 0, source).unwrap();
    passes(&other, &plan);
    plan.functions[0].name = "fixup_exception".into();
    let Err(violations) = verify(&handler("fixup_exception"), plan) else {
        panic!("it is sent")
    };
    let said = list(&violations);
    assert!(said.contains("[LoadsInHandler]"), "{said}");
}
