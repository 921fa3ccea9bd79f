//! Writes of code that was translated: its translations are dropped, and the write is done before any thread finds the
//! new ones.

use std::collections::BTreeSet;

use gilk_engine::{Addr, Refusal, Rule, Span};

use super::super::super::maps::PAGE;
use super::super::super::ptrace::{self, Tid};
use super::super::cache::unreleased;
use super::super::trace::{self, Change, EVENT_STOP, SignalInfo};
use super::{CacheAgent, CloneEnd, Outcome, is_step};
use crate::Result;

/// Writes of one page after its code was translated, after which the process is let go.
const MOST_WRITES: u32 = 4096;
/// `BUS_ADRERR` of include/uapi/asm-generic/siginfo.h.
const BAD_ADDRESS: i32 = 2;
/// Signals that are blocked while an instruction is stepped: all but those that an instruction causes.
const NOT_BY_INSTRUCTION: u64 = !(1 << (libc::SIGSEGV - 1)
    | 1 << (libc::SIGBUS - 1)
    | 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGTRAP - 1));

impl CacheAgent<'_> {
    /// Returns the address of a write that a signal reports, if it is one of a watched page.
    pub(super) fn watched_write(&self, signal: i32, info: &SignalInfo) -> Option<Addr> {
        if signal != libc::SIGBUS || info.si_code != BAD_ADDRESS {
            return None;
        }
        // SAFETY: a SIGBUS of the kernel has an address.
        #[allow(unsafe_code, reason = "a union of siginfo_t")]
        let at = Addr(unsafe { info.si_addr() } as u64);
        let writes = self.cache.writes.as_ref().ok()?;
        (!writes.written(at).is_empty()).then_some(at)
    }

    /// Has a stopped thread write translated code.
    pub(super) fn written(&mut self, tid: Tid, at: Addr) -> Result<Outcome> {
        self.stop_all()?;
        let mut at = at;
        let mut all = BTreeSet::new();
        // A write may be to two pages.
        while let Ok(writes) = &mut self.cache.writes {
            let pages = writes.written(at);
            for &page in &pages {
                let count = writes.count(page);
                if count > MOST_WRITES {
                    let why = format!("its page was written {count} times after it was translated");
                    let refusal = Refusal::new(Rule::WrittenOften, page, why);
                    return Ok(Some(CloneEnd::LetGo(refusal)));
                }
            }
            self.release_pages(&pages)?;
            all.extend(pages);
            match self.step_once(tid)? {
                Some(next) => at = next,
                None => break,
            }
        }
        let spans: Vec<Span> = all.iter().map(|page| Span::new(*page, PAGE)).collect();
        if let Some(end) = self.drop_changing(&spans)? {
            return Ok(Some(end));
        }
        if self.queue.iter().any(|(of, _)| *of == tid) {
            return Ok(None);
        }
        if self.guests.contains_key(&tid) {
            trace::proceed(tid, 0).map_err(self.failed(tid))?;
            self.runs(tid);
            return Ok(None);
        }
        self.resume(tid)
    }

    /// Executes the instruction that a stopped thread is at. Returns the address of a watched page that it writes; what
    /// else it stops for is handled later.
    fn step_once(&mut self, tid: Tid) -> Result<Option<Addr>> {
        let failed = |agent: &Self, error| agent.failed(tid)(error);
        let blocked = ptrace::blocked(tid).map_err(|error| failed(self, error))?;
        let stepped = ptrace::set_blocked(tid, NOT_BY_INSTRUCTION)
            .and_then(|()| trace::step(tid, 0))
            .and_then(|()| trace::wait_for(tid));
        let change = stepped.map_err(|error| failed(self, error))?;
        if matches!(change, Change::Ended(_)) {
            self.queue.push_back((tid, change));
            return Ok(None);
        }
        ptrace::set_blocked(tid, blocked).map_err(|error| failed(self, error))?;
        if let Change::Signal(signal) = change {
            let info = trace::signal_info(tid).map_err(|error| failed(self, error))?;
            if signal == libc::SIGTRAP && is_step(&info) {
                return Ok(None);
            }
            if let Some(next) = self.watched_write(signal, &info) {
                return Ok(Some(next));
            }
        }
        self.queue.push_back((tid, change));
        Ok(None)
    }

    /// Lets pages be written. Threads that have stopped for a write of one write again.
    fn release_pages(&mut self, pages: &BTreeSet<Addr>) -> Result<()> {
        let mut queue = std::mem::take(&mut self.queue);
        for (tid, change) in &mut queue {
            if let Change::Signal(signal) = *change
                && let Ok(info) = trace::signal_info(*tid)
                && self.watched_write(signal, &info).is_some()
            {
                *change = Change::Event(EVENT_STOP, libc::SIGTRAP);
            }
        }
        self.queue = queue;
        if let Ok(writes) = &mut self.cache.writes {
            for &page in pages {
                let released = writes.release(page);
                released.map_err(|error| unreleased(self.pid, page, &error))?;
            }
        }
        Ok(())
    }

    /// Lets all pages be written.
    pub(super) fn stop_watching(&mut self) -> Result<()> {
        let pages = match &self.cache.writes {
            Ok(writes) => writes.pages(),
            Err(_) => BTreeSet::new(),
        };
        self.release_pages(&pages)
    }

    /// Drops the translations of changing code in some spans; threads that are there continue in new ones.
    pub(super) fn drop_changing(&mut self, spans: &[Span]) -> Result<Outcome> {
        let spans: Vec<Span> = spans
            .iter()
            .copied()
            .filter(|span| self.cache.has_translated(*span))
            .collect();
        if spans.is_empty() {
            return Ok(None);
        }
        self.stop_all()?;
        let mut pages = match &self.cache.writes {
            Ok(writes) => writes.pages(),
            Err(_) => BTreeSet::new(),
        };
        pages.retain(|page| spans.iter().any(|span| span.contains(*page)));
        self.release_pages(&pages)?;
        let moved = self.leave_where(|cache, at| {
            let mut spans = spans.iter();
            spans.any(|span| cache.is_made_from(at, *span))
        })?;
        for span in spans {
            self.cache.drop_changing(span)?;
        }
        Ok(self.all_enter(moved)?.map(CloneEnd::LetGo))
    }
}
