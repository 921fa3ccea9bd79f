//! A process that executes in a code cache (`engine::cache`): its threads execute translated code, and its original
//! code is only read.

mod access_file;
mod accesses;
mod agent;
mod apart;
mod block_counters;
mod cache;
mod changing;
mod chunk_file;
mod code;
mod condition;
mod drained;
mod earlier;
mod files;
mod fragments;
mod instrument_words;
mod instruments;
mod later;
mod live;
mod live_instruments;
mod moments;
mod owner;
mod passed;
mod progress;
mod recording;
mod report;
mod trace;
mod trigger;
mod writes;

use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gilk_engine::cache::Counting;
use gilk_engine::{Addr, Span};
use gilk_samples::cache_numbers::CacheNumbers;

use self::agent::{CacheAgent, ChildrenHeld};
use self::cache::ProcessCache;
use self::code::ProcessCode;
use self::condition::Condition;
use self::drained::{DRAINED, Draining};
use self::earlier::EarlierBlocks;
use self::instrument_words::CacheWords;
use self::later::LaterObjects;
use self::live::{LiveBlocks, LiveFile, LiveMeasured};
use self::live_instruments::LiveRequest;
use self::moments::CountedMoments;
use self::progress::{Ended, ExecutionBegin, POLLED, Progress};
use self::recording::CacheRecorder;
use self::trigger::{BREAKPOINTS, Trigger};
use super::code_lines::CodeLines;
use super::executions::Exec;
use super::launched::{HeldProcess, StoppedProgram};
use super::names::{self, ProcessNames};
use super::objects::{objects, program_name};
use super::ptrace::Tid;
use super::remote::Remote;
use super::removal::{memory, unmap};
use super::stopped::{self, ATTEMPTS, BETWEEN, Stopped, traced};
use super::{Recorder, maps, proc, refused, text};
use crate::agent::StartMoment;
use crate::{Result, interrupt};

pub use access_file::AccessOptions;
pub use agent::CloneEnd;
pub use apart::AgentProcess;
pub use block_counters::DynamicBlock;
pub use condition::check as check_condition;
pub use instruments::CloneInstruments;
pub use later::{CachePlanner, LaterInstruments};
pub use live::{pause as live_pause, replace as replace_live};
pub use live_instruments::{LiveDescription, LiveInstruments};
pub use progress::{CHILD_LEFT, CloneNews, OUTSIDE, ready, recorded_so_far};
pub use recording::{CacheRecording, ReadImages};
pub use report::{CloneReport, blocks_path};

/// The threads that execute in the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CloneThreads {
    /// All of them.
    #[default]
    All,
    /// One, by its number; all others execute the original code.
    One(u32),
    /// Each while it executes a function: it enters the cache where it calls the function, and leaves it as the call
    /// returns.
    While {
        /// `name` of the program, or `libc.so.6:name` of a library.
        function: String,
        /// A condition of the language of instruments at the function's entry, without which a call is not chosen.
        condition: Option<String>,
    },
}

/// Choices of an execution in the cache.
#[derive(Clone, Debug, Default)]
pub struct CloneOptions {
    /// Count the executions of every block.
    pub count: bool,
    /// Read the counters in the course of the execution, so that its recording has them over time.
    pub over_time: bool,
    /// Write the recording up to now to this file about each second: the executions of blocks if these are counted, and the
    /// counts and totals of instruments that run. It is removed at the end.
    pub live: Option<PathBuf>,
    /// Leave that file at the end.
    pub live_stays: bool,
    /// Let the process go after this time.
    pub length: Option<Duration>,
    /// The threads that execute in the cache.
    pub threads: CloneThreads,
    /// The way of a process that executes another program: it is left there, or held at its entry.
    pub exec: Exec,
    /// Hold each child that the process forks, and report it by [`CloneNews::Child`], in the place of leaving it to its
    /// original code; with [`Exec::Follows`] also those that share the memory of the process until they execute a program.
    pub children: bool,
    /// Record the accesses of memory of every block, in the place of its executions.
    pub accesses: Option<AccessOptions>,
}

/// Instruments for an execution in the cache.
pub struct CacheInstrumentation<'r> {
    /// Those of the objects that the process has mapped.
    pub instruments: CloneInstruments,
    /// Those of objects that it loads later, if the session names any.
    pub later: Option<LaterInstruments<'r>>,
    /// Takes what they deliver.
    pub recorder: &'r mut Recorder,
    /// Describes their counts and totals up to now for [`CloneOptions::live`].
    pub live: LiveInstruments<'r>,
}

/// Executes a process in a code cache until it ends, a signal to this process requests the end, or a rule lets the
/// process go. A program that is stopped at its entry is released once its thread is in the cache. Instruments run in the
/// blocks of the cache, and a recorder takes what they deliver.
///
/// # Errors
/// [`crate::Error::Process`] if it may not be traced, or has code that a rule refuses; nothing was written then.
pub fn execute_in_cache(
    pid: u32,
    held: Option<&mut dyn StoppedProgram>,
    options: &CloneOptions,
    instrumentation: Option<CacheInstrumentation<'_>>,
    news: &(dyn Fn(CloneNews<'_>) + Sync),
) -> Result<CloneReport> {
    crate::processor::check()?;
    let progress = Progress::of_this_thread();
    let moments = Mutex::new(CountedMoments::new());
    let (mut draining, mut live) = (None, None);
    let request = LiveRequest::default();
    let instruments = instrumentation.map(|all| {
        draining = Some(Draining::new(all.recorder, (all.live.plan, &request)));
        live = Some(all.live);
        (all.instruments, all.later)
    });
    let live = live.as_ref();
    wake_by_signal();
    std::thread::scope(|scope| {
        let work = || {
            // SAFETY: pthread_self has no arguments.
            #[allow(unsafe_code, reason = "pthread_self(3)")]
            let thread = unsafe { libc::pthread_self() };
            progress.thread.store(thread, Ordering::Release);
            let _ended = Ended(&progress);
            execute(pid, (options, instruments), &progress, news)
        };
        let worker = scope.spawn(work);
        let (progress, moments, request) = (&progress, &moments, &request);
        let keeper = options.live.as_ref().map(|path| {
            let kept = LiveFile {
                path,
                stays: options.live_stays,
            };
            let counts = options.count || live.is_none();
            let measured = LiveMeasured {
                blocks: counts.then(|| LiveBlocks::new(pid, progress, moments)),
                instruments: live.map(|live| (live, request)),
            };
            scope.spawn(move || measured.keep(&kept, progress, news))
        });
        let mut held = held;
        let begun = std::time::Instant::now();
        let mut released = Ok(());
        let mut drained = Ok(());
        while !progress.has_ended() {
            if progress.is_ready()
                && let Some(program) = held.take()
            {
                released = program.release();
            }
            let over = options
                .length
                .is_some_and(|length| begun.elapsed() >= length);
            if let (Some(draining), Some(words), Ok(())) =
                (&mut draining, progress.words.get(), &drained)
            {
                drained = draining.poll(words);
            }
            if interrupt::arrived() || over || released.is_err() || drained.is_err() {
                progress.leave();
            }
            if let (true, Some(counters)) = (options.over_time, progress.counters.get()) {
                let mut moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
                moments.poll(counters);
            }
            // A process that is ready, or has ended, ends the wait.
            std::thread::park_timeout(draining.as_ref().map_or(POLLED, |_| DRAINED));
        }
        let report = worker.join();
        released?;
        drained?;
        // The end may have come before this thread has noticed that the program is ready.
        if let (Ok(Ok(_)), Some(program)) = (&report, held.take()) {
            program.release()?;
        }
        let mut report = report.unwrap_or_else(|_| {
            Err(refused(pid, "the agent has failed, which is a bug in gilk"))
        })?;
        if let (Some(draining), Some(words)) = (draining, progress.words.get()) {
            (report.counts, report.parts) = draining.end(words)?;
        }
        // It locks the moments until it ends.
        let recorder =
            keeper.map(|keeper| keeper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        if let Some(Some(recorder)) = recorder {
            report.recorder = recorder;
        }
        let moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.kept().clone_into(&mut report.moments);
        Ok(report)
    })
}

/// Has SIGUSR1 interrupt a wait.
fn wake_by_signal() {
    extern "C" fn ignore(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = ignore;
    // SAFETY: an all-zero sigaction is a valid one: an empty mask and no flags.
    #[allow(unsafe_code, reason = "sigaction(2)")]
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    #[allow(unsafe_code, reason = "sigaction(2)")]
    let _known_signal =
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
}

/// Refuses a process that cannot execute in a cache.
fn check(pid: u32) -> Result<()> {
    let status = text(pid, "status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("", str::trim)
    };
    if field("VmSize:").is_empty() {
        return Err(refused(pid, "it has ended, or is a thread of the kernel"));
    }
    if field("Seccomp:") != "0" {
        let why = "its system calls are filtered (seccomp), and those that map the cache may be forbidden to it";
        return Err(refused(pid, why));
    }
    if field("x86_Thread_features:").contains("shstk") {
        let why = "its return addresses are compared with a shadow stack, and calls are translated to pushes (rule \
                   shadow-stack)";
        return Err(refused(pid, why));
    }
    Ok(())
}

/// Returns the number of the file of a process's program.
fn program(pid: u32) -> Result<u64> {
    let program = std::fs::metadata(proc(pid, "exe"));
    let program =
        program.map_err(|error| refused(pid, format!("its program cannot be read ({error})")))?;
    Ok(program.ino())
}

/// Finds the threads or the function that are chosen.
fn trigger(pid: u32, threads: &CloneThreads) -> Result<Trigger> {
    let (text, condition) = match threads {
        CloneThreads::All => return Ok(Trigger::Always),
        CloneThreads::One(thread) => {
            let tid = Tid::try_from(*thread).unwrap_or(Tid::MAX);
            return match stopped::threads(pid)?.contains(&tid) {
                true => Ok(Trigger::Thread(tid)),
                false => Err(refused(pid, format!("it has no thread {thread}"))),
            };
        }
        CloneThreads::While {
            function,
            condition,
        } => (function, condition),
    };
    let (object, name) = match text.split_once(':') {
        Some((object, name)) => (Some(object), name),
        None => (None, text.as_str()),
    };
    let entries: Vec<Addr> = names::entries(pid, object, name)?.into_iter().collect();
    let of = object.unwrap_or("its program");
    match entries.len() {
        0 => {
            let written = match object {
                None => names::in_libraries(pid, name),
                Some(_) => None,
            };
            let hint = match written {
                None => "write those of libraries as libc.so.6:malloc, and attach with -p once a library is loaded".to_owned(),
                Some(written) => format!("a library has it: write {written}"),
            };
            Err(refused(
                pid,
                format!("{of} has no function {name:?} now; {hint}"),
            ))
        }
        1..=BREAKPOINTS => {
            let condition = condition.as_deref();
            let condition = condition.map(|condition| Condition::read(pid, text, condition));
            Ok(Trigger::Function(entries, condition.transpose()?))
        }
        many => Err(refused(
            pid,
            format!(
                "{of} has {many} functions {name:?}, and a processor has {BREAKPOINTS} breakpoints"
            ),
        )),
    }
}

fn execute(
    pid: u32,
    (options, instruments): (
        &CloneOptions,
        Option<(CloneInstruments, Option<LaterInstruments<'_>>)>,
    ),
    progress: &Progress,
    news: &(dyn Fn(CloneNews<'_>) + Sync),
) -> Result<CloneReport> {
    check(pid)?;
    let trigger = trigger(pid, &options.threads)?;
    let counting = match (options.count, &options.accesses) {
        (_, Some(_)) => Counting::Accesses,
        (true, None) => Counting::OneThread,
        (false, None) => Counting::Off,
    };
    let (instruments, later) = instruments.unzip();
    let later = later.flatten();
    let later = later.map(|later| LaterObjects::new(pid, later));
    let later = later.transpose()?;
    let next = instruments.as_ref().map(|all| all.next);
    let memory = memory(pid)?;
    let mut code = ProcessCode::new(pid);
    let mut cache = {
        let stopped = Stopped::stop(pid)?;
        code.refresh(&memory)?;
        if let Some(refusal) = code.refusal() {
            return Err(refused(
                pid,
                format!("it cannot execute in the code cache: {refusal}"),
            ));
        }
        let mut instruments = instruments;
        if let Some(instruments) = &mut instruments {
            // Some may be unloaded since they were read.
            let now = objects(pid)?;
            instruments.forget(|object| !now.iter().any(|one| one.has(object)));
        }
        let again = self::memory(pid)?;
        let what = (counting, options.accesses.as_ref(), instruments);
        let (cache, words) = ProcessCache::map(pid, &stopped, again, &code, what)?;
        if let (Some(words), Some(next)) = (words, next) {
            progress.words.get_or_init(|| CacheWords::new(words, next));
        }
        cache
    };
    let mut unkept = None;
    let file = earlier::file_of(pid, options.accesses.is_some());
    if let Some(path) = &file {
        match EarlierBlocks::read(path) {
            Ok(blocks) => cache.earlier = blocks,
            Err(error) => unkept = Some(format!("{} cannot be read: {error}", path.display())),
        }
    }
    progress.counters.get_or_init(|| cache.counters.clone());
    let before = cache.earlier.clone();
    let owned = owner::own(&cache)?;
    let (program, name, tables) = (program(pid)?, program_name(pid)?, cache.tables());
    let words = progress.words.get().cloned();
    let child = |child| news(CloneNews::Child(child));
    let children = options.children.then_some(ChildrenHeld {
        child: &child,
        exec: options.exec,
    });
    let mut agent = CacheAgent::new(
        pid,
        memory,
        code,
        cache,
        (trigger, &progress.leave),
        (later, words, children),
    );
    let mut began = StartMoment::now();
    let begin = |at| ExecutionBegin {
        program,
        tables,
        at,
    };
    let end = (|| {
        if let Some(end) = agent.take_over()? {
            return Ok(end);
        }
        began = StartMoment::now();
        progress.begin.get_or_init(|| begin(began));
        news(CloneNews::Begun);
        progress.set_ready();
        agent.work()
    })();
    let ended = super::tsc();
    progress.set_ready();
    let is_inside = !matches!(end, Ok(CloneEnd::Ended(_) | CloneEnd::Executed));
    let released = match is_inside {
        true => agent.let_go(),
        false => agent.stop_guests().and_then(|()| agent.release_guests()),
    };
    drop(owned);
    let spans = agent.cache().spans();
    if is_inside && released.is_ok() {
        let mut removed = remove(pid, &spans);
        // It may end meanwhile, and has no memory for a moment before `/proc` shows its end.
        for _ in 0..ATTEMPTS {
            if removed.is_ok() || !agent.is_alive() {
                break;
            }
            std::thread::sleep(BETWEEN);
            removed = remove(pid, &spans);
        }
        if agent.is_alive() {
            removed?;
        }
    }
    let end = end?;
    released?;
    agent.keep_blocks();
    let mut names = ProcessNames::default();
    names.keep(pid, agent.code().seen());
    names.keep_registered(pid, agent.take_registered());
    let not_instrumented = agent.take_notes();
    let accesses = agent.end_accesses(|at| names.known(pid, at))?;
    let is_followed = matches!(end, CloneEnd::Executed) && options.exec == Exec::Follows;
    let next = is_followed.then(|| HeldProcess::at_entry(pid));
    let cache = agent.cache();
    if let Some(path) = &file
        && cache.earlier != before
        && let Err(error) = cache.earlier.write(path)
    {
        unkept = Some(format!("{} cannot be written: {error}", path.display()));
    }
    let is_conditional = matches!(
        options.threads,
        CloneThreads::While {
            condition: Some(_),
            ..
        }
    );
    let blocks = cache.counters.all();
    let reads_ended = cache.reads_ended;
    Ok(CloneReport {
        pid,
        program: name,
        end,
        next,
        numbers: CacheNumbers {
            blocks: cache.numbers.blocks,
            translations: cache.numbers.translations,
            translating_ns: u64::try_from(agent.translating.as_nanos()).unwrap_or(u64::MAX),
            bytes: cache.numbers.bytes,
            missed: agent.missed,
            stepped: agent.stepped,
            signals: agent.signals,
            flushes: cache.numbers.flushes,
            writes: cache.writes.as_ref().map_or(0, |writes| writes.total),
            dropped: cache.dropped(),
            calls: matches!(options.threads, CloneThreads::While { .. }).then_some(agent.calls),
            other_calls: is_conditional.then_some(agent.other_calls),
            failed_reads: is_conditional.then_some(agent.failed_reads),
        },
        recorder: CacheRecorder::new(pid, begin(began)),
        ended,
        blocks,
        moments: Vec::new(),
        counts: Vec::new(),
        parts: Vec::new(),
        not_instrumented,
        reads_ended,
        accesses,
        names,
        lines: CodeLines::default(),
        unkept,
    })
}

/// Unmaps the cache of a process none of whose threads is in it. No stack has an address in it: return addresses and
/// the contexts of signals are original.
fn remove(pid: u32, spans: &[Span]) -> Result<()> {
    traced(pid, || {
        let memory = memory(pid)?;
        let stopped = Stopped::stop(pid)?;
        let mapped = maps::read(pid)?;
        // A filter may end the process for a system call of the removal.
        if stopped.unfiltered().is_none() {
            return Ok(());
        }
        let remote = Remote::of(pid, &stopped, &memory, &mapped)?;
        for &span in spans {
            unmap(&remote, span)?;
        }
        Ok(())
    })
}
