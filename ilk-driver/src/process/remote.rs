//! System calls of a stopped process, by one of its threads.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::Addr;

use super::maps::MappedSpan;
use super::ptrace::{self, Registers};
use super::refused;
use super::stopped::{Stopped, Thread};
use crate::Result;

/// The instruction, two bytes.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// All signals but that of a step: the kernel would reset the handler of a blocked one that it must deliver.
const BLOCKED: u64 = !(1 << (libc::SIGTRAP - 1));

/// Bytes below the stack pointer that a thread may use: the red zone, and more.
const BELOW_STACK: u64 = 4096;

/// A thread that executes system calls. It is as before when this is dropped.
pub(super) struct Remote<'s> {
    pid: u32,
    thread: &'s Thread,
    memory: &'s File,
    /// Address of a `syscall` of the process.
    syscall: u64,
    before: Registers,
    blocked: u64,
}

impl<'s> Remote<'s> {
    /// Takes the first thread.
    pub(super) fn of(
        pid: u32,
        stopped: &'s Stopped,
        memory: &'s File,
        maps: &[MappedSpan],
    ) -> Result<Self> {
        let failed =
            |error: std::io::Error| refused(pid, format!("its thread is not traced ({error})"));
        let thread = stopped.threads.first();
        let thread = thread.ok_or_else(|| refused(pid, "it has ended"))?;
        let syscall = syscall(memory, maps);
        let syscall =
            syscall.ok_or_else(|| refused(pid, "none of its code has a system call to use"))?;
        // Signals would be delivered in place of the system call, again and again.
        let blocked = ptrace::set_blocked(thread.tid, BLOCKED).map_err(failed)?;
        Ok(Self {
            pid,
            thread,
            memory,
            syscall,
            before: restarted(memory, thread),
            blocked,
        })
    }

    /// Builds the error of the process.
    pub(super) fn refused(&self, reason: String) -> crate::Error {
        refused(self.pid, reason)
    }

    /// Executes a system call; returns its result, or the error's name.
    pub(super) fn call(&self, what: &str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        let failed = |why: String| refused(self.pid, format!("it cannot {what}: {why}"));
        let stepped = |error: std::io::Error| failed(error.to_string());
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = Registers {
            rip: self.syscall,
            rsp: self.before.rsp - BELOW_STACK,
            rax: number.cast_unsigned(),
            // No system call was interrupted that the kernel would restart.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.before
        };
        let tid = self.thread.tid;
        ptrace::set_registers(tid, &registers).map_err(stepped)?;
        if !ptrace::step(tid).map_err(stepped)? {
            return Err(failed("it was killed".to_owned()));
        }
        let after = ptrace::registers(tid).map_err(stepped)?;
        if after.rip != self.syscall + SYSCALL.len() as u64 {
            return Err(failed(format!("its thread stopped at {:#x}", after.rip)));
        }
        match after.rax.cast_signed() {
            error @ -4095..0 => {
                let code = i32::try_from(-error).unwrap_or(0);
                Err(failed(std::io::Error::from_raw_os_error(code).to_string()))
            }
            _ => Ok(after.rax),
        }
    }

    /// Puts bytes below the stack for a system call; returns their address.
    pub(super) fn put(&self, bytes: &[u8]) -> Result<u64> {
        let at = (self.before.rsp - BELOW_STACK / 2) & !15;
        self.memory
            .write_all_at(bytes, at)
            .map_err(|error| refused(self.pid, format!("its stack cannot be written ({error})")))?;
        Ok(at)
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // A thread that is killed needs neither.
        let _ended = ptrace::set_registers(self.thread.tid, &self.before);
        let _ended = ptrace::set_blocked(self.thread.tid, self.blocked);
    }
}

/// Returns a thread's registers; if it is inside a restartable sequence, as the kernel would set them. The kernel
/// forgets the sequence when it sees the thread elsewhere.
fn restarted(memory: &File, thread: &Thread) -> Registers {
    let word = |at: u64| {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let mut registers = thread.registers;
    let restart = || {
        let descriptor = word(
            thread
                .rseq
                .area
                .checked_add(8)
                .filter(|_| thread.rseq.area != 0)?,
        )?;
        let descriptor = Some(descriptor).filter(|&at| at != 0)?;
        let (start, length) = (word(descriptor + 8)?, word(descriptor + 16)?);
        let abort = word(descriptor + 24)?;
        (registers.rip.wrapping_sub(start) < length).then_some(abort)
    };
    if let Some(abort) = restart() {
        registers.rip = abort;
    }
    registers
}

/// Finds a `syscall`: in the vdso, or elsewhere.
fn syscall(memory: &File, maps: &[MappedSpan]) -> Option<u64> {
    let mut executable: Vec<&MappedSpan> = maps.iter().filter(|one| one.executable).collect();
    executable.sort_by_key(|one| one.name != "[vdso]");
    executable.iter().find_map(|one| {
        let mut bytes = vec![0; usize::try_from(one.span.len()).ok()?];
        memory.read_exact_at(&mut bytes, one.span.start.0).ok()?;
        let offset = bytes
            .windows(SYSCALL.len())
            .position(|two| two == SYSCALL)?;
        Some(one.span.start.add(offset as u64)).map(|Addr(at)| at)
    })
}
