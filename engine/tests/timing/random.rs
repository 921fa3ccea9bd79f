//! Random functions, to fit an estimate on some and to check it on others.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmRegister64, CodeAssembler, ebp, ptr, r8, r9, r10, r11, rax, rbp, rbx, rcx, rdi, rdx, rsi,
};

use super::numbers::Random;

/// Registers that random instructions change.
const POOL: [AsmRegister64; 7] = [rax, rcx, rdx, r8, r9, r10, r11];
/// Registers that they read as well.
const SOURCES: [AsmRegister64; 9] = [rax, rcx, rdx, r8, r9, r10, r11, rdi, rsi];

/// Writes a random function after the tracer's nop: stretches of arithmetic, branches, loops and calls of a function
/// that keeps rdi and rsi, as no caller may know.
pub(crate) fn write(
    random: &mut Random,
    a: &mut CodeAssembler,
    helper: u64,
) -> Result<(), IcedError> {
    a.push(rbx)?;
    a.push(rbp)?;
    a.mov(rbx, rdi)?;
    begin(a)?;
    for _ in 0..2 + random.below(5) {
        stretch(random, a)?;
        match random.below(4) {
            0 => {
                let mut end = a.create_label();
                // Half of the branches are hard to predict, and most of the others always go one way.
                let bit = if random.below(2) == 0 {
                    1 << 9
                } else {
                    1 << 30
                };
                a.test(pick(random, &POOL), bit)?;
                a.je(end)?;
                stretch(random, a)?;
                a.set_label(&mut end)?;
            }
            1 => {
                let mut again = a.create_label();
                a.mov(ebp, 2 + random.below(12) as i32)?;
                a.set_label(&mut again)?;
                stretch(random, a)?;
                a.dec(ebp)?;
                a.jne(again)?;
            }
            2 => {
                a.mov(rdi, rax)?;
                a.mov(rsi, rbx)?;
                a.call(helper)?;
                a.mov(rdi, rbx)?;
                a.lea(rsi, ptr(rax + 1))?;
                begin(a)?;
            }
            _ => {}
        }
    }
    for register in POOL.into_iter().skip(1) {
        a.add(rax, register)?;
    }
    a.pop(rbp)?;
    a.pop(rbx)?;
    a.ret()
}

/// Sets every register of the pool.
fn begin(a: &mut CodeAssembler) -> Result<(), IcedError> {
    for (register, number) in POOL.into_iter().zip(1..) {
        a.lea(register, ptr(rdi + rsi + number))?;
    }
    Ok(())
}

fn stretch(random: &mut Random, a: &mut CodeAssembler) -> Result<(), IcedError> {
    for _ in 0..2 + random.below(8) {
        let (to, from) = (pick(random, &POOL), pick(random, &SOURCES));
        match random.below(7) {
            0 => a.add(to, from)?,
            1 => a.xor(to, from)?,
            2 => a.lea(to, ptr(from + to * 2 + 7))?,
            3 => a.imul_2(to, from)?,
            4 => a.rol(to, 5)?,
            5 => a.add(to, 0x1234)?,
            _ => a.mov(to, from)?,
        }
    }
    Ok(())
}

fn pick(random: &mut Random, from: &[AsmRegister64]) -> AsmRegister64 {
    from[random.below(from.len() as u64) as usize]
}
