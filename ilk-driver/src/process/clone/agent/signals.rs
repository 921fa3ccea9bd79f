//! Signals of the process: each is delivered with an original context.

use std::io;
use std::os::unix::fs::FileExt;

use gilk_engine::{Addr, Span};

use super::super::super::ptrace::{self, Registers, Tid};
use super::super::super::refused;
use super::super::trace::{self, is_fault};
use super::{CacheAgent, Outcome};
use crate::Result;

/// More bytes than a frame of a signal has, with the state of all extensions.
const MOST_IN_FRAME: u64 = 1 << 16;

impl CacheAgent<'_> {
    /// Delivers a signal to a thread with an original context.
    pub(super) fn deliver(&mut self, tid: Tid, signal: i32) -> Result<Outcome> {
        let info = match self.before_steps.remove(&tid) {
            Some(info) if info.si_signo == signal => info,
            _ => trace::signal_info(tid).map_err(self.failed(tid))?,
        };
        if let Some(at) = self.watched_write(signal, &info) {
            return self.written(tid, at);
        }
        let registers = ptrace::registers(tid).map_err(self.failed(tid))?;
        if self.cache.contains(Addr(registers.rip)) && is_fault(signal, &info) {
            return self.fault(tid, registers);
        }
        self.signals += 1;
        self.leave_cache(tid)?;
        self.before_steps.remove(&tid);
        // The kernel, which writes the frame, does not stop for a watched page.
        let stack = Span {
            start: Addr(registers.rsp.saturating_sub(MOST_IN_FRAME)),
            end: Addr(registers.rsp),
        };
        if let Some(end) = self.drop_changing(&[stack])? {
            return Ok(Some(end));
        }
        // A thread that was stepped is stopped for another signal now.
        trace::set_signal_info(tid, &info).map_err(self.failed(tid))?;
        let blocked = ptrace::blocked(tid).map_err(self.failed(tid))?;
        if let Some(state) = self.threads.get_mut(&tid) {
            state.blocked = Some(blocked);
        }
        trace::step(tid, signal).map_err(self.failed(tid))?;
        self.runs(tid);
        Ok(None)
    }

    /// Has a thread that begins to execute a handler not block SIGTRAP, unless it did before: an `int3` of the resident
    /// code would reset the handler of that (`force_sig_info_to_task` of kernel/signal.c of Linux). The handler's return
    /// gives the thread the signals that it blocked before.
    pub(super) fn unblock_trap(&mut self, tid: Tid) -> io::Result<()> {
        const TRAP: u64 = 1 << (libc::SIGTRAP - 1);
        let state = self.threads.get_mut(&tid);
        let Some(before) = state.and_then(|state| state.blocked.take()) else {
            return Ok(());
        };
        let blocked = ptrace::blocked(tid)?;
        if blocked & !before & TRAP != 0 {
            ptrace::set_blocked(tid, blocked & !TRAP)?;
        }
        Ok(())
    }

    /// Has the original instruction fault, with the addresses that it has.
    fn fault(&mut self, tid: Tid, registers: Registers) -> Result<Outcome> {
        // An instruction that stands for it faults where it would not, if the stack has no space below it.
        let before = self.in_cache(registers).map_err(self.failed(tid))?;
        let Some(mut original) = before else {
            let why = format!(
                "its thread {tid} faults in the code cache at {:#x}, which is a bug in gilk",
                registers.rip
            );
            return Err(refused(self.pid, why));
        };
        self.cut(tid, &registers, &original, true)
            .map_err(self.failed(tid))?;
        self.leaves_after_instruments(tid, &registers);
        self.outside(&mut original);
        ptrace::set_registers(tid, &original).map_err(self.failed(tid))?;
        self.stepped += 1;
        self.step(tid, &original)
    }

    /// Reads a word of the process.
    pub(super) fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
