//! Changes of mappings: what was translated of code that is mapped no more, or is other code, is dropped, and nothing else.

use gilk_engine::{Addr, Refusal, Span};

use super::super::super::maps::PAGE;
use super::super::super::objects::objects;
use super::super::super::ptrace::{self, Registers, Tid};
use super::super::cache::ProcessCache;
use super::super::trace::{self, Change, EVENT_STOP, is_fault};
use super::super::writes::page_of;
use super::{CacheAgent, CloneEnd, Outcome};
use crate::Result;

impl CacheAgent<'_> {
    /// Returns the spans in which a system call may change code, if it may.
    pub(super) fn changes_code(&self, registers: &Registers) -> Option<[Span; 2]> {
        const NONE: Span = Span {
            start: Addr(0),
            end: Addr(0),
        };
        let all = Some([
            Span {
                start: Addr(0),
                end: Addr(u64::MAX),
            },
            NONE,
        ]);
        let pages = |at: u64, bytes: u64| {
            let end = at.saturating_add(bytes).saturating_add(PAGE - 1);
            Span {
                start: page_of(Addr(at)),
                end: page_of(Addr(end)),
            }
        };
        let overlaps =
            |span: &Span| self.code.overlaps(*span) || self.code.overlaps_changing(*span);
        let flags = |register: u64, flag: i32| register & u64::from(flag.cast_unsigned()) != 0;
        let first = pages(registers.rdi, registers.rsi);
        match i64::from(registers.rax as u32) {
            // Another mapping of memory that has code may be written.
            libc::SYS_mmap
                if flags(registers.r10, libc::MAP_SHARED) && self.code.shares_changing() =>
            {
                all
            }
            libc::SYS_mmap if !flags(registers.r10, libc::MAP_FIXED) => None,
            libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_munmap | libc::SYS_pkey_mprotect => {
                overlaps(&first).then_some([first, NONE])
            }
            libc::SYS_mremap if self.code.shares_changing() => all,
            libc::SYS_mremap => {
                let second = match flags(registers.r10, libc::MREMAP_FIXED) {
                    true => pages(registers.r8, registers.rdx),
                    false => NONE,
                };
                (overlaps(&first) || overlaps(&second)).then_some([first, second])
            }
            libc::SYS_rt_sigreturn | libc::SYS_arch_prctl | libc::SYS_prctl | libc::SYS_seccomp => {
                None
            }
            _ => all,
        }
    }

    /// Compares the mappings of some spans with those that were translated, after a system call of a thread.
    pub(super) fn code_may_have_changed(&mut self, tid: Tid, spans: [Span; 2]) -> Result<Outcome> {
        self.code.expire();
        if let Some(end) = self.drop_changing(&spans)? {
            return Ok(Some(end));
        }
        if !spans.iter().any(|span| self.code.overlaps(*span)) {
            return Ok(None);
        }
        let registers = ptrace::registers(tid).map_err(self.failed(tid))?;
        let refusal = self.read_mappings(tid, &registers)?;
        Ok(refusal.map(CloneEnd::LetGo))
    }

    /// Reads the mappings of code, and drops what was translated of those that are gone. The thread is stopped, and has
    /// these original registers. Returns the rule by which the process is to be let go, if one has it.
    pub(super) fn read_mappings(
        &mut self,
        tid: Tid,
        registers: &Registers,
    ) -> Result<Option<Refusal>> {
        let mut gone = self.code.refresh(&self.memory)?;
        if let Some(refusal) = self.code.refusal() {
            return Ok(Some(refusal));
        }
        if gone.is_empty() {
            return Ok(None);
        }
        self.stop_all()?;
        let now = match &self.later {
            Some(_) => objects(self.pid)?,
            None => Vec::new(),
        };
        // Some of its code may be mapped still, without its instruments from now on.
        let parts = self.cache.instruments().iter();
        let known = parts.flat_map(|part| &part.objects);
        let unloaded = known.filter(|object| !now.iter().any(|one| one.has(object)));
        if self.later.is_some() {
            gone.extend(unloaded.map(|object| object.span));
        }
        let moved = self.leave_where(|cache, at| {
            cache.is_translated_from(at, &gone) || cache.end_of_read(at).is_some()
        })?;
        self.cache.drop_regions(&gone)?;
        self.forget_objects((tid, registers), &gone, &now)?;
        self.all_enter(moved)
    }

    /// Takes the threads out of the cache that are at some places, or in the middle of resident code. All are stopped.
    pub(super) fn leave_where(
        &mut self,
        is_inside: impl Fn(&ProcessCache, Addr) -> bool,
    ) -> Result<Vec<Tid>> {
        let mut moved = Vec::new();
        let threads: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in threads {
            let at = match ptrace::registers(tid) {
                Ok(registers) => Addr(registers.rip),
                Err(error) if ptrace::is_gone(&error) => continue,
                Err(error) => return Err(self.failed(tid)(error)),
            };
            let is_searching = self.cache.is_resident(at) && self.cache.stop(at).is_none();
            if is_searching || is_inside(&self.cache, at) {
                let left = self.leave_and_fault_again(tid);
                moved.extend(self.unless_gone(tid, left)?.map(|()| tid));
            }
        }
        Ok(moved)
    }

    /// Gives a stopped thread that is in the cache its original context, which is all that it has stopped for if that was
    /// a fault, or a stop of the resident code.
    pub(super) fn leave_and_fault_again(&mut self, tid: Tid) -> Result<()> {
        let faults_again = self.faults_again(tid);
        let left = self.leave_cache(tid);
        if faults_again {
            self.before_steps.remove(&tid);
        }
        left
    }

    /// Has a thread in the cache that has stopped for a fault execute its instruction again: there may be no translation
    /// of it then. Returns whether it has.
    fn faults_again(&mut self, tid: Tid) -> bool {
        let mut again = false;
        for (of, change) in &mut self.queue {
            if let Change::Signal(signal) = *change
                && *of == tid
                && trace::signal_info(tid).is_ok_and(|info| is_fault(signal, &info))
            {
                *change = Change::Event(EVENT_STOP, libc::SIGTRAP);
                again = true;
            }
        }
        again
    }
}
