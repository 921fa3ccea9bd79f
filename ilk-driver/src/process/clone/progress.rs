//! The course of an execution in the cache, which several threads follow, and the news of it.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use gilk_engine::Addr;
use gilk_samples::metadata::Clock;

use super::block_counters::BlockCounters;
use super::instrument_words::CacheWords;
use crate::agent::{StartMoment, tsc_hz};
use crate::process::launched::HeldProcess;
use crate::{Error, Result};

/// Interval at which Ctrl-C and the end are polled.
pub(super) const POLLED: Duration = Duration::from_millis(20);

/// News of an execution in the cache.
#[derive(Debug)]
pub enum CloneNews<'n> {
    /// The threads are in the cache.
    Begun,
    /// The recording up to now is in this file.
    Recorded(&'n Path),
    /// It cannot be written, nor will it be.
    NotRecorded(&'n Error),
    /// A child that is to be in a cache of its own, or the reason why one is not.
    Child(Result<HeldProcess>),
}

/// The course of an execution, which several threads follow.
pub(super) struct Progress {
    /// The thread that waits for its begin and its end.
    waiter: Thread,
    /// The process is to be let go.
    pub(super) leave: AtomicBool,
    /// The agent has ended.
    pub(super) done: AtomicBool,
    /// A started program may execute.
    ready: AtomicBool,
    /// The agent's thread.
    pub(super) thread: AtomicU64,
    pub(super) counters: OnceLock<BlockCounters>,
    /// The words of instruments.
    pub(super) words: OnceLock<CacheWords>,
    pub(super) begin: OnceLock<ExecutionBegin>,
}

/// The begin of an execution, when the threads are in the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecutionBegin {
    /// The number of the file of the program.
    pub(super) program: u64,
    /// An address in the tables of the cache, which is not mapped after the execution.
    pub(super) tables: Addr,
    pub(super) at: StartMoment,
}

impl ExecutionBegin {
    /// The clock of recordings. The rate is measured while the process executes.
    pub(super) fn clock(&self) -> Clock {
        Clock::from(self.at.started(tsc_hz()))
    }
}

impl Progress {
    /// The course of an execution for which this thread waits.
    pub(super) fn of_this_thread() -> Self {
        Self {
            waiter: std::thread::current(),
            leave: AtomicBool::default(),
            done: AtomicBool::default(),
            ready: AtomicBool::default(),
            thread: AtomicU64::default(),
            counters: OnceLock::default(),
            words: OnceLock::default(),
            begin: OnceLock::default(),
        }
    }

    /// Returns whether a started program may execute.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Has the waiting thread release a started program.
    pub(super) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
        self.waiter.unpark();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Has the agent let the process go.
    pub(super) fn leave(&self) {
        self.leave.store(true, Ordering::Release);
        let thread = self.thread.load(Ordering::Acquire);
        if thread != 0 {
            // SAFETY: the thread is joined by the caller.
            #[allow(unsafe_code, reason = "pthread_kill(3)")]
            let _ended = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        }
    }
}

/// Has all see the end of the agent's thread when it is dropped, by a panic too.
pub(super) struct Ended<'p>(pub(super) &'p Progress);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Release);
        self.0.waiter.unpark();
    }
}

/// Begins the words about a child that is not in a cache of its own, before the reason.
pub const CHILD_LEFT: &str = "A child is not in the cache: ";
/// Words between the name of a process that is not in the cache in its next program, and the reason.
pub const OUTSIDE: &str = " continues outside of the cache: ";

/// Returns the words that announce a recording up to now.
#[must_use]
pub fn recorded_so_far(path: &Path) -> String {
    format!("The recording up to now is {}.", path.display())
}

/// Returns the words that announce that the threads of a process are in the cache.
#[must_use]
pub fn ready(pid: u32) -> String {
    format!("The cache of process {pid} is ready.")
}
