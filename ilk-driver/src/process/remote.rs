//! System calls of a stopped process, by one of its threads.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::Addr;
use memchr::memmem;

use super::frame::SignalFrame;
use super::maps::MappedSpan;
use super::ptrace::{self, Registers};
use super::record::is_ours;
use super::refused;
use super::stopped::{Stopped, Thread};
use crate::Result;

/// `syscall; ret`.
const SYSCALL: &[u8] = &[0x0f, 0x05, 0xc3];
/// `mov rax, 15; syscall`, as handlers of signals return: `rt_sigreturn`.
const RESTORER: &[u8] = &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];

/// All signals.
const BLOCKED: u64 = u64::MAX;

/// Bytes below the frame for what system calls read.
const BELOW_FRAME: u64 = 256;

/// Instructions of a process by which a thread executes system calls, and returns through a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemoteCode {
    /// Address of a `syscall; ret`.
    syscall: u64,
    restorer: u64,
}

impl RemoteCode {
    /// Finds them in the code of a process.
    pub(super) fn find(pid: u32, memory: &File, maps: &[MappedSpan]) -> Result<Self> {
        let [Some(syscall), Some(restorer)] = code(memory, maps, [SYSCALL, RESTORER]) else {
            let why = "its code has no return from handlers of signals (`rt_sigreturn`), through which a thread continues if \
                       `ilk` is killed while it executes system calls for it; a program that is linked statically and \
                       handles no signal may have none, as with musl";
            return Err(refused(pid, why));
        };
        Ok(Self { syscall, restorer })
    }

    /// Returns whether another process has them at the same addresses, as forked children have.
    pub(super) fn is_in(self, memory: &File, maps: &[MappedSpan]) -> bool {
        let pieces = [(self.syscall, SYSCALL), (self.restorer, RESTORER)];
        pieces.into_iter().all(|(at, bytes)| {
            let mut found = vec![0; bytes.len()];
            let mapped = maps.iter().find(|one| one.span.contains(Addr(at)));
            mapped.is_some_and(|one| one.executable && !is_ours(one))
                && memory.read_exact_at(&mut found, at).is_ok()
                && found == bytes
        })
    }
}

/// A thread that executes system calls. It is as before when this is dropped, and also if this process is killed
/// meanwhile: it then returns from its system call to a frame of a signal, and through that to where it was.
pub(super) struct Remote<'s> {
    pid: u32,
    thread: &'s Thread,
    memory: &'s File,
    /// Address of a `syscall; ret` of the process.
    syscall: u64,
    before: Registers,
    blocked: u64,
    /// Address of the frame, which is the top of the stack.
    frame: u64,
    /// The registers with which it returns through the frame.
    idle: Registers,
}

impl<'s> Remote<'s> {
    /// Takes the first thread whose system calls are not filtered: a filter may end the process for any of them.
    pub(super) fn of(
        pid: u32,
        stopped: &'s Stopped,
        memory: &'s File,
        maps: &[MappedSpan],
    ) -> Result<Self> {
        let thread = stopped.unfiltered().ok_or_else(|| {
            refused(
                pid,
                "it has ended, or the system calls of all its threads are filtered (seccomp)",
            )
        })?;
        Self::by(pid, thread, memory, RemoteCode::find(pid, memory, maps)?)
    }

    /// Takes a thread, which is stopped.
    pub(super) fn by(
        pid: u32,
        thread: &'s Thread,
        memory: &'s File,
        code: RemoteCode,
    ) -> Result<Self> {
        let failed =
            |error: std::io::Error| refused(pid, format!("its thread is not traced ({error})"));
        let RemoteCode { syscall, restorer } = code;
        let before = restarted(memory, thread);
        let blocked = ptrace::blocked(thread.tid).map_err(failed)?;
        let state = ptrace::extended_state(thread.tid).map_err(failed)?;
        let frame = SignalFrame::new(&interrupted(before), blocked, &state, restorer);
        let frame = frame.ok_or_else(|| refused(pid, "its extended state is not known"))?;
        memory
            .write_all_at(&frame.bytes, frame.at)
            .map_err(|error| {
                refused(
                    pid,
                    format!("the stack of its thread {} is full ({error})", thread.tid),
                )
            })?;
        let idle = Registers {
            rip: restorer,
            rsp: frame.at + 8,
            // No system call was interrupted that the kernel would restart.
            orig_rax: u64::MAX,
            ..before
        };
        let remote = Self {
            pid,
            thread,
            memory,
            syscall,
            before,
            blocked,
            frame: frame.at,
            idle,
        };
        ptrace::set_registers(thread.tid, &idle).map_err(failed)?;
        // Signals would be delivered in place of the system call, again and again.
        ptrace::set_blocked(thread.tid, BLOCKED).map_err(failed)?;
        Ok(remote)
    }

    /// Builds the error of the process.
    pub(super) fn refused(&self, reason: String) -> crate::Error {
        refused(self.pid, reason)
    }

    /// Executes a system call; returns its result, or the error's name.
    pub(super) fn call(&self, what: &str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        let failed = |why: String| refused(self.pid, format!("it cannot {what}: {why}"));
        let traced = |error: std::io::Error| failed(error.to_string());
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = Registers {
            rip: self.syscall,
            rsp: self.frame,
            rax: number.cast_unsigned(),
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.idle
        };
        let tid = self.thread.tid;
        ptrace::set_registers(tid, &registers).map_err(traced)?;
        if !ptrace::system_call(tid).map_err(traced)? {
            return Err(failed("it was killed".to_owned()));
        }
        let after = ptrace::registers(tid).map_err(traced)?;
        if after.rip != self.syscall + 2 {
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
        let at = self.frame - BELOW_FRAME;
        self.memory
            .write_all_at(bytes, at)
            .map_err(|error| refused(self.pid, format!("its stack cannot be written ({error})")))?;
        Ok(at)
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // A thread that is killed needs none of these.
        let tid = self.thread.tid;
        let _ended = ptrace::set_registers(tid, &self.idle);
        let _ended = ptrace::stop_again(tid);
        let _ended = ptrace::set_blocked(tid, self.blocked);
        let _ended = ptrace::set_registers(tid, &self.before);
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

/// Returns registers as the kernel sets them before it delivers a signal without a handler: a system call that was
/// interrupted is executed again.
fn interrupted(registers: Registers) -> Registers {
    // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND and ERESTART_RESTARTBLOCK of include/linux/errno.h.
    let again = match registers.rax.cast_signed() {
        -514..=-512 => registers.orig_rax,
        -516 => libc::SYS_restart_syscall.cast_unsigned(),
        _ => return registers,
    };
    match registers.orig_rax.cast_signed() {
        ..0 => registers,
        _ => Registers {
            rip: registers.rip - 2,
            rax: again,
            ..registers
        },
    }
}

/// Finds instructions in the code of a process.
fn code<const COUNT: usize>(
    memory: &File,
    maps: &[MappedSpan],
    wanted: [&[u8]; COUNT],
) -> [Option<u64>; COUNT] {
    /// Bytes that are read at a time: some are found soon.
    const PART: u64 = 1 << 16;
    let longest = wanted.iter().map(|bytes| bytes.len()).max().unwrap_or(0) as u64;
    let mut found = [None; COUNT];
    let executable = maps.iter();
    let executable = executable.filter(|one| one.executable && one.inode != 0 && !is_ours(one));
    for one in executable {
        let mut start = one.span.start;
        while start < one.span.end && !found.iter().all(Option::is_some) {
            // The instructions may begin in this part and end in the next.
            let end = start.add(PART + longest).min(one.span.end);
            let mut text = vec![0; usize::try_from(end.0 - start.0).unwrap_or(0)];
            // What cannot be read is no code to use.
            if memory.read_exact_at(&mut text, start.0).is_err() {
                break;
            }
            for (place, bytes) in found.iter_mut().zip(wanted) {
                if place.is_none() {
                    let offset = memmem::find(&text, bytes);
                    *place = offset.map(|offset| start.0 + offset as u64);
                }
            }
            start = start.add(PART);
        }
    }
    found
}
