//! The code that numbers stacks, assembled.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeAssembler, ax, byte_ptr, cx, dword_ptr, dx, eax, ebp, ebx, ecx, edi, edx, esi, qword_ptr,
    r8, r8d, r9, r9d, r10, r11, r12, r13, r14, r15, r15b, r15d, rax, rbp, rbx, rcx, rdi, rdx, rsi,
    rsp, sil, word_ptr,
};

use super::CallerRule;
use crate::layout::{ReadGate, StackTables};

/// Number of `getpid(2)`.
const GETPID: u32 = 39;
/// Number of `process_vm_readv(2)`.
const READ: u32 = 310;
/// Bytes of the stack that are copied at a time.
const CHUNK: i32 = 1024;
/// Offsets from the stack pointer while the code executes: the copy, the description of its place, and of what is copied,
/// for `process_vm_readv(2)`: an address and bytes each.
const COPY: i32 = 0;
const COPY_PLACE: i32 = CHUNK;
const COPIED: i32 = CHUNK + 16;
/// Bytes of all this.
const FRAME: i32 = CHUNK + 32;
/// Offset of the saved rbp: the fifth word that is pushed after the flags.
const SAVED_RBP: i32 = FRAME + 8 * 10;
/// Offset of the words that the patch has pushed, above 15 registers, the flags and the return address.
const REQUEST: i32 = FRAME + 8 * 17;
const COUNTER: i32 = REQUEST + 8;
const ADDRESS: i32 = COUNTER + 8;

/// Factor of the hash: 2^64 divided by the golden ratio, odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Offsets of rbp, rsp and rip in a `ucontext_t` (arch/x86/include/uapi/asm/sigcontext.h).
const CONTEXT_RBP: i32 = 120;
const CONTEXT_RSP: i32 = 160;
const CONTEXT_RIP: i32 = 168;

/// Assembles the code; failed reads are counted `row` bytes after the counter.
pub(super) fn assemble(
    tables: StackTables,
    row: u64,
    gate: ReadGate,
) -> Result<Vec<u8>, IcedError> {
    let [range, used, lost, numbers, frames, rules, recent, rows] = [
        0,
        StackTables::USED,
        StackTables::LOST,
        StackTables::NUMBERS,
        StackTables::FRAMES,
        StackTables::RULE_TABLE,
        StackTables::RECENT,
        StackTables::ROWS,
    ]
    .map(|offset| tables.at(offset).0);
    let mut a = CodeAssembler::new(64)?;
    let mut walk = a.create_label();
    let mut frame = a.create_label();
    let mut search = a.create_label();
    let mut found = a.create_label();
    let mut last = a.create_label();
    let mut known = a.create_label();
    let mut unkept = a.create_label();
    let mut by_rbp = a.create_label();
    let mut aligned = a.create_label();
    let mut ends = a.create_label();
    let mut same = a.create_label();
    let mut caller = a.create_label();
    let mut signal = a.create_label();
    let mut done = a.create_label();
    let mut insert = a.create_label();
    let mut attempt = a.create_label();
    let mut next = a.create_label();
    let mut full = a.create_label();
    let mut taken = a.create_label();
    let mut leave = a.create_label();
    let mut peek = a.create_label();
    let mut fetch = a.create_label();
    let mut closed = a.create_label();
    let mut failed = a.create_label();

    a.pushfq()?;
    for register in [
        rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
    ] {
        a.push(register)?;
    }
    a.lea(rsp, qword_ptr(rsp - FRAME))?;
    a.mov(ebp, 0u32)?;

    // Frames are those of the address, the stack pointer of the original instruction, and rbp.
    a.set_label(&mut walk)?;
    a.mov(r12, qword_ptr(rsp + ADDRESS))?;
    a.movzx(eax, word_ptr(rsp + REQUEST))?;
    a.lea(r13, qword_ptr(rsp + rax + (ADDRESS + 8)))?;
    a.mov(r14, qword_ptr(rsp + SAVED_RBP))?;
    a.mov(ebx, 0u32)?;
    a.mov(r15d, 0u32)?;
    a.mov(qword_ptr(rsp + (COPIED + 8)), 0)?;
    a.mov(rdx, r12)?;

    // The frame at r12, whose row is that of rdx.
    a.set_label(&mut frame)?;
    a.mov(r8d, 0u32)?;
    a.mov(rax, rdx)?;
    a.shr(rax, 47u32)?;
    a.jne(found)?;
    // A row that was found recently.
    a.mov(rdi, rdx)?;
    a.and(edi, (StackTables::RECENT_ROWS - 1).cast_signed())?;
    a.mov(rcx, qword_ptr(rdi * 8 + recent))?;
    a.movzx(eax, cx)?;
    a.shr(rcx, 16u32)?;
    a.cmp(rcx, rdx)?;
    a.je(known)?;
    a.shl(rdx, 16u32)?;
    a.or(rdx, 0xffff)?;
    a.mov(rcx, qword_ptr(range))?;
    a.mov(rax, rcx)?;
    a.shr(rax, 32u32)?;
    a.mov(ecx, ecx)?;
    a.set_label(&mut search)?;
    a.mov(rsi, rcx)?;
    a.sub(rsi, rax)?;
    a.shr(rsi, 1u32)?;
    a.je(last)?;
    a.add(rsi, rax)?;
    a.cmp(qword_ptr(rsi * 8 + rows), rdx)?;
    a.cmova(rcx, rsi)?;
    a.cmovbe(rax, rsi)?;
    a.jmp(search)?;
    a.set_label(&mut last)?;
    a.movzx(eax, word_ptr(rax * 8 + rows))?;
    a.mov(dx, ax)?;
    a.mov(qword_ptr(rdi * 8 + recent), rdx)?;
    a.set_label(&mut known)?;
    a.mov(r8, qword_ptr(rax * 8 + rules))?;
    // The first frame is of any address; others are of code.
    a.set_label(&mut found)?;
    a.test(r15, r15)?;
    a.je(caller)?;
    a.mov(rax, r8)?;
    a.shr(rax, 48u32)?;
    a.je(done)?;
    a.set_label(&mut caller)?;
    a.test(rbp, rbp)?;
    a.je(unkept)?;
    a.mov(qword_ptr(rbp + r15 * 8 + 16), r12)?;
    a.set_label(&mut unkept)?;
    a.xor(rbx, r12)?;
    a.mov(rax, FACTOR)?;
    a.imul_2(rbx, rax)?;
    a.mov(rax, rbx)?;
    a.shr(rax, 29u32)?;
    a.xor(rbx, rax)?;
    a.inc(r15)?;
    a.cmp(byte_ptr(rsp + (REQUEST + 2)), r15b)?;
    a.jbe(done)?;

    // The end of the frame is in rcx.
    a.movsxd(rcx, r8d)?;
    a.mov(rax, r8)?;
    a.shr(rax, 48u32)?;
    a.cmp(eax, i32::from(CallerRule::BASE))?;
    a.je(by_rbp)?;
    a.cmp(eax, i32::from(CallerRule::ALIGNED))?;
    a.je(aligned)?;
    a.cmp(eax, i32::from(CallerRule::SIGNAL))?;
    a.je(signal)?;
    a.cmp(eax, i32::from(CallerRule::STACK))?;
    a.jne(done)?;
    a.add(rcx, r13)?;
    a.jmp(ends)?;
    a.set_label(&mut by_rbp)?;
    a.add(rcx, r14)?;
    a.set_label(&mut ends)?;
    // It is above the stack pointer.
    a.cmp(rcx, r13)?;
    a.jbe(done)?;
    a.mov(r13, rcx)?;
    a.shl(r8, 16u32)?;
    a.sar(r8, 48u32)?;
    a.je(same)?;
    a.lea(rsi, qword_ptr(r13 + r8))?;
    a.call(peek)?;
    a.mov(r14, rax)?;
    a.set_label(&mut same)?;
    a.lea(rsi, qword_ptr(r13 - 8))?;
    a.call(peek)?;
    a.mov(r12, rax)?;
    a.lea(rdx, qword_ptr(r12 - 1))?;
    a.jmp(frame)?;
    a.set_label(&mut aligned)?;
    a.lea(rsi, qword_ptr(rcx + r14))?;
    a.call(peek)?;
    a.cmp(rax, r13)?;
    a.jbe(done)?;
    a.mov(r13, rax)?;
    a.mov(rsi, r14)?;
    a.call(peek)?;
    a.mov(r14, rax)?;
    a.jmp(same)?;
    a.set_label(&mut signal)?;
    a.lea(rsi, qword_ptr(r13 + CONTEXT_RBP))?;
    a.call(peek)?;
    a.mov(r14, rax)?;
    a.lea(rsi, qword_ptr(r13 + CONTEXT_RIP))?;
    a.call(peek)?;
    a.mov(r12, rax)?;
    a.lea(rsi, qword_ptr(r13 + CONTEXT_RSP))?;
    a.call(peek)?;
    a.mov(r13, rax)?;
    a.mov(rdx, r12)?;
    a.jmp(frame)?;

    // Returns the word of the stack at rsi in rax; the stack pointer is 8 lower here. Changes all registers that system
    // calls and their arguments change.
    a.set_label(&mut peek)?;
    a.mov(rax, rsi)?;
    a.sub(rax, qword_ptr(rsp + (COPIED + 8)))?;
    a.cmp(rax, qword_ptr(rsp + (COPIED + 16)))?;
    a.jae(fetch)?;
    a.mov(rax, qword_ptr(rsp + rax + (COPY + 8)))?;
    a.ret()?;
    // Words are aligned, and a copy ends at the end of a page.
    a.set_label(&mut fetch)?;
    a.test(sil, 7)?;
    a.jne(failed)?;
    a.mov(eax, esi)?;
    a.or(eax, -4096)?;
    a.neg(eax)?;
    a.mov(ecx, CHUNK.cast_unsigned())?;
    a.cmp(eax, ecx)?;
    a.cmova(eax, ecx)?;
    a.mov(qword_ptr(rsp + (COPIED + 8)), rsi)?;
    a.mov(qword_ptr(rsp + (COPIED + 16)), rax)?;
    a.lea(rcx, qword_ptr(rsp + (COPY + 8)))?;
    a.mov(qword_ptr(rsp + (COPY_PLACE + 8)), rcx)?;
    a.mov(qword_ptr(rsp + (COPY_PLACE + 16)), rax)?;
    a.lock().inc(dword_ptr(gate.under_way().0))?;
    a.cmp(dword_ptr(gate.closed.0), 0)?;
    a.jne(closed)?;
    a.mov(eax, GETPID)?;
    a.syscall()?;
    a.mov(edi, eax)?;
    a.lea(rsi, qword_ptr(rsp + (COPY_PLACE + 8)))?;
    a.mov(edx, 1u32)?;
    a.lea(r10, qword_ptr(rsp + (COPIED + 8)))?;
    a.mov(r8d, 1u32)?;
    a.mov(r9d, 0u32)?;
    a.mov(eax, READ)?;
    a.syscall()?;
    a.lock().dec(dword_ptr(gate.under_way().0))?;
    a.cmp(rax, qword_ptr(rsp + (COPIED + 16)))?;
    a.jne(failed)?;
    a.mov(rax, qword_ptr(rsp + (COPY + 8)))?;
    a.ret()?;
    a.set_label(&mut closed)?;
    a.lock().dec(dword_ptr(gate.under_way().0))?;
    a.mov(rax, qword_ptr(rsp + (COUNTER + 8)))?;
    a.lock().inc(qword_ptr(rax + row))?;
    a.set_label(&mut failed)?;
    a.mov(qword_ptr(rsp + (COPIED + 16)), 0)?;
    a.lea(rsp, qword_ptr(rsp + 8))?;
    a.jmp(done)?;

    // The number is in rbx, and not 0.
    a.set_label(&mut done)?;
    a.cmp(rbx, 1)?;
    a.adc(rbx, 0)?;
    a.test(rbp, rbp)?;
    a.je(insert)?;
    a.mov(qword_ptr(rbp), rbx)?;
    a.mov(qword_ptr(rbp + 8), r15)?;
    a.jmp(leave)?;
    a.set_label(&mut insert)?;
    a.mov(edx, ebx)?;
    a.mov(ecx, StackTables::TRIES)?;
    a.set_label(&mut attempt)?;
    a.and(edx, (StackTables::PLACES - 1).cast_signed())?;
    a.mov(rax, qword_ptr(rdx * 8 + numbers))?;
    a.cmp(rax, rbx)?;
    a.je(leave)?;
    a.test(rax, rax)?;
    a.jne(next)?;
    a.cmp(dword_ptr(used), StackTables::STACKS.cast_signed())?;
    a.jae(full)?;
    a.lock().cmpxchg(qword_ptr(rdx * 8 + numbers), rbx)?;
    a.je(taken)?;
    a.cmp(rax, rbx)?;
    a.je(leave)?;
    a.set_label(&mut next)?;
    a.inc(edx)?;
    a.dec(ecx)?;
    a.jne(attempt)?;
    a.set_label(&mut full)?;
    a.lock().inc(qword_ptr(lost))?;
    a.jmp(leave)?;
    a.set_label(&mut taken)?;
    a.mov(eax, 1u32)?;
    a.lock().xadd(dword_ptr(used), eax)?;
    a.cmp(eax, StackTables::STACKS.cast_signed())?;
    a.jae(full)?;
    a.shl(rax, StackTables::STACK_LOG2)?;
    a.lea(rbp, qword_ptr(rax + frames))?;
    a.jmp(walk)?;
    a.set_label(&mut leave)?;
    a.mov(qword_ptr(rsp + ADDRESS), rbx)?;
    a.lea(rsp, qword_ptr(rsp + FRAME))?;
    for register in [
        r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax,
    ] {
        a.pop(register)?;
    }
    a.popfq()?;
    a.ret()?;
    a.assemble(0)
}
