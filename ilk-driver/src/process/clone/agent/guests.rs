//! Children of the process in the cache: they execute the original code, or are held for caches of their own. Those that
//! have its memory, as after `vfork`, are traced for their writes of translated code, and until they execute a program.

use super::super::super::executions::Exec;
use super::super::super::launched::HeldProcess;
use super::super::super::ptrace::{self, Tid};
use super::super::trace::{self, Change, EVENT_STOP};
use super::{CacheAgent, ChildrenHeld, Outcome, ThreadState};
use crate::Result;

impl CacheAgent<'_> {
    /// A process that has begun: it has its original context.
    pub(super) fn child(&mut self, tid: Tid) -> Result<()> {
        self.leave_cache(tid)?;
        self.before_steps.remove(&tid);
        let is_awaited = self.cache.writes.is_ok() || self.executing_children().is_some();
        // Without an answer it is traced, at the cost of some stops.
        if is_awaited && trace::shares_memory(self.leader, tid).unwrap_or(true) {
            self.guests.insert(tid, ThreadState::default());
            return trace::proceed(tid, 0).map_err(self.failed(tid));
        }
        match self.children {
            Some(children) => {
                (children.child)(HeldProcess::here(tid.unsigned_abs()));
                Ok(())
            }
            None => trace::detach(tid, 0).map_err(self.failed(tid)),
        }
    }

    /// A thread has begun another, or a process: that is met before the thread can end, and before what it would execute in
    /// the cache may be dropped.
    pub(super) fn begins(&mut self, tid: Tid) -> Result<()> {
        let begun = match trace::begun(tid) {
            Ok(begun) => begun,
            Err(error) if ptrace::is_gone(&error) => return Ok(()),
            Err(error) => return Err(self.failed(tid)(error)),
        };
        let is_met = self.threads.contains_key(&begun) || self.guests.contains_key(&begun);
        if is_met || self.is_thread(begun) {
            return Ok(());
        }
        match trace::wait_for(begun) {
            // Seen next.
            Ok(Change::Ended(_)) => Ok(()),
            Ok(_) => {
                let left = self.child(begun);
                self.unless_gone(begun, left).map(drop)
            }
            // It was left before.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(()),
            Err(error) => Err(self.failed(begun)(error)),
        }
    }

    /// Takes guests in the programs that they execute, if these are to be in caches of their own.
    fn executing_children(&self) -> Option<ChildrenHeld<'_>> {
        self.children
            .filter(|children| children.exec == Exec::Follows)
    }

    /// A stop or the end of a guest.
    pub(super) fn guest(&mut self, tid: Tid, change: Change) -> Result<Outcome> {
        let done = match change {
            Change::Ended(_) => {
                self.guests.remove(&tid);
                return Ok(None);
            }
            Change::Event(libc::PTRACE_EVENT_EXEC, _) => {
                self.guests.remove(&tid);
                if let Some(children) = self.executing_children() {
                    (children.child)(HeldProcess::at_entry(tid.unsigned_abs()));
                    return Ok(None);
                }
                trace::detach(tid, 0)
            }
            Change::Event(
                EVENT_STOP,
                libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU,
            ) => trace::listen(tid),
            Change::Event(..) => trace::proceed(tid, 0),
            Change::Signal(signal) => {
                let info = trace::signal_info(tid).map_err(self.failed(tid))?;
                if let Some(at) = self.watched_write(signal, &info) {
                    return self.written(tid, at);
                }
                trace::proceed(tid, signal)
            }
        };
        done.map_err(self.failed(tid))?;
        self.runs(tid);
        Ok(None)
    }

    /// Stops all guests. What they stopped for is handled later.
    pub(in super::super) fn stop_guests(&mut self) -> Result<()> {
        let running = self.guests.iter().filter(|(_, state)| !state.stopped);
        let running: Vec<Tid> = running.map(|(tid, _)| *tid).collect();
        for tid in running {
            match ptrace::interrupt(tid) {
                Ok(()) => {}
                Err(error) if ptrace::is_gone(&error) => continue,
                Err(error) => return Err(self.failed(tid)(error)),
            }
            let change = trace::wait_interrupted(tid).map_err(self.failed(tid))?;
            if let Some(state) = self.guests.get_mut(&tid) {
                state.stopped = true;
            }
            self.queue.push_back((tid, change));
        }
        Ok(())
    }

    /// Lets all guests, which are stopped, continue untraced.
    pub(in super::super) fn release_guests(&mut self) -> Result<()> {
        for (tid, _) in std::mem::take(&mut self.guests) {
            match trace::detach(tid, 0) {
                Ok(()) => {}
                Err(error) if ptrace::is_gone(&error) => {}
                Err(error) => return Err(self.failed(tid)(error)),
            }
        }
        Ok(())
    }
}
