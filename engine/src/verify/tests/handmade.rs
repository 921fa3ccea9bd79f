//! Patches written by hand, right and wrong.

use iced_x86::IcedError;

use super::*;

/// `f` copies, adds and returns; `kept` is assembly, at whose start everything may be used, flags too.
pub(super) fn image() -> Image {
    Fixture::new()
        .compiled("f", |a| {
            a.mov(rax, rdi)?;
            a.lea(rax, ptr(rax + 9))?;
            a.mov(rdx, rax)?;
            a.ret()
        })
        .asm("kept", |a| {
            a.adc(rax, rdi)?;
            a.lea(rdx, qword_ptr(DATA + 0x20))?;
            a.ret()
        })
        .compiled("calls", |a| {
            a.mov(rdi, rsi)?;
            a.call(Fixture::address(0))?;
            a.mov(rdx, rax)?;
            a.ret()
        })
        .compiled("decides", |a| {
            let mut there = a.create_label();
            a.test(rdi, rdi)?;
            a.jne(there)?;
            a.mov(eax, 5)?;
            a.ret()?;
            a.set_label(&mut there)?;
            a.mov(eax, 6)?;
            a.ret()
        })
        .image()
}

pub(super) type Asm<'a> = &'a dyn Fn(&mut CodeAssembler) -> Result<(), IcedError>;

fn assembled(plan: &Plan, write: Asm<'_>) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).unwrap();
    write(&mut a).unwrap();
    a.assemble(plan.patches[0].address.0).unwrap()
}

/// The plan with the code of its one patch written by hand passes, or does not and says `words`.
#[track_caller]
pub(super) fn judged(image: &Image, plan: &Plan, rule: Option<&str>, write: Asm<'_>) {
    passes(image, plan);
    let mut own = plan.clone();
    own.patches[0].code = assembled(plan, write).into();
    match (verify(image, own), rule) {
        (Ok(_), None) => {}
        (Ok(_), Some(rule)) => panic!("it passes, and should be {rule:?}"),
        (Err(violations), None) => panic!("it should pass:\n{}", list(&violations)),
        (Err(violations), Some(rule)) => assert!(
            has_rule(&violations, rule),
            "it should be {rule:?}, and is\n{}",
            list(&violations)
        ),
    }
}

pub(super) const COUNTER: u64 = 0x3_1000;
pub(super) const F: u64 = 0xffff_ffff_8100_0000;
/// The address after the seven bytes that a splice at the start of `f` displaces.
pub(super) const BACK: u64 = F + 5 + 7;

pub(super) fn moved(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(rax, rdi)?;
    a.lea(rax, ptr(rax + 9))
}

pub(super) fn leave(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.jmp(BACK)?;
    a.int3()
}

/// Saves rax and the flags.
pub(super) fn save(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.push(rax)?;
    a.lahf()?;
    a.seto(al)
}

/// Restores the flags and rax.
pub(super) fn restore(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.add(al, 0x7f)?;
    a.sahf()?;
    a.pop(rax)
}

#[test]
fn a_counter() {
    let image = image();
    let plan = planned_close(&image, vec![placement("f", 0, HookType::Pre, "counter")]);
    let judged = |rule: Option<&str>, write: Asm<'_>| judged(&image, &plan, rule, write);
    let count = |a: &mut CodeAssembler| a.inc(qword_ptr(COUNTER).gs());

    judged(None, &|a| {
        count(a)?;
        moved(a)?;
        leave(a)
    });
    // The same by other means: in a dead register, with saved flags, around a jump.
    judged(None, &|a| {
        let mut on = a.create_label();
        save(a)?;
        a.push(rax)?;
        a.mov(rcx, COUNTER)?;
        a.jmp(on)?;
        a.int3()?;
        a.set_label(&mut on)?;
        a.add(qword_ptr(rcx).gs(), 1)?;
        a.pop(rax)?;
        restore(a)?;
        moved(a)?;
        leave(a)
    });
    judged(Some("NotOriginal"), &|a| {
        count(a)?;
        a.mov(rax, rdi)?;
        leave(a)
    });
    judged(Some("NotOriginal"), &|a| {
        count(a)?;
        a.mov(rax, rdi)?;
        a.mov(rax, rdi)?;
        a.lea(rax, ptr(rax + 9))?;
        leave(a)
    });
    judged(Some("NotOriginal"), &|a| {
        count(a)?;
        a.lea(rax, ptr(rax + 9))?;
        a.mov(rax, rdi)?;
        leave(a)
    });
    judged(Some("NotOriginal"), &|a| {
        count(a)?;
        a.mov(rax, rdi)?;
        a.lea(rax, ptr(rax + 10))?;
        leave(a)
    });
    judged(Some("Leaves: is not done here"), &|a| {
        moved(a)?;
        leave(a)
    });
    judged(Some("UnhookedCount"), &|a| {
        count(a)?;
        count(a)?;
        moved(a)?;
        leave(a)
    });
    judged(Some("NotOriginal"), &|a| {
        a.inc(qword_ptr(COUNTER).gs())?;
        a.mov(rax, rdi)?;
        count(a)?;
        a.lea(rax, ptr(rax + 9))?;
        leave(a)
    });
    judged(Some("OtherAggregate"), &|a| {
        a.inc(qword_ptr(COUNTER + 8).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("ForeignWord"), &|a| {
        a.dec(qword_ptr(COUNTER).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("OtherAmount"), &|a| {
        a.add(qword_ptr(COUNTER).gs(), 2)?;
        moved(a)?;
        leave(a)
    });
    judged(Some("Instruction"), &|a| {
        a.inc(dword_ptr(COUNTER).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("Prefix"), &|a| {
        a.lock().inc(qword_ptr(COUNTER).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("OtherSegment"), &|a| {
        a.mov(rcx, qword_ptr(COUNTER).fs())?;
        count(a)?;
        moved(a)?;
        leave(a)
    });
}

#[test]
fn live_flags_are_restored() {
    let image = image();
    let plan = planned_close(&image, vec![placement("kept", 0, HookType::Pre, "counter")]);
    // Without its flags, the original instruction is none that a copy may have there.
    let around = |rule: Option<&str>, before: Asm<'_>, after: Asm<'_>| {
        judged(&image, &plan, rule, &|a| {
            before(a)?;
            // It changes the carry flag too, which the next instruction reads.
            a.add(qword_ptr(COUNTER).gs(), 1)?;
            after(a)?;
            a.adc(rax, rdi)?;
            a.lea(rdx, qword_ptr(DATA + 0x20))?;
            let end = plan.sites[0].displaced.end;
            a.jmp(end.0)?;
            a.int3()
        });
    };
    around(None, &save, &restore);
    // The instrument may use rax meanwhile.
    around(
        None,
        &|a| {
            save(a)?;
            a.push(rax)?;
            a.xor(eax, eax)
        },
        &|a| {
            a.pop(rax)?;
            restore(a)
        },
    );
    around(Some("Instruction"), &|_| Ok(()), &|_| Ok(()));
    around(Some("Instruction"), &save, &|a| a.pop(rax));
    around(
        Some("Instruction"),
        &|a| {
            a.push(rax)?;
            a.xor(eax, eax)?;
            a.lahf()?;
            a.seto(al)
        },
        &restore,
    );
    let others: [Asm<'_>; 4] = [
        // Another number overflows elsewhere.
        &|a| {
            a.add(al, 0x7e)?;
            a.sahf()
        },
        // The addition changes what was restored.
        &|a| {
            a.sahf()?;
            a.add(al, 0x7f)
        },
        &|a| {
            a.mov(rax, rdi)?;
            a.add(al, 0x7f)?;
            a.sahf()
        },
        // The overflow flag was not saved.
        &|a| {
            a.lahf()?;
            a.add(al, 0x7f)?;
            a.sahf()
        },
    ];
    for other in others {
        around(Some("OtherFlags"), &save, &|a| {
            other(a)?;
            a.pop(rax)
        });
    }
}

#[test]
fn live_registers_are_restored() {
    let image = image();
    let plan = planned_close(&image, vec![placement("f", 0, HookType::Pre, "counter")]);
    let judged = |rule: Option<&str>, write: Asm<'_>| judged(&image, &plan, rule, write);
    let count = |a: &mut CodeAssembler| a.inc(qword_ptr(COUNTER).gs());
    let around = |before: Asm<'_>, after: Asm<'_>, rule: Option<&str>| {
        judged(rule, &|a| {
            before(a)?;
            count(a)?;
            after(a)?;
            moved(a)?;
            leave(a)
        });
    };
    around(&|a| a.mov(rcx, 5u64), &|_| Ok(()), None);
    around(
        &|a| a.mov(rdi, 5u64),
        &|_| Ok(()),
        Some("Leaves: rdi may be used later"),
    );
    around(
        &|a| a.mov(rbx, 5u64),
        &|_| Ok(()),
        Some("Leaves: rbx may be used later"),
    );
    around(
        &|a| a.mov(r15d, r15d),
        &|_| Ok(()),
        Some("Leaves: r15 may be used later"),
    );
    around(
        &|a| a.push(rdi),
        &|_| Ok(()),
        Some("Leaves: still on the stack"),
    );
    around(&|_| Ok(()), &|a| a.pop(rdi), Some("PopsOriginal"));
    around(&|a| a.push(rdi), &|a| a.pop(rcx), None);
    around(
        &|a| a.push(rbx),
        &|a| a.pop(rdi),
        Some("Leaves: rdi may be used later"),
    );
    around(&|a| a.sub(rsp, 8), &|a| a.add(rsp, 8), Some("MovesStack"));
    around(
        &|a| a.mov(rcx, rsp),
        &|a| a.mov(rsp, rcx),
        Some("MovesStack"),
    );
    around(
        &|a| a.mov(qword_ptr(rsp - 8), rax),
        &|_| Ok(()),
        Some("ForeignStack"),
    );
    around(
        &|a| a.mov(rcx, qword_ptr(rsp)),
        &|_| Ok(()),
        Some("ForeignStack"),
    );
    around(
        &|a| a.mov(qword_ptr(rdi), rax),
        &|_| Ok(()),
        Some("AggregateWrite"),
    );
    around(
        &|a| a.mov(rcx, qword_ptr(rdi)),
        &|_| Ok(()),
        Some("ForeignMemory"),
    );
    around(
        &|a| a.mov(rcx, qword_ptr(DATA)),
        &|_| Ok(()),
        Some("ForeignMemory"),
    );
    around(
        &|a| a.mov(qword_ptr(0x3_0000).gs(), rax),
        &|_| Ok(()),
        Some("AggregateWrite"),
    );
    around(
        &|a| a.mov(rcx, qword_ptr(0x40).gs()),
        &|_| Ok(()),
        Some("ForeignWord"),
    );
    around(&|a| a.call(F), &|_| Ok(()), Some("OtherFunction"));
    around(&|a| a.jmp(rdi), &|_| Ok(()), Some("Instruction"));
    around(&|a| a.cli(), &|a| a.sti(), Some("Instruction"));
    around(&|a| a.std(), &|a| a.cld(), Some("Instruction"));
    around(&|a| a.rdtscp(), &|_| Ok(()), Some("Instruction"));
    around(&|a| a.cpuid(), &|_| Ok(()), Some("Instruction"));
    around(&|a| a.xchg(rcx, rdx), &|_| Ok(()), Some("Instruction"));
    around(&|a| a.int3(), &|_| Ok(()), Some("Instruction"));
    // Copied away and back through a register that is dead.
    around(
        &|a| {
            a.mov(rcx, rdi)?;
            a.mov(edi, 1)
        },
        &|a| a.mov(rdi, rcx),
        None,
    );
    // Enough pushes to leave any stack.
    around(
        &|a| (0..100).try_for_each(|_| a.push(rbx)),
        &|a| (0..100).try_for_each(|_| a.pop(rbx)),
        Some("DeepStack"),
    );
}
