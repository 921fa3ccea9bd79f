//! Threads that are in the cache only while they execute a function, or only one thread.

use gilk_engine::Addr;

use super::super::super::ptrace::{self, Registers, Tid};
use super::super::trace::SignalInfo;
use super::super::trigger::{self, Trigger, TriggeredCall};
use super::{CacheAgent, CloneEnd, Outcome};
use crate::Result;

/// The flag `RF`, with which an instruction has no breakpoint (Intel SDM 3B, 18.3.1.1).
const RESUME: u64 = 1 << 16;

impl CacheAgent<'_> {
    /// Returns whether a thread executes in the cache.
    pub(super) fn is_taken(&self, tid: Tid) -> bool {
        match &self.trigger {
            Trigger::Always => true,
            Trigger::Thread(thread) => *thread == tid,
            Trigger::Function(..) => {
                let state = self.threads.get(&tid);
                state.is_some_and(|state| state.call.is_some())
            }
        }
    }

    /// Sets the breakpoints of a stopped thread, or removes them.
    pub(super) fn set_breakpoints(&self, tid: Tid, enabled: bool) -> Result<()> {
        let entries = self.trigger.entries();
        if entries.is_empty() {
            return Ok(());
        }
        match trigger::set_breakpoints(tid, entries, enabled) {
            Err(error) if !ptrace::is_gone(&error) => Err(self.failed(tid)(error)),
            _ => Ok(()),
        }
    }

    /// Has a thread in the cache that is to step an instruction with these original registers not stop at its breakpoint:
    /// the call has begun.
    pub(super) fn pass_breakpoint(&self, tid: Tid, registers: &Registers) -> Result<()> {
        if !self.trigger.entries().contains(&Addr(registers.rip)) {
            return Ok(());
        }
        let passing = Registers {
            eflags: registers.eflags | RESUME,
            ..*registers
        };
        ptrace::set_registers(tid, &passing).map_err(self.failed(tid))
    }

    /// Returns whether a SIGTRAP is that of a breakpoint at an entry.
    pub(super) fn is_entry(&self, at: Addr, info: &SignalInfo) -> bool {
        info.si_code == libc::TRAP_HWBKPT && self.trigger.entries().contains(&at)
    }

    /// Takes a thread that has called the function into the cache, if the condition holds. Its return is seen by the
    /// lookup of the return address, which stops the thread, or by [`ends_at_return`](Self::ends_at_return).
    pub(super) fn called(&mut self, tid: Tid, registers: &Registers) -> Result<Outcome> {
        if let Trigger::Function(_, Some(condition)) = &self.trigger {
            let judged = condition.judge((self.pid, tid), registers, &self.memory);
            self.failed_reads += judged.failed_reads;
            if !judged.holds {
                self.other_calls += 1;
                // The kernel has set the flag by which the breakpoint does not stop it again.
                return self.resume(tid);
            }
        }
        // Mappings that threads change while they are not in the cache are not seen.
        if self.code.is_outdated()?
            && let Some(refusal) = self.read_mappings(tid, registers)?
        {
            return Ok(Some(CloneEnd::LetGo(refusal)));
        }
        let returns_to = Addr(self.word(registers.rsp).map_err(self.failed(tid))?);
        self.cache.stop_lookups(returns_to)?;
        self.end_reads_if_filtered(tid)?;
        self.calls += 1;
        if let Some(state) = self.threads.get_mut(&tid) {
            state.call = Some(TriggeredCall::at_entry(registers.rsp, returns_to));
        }
        self.resume(tid)
    }

    /// Ends the call of a thread that leaves the cache or enters it with these original registers, if it has returned: in
    /// the middle of the lookup of the return address, by a step of its last instruction, or by registers that a handler
    /// has set. That lookup does not stop it any more.
    pub(super) fn ends_at_return(&mut self, tid: Tid, registers: &Registers) {
        let at = Addr(registers.rip);
        if let Some(state) = self.threads.get_mut(&tid)
            && state
                .call
                .is_some_and(|call| call.has_returned(at, registers.rsp))
        {
            state.call = None;
        }
    }

    /// Ends the call of a thread that continues with these original registers, if it is over. Returns whether it is.
    pub(super) fn returned(&mut self, tid: Tid, registers: &Registers) -> bool {
        let Some(state) = self.threads.get_mut(&tid) else {
            return false;
        };
        let is_over = state.call.is_some_and(|call| call.is_over(registers.rsp));
        if is_over {
            state.call = None;
        }
        is_over
    }
}
