//! Processes that have the memory of the one in the cache, as after `vfork`: they execute the original code, and are
//! traced for their writes of translated code alone.

use super::super::super::ptrace::{self, Tid};
use super::super::trace::{self, Change, EVENT_STOP};
use super::{CacheAgent, Outcome};
use crate::Result;

impl CacheAgent<'_> {
    /// A stop or the end of a guest.
    pub(super) fn guest(&mut self, tid: Tid, change: Change) -> Result<Outcome> {
        let done = match change {
            Change::Ended(_) => {
                self.guests.remove(&tid);
                return Ok(None);
            }
            Change::Event(libc::PTRACE_EVENT_EXEC, _) => {
                self.guests.remove(&tid);
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
