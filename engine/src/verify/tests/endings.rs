//! Patches written by hand: how control leaves them, and with what.

use super::handmade::*;
use super::*;

#[test]
fn where_control_goes() {
    let image = image();
    let plan = planned_close(&image, vec![placement("f", 0, HookType::Pre, "counter")]);
    let judged = |rule: Option<&str>, write: Asm<'_>| judged(&image, &plan, rule, write);
    let start = |a: &mut CodeAssembler| {
        a.inc(qword_ptr(COUNTER).gs())?;
        moved(a)
    };
    for wrong in [BACK - 1, BACK + 1, BACK - 7, BACK + 3, F, ARENA + 0x100] {
        judged(Some("OtherTarget"), &|a| {
            start(a)?;
            a.jmp(wrong)?;
            a.int3()
        });
    }
    judged(Some("PastEnd"), &start);
    judged(Some("SpeculatesPastEnd"), &|a| {
        start(a)?;
        a.jmp(BACK)
    });
    judged(Some("Unreached"), &|a| {
        start(a)?;
        leave(a)?;
        a.nop()
    });
    judged(None, &|a| {
        start(a)?;
        leave(a)?;
        a.int3()?;
        a.int3()
    });
    judged(Some("Loops"), &|a| {
        let mut again = a.create_label();
        a.inc(qword_ptr(COUNTER).gs())?;
        a.set_label(&mut again)?;
        a.dec(rcx)?;
        a.jne(again)?;
        moved(a)?;
        leave(a)
    });
    judged(Some("Loops"), &|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.jmp(again)
    });
    judged(Some("StackDepth"), &|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.push(rcx)?;
        a.test(rdi, rdi)?;
        a.jne(again)?;
        a.inc(qword_ptr(COUNTER).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("Leaves: is not done here"), &|a| {
        // Counted on one way only.
        let mut past = a.create_label();
        a.test(rdi, rdi)?;
        a.je(past)?;
        a.inc(qword_ptr(COUNTER).gs())?;
        a.set_label(&mut past)?;
        moved(a)?;
        leave(a)
    });
    judged(None, &|a| {
        // Counted on either way.
        let (mut past, mut done) = (a.create_label(), a.create_label());
        a.test(rdi, rdi)?;
        a.je(past)?;
        a.inc(qword_ptr(COUNTER).gs())?;
        a.jmp(done)?;
        a.set_label(&mut past)?;
        a.add(qword_ptr(COUNTER).gs(), 1)?;
        a.set_label(&mut done)?;
        moved(a)?;
        leave(a)
    });
    judged(Some("Leaves"), &|a| {
        a.jmp(F + 0x300)?;
        a.int3()
    });
}

#[test]
fn flags_and_everything_else_are_kept() {
    let image = image();
    let plan = planned_close(&image, vec![placement("kept", 0, HookType::Pre, "counter")]);
    let back = Fixture::address(1) + 3 + 8;
    let tail = move |a: &mut CodeAssembler| {
        a.adc(rax, rdi)?;
        a.lea(rdx, qword_ptr(DATA + 0x20))?;
        a.jmp(back)?;
        a.int3()
    };
    let judged = |rule: Option<&str>, write: Asm<'_>| judged(&image, &plan, rule, write);
    let count = |a: &mut CodeAssembler| a.inc(qword_ptr(COUNTER).gs());
    judged(None, &|a| {
        save(a)?;
        count(a)?;
        restore(a)?;
        tail(a)
    });
    // `adc` uses the carry flag, which `inc` leaves alone, and changes all the others.
    judged(None, &|a| {
        count(a)?;
        tail(a)
    });
    judged(Some("Instruction: the flags may be used later"), &|a| {
        a.add(qword_ptr(COUNTER).gs(), 1)?;
        tail(a)
    });
    judged(Some("Instruction: still on the stack"), &|a| {
        save(a)?;
        count(a)?;
        tail(a)
    });
    judged(Some("Instruction: the flags may be used later"), &|a| {
        a.add(qword_ptr(COUNTER).gs(), 1)?;
        save(a)?;
        restore(a)?;
        tail(a)
    });
    judged(Some("Instruction: r11 may be used later"), &|a| {
        save(a)?;
        count(a)?;
        restore(a)?;
        a.mov(r11d, 5)?;
        tail(a)
    });
    judged(Some("NotOriginal"), &|a| {
        save(a)?;
        count(a)?;
        restore(a)?;
        a.adc(rax, rdi)?;
        a.lea(rdx, qword_ptr(DATA + 0x21))?;
        a.jmp(back)?;
        a.int3()
    });
}

#[test]
fn calls_and_branches_at_the_end() {
    let image = image();
    let plan = planned_close(
        &image,
        vec![placement("calls", 0, HookType::Pre, "counter")],
    );
    let returns = Fixture::address(2) + 5 + 3 + 5;
    let calls = |rule: Option<&str>, write: Asm<'_>| {
        judged(&image, &plan, rule, &|a| {
            a.inc(qword_ptr(COUNTER).gs())?;
            a.mov(rdi, rsi)?;
            write(a)
        });
    };
    calls(None, &|a| {
        a.push(returns as i32)?;
        a.jmp(F)?;
        a.int3()
    });
    calls(Some("NotOriginal"), &|a| {
        a.call(F)?;
        a.jmp(returns)?;
        a.int3()
    });
    calls(Some("NotOriginal"), &|a| {
        a.push(returns as i32 + 1)?;
        a.jmp(F)?;
        a.int3()
    });
    calls(Some("OtherCallee"), &|a| {
        a.push(returns as i32)?;
        a.jmp(F + 5)?;
        a.int3()
    });
    calls(Some("NotOriginal"), &|a| {
        a.jmp(F)?;
        a.int3()
    });
    calls(Some("OtherCallee"), &|a| {
        a.push(returns as i32)?;
        a.push(returns as i32)?;
        a.jmp(F)?;
        a.int3()
    });

    let plan = planned_close(
        &image,
        vec![placement("decides", 0, HookType::Post, "counter")],
    );
    let (there, next) = (
        Fixture::address(3) + 5 + 3 + 2 + 6,
        Fixture::address(3) + 5 + 3 + 2,
    );
    let decides = |rule: Option<&str>, write: Asm<'_>| {
        judged(&image, &plan, rule, &|a| {
            a.test(rdi, rdi)?;
            write(a)
        });
    };
    let count = |a: &mut CodeAssembler| {
        save(a)?;
        a.inc(qword_ptr(COUNTER).gs())?;
        restore(a)
    };
    let ends = move |a: &mut CodeAssembler| {
        a.jne(there)?;
        a.jmp(next)?;
        a.int3()
    };
    decides(None, &|a| {
        count(a)?;
        ends(a)
    });
    decides(None, &|a| {
        // The taken way continues through a jump of the patch.
        let mut taken = a.create_label();
        count(a)?;
        a.jne(taken)?;
        a.jmp(next)?;
        a.int3()?;
        a.set_label(&mut taken)?;
        a.jmp(there)?;
        a.int3()
    });
    decides(Some("Leaves: the flags may be used later"), &|a| {
        a.inc(qword_ptr(COUNTER).gs())?;
        ends(a)
    });
    decides(Some("Leaves: is not done here"), &ends);
    decides(Some("Leaves: is not done here"), &|a| {
        // Counted after the branch: on one of its ways only.
        a.jne(there)?;
        count(a)?;
        a.jmp(next)?;
        a.int3()
    });
    decides(None, &|a| {
        // The condition and the ways are negated.
        count(a)?;
        a.je(next)?;
        a.jmp(there)?;
        a.int3()
    });
    decides(Some("OtherTarget"), &|a| {
        count(a)?;
        a.je(there)?;
        a.jmp(next)?;
        a.int3()
    });
    decides(Some("Leaves: should come next"), &|a| {
        count(a)?;
        a.jb(there)?;
        a.jmp(next)?;
        a.int3()
    });
    decides(Some("Leaves: should come next"), &|a| {
        count(a)?;
        a.jae(next)?;
        a.jmp(there)?;
        a.int3()
    });
    decides(Some("OtherTarget"), &|a| {
        count(a)?;
        a.jne(next)?;
        a.jmp(there)?;
        a.int3()
    });
    decides(Some("OtherTarget"), &|a| {
        count(a)?;
        a.jne(there)?;
        a.jmp(there)?;
        a.int3()
    });
}

/// A bare return is where it is for processors that mispredict those in lower halves of cache lines.
#[test]
fn returns_stay_in_upper_halves() {
    for (before, free) in [(12_i32, false), (3, true)] {
        let fixture = Fixture::new().asm("returns", |a| {
            for displacement in 0..before {
                a.lea(rax, qword_ptr(rax + displacement + 1))?;
            }
            a.ret()
        });
        let image = fixture.image();
        let hook = placement("returns", 0, HookType::Post, "counter");
        let plan = planned(&image, vec![hook]);
        let at = plan.patches[0].address.0;
        for nops in 0..70 {
            let write = |a: &mut CodeAssembler| {
                for displacement in 0..before {
                    a.lea(rax, qword_ptr(rax + displacement + 1))?;
                }
                save(a)?;
                a.inc(qword_ptr(COUNTER).gs())?;
                restore(a)?;
                (0..nops).try_for_each(|_| a.nop())?;
                a.ret()?;
                a.int3()
            };
            let code = &mut CodeAssembler::new(64).unwrap();
            write(code).unwrap();
            let len = code.assemble(at).unwrap().len() as u64;
            let upper = (at + len - 2) & 0x20 != 0;
            let rule = (!free && !upper).then_some("ReturnHalf");
            judged(&image, &plan, rule, &write);
        }
    }
}
