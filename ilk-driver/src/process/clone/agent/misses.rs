//! Serves what threads miss in the cache: translates it, and has them continue there.

use std::time::Instant;

use gilk_engine::cache::CodeBytes as _;
use gilk_engine::{Addr, Refusal, Rule};

use super::super::super::maps::MappedSpan;
use super::super::super::ptrace::{self, Registers, Tid};
use super::super::super::stopped::Thread;
use super::super::trace;
use super::{CacheAgent, CloneEnd, Outcome};
use crate::Result;

/// Errors of system calls that the kernel restarts.
const RESTARTED: std::ops::RangeInclusive<i64> = -516..=-512;

impl CacheAgent<'_> {
    /// Takes a stopped thread with an original context into the cache. Where no code is, or if other threads are taken,
    /// it stays as it is. Returns the rule by which the process is to be let go, if one has it.
    pub(super) fn enter(&mut self, tid: Tid) -> Result<Option<Refusal>> {
        let mut registers = ptrace::registers(tid).map_err(self.failed(tid))?;
        if self.cache.contains(Addr(registers.rip)) {
            return Ok(None);
        }
        self.ends_at_return(tid, &registers);
        if !self.is_taken(tid) {
            return Ok(None);
        }
        match self.fragment(tid, &registers)? {
            Ok(Some(place)) => {
                if let Some(accesses) = &mut self.cache.accesses
                    && !accesses.inside(tid, &mut registers)?
                {
                    return Ok(None);
                }
                match self.place_at_instruments(tid, &registers, place)? {
                    Ok(place) => registers.rip = place.0,
                    Err(refusal) => return Ok(Some(refusal)),
                }
                ptrace::set_registers(tid, &registers).map_err(self.failed(tid))?;
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(refusal) => Ok(Some(refusal)),
        }
    }

    /// Returns the place in the cache where a stopped thread with these original registers continues, translated if
    /// need be; `None` where no code is.
    pub(super) fn fragment(
        &mut self,
        tid: Tid,
        registers: &Registers,
    ) -> Result<std::result::Result<Option<Addr>, Refusal>> {
        let original = Addr(registers.rip);
        // The kernel restarts an interrupted system call by moving back to it.
        let restarts = registers.orig_rax.cast_signed() >= 0
            && RESTARTED.contains(&registers.rax.cast_signed());
        let before = Addr(registers.rip.wrapping_sub(2));
        let wanted = if restarts { before } else { original };
        if !self.is_current(wanted)
            && let Some(refusal) = self.read_mappings(tid, registers)?
        {
            return Ok(Err(refusal));
        }
        let is_code = self.code.code_from(wanted).is_some() || self.code.changing(wanted).is_some();
        if is_code && !self.cache.reaches(wanted) {
            let thread = Thread {
                tid,
                registers: *registers,
                rseq: ptrace::rseq(tid).map_err(self.failed(tid))?,
            };
            ptrace::set_registers(tid, registers).map_err(self.failed(tid))?;
            self.cache.add_arena(&thread, wanted)?;
        }
        if let Err(refusal) = self.meet_object(tid, registers, wanted)? {
            return Ok(Err(refusal));
        }
        let alone = self.threads.len() == 1;
        let is_watched = |one: &MappedSpan| one.writable || one.shared;
        if self.code.changing(wanted).is_some_and(is_watched) {
            self.end_with_agent()?;
        }
        let begun = Instant::now();
        let fragment = match self.code.code_from(wanted) {
            Some(_) => self.cache.block(&self.code, wanted, alone)?,
            None => {
                self.code.read_registered(&self.memory);
                let stack = Addr(registers.rsp);
                self.cache.changing_block(&self.code, wanted, stack)?
            }
        };
        self.translating += begun.elapsed();
        Ok(fragment.map(|found| match (found, restarts) {
            (Some(_), true) => self.cache.returned(original),
            (found, _) => found,
        }))
    }

    /// Has the process end if this one is killed: without it, writes of translated code are not seen, and the code as it
    /// was would be executed.
    fn end_with_agent(&mut self) -> Result<()> {
        if self.ends_with_agent {
            return Ok(());
        }
        self.stop_all()?;
        let all: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in all {
            match trace::end_with_tracer(tid, self.cache.accesses.is_some()) {
                Ok(()) => {}
                Err(error) if ptrace::is_gone(&error) => {}
                Err(error) => return Err(self.failed(tid)(error)),
            }
        }
        self.ends_with_agent = true;
        Ok(())
    }

    /// Returns whether an address is in a mapping of code that is known, and cannot have changed since.
    fn is_current(&self, at: Addr) -> bool {
        // Mappings of shared memory without code are not watched for changes.
        let is_changing = || {
            let mapping = self.code.changing(at);
            !self.code.is_stale() && mapping.is_some_and(|mapping| !mapping.shared)
        };
        self.code.code_from(at).is_some() || is_changing()
    }

    /// Returns whether it helps against a refusal to drop everything: most of what fills the cache was dropped.
    pub(super) fn may_begin_again(&self, refusal: &Refusal) -> bool {
        refusal.rule == Rule::CacheFull && self.cache.is_worth_flushing()
    }

    /// Lets a thread execute in the cache.
    pub(super) fn resume(&mut self, tid: Tid) -> Result<Outcome> {
        if let Some(refusal) = self.enter(tid)? {
            if !self.may_begin_again(&refusal) {
                return Ok(Some(CloneEnd::LetGo(refusal)));
            }
            if let Some(end) = self.flush(self.cache.counting())? {
                return Ok(Some(end));
            }
        }
        trace::proceed(tid, 0).map_err(self.failed(tid))?;
        self.runs(tid);
        Ok(None)
    }
}
