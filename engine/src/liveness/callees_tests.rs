//! Effects of callees that keep no convention.

use iced_x86::code_asm::{
    CodeAssembler, eax, ecx, qword_ptr, r10, r11, rax, rbx, rcx, rdi, rdx, rsi, rsp,
};
use iced_x86::{IcedError, Register};

use super::{Analysis, Live, Liveness, RegisterSet};
use crate::Addr;
use crate::cfg::Cfg;
use crate::code::FunctionId;
use crate::isa::abi::ARGUMENTS;
use crate::kernel::fixture::Fixture;

type Assemble = fn(&mut CodeAssembler) -> Result<(), IcedError>;

/// Live before a call from compiled code to an untraced function; `after` is assembled after it.
fn before_call_of(callee: Assemble, after: Assemble) -> RegisterSet {
    before(&[callee], after).registers
}

/// The same, of a callee that may have callees of its own, at `Fixture::address(2)` and on.
fn before(callees: &[Assemble], after: Assemble) -> Live {
    let to = Fixture::address(1);
    let mut fixture = Fixture::new().compiled("f", |a| {
        a.call(to)?;
        after(a)
    });
    for (number, callee) in callees.iter().enumerate() {
        fixture = fixture.asm(&format!("g{number}"), callee);
    }
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    let call = Fixture::address(0) + 5;
    Liveness::of(&Analysis::new(&image), &cfg).before(Addr(call))
}

fn uses_r10_and_r11(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.lea(rax, qword_ptr(r10 + r11))?;
    a.ret()
}

#[test]
fn what_a_callee_keeps_is_live_across_it_and_what_it_overwrites_is_not() {
    let live = before_call_of(
        |a| {
            a.mov(eax, ecx)?;
            a.mov(r11, rax)?;
            a.ret()
        },
        uses_r10_and_r11,
    );
    assert!(live.contains(Register::R10), "the callee leaves it alone");
    assert!(!live.contains(Register::R11), "the callee overwrites it");
    let arguments = RegisterSet::of(&ARGUMENTS);
    assert_eq!(arguments.difference(live), RegisterSet::EMPTY);
    // Only on one of two ways.
    let live = before_call_of(
        |a| {
            let mut out = a.create_label();
            a.test(rdi, rdi)?;
            a.je(out)?;
            a.xor(r11, r11)?;
            a.set_label(&mut out)?;
            a.ret()
        },
        uses_r10_and_r11,
    );
    assert!(live.contains(Register::R11));
    // What it saves and restores it has read.
    let live = before_call_of(
        |a| {
            a.push(rbx)?;
            a.mov(rbx, rdi)?;
            a.pop(rbx)?;
            a.ret()
        },
        CodeAssembler::ret,
    );
    assert!(live.contains(Register::RBX));
}

#[test]
fn callees_of_callees_are_followed_as_far_as_it_goes() {
    let chain = |length: usize| {
        let calls: [Assemble; 4] = [
            |a| {
                a.call(Fixture::address(2))?;
                a.ret()
            },
            |a| a.jmp(Fixture::address(3)),
            |a| {
                a.call(Fixture::address(4))?;
                a.ret()
            },
            |a| a.jmp(Fixture::address(5)),
        ];
        let mut all = calls.get(..length).unwrap().to_vec();
        all.push(|a| {
            a.xor(r11, r11)?;
            a.ret()
        });
        before(&all, uses_r10_and_r11)
            .registers
            .contains(Register::R11)
    };
    assert_eq!(
        [0, 1, 2, 3, 4].map(chain),
        [false, false, false, true, true]
    );
    // One that calls itself.
    let live = before_call_of(
        |a| {
            a.call(Fixture::address(1))?;
            a.xor(r11, r11)?;
            a.ret()
        },
        uses_r10_and_r11,
    );
    assert!(
        live.contains(Register::R11),
        "what it may do first is unknown"
    );
}

#[test]
fn a_callee_that_may_return_elsewhere_is_not_believed() {
    let strange: [Assemble; 7] = [
        // Over its return address, as retpolines do.
        |a| {
            a.mov(qword_ptr(rsp), rax)?;
            a.xor(r11, r11)?;
            a.ret()
        },
        // To its caller's caller.
        |a| {
            a.xor(r11, r11)?;
            a.pop(rdx)?;
            a.ret()
        },
        |a| {
            a.xor(r11, r11)?;
            a.add(rsp, 8)?;
            a.ret()
        },
        // On another stack.
        |a| {
            a.xor(r11, r11)?;
            a.mov(rsp, rsi)?;
            a.ret()
        },
        // To where it pleases.
        |a| a.jmp(rdx),
        // Not even as deep on all ways.
        |a| {
            let mut out = a.create_label();
            a.xor(r11, r11)?;
            a.test(rdi, rdi)?;
            a.je(out)?;
            a.push(rcx)?;
            a.set_label(&mut out)?;
            a.ret()
        },
        // Into the middle of another function.
        |a| a.jmp(Fixture::address(0) + 5),
    ];
    for (number, callee) in strange.into_iter().enumerate() {
        let live = before_call_of(callee, uses_r10_and_r11);
        assert_eq!(live, RegisterSet::ALL, "number {number}");
    }
    // And these are ordinary.
    let ordinary: [Assemble; 3] = [
        |a| {
            a.push(rcx)?;
            a.mov(qword_ptr(rsp), rax)?;
            a.xor(r11, r11)?;
            a.pop(rcx)?;
            a.ret()
        },
        |a| {
            a.sub(rsp, 0x98)?;
            a.mov(qword_ptr(rsp + 0x90), rax)?;
            a.xor(r11, r11)?;
            a.lea(rsp, qword_ptr(rsp + 0x98))?;
            a.ret()
        },
        |a| {
            a.mov(rax, qword_ptr(rsp))?;
            a.xor(r11, r11)?;
            a.ret()
        },
    ];
    for (number, callee) in ordinary.into_iter().enumerate() {
        let live = before_call_of(callee, uses_r10_and_r11);
        assert!(!live.contains(Register::R11), "number {number}");
    }
}

#[test]
fn what_never_returns_reads_its_arguments() {
    let fixture = Fixture::new()
        .compiled("f", |a| {
            a.call(Fixture::address(1))?;
            a.ret()
        })
        .asm("__stack_chk_fail", |a| a.jmp(rax));
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    let live = Liveness::of(&Analysis::new(&image), &cfg).before(Addr(Fixture::address(0) + 5));
    assert!(!live.flags);
    for dead in [Register::R11, Register::RBX, Register::R15] {
        assert!(!live.registers.contains(dead), "{dead:?}");
    }
    assert!(live.registers.contains(Register::RDI));
}

#[test]
fn faults_read_everything_and_static_keys_no_flags() {
    let at = Fixture::address(0);
    // ftrace nop; mov rax, [rdi]; xor ecx, ecx; ret
    let code = [0x0f, 0x1f, 0x44, 0, 0, 0x48, 0x8b, 0x07, 0x31, 0xc9, 0xc3];
    let mut fixture = Fixture::new().bytes("f", &code);
    fixture.exceptions.push((at + 5, at + 10));
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    assert_eq!(
        Liveness::of(&Analysis::new(&image), &cfg).before(Addr(at + 5)),
        Live::ALL
    );
    // ftrace nop; key; sete al; ret: not what a compiler makes.
    let code = [0x0f, 0x1f, 0x44, 0, 0, 0x66, 0x90, 0x0f, 0x94, 0xc0, 0xc3];
    let mut fixture = Fixture::new().bytes("f", &code);
    fixture.jumps.push((at + 5, at + 10));
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    let live = Liveness::of(&Analysis::new(&image), &cfg);
    assert!(!live.before(Addr(at + 5)).flags && live.before(Addr(at + 7)).flags);
}
