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
pub(super) fn judged(image: &Image, plan: &Plan, words: Option<&str>, write: Asm<'_>) {
    passes(image, plan);
    let mut own = plan.clone();
    own.patches[0].code = assembled(plan, write);
    match (verify(image, own), words) {
        (Ok(_), None) => {}
        (Ok(_), Some(words)) => panic!("it passes, and should be {words:?}"),
        (Err(violations), None) => panic!("it should pass:\n{}", list(&violations)),
        (Err(violations), Some(words)) => assert!(
            list(&violations).contains(words),
            "it should be {words:?}, and is\n{}",
            list(&violations)
        ),
    }
}

pub(super) const COUNTER: u64 = 0x3_1000;
pub(super) const F: u64 = 0xffff_ffff_8100_0000;
/// Behind the seven bytes that a splice at the start of `f` displaces.
pub(super) const BACK: u64 = F + 5 + 7;

pub(super) fn moved(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(rax, rdi)?;
    a.lea(rax, ptr(rax + 9))
}

pub(super) fn leave(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.jmp(BACK)?;
    a.int3()
}

#[test]
fn a_counter() {
    let image = image();
    let plan = planned_close(&image, vec![placement("f", 0, HookType::Pre, "counter")]);
    let judged = |words: Option<&str>, write: Asm<'_>| judged(&image, &plan, words, write);
    let count = |a: &mut CodeAssembler| a.inc(qword_ptr(COUNTER).gs());

    judged(None, &|a| {
        count(a)?;
        moved(a)?;
        leave(a)
    });
    // The same by other means: in a dead register, with saved flags, around a jump.
    judged(None, &|a| {
        let mut on = a.create_label();
        a.pushfq()?;
        a.push(rax)?;
        a.mov(rcx, COUNTER)?;
        a.jmp(on)?;
        a.int3()?;
        a.set_label(&mut on)?;
        a.add(qword_ptr(rcx).gs(), 1)?;
        a.pop(rax)?;
        a.popfq()?;
        moved(a)?;
        leave(a)
    });
    judged(Some("should stand"), &|a| {
        count(a)?;
        a.mov(rax, rdi)?;
        leave(a)
    });
    judged(Some("should stand"), &|a| {
        count(a)?;
        a.mov(rax, rdi)?;
        a.mov(rax, rdi)?;
        a.lea(rax, ptr(rax + 9))?;
        leave(a)
    });
    judged(Some("should"), &|a| {
        count(a)?;
        a.lea(rax, ptr(rax + 9))?;
        a.mov(rax, rdi)?;
        leave(a)
    });
    judged(Some("should stand"), &|a| {
        count(a)?;
        a.mov(rax, rdi)?;
        a.lea(rax, ptr(rax + 10))?;
        leave(a)
    });
    judged(Some("is not done here"), &|a| {
        moved(a)?;
        leave(a)
    });
    judged(Some("counts where no instrument"), &|a| {
        count(a)?;
        count(a)?;
        moved(a)?;
        leave(a)
    });
    judged(Some("should stand"), &|a| {
        a.inc(qword_ptr(COUNTER).gs())?;
        a.mov(rax, rdi)?;
        count(a)?;
        a.lea(rax, ptr(rax + 9))?;
        leave(a)
    });
    judged(Some("not its own to count in"), &|a| {
        a.inc(qword_ptr(COUNTER + 8).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("which is not for it"), &|a| {
        a.dec(qword_ptr(COUNTER).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("may have"), &|a| {
        a.add(qword_ptr(COUNTER).gs(), 2)?;
        moved(a)?;
        leave(a)
    });
    judged(Some("not a word of eight bytes"), &|a| {
        a.inc(dword_ptr(COUNTER).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("lock or repeat"), &|a| {
        a.lock().inc(qword_ptr(COUNTER).gs())?;
        moved(a)?;
        leave(a)
    });
    judged(Some("through fs"), &|a| {
        a.mov(rcx, qword_ptr(COUNTER).fs())?;
        count(a)?;
        moved(a)?;
        leave(a)
    });
}

#[test]
fn what_is_left_behind() {
    let image = image();
    let plan = planned_close(&image, vec![placement("f", 0, HookType::Pre, "counter")]);
    let judged = |words: Option<&str>, write: Asm<'_>| judged(&image, &plan, words, write);
    let count = |a: &mut CodeAssembler| a.inc(qword_ptr(COUNTER).gs());
    let around = |before: Asm<'_>, after: Asm<'_>, words: Option<&str>| {
        judged(words, &|a| {
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
        Some("rdi may be used later"),
    );
    around(
        &|a| a.mov(rbx, 5u64),
        &|_| Ok(()),
        Some("rbx may be used later"),
    );
    around(
        &|a| a.mov(r15d, r15d),
        &|_| Ok(()),
        Some("r15 may be used later"),
    );
    around(&|a| a.push(rdi), &|_| Ok(()), Some("still on the stack"));
    around(&|_| Ok(()), &|a| a.pop(rdi), Some("has not pushed"));
    around(&|a| a.push(rdi), &|a| a.pop(rcx), None);
    around(
        &|a| a.push(rbx),
        &|a| a.pop(rdi),
        Some("rdi may be used later"),
    );
    around(
        &|a| a.pushfq(),
        &|a| a.pop(rdi),
        Some("rdi may be used later"),
    );
    around(
        &|a| a.push(rbx),
        &|a| a.popfq(),
        Some("something else than the flags"),
    );
    around(
        &|a| a.sub(rsp, 8),
        &|a| a.add(rsp, 8),
        Some("moves the stack pointer"),
    );
    around(
        &|a| a.mov(rcx, rsp),
        &|a| a.mov(rsp, rcx),
        Some("moves the stack pointer"),
    );
    around(
        &|a| a.mov(qword_ptr(rsp - 8), rax),
        &|_| Ok(()),
        Some("outside of what it has pushed"),
    );
    around(
        &|a| a.mov(rcx, qword_ptr(rsp)),
        &|_| Ok(()),
        Some("outside of what it has pushed"),
    );
    around(
        &|a| a.mov(qword_ptr(rdi), rax),
        &|_| Ok(()),
        Some("not its own"),
    );
    around(
        &|a| a.mov(rcx, qword_ptr(rdi)),
        &|_| Ok(()),
        Some("not its own"),
    );
    around(
        &|a| a.mov(rcx, qword_ptr(DATA)),
        &|_| Ok(()),
        Some("not its own"),
    );
    around(
        &|a| a.mov(qword_ptr(0x3_0000).gs(), rax),
        &|_| Ok(()),
        Some("it writes gs"),
    );
    around(
        &|a| a.mov(rcx, qword_ptr(0x40).gs()),
        &|_| Ok(()),
        Some("which is not for it"),
    );
    around(&|a| a.call(F), &|_| Ok(()), Some("is not an instruction"));
    around(&|a| a.jmp(rdi), &|_| Ok(()), Some("is not an instruction"));
    around(&|a| a.cli(), &|a| a.sti(), Some("is not an instruction"));
    around(&|a| a.std(), &|a| a.cld(), Some("is not an instruction"));
    around(&|a| a.rdtscp(), &|_| Ok(()), Some("is not an instruction"));
    around(&|a| a.cpuid(), &|_| Ok(()), Some("is not an instruction"));
    around(
        &|a| a.xchg(rcx, rdx),
        &|_| Ok(()),
        Some("is not an instruction"),
    );
    around(&|a| a.int3(), &|_| Ok(()), Some("is not an instruction"));
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
        Some("more than an instrument can need"),
    );
}

/// A sample by hand, with one part of it as told.
fn sample(a: &mut CodeAssembler, part: &str) -> Result<(), IcedError> {
    let (mut again, mut full, mut done) = (a.create_label(), a.create_label(), a.create_label());
    let (head, limit) = (0x3_0000, 0x3_0008);
    a.push(rax)?;
    if part == "limit first" {
        a.mov(rsi, qword_ptr(limit).gs())?;
    }
    if part == "clock first" {
        a.rdtsc()?;
        a.shl(rdx, 32)?;
        a.or(rdx, rax)?;
    }
    a.set_label(&mut again)?;
    a.mov(rcx, qword_ptr(head).gs())?;
    match part {
        "limit first" => a.cmp(rcx, rsi)?,
        "no limit" => a.cmp(rcx, rax)?,
        "limit known" => {
            a.mov(rsi, qword_ptr(limit).gs())?;
            a.cmp(rsi, rcx)?;
        }
        _ => a.cmp(rcx, qword_ptr(limit).gs())?,
    }
    match part {
        "greater" => a.jae(full)?,
        "inverted" => a.jne(full)?,
        _ => a.je(full)?,
    }
    if part != "clock first" {
        a.rdtsc()?;
        a.shl(rdx, 32)?;
        a.or(rdx, rax)?;
    }
    a.mov(rax, rcx)?;
    a.add(rcx, if part == "two slots" { 2 } else { 1 })?;
    a.cmpxchg(qword_ptr(head).gs(), rcx)?;
    match part {
        "result unseen" => a.nop()?,
        "gives up" => a.jne(done)?,
        "keeps failing" => a.je(again)?,
        _ => a.jne(again)?,
    }
    a.mov(rcx, rax)?;
    a.and(ecx, if part == "slots" { 0x1_ffff } else { 0xffff })?;
    a.imul_3(rcx, rcx, 24)?;
    a.mov(rsi, rax)?;
    a.shr(rsi, if part == "cpu" { 47 } else { 48 })?;
    a.shl(rsi, 21)?;
    a.add(rcx, rsi)?;
    a.mov(rsi, 0xffff_c900_0400_0000u64)?;
    a.add(rcx, rsi)?;
    a.shr(rax, 16)?;
    a.shl(rax, 48)?;
    if part == "identifier" {
        a.add(rax, 1)?;
    }
    if part == "tag first" {
        a.mov(qword_ptr(rcx), rax)?;
    }
    a.mov(
        qword_ptr(rcx + if part == "neighbour" { 32 } else { 8 }),
        rdx,
    )?;
    if part != "no time" {
        a.mov(qword_ptr(rcx + 16), if part == "time" { rsi } else { rdx })?;
    }
    a.mov(qword_ptr(rcx), rax)?;
    if part == "tag twice" {
        a.mov(qword_ptr(rcx), rax)?;
    }
    a.set_label(&mut done)?;
    a.pop(rax)?;
    moved(a)?;
    leave(a)?;
    a.set_label(&mut full)?;
    match part {
        "not counted" => a.nop()?,
        "wrong cause" => a.inc(qword_ptr(0x3_0018).gs())?,
        _ => a.inc(qword_ptr(0x3_0010).gs())?,
    }
    a.jmp(done)
}

#[test]
fn a_sample() {
    let image = image();
    let plan = planned_close(&image, vec![placement("f", 0, HookType::Pre, "timestamp")]);
    for (part, words) in [
        ("right", None),
        ("limit known", None),
        ("limit first", Some("though the ring may be full")),
        ("no limit", Some("though the ring may be full")),
        // After a migration the head of one CPU and the limit of another say nothing.
        ("greater", Some("though the ring may be full")),
        ("inverted", Some("though the ring")),
        (
            "clock first",
            Some("between reading the head and reserving"),
        ),
        ("two slots", Some("does not move the head by one")),
        (
            "result unseen",
            Some("not followed by a branch on its result"),
        ),
        ("gives up", Some("is not done here")),
        ("keeps failing", Some("is not done here")),
        ("slots", Some("outside of the slot")),
        ("cpu", Some("outside of the slot")),
        ("neighbour", Some("outside of the slot")),
        ("identifier", Some("the tag is not that of instrument")),
        ("tag first", Some("before the value and the time")),
        ("time", Some("not the one read for it")),
        ("no time", Some("before the value and the time")),
        ("tag twice", Some("where no instrument should run")),
        ("not counted", Some("is not done here")),
        ("wrong cause", Some("not its own to count in")),
    ] {
        println!("{part}");
        judged(&image, &plan, words, &|a| sample(a, part));
    }
}
