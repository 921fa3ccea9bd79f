//! A process with all threads stopped.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gilk_engine::{Addr, Span};

use super::maps::{self, MappedSpan};
use super::places::Places;
use super::ptrace::{self, Registers, Rseq, Tid};
use super::{proc, refused, text};
use crate::{Error, Result};

/// Most bytes of a stack that are searched.
const MOST_STACK: u64 = 64 << 20;

/// Attempts to find a moment in which no thread is where it must not be, a millisecond apart.
pub(super) const ATTEMPTS: usize = 500;
/// The time for which all other threads stay stopped while those execute that are where they must not be.
const TURNS: Duration = Duration::from_millis(5);
/// Time between two attempts.
pub(super) const BETWEEN: Duration = Duration::from_millis(1);

/// A stopped thread.
pub(super) struct Thread {
    pub(super) tid: Tid,
    pub(super) registers: Registers,
    pub(super) rseq: Rseq,
}

/// A process whose threads are all stopped; they continue when this is dropped. A tracer is a thread, so this stays in
/// its own.
pub(super) struct Stopped {
    pid: u32,
    pub(super) threads: Vec<Thread>,
    begun: Instant,
    tracer: PhantomData<*const ()>,
}

/// Executes `work`, which stops processes, in a thread of its own: whatever fails, the kernel lets all threads of the
/// processes continue when that thread ends.
pub(super) fn traced<T: Send>(pid: u32, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|_| Err(refused(pid, "the agent has failed, which is a bug in gilk")))
}

/// Stops a process in a moment when no thread is in some spans, or will return there.
pub(super) fn quiet(pid: u32, memory: &File, avoided: &[Span]) -> Result<Stopped> {
    let avoided = Places::text(avoided);
    let mut busy = 0;
    for _ in 0..ATTEMPTS {
        match quiet_now(pid, memory, &avoided)? {
            Attempt::Quiet(stopped) => return Ok(stopped),
            Attempt::Busy(tid) => busy = tid,
        }
        std::thread::sleep(BETWEEN);
    }
    Err(refused(
        pid,
        format!("its thread {busy} stays among instructions that would be displaced; try again"),
    ))
}

/// Returns the right to stop a process that another thread of this program may stop, too: a forked child that waits, and
/// has its parent's words.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attempt to find a moment in which no thread is in some spans.
pub(super) enum Attempt {
    /// No thread is there.
    Quiet(Stopped),
    /// This one stays there.
    Busy(Tid),
}

/// Stops a process, and lets the threads that are in some places, or will return there, leave them within a few
/// milliseconds.
pub(super) fn quiet_now(pid: u32, memory: &File, avoided: &Places) -> Result<Attempt> {
    let mut stopped = Stopped::stop(pid)?;
    loop {
        let inside = stopped.inside(memory, avoided)?;
        let Some(&first) = inside.first() else {
            return Ok(Attempt::Quiet(stopped));
        };
        if stopped.duration() >= TURNS {
            return Ok(Attempt::Busy(first));
        }
        // Only the threads that are there execute meanwhile. They may wait for others.
        stopped.turn(&inside)?;
    }
}

/// Returns the threads of a process.
pub(super) fn threads(pid: u32) -> Result<Vec<Tid>> {
    let gone = |error| match error {
        error if std::io::Error::kind(&error) == std::io::ErrorKind::NotFound => {
            refused(pid, "it has ended")
        }
        error => refused(pid, format!("its threads cannot be listed ({error})")),
    };
    let mut threads = Vec::new();
    for entry in fs::read_dir(proc(pid, "task")).map_err(gone)? {
        let name = entry.map_err(gone)?.file_name();
        let tid: Option<Tid> = name.to_str().and_then(|name| name.parse().ok());
        threads.extend(tid);
    }
    Ok(threads)
}

/// Returns whether the system calls of a thread are filtered (seccomp). One that is gone has no filter.
pub(super) fn is_filtered(pid: u32, tid: Tid) -> bool {
    let status = text(pid, &format!("task/{tid}/status")).unwrap_or_default();
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

/// Returns whether a thread has ended and was not waited for.
fn has_ended(pid: u32, tid: Tid) -> bool {
    // `1234 (name) Z …`: a name may have parentheses.
    let stat = text(pid, &format!("task/{tid}/stat"));
    let state = stat.ok().and_then(|stat| {
        let (_, after) = stat.rsplit_once(')')?;
        after.trim_start().chars().next()
    });
    state.is_none_or(|state| matches!(state, 'Z' | 'X'))
}

/// The reason why a thread may not be traced.
fn not_permitted(pid: u32, error: &std::io::Error) -> Error {
    let status = text(pid, "status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("", str::trim)
    };
    let tracer = field("TracerPid:");
    if !matches!(tracer, "" | "0") {
        return refused(
            pid,
            format!("process {tracer} is tracing it; end that first"),
        );
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let why = match scope.trim() {
        "1" => {
            "the system permits a process to trace its own children only; run ilk as root, or permit it: \
             sudo sysctl kernel.yama.ptrace_scope=0"
        }
        "2" | "3" => "the system permits tracing to root only (kernel.yama.ptrace_scope)",
        _ => {
            "it belongs to another user, or it is not dumpable because it has other privileges than its \
             user (a setuid program); use root's rights"
        }
    };
    refused(pid, format!("tracing is not permitted ({error}): {why}"))
}

impl Stopped {
    /// Stops all threads of a process, those that start meanwhile too.
    pub(super) fn stop(pid: u32) -> Result<Self> {
        let mut stopped = Self {
            pid,
            threads: Vec::new(),
            begun: Instant::now(),
            tracer: PhantomData,
        };
        stopped.stop_all()?;
        if stopped.threads.is_empty() {
            return Err(refused(pid, "it has ended"));
        }
        Ok(stopped)
    }

    /// The number of the process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Stops the threads that are not stopped.
    fn stop_all(&mut self) -> Result<()> {
        let pid = self.pid;
        let mut seen: BTreeSet<Tid> = self.threads.iter().map(|thread| thread.tid).collect();
        loop {
            let mut new = Vec::new();
            for tid in threads(pid)? {
                if seen.contains(&tid) {
                    continue;
                }
                match ptrace::seize(tid).and_then(|()| ptrace::interrupt(tid)) {
                    Ok(()) => {
                        seen.insert(tid);
                        new.push(tid);
                    }
                    Err(error) if ptrace::is_gone(&error) || has_ended(pid, tid) => {}
                    Err(error) => return Err(not_permitted(pid, &error)),
                }
            }
            if new.is_empty() {
                return Ok(());
            }
            for tid in new {
                self.add(tid)?;
            }
        }
    }

    /// Lets some threads execute for a moment, then stops them, and those that they have started.
    fn turn(&mut self, tids: &[Tid]) -> Result<()> {
        let (turning, stopped) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|thread| tids.contains(&thread.tid));
        self.threads = stopped;
        let turning: Vec<Thread> = turning;
        for thread in &turning {
            let turned =
                ptrace::proceed_traced(thread.tid).and_then(|()| ptrace::interrupt(thread.tid));
            match turned {
                Ok(()) => {}
                Err(error) if ptrace::is_gone(&error) => continue,
                Err(error) => return Err(not_permitted(self.pid, &error)),
            }
            self.add(thread.tid)?;
        }
        self.stop_all()
    }

    fn add(&mut self, tid: Tid) -> Result<()> {
        let read = || {
            if !ptrace::wait_stopped(tid)? {
                return Ok(None);
            }
            Ok(Some(Thread {
                tid,
                registers: ptrace::registers(tid)?,
                rseq: ptrace::rseq(tid)?,
            }))
        };
        match read() {
            Ok(thread) => {
                self.threads.extend(thread);
                Ok(())
            }
            Err(error) if ptrace::is_gone(&error) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(refused(
                self.pid,
                format!(
                    "its thread {tid} does not stop: it waits in the kernel, such as for a child of vfork; try \
                     again"
                ),
            )),
            Err(error) => Err(refused(
                self.pid,
                format!(
                    "its thread {tid} cannot be traced ({error}); Linux 5.13 is needed at least"
                ),
            )),
        }
    }

    /// The first thread whose system calls are not filtered.
    pub(super) fn unfiltered(&self) -> Option<&Thread> {
        let mut threads = self.threads.iter();
        threads.find(|thread| !is_filtered(self.pid, thread.tid))
    }

    /// The time since the first thread was stopped.
    pub(super) fn duration(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the threads that execute in some places, or will return there from a handler of a signal. Nearly
    /// [everything on the stacks](Places::are_on_stack) counts, so a thread may be found that will not.
    pub(super) fn inside(&self, memory: &File, places: &Places) -> Result<Vec<Tid>> {
        let mut inside = Vec::new();
        if places.is_empty() {
            return Ok(inside);
        }
        let maps = maps::read(self.pid)?;
        for thread in &self.threads {
            let executes = places.contain(thread.registers.rip);
            if executes || self.returns(memory, &maps, thread, places)? {
                inside.push(thread.tid);
            }
        }
        Ok(inside)
    }

    /// Returns whether a thread may return to some places.
    fn returns(
        &self,
        memory: &File,
        maps: &[MappedSpan],
        thread: &Thread,
        places: &Places,
    ) -> Result<bool> {
        let top = thread.registers.rsp & !7;
        let stack = maps.iter().find(|one| one.span.contains(Addr(top)));
        // Without a stack there are no handlers of signals.
        let Some(stack) = stack else {
            return Ok(false);
        };
        let length = stack.span.end.0 - top;
        if length > MOST_STACK {
            return Ok(true);
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        memory.read_exact_at(&mut bytes, top).map_err(|error| {
            let tid = thread.tid;
            refused(
                self.pid,
                format!("the stack of its thread {tid} cannot be read ({error})"),
            )
        })?;
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Ok(places.are_on_stack(memory, &words))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for thread in &self.threads {
            // It may have been killed.
            let _ended = ptrace::detach(thread.tid);
        }
    }
}
