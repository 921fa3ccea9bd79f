//! Requests of ptrace(2) for threads that stay traced.

use std::io;

use super::super::ptrace::{PendingChange, Tid, blocked, pending, request, taken};

/// `struct siginfo_t`, as ptrace copies it.
pub(super) type SignalInfo = libc::siginfo_t;

/// A stop or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It has ended, with this status of `waitpid`.
    Ended(i32),
    /// It stopped by an event of ptrace: its number, and the signal of a group stop.
    Event(i32, i32),
    /// It stopped before a signal is delivered.
    Signal(i32),
}

impl Change {
    fn of(status: i32) -> Self {
        if !libc::WIFSTOPPED(status) {
            return Self::Ended(status);
        }
        match status >> 16 {
            0 => Self::Signal(libc::WSTOPSIG(status)),
            event => Self::Event(event, libc::WSTOPSIG(status)),
        }
    }
}

/// Event of a stop by `PTRACE_INTERRUPT`, of a new thread, and of a group.
pub(super) const EVENT_STOP: i32 = 128;

/// Events of a thread that are traced.
const TRACED: i32 = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD;

/// Has a stopped thread, and those that it begins, stop before they end.
pub(super) fn stop_at_end(tid: Tid) -> io::Result<()> {
    let options = number(TRACED | libc::PTRACE_O_TRACEEXIT);
    request(libc::PTRACE_SETOPTIONS, tid, 0, options)
}

/// Returns whether a change is a stop of a thread that has begun a thread or a process.
pub(super) fn is_begin(change: Change) -> bool {
    let begins = [
        libc::PTRACE_EVENT_CLONE,
        libc::PTRACE_EVENT_FORK,
        libc::PTRACE_EVENT_VFORK,
    ];
    matches!(change, Change::Event(event, _) if begins.contains(&event))
}

/// Returns the task that a thread has begun, if it has stopped since it [has](is_begin).
pub(super) fn begun(tid: Tid) -> io::Result<Tid> {
    let mut begun: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, (&raw mut begun).addr())?;
    Tid::try_from(begun).map_err(io::Error::other)
}

/// Attaches to a thread, and to the threads and processes that it begins.
pub(super) fn seize(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, number(TRACED))
}

/// Has the kernel end a stopped thread's process, and those that it begins, if this process ends before it detaches.
/// `exits` is true if they stop before they end, too.
pub(super) fn end_with_tracer(tid: Tid, exits: bool) -> io::Result<()> {
    let options =
        number(TRACED | if exits { libc::PTRACE_O_TRACEEXIT } else { 0 } | libc::PTRACE_O_EXITKILL);
    request(libc::PTRACE_SETOPTIONS, tid, 0, options)
}

/// Lets a stopped thread execute, and delivers a signal, or none.
pub(super) fn proceed(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, number(signal))
}

/// Lets a stopped thread execute one instruction, or stop at the first instruction of a signal's handler.
pub(super) fn step(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, number(signal))
}

/// Leaves a thread stopped with its group.
pub(super) fn listen(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Detaches from a stopped thread, and delivers a signal, or none.
pub(super) fn detach(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, number(signal))
}

fn number(signal: i32) -> usize {
    usize::try_from(signal).unwrap_or_default()
}

/// Reads the signal that a thread is stopped for.
pub(super) fn signal_info(tid: Tid) -> io::Result<SignalInfo> {
    // SAFETY: a structure of integers is valid if all are 0.
    #[allow(unsafe_code, reason = "mem::zeroed")]
    let mut info: SignalInfo = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, (&raw mut info).addr())?;
    Ok(info)
}

/// Sets the signal that a thread is stopped for.
pub(super) fn set_signal_info(tid: Tid, info: &SignalInfo) -> io::Result<()> {
    request(
        libc::PTRACE_SETSIGINFO,
        tid,
        0,
        std::ptr::from_ref(info).addr(),
    )
}

/// Returns whether two tasks have the same memory.
pub(super) fn shares_memory(one: Tid, other: Tid) -> io::Result<bool> {
    /// `KCMP_VM` of include/uapi/linux/kcmp.h.
    const MEMORY: libc::c_long = 1;
    // SAFETY: kcmp takes numbers.
    #[allow(unsafe_code, reason = "kcmp(2)")]
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, MEMORY, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

/// Waits for a change of a thread. Its end is seen by [`wait_any`] again.
pub(super) fn wait_for(tid: Tid) -> io::Result<Change> {
    loop {
        match pending(tid, 0) {
            Ok(Some(PendingChange::End(status))) => return Ok(Change::Ended(status)),
            Ok(_) => {
                if let Some(status) = taken(tid)? {
                    return Ok(Change::of(status));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether the kernel has sent a signal because of the instruction that the thread is at.
pub(super) fn is_fault(signal: i32, info: &SignalInfo) -> bool {
    let by_instruction = matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP
    );
    by_instruction && info.si_code > 0
}

/// Waits for a change of a thread that was interrupted. A fault or a trap that it has reached is reported in place of the
/// interruption, which would leave it pending: for a process that is let go, that of a watched page, or of an `int3` of
/// the cache, would be its end.
pub(super) fn wait_interrupted(tid: Tid) -> io::Result<Change> {
    match wait_for(tid)? {
        Change::Event(EVENT_STOP, libc::SIGTRAP) if has_pending_fault(tid)? => {
            proceed(tid, 0)?;
            wait_for(tid)
        }
        change => Ok(change),
    }
}

/// Returns whether a stopped thread has a signal of its last instruction that was not reported yet: the next that it stops
/// for.
fn has_pending_fault(tid: Tid) -> io::Result<bool> {
    /// `PTRACE_PEEKSIGINFO` of include/uapi/linux/ptrace.h.
    const PEEKSIGINFO: libc::c_uint = 0x4209;
    /// `struct ptrace_peeksiginfo_args`.
    #[repr(C)]
    struct Peeked {
        first: u64,
        flags: u32,
        count: i32,
    }
    let blocked = blocked(tid)?;
    let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 != 0;
    let mut first = 0;
    loop {
        let peeked = Peeked {
            first,
            flags: 0,
            count: 1,
        };
        // SAFETY: a structure of integers is valid if all are 0.
        #[allow(unsafe_code, reason = "mem::zeroed")]
        let mut info: SignalInfo = unsafe { std::mem::zeroed() };
        // SAFETY: one signal is written to a local.
        #[allow(unsafe_code, reason = "ptrace(2)")]
        let found = unsafe { libc::ptrace(PEEKSIGINFO, tid, &raw const peeked, &raw mut info) };
        match found {
            -1 => return Err(io::Error::last_os_error()),
            0 => return Ok(false),
            // The kernel unblocks what an instruction causes. The thread may have sent itself a blocked one.
            _ if is_fault(info.si_signo, &info) && !is_blocked(info.si_signo) => return Ok(true),
            _ => first += 1,
        }
    }
}

/// Waits for a change of any thread that this one traces; `None` if a signal of this process arrives before.
pub(super) fn wait_any() -> io::Result<Option<(Tid, Change)>> {
    let mut status = 0;
    // SAFETY: the status is written to a local.
    #[allow(unsafe_code, reason = "waitpid(2)")]
    let waited = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    match waited {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
        waited => Ok(Some((waited, Change::of(status)))),
    }
}
