//! Threads that record their accesses of memory: each has an area, and the base of `gs` is its address while the thread
//! is in the cache.

use std::io;

use gilk_engine::Addr;

use super::super::super::ptrace::{self, Registers, Tid};
use super::super::trace;
use super::CacheAgent;
use crate::Result;
use crate::accesses::AccessTotals;

impl CacheAgent<'_> {
    /// Gives a thread that has begun in the cache an area of its own: it has that of the thread that began it.
    pub(super) fn begin_accesses(&mut self, tid: Tid) -> Result<()> {
        if self.cache.accesses.is_none() {
            return Ok(());
        }
        let begun = trace::stop_at_end(tid).and_then(|()| ptrace::registers(tid));
        let mut registers = match begun {
            Ok(registers) => registers,
            Err(error) if ptrace::is_gone(&error) => return Ok(()),
            Err(error) => return Err(self.failed(tid)(error)),
        };
        if !self.cache.contains(Addr(registers.rip)) {
            return Ok(());
        }
        let Some(accesses) = &mut self.cache.accesses else {
            return Ok(());
        };
        match accesses.inside(tid, &mut registers)? {
            true => ptrace::set_registers(tid, &registers).map_err(self.failed(tid)),
            false => self.leave_cache(tid),
        }
    }

    /// Gives registers the base of `gs` that they have in the original code.
    pub(super) fn outside(&self, registers: &mut Registers) {
        if let Some(accesses) = &self.cache.accesses {
            accesses.outside(registers);
        }
    }

    /// The original registers, but for the base of `gs`, of a thread in a recorded block.
    pub(super) fn recorded(
        &self,
        registers: Registers,
        original: Addr,
        pointer: u8,
    ) -> io::Result<Registers> {
        let mut registers = Registers {
            rip: original.0,
            ..registers
        };
        let Some(accesses) = &self.cache.accesses else {
            return Ok(registers);
        };
        let kept = accesses.kept(registers.gs_base).map_err(io::Error::other)?;
        if let Some(register) = ptrace::numbered(&mut registers, pointer) {
            *register = kept;
        }
        Ok(registers)
    }

    /// Notes that a thread leaves a recorded block before an instruction, if it is in one.
    pub(super) fn cut(
        &self,
        tid: Tid,
        registers: &Registers,
        original: &Registers,
        executes: bool,
    ) -> io::Result<()> {
        let at = Addr(registers.rip);
        let (Some(accesses), Some(_)) = (&self.cache.accesses, self.cache.row(at)) else {
            return Ok(());
        };
        let original = Registers {
            gs_base: registers.gs_base,
            ..*original
        };
        let place = (at, Addr(original.rip));
        let cut = accesses.cut(tid, place, &original, executes);
        cut.map_err(io::Error::other)
    }

    /// A thread is about to end, perhaps in the middle of a block.
    pub(super) fn ending(&mut self, tid: Tid) -> Result<()> {
        let noted = ptrace::registers(tid).and_then(|registers| {
            let original = self.in_cache(registers)?;
            original.map_or(Ok(()), |original| {
                self.cut(tid, &registers, &original, false)
            })
        });
        match noted.and_then(|()| trace::proceed(tid, 0)) {
            Ok(()) => {}
            Err(error) if ptrace::is_gone(&error) => {}
            Err(error) => return Err(self.failed(tid)(error)),
        }
        self.runs(tid);
        Ok(())
    }

    /// Ends the file of accesses.
    pub(in super::super) fn end_accesses(
        &mut self,
        name: impl FnMut(Addr) -> String,
    ) -> Result<Option<AccessTotals>> {
        let stepped = self.stepped;
        match &mut self.cache.accesses {
            Some(accesses) => accesses.finish(stepped, name).map(Some),
            None => Ok(None),
        }
    }
}
