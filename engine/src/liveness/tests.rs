//! Liveness, case by case, and against an interpreter.

use std::collections::HashMap;

use iced_x86::code_asm::{
    CodeAssembler, al, cl, dword_ptr, eax, ecx, qword_ptr, r8, r11, rax, rbx, rcx, rdi, rdx, rsi,
    rsp,
};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use proptest::prelude::*;

use super::{Analysis, Arguments, Live, Liveness, RegisterSet};
use crate::Addr;
use crate::Image;
use crate::cfg::{BlockIndex, Cfg};
use crate::code::FunctionId;
use crate::kernel::fixture::Fixture;

fn analysed(fixture: &Fixture) -> (Image, Cfg, Liveness) {
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    assert_eq!(cfg.refusal, None);
    let liveness = Liveness::of(&Analysis::new(&image), &cfg);
    (image, cfg, liveness)
}

/// Live before instruction `number` of the first function.
fn before(fixture: &Fixture, number: usize) -> Live {
    let (_, cfg, liveness) = analysed(fixture);
    let instruction = cfg
        .blocks
        .iter()
        .flat_map(|block| &block.instructions)
        .nth(number)
        .unwrap();
    liveness.before(Addr(instruction.ip()))
}

#[test]
fn a_compiled_function_returns_by_the_convention() {
    let fixture = Fixture::new().compiled("f", |a| {
        a.mov(eax, 1_i32)?;
        a.ret()
    });
    let live = before(&fixture, 1);
    assert!(!live.flags);
    assert!(
        !live.registers.contains(Register::RAX),
        "all of rax is about to be overwritten"
    );
    assert!(!live.registers.contains(Register::R11));
    for kept in [
        Register::RBX,
        Register::RBP,
        Register::RSP,
        Register::R15,
        Register::RDX,
    ] {
        assert!(live.registers.contains(kept), "{kept:?}");
    }
    let assembly = Fixture::new().asm("f", |a| {
        a.mov(eax, 1_i32)?;
        a.ret()
    });
    let live = before(&assembly, 0);
    assert!(
        live.flags && live.registers.contains(Register::R11),
        "nothing is known of assembly"
    );
    assert!(!live.registers.contains(Register::RAX));
}

#[test]
fn only_calls_between_compiled_functions_follow_the_convention() {
    let callee = Fixture::address(1);
    let caller = Fixture::new().compiled("f", |a| {
        a.call(callee)?;
        a.ret()
    });
    let live = before(&caller.clone().compiled("g", CodeAssembler::ret), 1);
    assert!(!live.flags && !live.registers.contains(Register::R11));
    assert!(live.registers.contains(Register::RDI) && live.registers.contains(Register::RBX));
    // No flag of compiled code is live across a call of whatever.
    let unknown = Live {
        flags: false,
        ..Live::ALL
    };
    let strange = |a: &mut CodeAssembler| {
        a.mov(qword_ptr(rsp), rax)?;
        a.ret()
    };
    assert_eq!(before(&caller.clone().asm("g", strange), 1), unknown);
    // The same call, but the kernel may redirect it to any function.
    let mut switched = caller.compiled("g", CodeAssembler::ret);
    switched.static_calls.push(Fixture::address(0) + 5);
    assert_eq!(before(&switched, 1), unknown);
    // A static call that is a nop now.
    let mut off =
        Fixture::new().bytes("f", &[0x0f, 0x1f, 0x44, 0, 0, 0x0f, 0x1f, 0x44, 0, 0, 0xc3]);
    off.static_calls.push(Fixture::address(0) + 5);
    assert_eq!(before(&off, 1), unknown);
    let indirect = Fixture::new().compiled("f", |a| {
        a.call(rax)?;
        a.ret()
    });
    assert_eq!(before(&indirect, 1), unknown);
    let passed = Fixture::new().compiled("f", |a| {
        a.popfq()?;
        a.call(rax)?;
        a.ret()
    });
    assert_eq!(before(&passed, 2), Live::ALL);
}

#[test]
fn parts_of_registers_and_perhapses_kill_nothing() {
    let live_rcx = |write: fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>| {
        let fixture = Fixture::new().compiled("f", |a| {
            write(a)?;
            a.mov(rax, rcx)?;
            a.ret()
        });
        before(&fixture, 1).registers.contains(Register::RCX)
    };
    assert!(!live_rcx(|a| a.mov(ecx, 1_i32)), "32 bits clear the rest");
    assert!(!live_rcx(|a| a.xor(ecx, ecx)), "an idiom for zero");
    assert!(live_rcx(|a| a.mov(cl, 1_i32)));
    assert!(live_rcx(|a| a.cmove(rcx, rdx)));
    assert!(live_rcx(|a| a.bsf(rcx, rdx)));
    assert!(live_rcx(|a| a.mov(qword_ptr(rcx), rdx)));
    let live_flags = |write: fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>| {
        let fixture = Fixture::new().compiled("f", |a| {
            write(a)?;
            a.sete(al)?;
            a.ret()
        });
        before(&fixture, 1).flags
    };
    assert!(!live_flags(|a| a.add(rcx, rdx)));
    assert!(live_flags(|a| a.mov(rcx, rdx)));
    assert!(
        live_flags(|a| a.shl(rdx, cl)),
        "a shift by zero leaves the flags"
    );
    assert!(!live_flags(|a| a.shl(rdx, 3_i32)));
    assert!(live_flags(|a| a.adc(rcx, rdx)));
    assert!(
        !live_flags(|a| a.inc(rcx)),
        "inc leaves only the carry, which sete does not read"
    );
}

#[test]
fn a_fault_leads_to_the_fixup() {
    // ftrace nop; mov rcx, [rdi]; mov eax, ecx; ret; fixup: mov rax, rcx; ret
    let mut fixture = Fixture::new().compiled("f", |a| {
        a.mov(rcx, qword_ptr(rdi))?;
        a.mov(eax, ecx)?;
        a.ret()?;
        a.mov(rax, rcx)?;
        a.ret()
    });
    assert!(!before(&fixture, 1).registers.contains(Register::RCX));
    let (start, fixup) = (Fixture::address(0) + 5, Fixture::address(0) + 11);
    fixture.exceptions.push((start, fixup));
    assert!(
        before(&fixture, 1).registers.contains(Register::RCX),
        "it may fault before rcx is written"
    );
    let (_, cfg, liveness) = analysed(&fixture);
    assert_eq!(cfg.blocks.len(), 2);
    assert!(!liveness.after_block(BlockIndex(1)).flags);
    assert_eq!(liveness.before(Addr(1)), Live::ALL);
}

#[test]
fn arguments_are_intact_until_a_way_overwrites_them() {
    let callee = Fixture::address(1);
    let fixture = Fixture::new().compiled("f", |a| {
        let mut join = a.create_label();
        a.mov(cl, 1_i32)?; // 1: rcx is gone
        a.test(rsi, rsi)?;
        a.je(join)?;
        a.xor(eax, eax)?; // 4
        a.mov(rsi, rax)?;
        a.set_label(&mut join)?;
        a.mov(rax, rdi)?; // 6: rsi is overwritten on one of two ways
        a.call(callee)?; // 7
        a.mov(dword_ptr(rax), 1_i32)?; // 8: all are gone
        a.ret()
    });
    let fixture = fixture.compiled("g", CodeAssembler::ret);
    let (image, cfg, _) = analysed(&fixture);
    let arguments = Arguments::of(&image, &cfg);
    let intact = |number: usize| {
        let all: Vec<Instruction> = cfg
            .blocks
            .iter()
            .flat_map(|block| &block.instructions)
            .collect();
        arguments.intact(Addr(all[number].ip()))
    };
    use Register as R;
    assert_eq!(
        intact(0),
        RegisterSet::of(&[R::RDI, R::RSI, R::RDX, R::RCX, R::R8, R::R9])
    );
    assert_eq!(
        intact(2),
        RegisterSet::of(&[R::RDI, R::RSI, R::RDX, R::R8, R::R9])
    );
    assert_eq!(intact(4), intact(2));
    assert_eq!(intact(6), RegisterSet::of(&[R::RDI, R::RDX, R::R8, R::R9]));
    assert_eq!(intact(7), intact(6));
    assert_eq!(intact(8), RegisterSet::EMPTY);
    assert_eq!(arguments.intact(Addr(3)), RegisterSet::EMPTY);
}

// An interpreter of a few instructions, written without the tables that the analysis uses.

/// Registers by number, and the flags Z and C: what the instructions of the test read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    registers: [u64; 16],
    zero: bool,
    carry: bool,
}

impl Machine {
    fn read(&self, instruction: &Instruction, operand: u32) -> u64 {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let value = self.registers[register.full_register().number()];
                match register.size() {
                    1 => value & 0xff,
                    4 => value & 0xffff_ffff,
                    _ => value,
                }
            }
            _ => instruction.immediate(operand),
        }
    }

    fn write(&mut self, register: Register, value: u64) {
        let full = &mut self.registers[register.full_register().number()];
        *full = match register.size() {
            1 => (*full & !0xff) | (value & 0xff),
            4 => value & 0xffff_ffff,
            _ => value,
        };
    }

    /// Runs one instruction; whether it branches.
    fn step(&mut self, instruction: &Instruction) -> bool {
        let to = instruction.op0_register();
        let two = || (self.read(instruction, 0), self.read(instruction, 1));
        match instruction.mnemonic() {
            Mnemonic::Mov => self.write(to, self.read(instruction, 1)),
            Mnemonic::Add => {
                let (sum, carry) = two().0.overflowing_add(two().1);
                (self.zero, self.carry) = (sum == 0, carry);
                self.write(to, sum);
            }
            Mnemonic::Adc => {
                let (sum, one) = two().0.overflowing_add(two().1);
                let (sum, other) = sum.overflowing_add(u64::from(self.carry));
                (self.zero, self.carry) = (sum == 0, one || other);
                self.write(to, sum);
            }
            Mnemonic::Cmp => (self.zero, self.carry) = (two().0 == two().1, two().0 < two().1),
            Mnemonic::Xor => {
                let value = two().0 ^ two().1;
                (self.zero, self.carry) = (value == 0, false);
                self.write(to, value);
            }
            Mnemonic::Inc => {
                let value = self.read(instruction, 0).wrapping_add(1);
                self.zero = value == 0;
                self.write(to, value);
            }
            Mnemonic::Cmovne => {
                let value = if self.zero {
                    self.read(instruction, 0)
                } else {
                    self.read(instruction, 1)
                };
                self.write(to, value);
            }
            Mnemonic::Setb => self.write(to, u64::from(self.carry)),
            Mnemonic::Jne => return !self.zero,
            Mnemonic::Je => return self.zero,
            Mnemonic::Nop => {}
            other => unreachable!("{other:?}"),
        }
        false
    }

    /// Runs from the instruction numbered `from` to the return, or for a while; what the caller sees.
    fn run(mut self, code: &[Instruction], from: usize) -> Option<Vec<u64>> {
        let by_address: HashMap<u64, usize> = code
            .iter()
            .enumerate()
            .map(|(number, i)| (i.ip(), number))
            .collect();
        let mut at = from;
        for _ in 0..300 {
            let instruction = &code[at];
            match instruction.mnemonic() {
                // rax, rdx and what a callee has to keep.
                Mnemonic::Ret => {
                    return Some(
                        [0, 2, 3, 4, 5, 12, 13, 14, 15]
                            .map(|number| self.registers[number])
                            .to_vec(),
                    );
                }
                Mnemonic::Jmp => at = by_address[&instruction.near_branch_target()],
                _ if self.step(instruction) => at = by_address[&instruction.near_branch_target()],
                _ => at += 1,
            }
        }
        None
    }
}

fn write(a: &mut CodeAssembler, choice: u8) -> Result<(), iced_x86::IcedError> {
    match choice {
        0 => a.mov(eax, 7_i32),
        1 => a.mov(rcx, rdx),
        2 => a.add(rax, rcx),
        3 => a.adc(rdx, rsi),
        4 => a.cmp(rdi, r8),
        5 => a.xor(ecx, ecx),
        6 => a.inc(r11),
        7 => a.cmovne(rcx, r11),
        8 => a.setb(al),
        9 => a.mov(cl, al),
        10 => a.mov(r8, rax),
        11 => a.xor(rbx, rbx),
        _ => a.mov(r11, rdi),
    }
}

proptest! {
    #[test]
    fn what_is_dead_makes_no_difference(
        choices in proptest::collection::vec((0_u8..13, proptest::option::weighted(0.3, (0_usize..14, any::<bool>()))), 1..14),
        registers in proptest::array::uniform16(0_u64..4),
        spoiled in 1_u64..u64::MAX,
        flags in any::<(bool, bool)>(),
    ) {
        let fixture = Fixture::new().compiled("f", |a| {
            let mut labels: Vec<_> = choices.iter().map(|_| a.create_label()).collect();
            for (number, &(choice, branch)) in choices.iter().enumerate() {
                a.set_label(&mut labels[number])?;
                write(a, choice)?;
                match branch.map(|(to, equal)| (labels[to % labels.len()], equal)) {
                    Some((to, true)) => a.je(to)?,
                    Some((to, false)) => a.jne(to)?,
                    None => {}
                }
            }
            a.ret()
        });
        let (_, cfg, liveness) = analysed(&fixture);
        let code: Vec<Instruction> = cfg.blocks.iter().flat_map(|block| block.instructions.iter()).collect();
        let machine = Machine { registers, zero: flags.0, carry: flags.1 };
        for (number, instruction) in code.iter().enumerate() {
            let live = liveness.before(Addr(instruction.ip()));
            let mut other = machine.clone();
            for dead in RegisterSet::ALL.difference(live.registers).iter() {
                other.registers[dead.number()] ^= spoiled;
            }
            if !live.flags {
                (other.zero, other.carry) = (!other.zero, !other.carry);
            }
            prop_assert_eq!(machine.clone().run(&code, number), other.run(&code, number), "from {}", number);
        }
    }
}
