//! The frame of a signal, as the kernel puts it on a stack (`struct rt_sigframe` of arch/x86/include/asm/sigframe.h):
//! a thread that returns through it continues as it was before.

use std::arch::x86_64::__cpuid_count;

use super::ptrace::Registers;

/// Bytes of `struct ucontext`.
const CONTEXT: usize = 304;
/// The red zone.
const BELOW: u64 = 128;
/// Bytes of the legacy area and the header of the extended state.
const LEAST_STATE: usize = 576;
/// Offset of `XSTATE_BV`: the parts of the state that are not as after a reset.
const PARTS: usize = 512;
/// Offset of `struct _fpx_sw_bytes`.
const SOFTWARE: usize = 464;
/// `FP_XSTATE_MAGIC1` and `FP_XSTATE_MAGIC2`.
const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS` and `UC_STRICT_RESTORE_SS`.
const FLAGS: u64 = 7;
/// Flags of an alternate stack that the kernel refuses, so that the thread's is left as it is.
const NO_STACK: u64 = 0xff;

/// A frame, and where it must be.
pub(super) struct SignalFrame {
    /// Its address, which is that of the address to return to. `rt_sigreturn` is executed with the stack pointer
    /// eight bytes above.
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
}

impl SignalFrame {
    /// Makes the frame of a thread below its stack, with its blocked signals and its extended state (`NT_X86_XSTATE`);
    /// `None` if the state is not as processors have it.
    pub(super) fn new(
        registers: &Registers,
        blocked: u64,
        state: &[u8],
        restorer: u64,
    ) -> Option<Self> {
        let used = u64::from_le_bytes(*state.get(PARTS..)?.first_chunk()?);
        let length = used_bytes(used);
        let mut state = state.get(..length)?.to_vec();
        let bytes = length as u64 + 4;
        let state_at = registers.rsp.checked_sub(BELOW + bytes)? & !63;
        let at = (state_at.checked_sub(CONTEXT as u64)? & !15) - 8;
        let number = |bytes: usize| u32::try_from(bytes).ok();
        let mut software = Vec::with_capacity(24);
        software.extend(MAGIC[0].to_le_bytes());
        software.extend(number(length + 4)?.to_le_bytes());
        software.extend((used | 3).to_le_bytes());
        software.extend(number(length)?.to_le_bytes());
        software.resize(PARTS - SOFTWARE, 0);
        state.get_mut(SOFTWARE..PARTS)?.copy_from_slice(&software);
        state.extend(MAGIC[1].to_le_bytes());
        let all = registers;
        let segments = all.cs & 0xffff | (all.ss & 0xffff) << 48;
        let mut words = vec![restorer, FLAGS, 0, 0, NO_STACK, 0];
        words.extend([
            all.r8, all.r9, all.r10, all.r11, all.r12, all.r13, all.r14, all.r15, all.rdi, all.rsi,
            all.rbp, all.rbx, all.rdx, all.rax, all.rcx, all.rsp, all.rip, all.eflags, segments,
        ]);
        words.extend([0, 0, 0, 0, state_at]);
        words.extend([0; 8]);
        words.push(blocked);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(usize::try_from(state_at - at).ok()?, 0);
        bytes.extend(state);
        Some(Self { at, bytes })
    }
}

/// The bytes of an extended state up to the end of the last part that it has (the standard form: Intel's manual,
/// volume 1, 13.4.3).
fn used_bytes(parts: u64) -> usize {
    let ends = (2..63).filter(|part| parts >> part & 1 == 1).map(|part| {
        let found = __cpuid_count(0xd, part);
        found.ebx as usize + found.eax as usize
    });
    ends.max().unwrap_or(0).max(LEAST_STATE)
}
