//! Threads between the instruments of a block and its first instruction: they leave the cache there, for the handler of a
//! signal, for example, and when they come back the instruments have run already.

use std::io;

use gilk_engine::cache::{CacheRow, PatchMoment, RowState};
use gilk_engine::{Addr, Refusal};

use super::super::super::ptrace::{self, Registers, Tid};
use super::super::super::stopped::is_filtered;
use super::super::passed::LeftInstruments;
use super::super::trace::{self, Change, is_fault};
use super::super::trigger;
use super::{CacheAgent, CloneEnd, Outcome};
use crate::Result;

/// Stops of a thread, at most, until it has left the instruments of a block.
const MOST_STOPS: usize = 1 << 10;

impl CacheAgent<'_> {
    /// Notes that a stopped thread leaves the cache, if it has passed the instruments before its next instruction.
    pub(super) fn leaves_after_instruments(&mut self, tid: Tid, registers: &Registers) {
        if !self.cache.has_instruments() {
            return;
        }
        let at = Addr(registers.rip);
        // Of the instructions in the place of the block's first one, some may have executed, with no effect yet but a
        // counter's.
        let is_after = |row: &CacheRow| {
            let exit = self.cache.exit(row.original);
            let same = |exit| self.cache.is_in_place(row.original, exit, at);
            row.state == RowState::Exact && exit.is_some_and(same)
        };
        let row = self.cache.row(at).filter(is_after);
        if let (Some(row), Some(state)) = (row, self.threads.get_mut(&tid)) {
            let left = LeftInstruments::Passed;
            state.passed.add(row.original, registers.rsp, left);
        }
    }

    /// Notes that a thread leaves the cache with these original registers before instruments that run after an instruction,
    /// or on a way of one: they are next when it comes back. A branch that it executes again may have instruments before
    /// it that have run.
    pub(super) fn leaves_before_way(&mut self, tid: Tid, at: Addr, original: &Registers) {
        let Some(patch) = self.cache.patch(at) else {
            return;
        };
        let left = match patch.next {
            Some(next) if next.0 == original.rip => {
                LeftInstruments::Next(patch.original, patch.moment)
            }
            None if patch.moment != PatchMoment::Before
                && patch.original.0 == original.rip
                && self.cache.exit(patch.original).is_some() =>
            {
                LeftInstruments::Passed
            }
            _ => return,
        };
        if let Some(state) = self.threads.get_mut(&tid) {
            state.passed.add(Addr(original.rip), original.rsp, left);
        }
    }

    /// The place in the cache for a thread that enters it with these original registers: after the instruments of the
    /// block, if it has passed them, or before those that are next. Otherwise that of the block.
    pub(super) fn place_at_instruments(
        &mut self,
        tid: Tid,
        registers: &Registers,
        block: Addr,
    ) -> Result<std::result::Result<Addr, Refusal>> {
        let (original, stack) = (Addr(registers.rip), registers.rsp);
        let state = self.threads.get_mut(&tid);
        let left = state.and_then(|state| state.passed.take(original, stack));
        let place = match left {
            None => None,
            Some(LeftInstruments::Passed) => self.cache.exit(original),
            Some(next @ LeftInstruments::Next(instruction, moment)) => {
                if self.cache.begin_after((instruction, moment)).is_none() {
                    let before = Registers {
                        rip: instruction.0,
                        orig_rax: u64::MAX,
                        ..*registers
                    };
                    if let Err(refusal) = self.fragment(tid, &before)? {
                        // The cache may begin again, and the thread enters then.
                        if let Some(state) = self.threads.get_mut(&tid) {
                            state.passed.add(original, stack, next);
                        }
                        return Ok(Err(refusal));
                    }
                }
                self.cache.begin_after((instruction, moment))
            }
        };
        Ok(Ok(place.unwrap_or(block)))
    }

    /// Lets a stopped thread, all of whose signals are blocked, execute until it has left the instruments of a block.
    pub(super) fn finish_instruments(&self, tid: Tid, at: Addr) -> io::Result<()> {
        let patch = self.cache.patch(at);
        let patch = patch
            .ok_or_else(|| io::Error::other("a patch is not known, which is a bug in gilk"))?;
        self.execute_to(tid, patch.exit)
    }

    /// Lets such a thread execute to an instruction. It is not stepped: each step would set it back to the beginning of a
    /// restartable sequence, and is seen in flags that are pushed.
    pub(super) fn execute_to(&self, tid: Tid, exit: Addr) -> io::Result<()> {
        trigger::set_breakpoints(tid, &[exit], true)?;
        let left = self.leave_instruments(tid, exit);
        let entries = self.trigger.entries();
        let restored = trigger::set_breakpoints(tid, entries, !entries.is_empty());
        left.and(restored)
    }

    fn leave_instruments(&self, tid: Tid, exit: Addr) -> io::Result<()> {
        for _ in 0..MOST_STOPS {
            trace::proceed(tid, 0)?;
            match trace::wait_for(tid)? {
                Change::Ended(_) => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                _ if ptrace::registers(tid)?.rip == exit.0 => return Ok(()),
                Change::Signal(signal) if is_fault(signal, &trace::signal_info(tid)?) => {
                    let why = "its stack has no space for an instrument";
                    return Err(io::Error::other(why));
                }
                // An interruption, or a stop of its group.
                _ => {}
            }
        }
        Err(io::Error::other("it does not leave an instrument"))
    }

    /// Ends the reads of memory if the system calls of a thread are filtered, which enters the cache.
    pub(super) fn end_reads_if_filtered(&mut self, tid: Tid) -> Result<()> {
        match self.cache.reads_memory() && is_filtered(self.pid, tid) {
            true => self.cache.end_reads(),
            false => Ok(()),
        }
    }

    /// Ends the reads of memory before a thread executes a system call that may filter those of the process: a read is
    /// a system call. No thread is in the middle of one after that.
    pub(super) fn end_reads_before(&mut self, registers: &Registers) -> Result<Outcome> {
        if !self.cache.reads_memory() || !may_filter(registers) {
            return Ok(None);
        }
        self.cache.end_reads()?;
        self.stop_all()?;
        let mut reading = Vec::new();
        for &tid in self.threads.keys() {
            match ptrace::registers(tid) {
                Ok(at) if self.cache.end_of_read(Addr(at.rip)).is_some() => reading.push(tid),
                Ok(_) => {}
                Err(error) if ptrace::is_gone(&error) => {}
                Err(error) => return Err(self.failed(tid)(error)),
            }
        }
        for &tid in &reading {
            let left = self.leave_cache(tid);
            self.unless_gone(tid, left)?;
        }
        Ok(self.all_enter(reading)?.map(CloneEnd::LetGo))
    }

    /// Clears the descriptor of the restartable sequence that a stopped thread has armed last: the kernel would read it
    /// where the cache is no more, or has other code, and end the process.
    pub(super) fn disarm(&self, tid: Tid) -> io::Result<()> {
        if !self.cache.has_instruments() {
            return Ok(());
        }
        let area = ptrace::rseq(tid)?.area;
        match usize::try_from(area) {
            Ok(0) | Err(_) => Ok(()),
            Ok(area) => ptrace::request(libc::PTRACE_POKEDATA, tid, area + 8, 0),
        }
    }
}

/// Returns whether a system call may filter those that follow (`seccomp(2)`).
fn may_filter(registers: &Registers) -> bool {
    const SETS: [u32; 2] = [libc::SECCOMP_SET_MODE_STRICT, libc::SECCOMP_SET_MODE_FILTER];
    // The kernel reads 32 bits of each.
    let [number, first] = [registers.rax, registers.rdi].map(|register| register as u32);
    match i64::from(number) {
        libc::SYS_seccomp => SETS.contains(&first),
        libc::SYS_prctl => first == libc::PR_SET_SECCOMP.cast_unsigned(),
        _ => false,
    }
}
