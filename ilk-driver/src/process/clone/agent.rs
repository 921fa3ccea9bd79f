//! The agent of a code cache: it traces all threads of a process, translates what they miss, and delivers their
//! signals with original contexts.

mod calls;
mod contexts;
mod guests;
mod instruments;
mod loads;
mod mappings;
mod misses;
mod recorded;
mod signals;
mod written;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gilk_engine::cache::Counting;
use gilk_engine::{Addr, Refusal, Span};

use super::super::executions::Exec;
use super::super::generated::RegisteredObjects;
use super::super::launched::HeldProcess;
use super::super::ptrace::{self, Registers, Tid};
use super::super::stopped::threads;
use super::super::{refused, text};
use super::cache::{ProcessCache, ResidentStop};
use super::code::ProcessCode;
use super::instrument_words::CacheWords;
use super::later::LaterObjects;
use super::passed::PassedInstruments;
use super::trace::{self, Change, EVENT_STOP, SignalInfo, is_fault};
use super::trigger::{Trigger, TriggeredCall};
use crate::Result;

/// The instruction that enters the kernel.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The knowledge that the agent has of a thread between two stops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ThreadState {
    /// It is stopped.
    stopped: bool,
    /// It stopped to execute a system call that may change code in these spans.
    watched: Option<[Span; 2]>,
    /// It is about to execute the handler of a signal, and blocked these before.
    blocked: Option<u64>,
    /// The call that it is in the cache for, if only those of a function are.
    call: Option<TriggeredCall>,
    /// Instruments that it has passed when it left the cache.
    passed: PassedInstruments,
}

/// The end of an execution in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloneEnd {
    /// The process ended, with this status of `waitpid`.
    Ended(i32),
    /// The process executed another program.
    Executed,
    /// The process was let go, and continues in its original code, since this was requested.
    Detached,
    /// The process was let go by a rule, and continues in its original code.
    LetGo(Refusal),
}

/// Children of the process that are held.
#[derive(Clone, Copy)]
pub(super) struct ChildrenHeld<'a> {
    /// Takes each of them, or the reason why one cannot be held.
    pub(super) child: &'a dyn Fn(Result<HeldProcess>),
    /// The way of those that share the memory of the process until they execute a program.
    pub(super) exec: Exec,
}

/// An agent at work.
pub(super) struct CacheAgent<'a> {
    pid: u32,
    leader: Tid,
    memory: File,
    code: ProcessCode,
    cache: ProcessCache,
    threads: BTreeMap<Tid, ThreadState>,
    /// Changes that were seen while all threads were stopped.
    queue: VecDeque<(Tid, Change)>,
    /// Processes that have the same memory and continue in the original code: they may write translated code.
    guests: BTreeMap<Tid, ThreadState>,
    /// Signals that threads had stopped for before they were stepped.
    before_steps: BTreeMap<Tid, SignalInfo>,
    leave: &'a AtomicBool,
    trigger: Trigger,
    /// Objects that are loaded later, if they are to be instrumented, and the words of all instruments.
    later: Option<LaterObjects<'a>>,
    words: Option<CacheWords>,
    /// Children are held, if they are to be in caches of their own.
    children: Option<ChildrenHeld<'a>>,
    status: i32,
    /// Calls of the function that threads are in the cache for.
    pub(super) calls: u64,
    /// Calls for which the condition did not hold.
    pub(super) other_calls: u64,
    /// Reads of memory for the condition that failed.
    pub(super) failed_reads: u64,
    pub(super) signals: u64,
    pub(super) missed: u64,
    pub(super) stepped: u64,
    /// Writes of its code are watched.
    ends_with_agent: bool,
    /// The time of translations, with their proofs and writes.
    pub(super) translating: Duration,
}

/// The outcome of an event: a reason to end, or none.
type Outcome = Option<CloneEnd>;

impl<'a> CacheAgent<'a> {
    pub(super) fn new(
        pid: u32,
        memory: File,
        code: ProcessCode,
        cache: ProcessCache,
        (trigger, leave): (Trigger, &'a AtomicBool),
        (later, words, children): (
            Option<LaterObjects<'a>>,
            Option<CacheWords>,
            Option<ChildrenHeld<'a>>,
        ),
    ) -> Self {
        Self {
            pid,
            leader: Tid::try_from(pid).unwrap_or(Tid::MAX),
            memory,
            code,
            cache,
            threads: BTreeMap::new(),
            queue: VecDeque::new(),
            guests: BTreeMap::new(),
            before_steps: BTreeMap::new(),
            leave,
            trigger,
            later,
            words,
            children,
            status: 0,
            calls: 0,
            other_calls: 0,
            failed_reads: 0,
            signals: 0,
            missed: 0,
            stepped: 0,
            ends_with_agent: false,
            translating: Duration::ZERO,
        }
    }

    pub(super) fn cache(&self) -> &ProcessCache {
        &self.cache
    }

    pub(super) fn code(&self) -> &ProcessCode {
        &self.code
    }

    /// Gives away the names of generated code that were read.
    pub(super) fn take_registered(&mut self) -> RegisteredObjects {
        self.code.take_registered()
    }

    /// Gives away the reasons why objects that were loaded later have no instruments.
    pub(super) fn take_notes(&mut self) -> BTreeSet<String> {
        let later = self.later.as_mut();
        later.map(LaterObjects::take_notes).unwrap_or_default()
    }

    /// Keeps the blocks of the process for the next start of its program.
    pub(super) fn keep_blocks(&mut self) {
        self.cache.keep_blocks();
    }

    fn failed(&self, tid: Tid) -> impl FnOnce(io::Error) -> crate::Error + use<> {
        let pid = self.pid;
        move |error| refused(pid, format!("its thread {tid} cannot be traced ({error})"))
    }

    /// Stops all threads and takes them into the cache.
    pub(super) fn take_over(&mut self) -> Result<Outcome> {
        loop {
            let mut new = Vec::new();
            for tid in threads(self.pid)? {
                if self.threads.contains_key(&tid) {
                    continue;
                }
                match trace::seize(tid).and_then(|()| ptrace::interrupt(tid)) {
                    Ok(()) => new.push(tid),
                    Err(error) if ptrace::is_gone(&error) => {}
                    Err(error) => return Err(self.failed(tid)(error)),
                }
            }
            if new.is_empty() {
                break;
            }
            for tid in new {
                let change = trace::wait_for(tid).map_err(self.failed(tid))?;
                self.begin(tid)?;
                self.stopped(tid, change);
            }
        }
        if self.threads.len() > 1 && self.cache.counting() == Counting::OneThread {
            self.cache.flush(Counting::Threads)?;
        }
        let all: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in all {
            let registers = ptrace::registers(tid).map_err(self.failed(tid))?;
            if registers.cs & 0xffff != 0x33 {
                return Err(refused(self.pid, "its code is not of 64 bits"));
            }
            self.end_reads_if_filtered(tid)?;
            if let Some(refusal) = self.enter(tid)? {
                return Ok(Some(CloneEnd::LetGo(refusal)));
            }
        }
        Ok(None)
    }

    /// Adds a stopped thread.
    fn begin(&mut self, tid: Tid) -> Result<()> {
        self.threads.insert(tid, ThreadState::default());
        self.set_breakpoints(tid, true)?;
        self.begin_accesses(tid)
    }

    /// Notes a stop for later.
    fn stopped(&mut self, tid: Tid, change: Change) {
        if let Some(state) = self.threads.get_mut(&tid) {
            state.stopped = true;
        }
        self.queue.push_back((tid, change));
    }

    /// Executes until the process ends or is let go.
    pub(super) fn work(&mut self) -> Result<CloneEnd> {
        loop {
            if self.leave.load(Ordering::Acquire) {
                return Ok(CloneEnd::Detached);
            }
            let next = match self.queue.pop_front() {
                Some(next) => next,
                None => match trace::wait_any() {
                    Ok(Some(next)) => next,
                    Ok(None) => continue,
                    Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                        return Ok(CloneEnd::Ended(self.status));
                    }
                    Err(error) => return Err(self.failed(self.leader)(error)),
                },
            };
            let (tid, change) = next;
            match self.handle(tid, change) {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                // A thread may be killed at any time; its end is seen next.
                Err(error) if self.is_gone(tid) => drop(error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether a thread has ended or is about to.
    fn is_gone(&self, tid: Tid) -> bool {
        ptrace::registers(tid).is_err_and(|error| ptrace::is_gone(&error))
    }

    /// Returns what was done with one of several threads; nothing if it has ended, which is handled later.
    fn unless_gone<T>(&self, tid: Tid, done: Result<T>) -> Result<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(_) if self.is_gone(tid) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn handle(&mut self, tid: Tid, change: Change) -> Result<Outcome> {
        if let Some(state) = self.guests.get_mut(&tid) {
            state.stopped = true;
            return self.guest(tid, change);
        }
        if let Change::Ended(status) = change {
            if let Some(accesses) = &mut self.cache.accesses {
                accesses.end(tid)?;
            }
            if self.threads.remove(&tid).is_some() && tid == self.leader {
                self.status = status;
                if self.threads.is_empty() {
                    return Ok(Some(CloneEnd::Ended(status)));
                }
            }
            return Ok(None);
        }
        if !self.threads.contains_key(&tid) {
            if !self.is_thread(tid) {
                return self.child(tid).map(|()| None);
            }
            self.begin(tid)?;
        }
        if let Some(state) = self.threads.get_mut(&tid) {
            state.stopped = true;
        }
        match change {
            Change::Ended(_) => Ok(None),
            Change::Event(EVENT_STOP, signal) => {
                if let Some(end) = self.share_counters()? {
                    return Ok(Some(end));
                }
                if matches!(
                    signal,
                    libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
                ) {
                    trace::listen(tid).map_err(self.failed(tid))?;
                    self.runs(tid);
                    return Ok(None);
                }
                self.resume(tid)
            }
            Change::Event(libc::PTRACE_EVENT_EXEC, _) => Ok(Some(CloneEnd::Executed)),
            begin if trace::is_begin(begin) => {
                self.begins(tid)?;
                if let Some(end) = self.share_counters()? {
                    return Ok(Some(end));
                }
                self.resume(tid)
            }
            Change::Event(libc::PTRACE_EVENT_EXIT, _) => self.ending(tid).map(|()| None),
            Change::Event(..) => self.resume(tid),
            Change::Signal(libc::SIGTRAP) => self.trapped(tid),
            Change::Signal(signal) => self.deliver(tid, signal),
        }
    }

    fn runs(&mut self, tid: Tid) {
        let state = self.threads.get_mut(&tid);
        if let Some(state) = state.or_else(|| self.guests.get_mut(&tid)) {
            state.stopped = false;
        }
    }

    /// Returns whether a task belongs to the process.
    fn is_thread(&self, tid: Tid) -> bool {
        std::path::Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists()
    }

    /// Has the blocks count with locks once there are several threads.
    fn share_counters(&mut self) -> Result<Outcome> {
        if self.cache.counting() != Counting::OneThread {
            return Ok(None);
        }
        match threads(self.pid) {
            Ok(all) if all.len() < 2 => Ok(None),
            _ => self.flush(Counting::Threads),
        }
    }

    /// Takes all threads out of the cache, drops what was translated, and takes them in again.
    fn flush(&mut self, counting: Counting) -> Result<Outcome> {
        let all = self.all_leave()?;
        self.flush_empty(all, counting)
    }

    /// Takes all threads out of the cache.
    fn all_leave(&mut self) -> Result<Vec<Tid>> {
        self.stop_all()?;
        self.stop_watching()?;
        let all: Vec<Tid> = self.threads.keys().copied().collect();
        for &tid in &all {
            let registers = ptrace::registers(tid).map_err(self.failed(tid));
            let Some(registers) = self.unless_gone(tid, registers)? else {
                continue;
            };
            let left = match self.cache.contains(Addr(registers.rip)) {
                true => self.leave_and_fault_again(tid),
                false => self.leave_cache(tid),
            };
            self.unless_gone(tid, left)?;
        }
        Ok(all)
    }

    /// Drops what was translated, while no thread is in the cache, and takes threads in.
    fn flush_empty(&mut self, all: Vec<Tid>, counting: Counting) -> Result<Outcome> {
        self.cache.keep_blocks();
        self.cache.flush(counting)?;
        Ok(self.all_enter(all)?.map(CloneEnd::LetGo))
    }

    /// Takes threads into the cache. Returns the rule by which the process is to be let go, if one has it.
    fn all_enter(&mut self, all: Vec<Tid>) -> Result<Option<Refusal>> {
        for tid in all {
            let entered = self.enter(tid);
            if let Some(Some(refusal)) = self.unless_gone(tid, entered)? {
                return Ok(Some(refusal));
            }
        }
        Ok(None)
    }

    /// Stops all threads that execute. What they stopped for is handled later.
    fn stop_all(&mut self) -> Result<()> {
        let running = self.threads.iter().filter(|(_, state)| !state.stopped);
        let running: Vec<Tid> = running.map(|(tid, _)| *tid).collect();
        for tid in running {
            if let Err(error) = ptrace::interrupt(tid) {
                if ptrace::is_gone(&error) {
                    continue;
                }
                return Err(self.failed(tid)(error));
            }
            match trace::wait_interrupted(tid).map_err(self.failed(tid))? {
                change @ Change::Ended(_) => self.queue.push_back((tid, change)),
                change => self.stopped(tid, change),
            }
        }
        let begins = self.queue.iter();
        let begins = begins.filter(|(_, change)| trace::is_begin(*change));
        let begins: Vec<Tid> = begins.map(|(tid, _)| *tid).collect();
        for tid in begins {
            self.begins(tid)?;
        }
        self.stop_guests()?;
        // Threads that have begun, and stop before their first instruction.
        for tid in threads(self.pid).unwrap_or_default() {
            if self.threads.contains_key(&tid) {
                continue;
            }
            let change = trace::wait_for(tid).map_err(self.failed(tid))?;
            self.begin(tid)?;
            self.stopped(tid, change);
        }
        Ok(())
    }

    /// A trap: a stop of the resident code, the end of a step, or one of the program.
    fn trapped(&mut self, tid: Tid) -> Result<Outcome> {
        let registers = ptrace::registers(tid).map_err(self.failed(tid))?;
        let at = Addr(registers.rip);
        if let Some(stop) = self.cache.stop(at) {
            let mut original = self.at_stop(registers).map_err(self.failed(tid))?;
            if stop == ResidentStop::Missed {
                self.missed += 1;
                if let Some(accesses) = &mut self.cache.accesses {
                    accesses.drain_full(registers.gs_base)?;
                }
                self.cache.search_again(Addr(original.rip))?;
                if self.returned(tid, &original) {
                    self.outside(&mut original);
                    ptrace::set_registers(tid, &original).map_err(self.failed(tid))?;
                    trace::proceed(tid, 0).map_err(self.failed(tid))?;
                    self.runs(tid);
                    return Ok(None);
                }
                let place = match self.fragment(tid, &original)? {
                    Ok(place) => place,
                    Err(refusal) if self.may_begin_again(&refusal) => {
                        if let Some(end) = self.flush(self.cache.counting())? {
                            return Ok(Some(end));
                        }
                        return self.resume(tid);
                    }
                    // The thread is let go from its stop.
                    Err(refusal) => return Ok(Some(CloneEnd::LetGo(refusal))),
                };
                match place {
                    Some(place) => original.rip = place.0,
                    None => self.outside(&mut original),
                }
                ptrace::set_registers(tid, &original).map_err(self.failed(tid))?;
                trace::proceed(tid, 0).map_err(self.failed(tid))?;
                self.runs(tid);
                return Ok(None);
            }
            self.outside(&mut original);
            ptrace::set_registers(tid, &original).map_err(self.failed(tid))?;
            self.stepped += 1;
            return self.step(tid, &original);
        }
        let info = trace::signal_info(tid).map_err(self.failed(tid))?;
        if self.is_entry(at, &info) {
            return self.called(tid, &registers);
        }
        let is_step = is_step(&info);
        if !is_step {
            return self.deliver(tid, libc::SIGTRAP);
        }
        self.unblock_trap(tid).map_err(self.failed(tid))?;
        let state = self.threads.get_mut(&tid);
        if let Some(spans) = state.and_then(|state| state.watched.take())
            && let Some(end) = self.code_may_have_changed(tid, spans)?
        {
            return Ok(Some(end));
        }
        self.resume(tid)
    }

    /// Executes one original instruction.
    fn step(&mut self, tid: Tid, registers: &Registers) -> Result<Outcome> {
        let mut bytes = [0; 2];
        let read = self.memory.read_exact_at(&mut bytes, registers.rip);
        if read.is_ok() && bytes == SYSCALL {
            if let Some(end) = self.end_reads_before(registers)? {
                return Ok(Some(end));
            }
            if let Some(spans) = self.changes_code(registers) {
                if let Some(end) = self.drop_changing(&spans)? {
                    return Ok(Some(end));
                }
                if let Some(state) = self.threads.get_mut(&tid) {
                    state.watched = Some(spans);
                }
            }
        }
        self.pass_breakpoint(tid, registers)?;
        trace::step(tid, 0).map_err(self.failed(tid))?;
        self.runs(tid);
        Ok(None)
    }

    /// Lets all threads continue in the original code, traced no more.
    pub(super) fn let_go(&mut self) -> Result<()> {
        self.stop_all()?;
        self.stop_watching()?;
        let all: Vec<Tid> = self.threads.keys().copied().collect();
        let queue = std::mem::take(&mut self.queue);
        for tid in all {
            let mut signal = 0;
            for (of, change) in &queue {
                if let (true, Change::Signal(one)) = (*of == tid, change) {
                    let registers = ptrace::registers(tid).map_err(self.failed(tid))?;
                    let at_stop = self.cache.stop(Addr(registers.rip)).is_some();
                    let info = trace::signal_info(tid).map_err(self.failed(tid))?;
                    let stepped = *one == libc::SIGTRAP && is_step(&info);
                    // The original instruction faults again.
                    let faulted = is_fault(*one, &info) && self.cache.contains(Addr(registers.rip));
                    if !(at_stop || stepped || faulted) {
                        signal = *one;
                    }
                }
            }
            let left = self.leave_cache(tid);
            self.set_breakpoints(tid, false)?;
            let ended = match left {
                Ok(()) => trace::detach(tid, signal).is_err_and(|error| !ptrace::is_gone(&error)),
                Err(_) if self.is_gone(tid) => false,
                Err(error) => return Err(error),
            };
            if ended {
                return Err(refused(
                    self.pid,
                    format!("its thread {tid} cannot be let go"),
                ));
            }
        }
        self.threads.clear();
        self.release_guests()
    }

    /// Returns whether the process has not ended.
    pub(super) fn is_alive(&self) -> bool {
        // `1234 (name) Z …`: a name may have parentheses.
        let stat = text(self.pid, "stat").unwrap_or_default();
        let state = stat
            .rsplit_once(')')
            .map_or("", |(_, after)| after.trim_start());
        !state.is_empty() && !state.starts_with(['Z', 'X'])
    }
}

/// Returns whether a SIGTRAP ends a step: of an instruction, of a system call, or to the first instruction of a handler
/// (`user_single_step_report` and `signal_setup_done` of Linux).
fn is_step(info: &SignalInfo) -> bool {
    matches!(
        info.si_code,
        libc::TRAP_TRACE | libc::TRAP_BRKPT | libc::SIGTRAP
    )
}
