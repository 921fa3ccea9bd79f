//! ptrace(2), a function per request.

use std::io;
use std::time::{Duration, Instant};

/// Bit of a status of `waitpid`: a stop that `PTRACE_INTERRUPT` has caused.
const EVENT_STOP: i32 = 128;
/// Signal of a stop at a system call, by `PTRACE_O_TRACESYSGOOD`.
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// Bits of a status of `waitpid`: a stop, and an end that has left a core file.
const STOPPED: i32 = 0x7f;
const DUMPED: i32 = 0x80;
/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK` of include/uapi/linux/ptrace.h.
const GETSIGMASK: libc::c_uint = 0x420a;
const SETSIGMASK: libc::c_uint = 0x420b;
/// `NT_X86_XSTATE` of include/uapi/linux/elf.h.
const X86_XSTATE: usize = 0x202;
/// `PTRACE_GET_RSEQ_CONFIGURATION`, since Linux 5.13.
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// Time after which a thread that does not stop is given up: it waits in the kernel where nothing interrupts it.
const PATIENCE: Duration = Duration::from_secs(3);

/// A thread's number.
pub(super) type Tid = i32;

/// The registers of a stopped thread.
pub(super) type Registers = libc::user_regs_struct;

/// A general register, by its number in instructions.
pub(super) fn numbered(registers: &mut Registers, number: u8) -> Option<&mut u64> {
    Some(match number {
        0 => &mut registers.rax,
        1 => &mut registers.rcx,
        2 => &mut registers.rdx,
        3 => &mut registers.rbx,
        4 => &mut registers.rsp,
        5 => &mut registers.rbp,
        6 => &mut registers.rsi,
        7 => &mut registers.rdi,
        8 => &mut registers.r8,
        9 => &mut registers.r9,
        10 => &mut registers.r10,
        11 => &mut registers.r11,
        12 => &mut registers.r12,
        13 => &mut registers.r13,
        14 => &mut registers.r14,
        15 => &mut registers.r15,
        _ => return None,
    })
}

/// `struct ptrace_rseq_configuration`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rseq {
    /// Address of the thread's area, or 0.
    pub(super) area: u64,
    pub(super) bytes: u32,
    pub(super) signature: u32,
    pub(super) flags: u32,
    pad: u32,
}

/// One request. `data` is passed as it is.
pub(super) fn request(
    number: libc::c_uint,
    tid: Tid,
    address: usize,
    data: usize,
) -> io::Result<()> {
    // SAFETY: the requests that write to this process are given pointers to locals of the sizes that they write.
    #[allow(unsafe_code, reason = "ptrace(2)")]
    let result = unsafe { libc::ptrace(number, tid, address, data) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Attaches to a thread, which continues.
pub(super) fn seize(tid: Tid) -> io::Result<()> {
    let options = usize::try_from(libc::PTRACE_O_TRACESYSGOOD).unwrap_or_default();
    request(libc::PTRACE_SEIZE, tid, 0, options)
}

/// Has this process, a child that will execute a program, traced by its parent: it stops after that.
pub(super) fn trace_me() -> io::Result<()> {
    request(libc::PTRACE_TRACEME, 0, 0, 0)
}

/// Has this process, and what it executes, traced by the descendants of its parent as by its parent where Yama restricts
/// tracers to ancestors (Documentation/admin-guide/LSM/Yama.rst).
pub(super) fn allow_relatives() {
    // SAFETY: prctl takes numbers here; getppid has no arguments.
    #[allow(unsafe_code, reason = "prctl(2), getppid(2)")]
    // The kernel may be without Yama, and restricts none then.
    let _without_yama = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::getppid()) };
}

/// Has the kernel end a stopped thread's process if its tracer ends before it detaches.
pub(super) fn end_with_tracer(tid: Tid) -> io::Result<()> {
    let options = usize::try_from(libc::PTRACE_O_EXITKILL).unwrap_or_default();
    request(libc::PTRACE_SETOPTIONS, tid, 0, options)
}

/// Ends a process.
pub(super) fn kill(tid: Tid) {
    // It may have ended.
    let _ended = send(tid, libc::SIGKILL);
}

/// Waits until a traced child has executed a program.
///
/// # Errors
/// It has ended.
pub(super) fn wait_executed(tid: Tid) -> io::Result<()> {
    let ended = || io::Error::other("it has ended before");
    wait(tid)?.map(drop).ok_or_else(ended)
}

/// Lets a stopped thread execute until a breakpoint, an `int3` before `end`; other signals are delivered.
///
/// # Errors
/// It has ended, or does not come there.
pub(super) fn run_to(tid: Tid, end: u64) -> io::Result<()> {
    let mut delivered = 0;
    loop {
        request(libc::PTRACE_CONT, tid, 0, delivered)?;
        let status = wait(tid)?.ok_or_else(|| io::Error::other("it has ended before"))?;
        let trapped = libc::WSTOPSIG(status) == libc::SIGTRAP;
        if trapped && registers(tid)?.rip == end {
            return Ok(());
        }
        delivered = if status >> 16 == 0 { signal(status) } else { 0 };
    }
}

/// Has a stopped thread of a tracer that attached to it stop for signals alone, and for the stops of its group.
pub(super) fn stop_for_signals_alone(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, 0)
}

/// Detaches from a thread that has stopped for a signal, whose process stays stopped until it is given SIGCONT.
pub(super) fn detach_stopped(tid: Tid) -> io::Result<()> {
    let stop = usize::try_from(libc::SIGSTOP).unwrap_or_default();
    request(libc::PTRACE_DETACH, tid, 0, stop)
}

/// As [`detach_stopped`], of a thread that has not stopped for a signal: the kernel delivers none with the request then.
pub(super) fn detach_to_stop(tid: Tid) -> io::Result<()> {
    send(tid, libc::SIGSTOP)?;
    detach(tid)
}

/// Gives SIGCONT to a process.
pub(super) fn proceed(tid: Tid) -> io::Result<()> {
    send(tid, libc::SIGCONT)
}

/// Gives a signal to a process.
pub(super) fn send(tid: Tid, signal: i32) -> io::Result<()> {
    // SAFETY: kill(2) takes no pointers.
    #[allow(unsafe_code, reason = "kill(2)")]
    match unsafe { libc::kill(tid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Stops an attached thread soon.
pub(super) fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped thread execute; it stays attached.
pub(super) fn proceed_traced(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, 0)
}

/// Detaches from a stopped thread, which continues.
pub(super) fn detach(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, 0)
}

/// Waits until a thread has stopped because it was interrupted; signals that it is given before are delivered. Returns
/// false if the thread has ended.
///
/// # Errors
/// It does not stop.
pub(super) fn wait_stopped(tid: Tid) -> io::Result<bool> {
    loop {
        let Some(status) = wait(tid)? else {
            return Ok(false);
        };
        if status >> 16 == EVENT_STOP {
            return Ok(true);
        }
        // Other events of its own are not requested.
        request(libc::PTRACE_CONT, tid, 0, signal(status))?;
    }
}

/// Executes a system call of a stopped thread, all of whose signals are blocked, to its end. Returns false if the
/// thread has ended. SIGSTOP cannot be blocked: one that arrives meanwhile arrives again after that.
///
/// The thread is not stepped: a step whose tracer is killed meanwhile ends in a SIGTRAP that nothing handles.
pub(super) fn system_call(tid: Tid) -> io::Result<bool> {
    let (mut stops, mut is_stopped) = (0, false);
    // At its start, and at its end.
    while stops < 2 {
        request(libc::PTRACE_SYSCALL, tid, 0, 0)?;
        let Some(status) = wait(tid)? else {
            return Ok(false);
        };
        stops += usize::from(libc::WSTOPSIG(status) == SYSCALL_STOP);
        is_stopped |= status >> 16 == 0 && libc::WSTOPSIG(status) == libc::SIGSTOP;
    }
    if is_stopped {
        send(tid, libc::SIGSTOP)?;
    }
    Ok(true)
}

/// Stops a stopped thread again, before it executes another instruction, where the kernel looks for signals: there it
/// then restarts a system call that the first stop interrupted.
pub(super) fn stop_again(tid: Tid) -> io::Result<bool> {
    interrupt(tid)?;
    request(libc::PTRACE_CONT, tid, 0, 0)?;
    wait_stopped(tid)
}

/// The signal of a stop.
fn signal(status: i32) -> usize {
    usize::try_from(libc::WSTOPSIG(status)).unwrap_or(0)
}

/// A change of a thread that is to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingChange {
    /// It has stopped.
    Stop,
    /// It has ended, with this status of `waitpid`.
    End(i32),
}

/// Returns the next change of a thread, without taking it: the end of a program is its parent's to wait for, which this
/// process may be, too. With the option `WNOHANG` it may be `None`.
///
/// # Errors
/// There is no such thread, or a signal arrived.
pub(super) fn pending(tid: Tid, options: i32) -> io::Result<Option<PendingChange>> {
    let found = waited(
        tid,
        options | libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT,
    )?;
    Ok(found.map(|(code, status)| match code {
        libc::CLD_EXITED => PendingChange::End(status << 8),
        libc::CLD_KILLED => PendingChange::End(status),
        libc::CLD_DUMPED => PendingChange::End(status | DUMPED),
        _ => PendingChange::Stop,
    }))
}

/// Takes a stop that is pending; returns its status of `waitpid`, or `None` if the thread was killed meanwhile.
pub(super) fn taken(tid: Tid) -> io::Result<Option<i32>> {
    let found = waited(tid, libc::WSTOPPED | libc::WNOHANG)?;
    Ok(found.map(|(_, status)| status << 8 | STOPPED))
}

/// Waits for a change of a thread that this one traces, not another one of this process; returns its code and its status,
/// or `None` if there is none.
fn waited(tid: Tid, options: i32) -> io::Result<Option<(i32, i32)>> {
    let id = libc::id_t::try_from(tid).map_err(io::Error::other)?;
    let options = options | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: a structure of integers is valid if all are 0; the call writes to it.
    #[allow(unsafe_code, reason = "waitid(2)")]
    let (done, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let done = libc::waitid(libc::P_PID, id, &raw mut info, options);
        (done, info)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has set these fields, or left them 0.
    #[allow(unsafe_code, reason = "fields of a union")]
    let (changed, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((changed != 0).then_some((info.si_code, status)))
}

/// Waits for a stop; `None` if the thread has ended.
fn wait(tid: Tid) -> io::Result<Option<i32>> {
    let begun = Instant::now();
    loop {
        match pending(tid, libc::WNOHANG) {
            Ok(Some(PendingChange::Stop)) => {
                if let Some(status) = taken(tid)? {
                    return Ok(Some(status));
                }
            }
            Ok(Some(PendingChange::End(_))) => return Ok(None),
            Ok(None) if begun.elapsed() > PATIENCE => return Err(io::ErrorKind::TimedOut.into()),
            Ok(None) if begun.elapsed() > Duration::from_millis(1) => {
                std::thread::sleep(Duration::from_micros(50));
            }
            Ok(None) => std::thread::yield_now(),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether an error says that a thread has ended.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Reads the registers of a stopped thread.
pub(super) fn registers(tid: Tid) -> io::Result<Registers> {
    // SAFETY: a structure of integers is valid if all are 0.
    #[allow(unsafe_code, reason = "mem::zeroed")]
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, (&raw mut registers).addr())?;
    Ok(registers)
}

/// Returns the extended state of a stopped thread: registers of floating point and vectors.
pub(super) fn extended_state(tid: Tid) -> io::Result<Vec<u8>> {
    // More than all parts that processors have.
    let mut bytes = vec![0_u8; 1 << 14];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    request(
        libc::PTRACE_GETREGSET,
        tid,
        X86_XSTATE,
        (&raw mut vector).addr(),
    )?;
    bytes.truncate(vector.iov_len);
    Ok(bytes)
}

/// Sets the registers of a stopped thread.
pub(super) fn set_registers(tid: Tid, registers: &Registers) -> io::Result<()> {
    request(
        libc::PTRACE_SETREGS,
        tid,
        0,
        std::ptr::from_ref(registers).addr(),
    )
}

/// Returns the blocked signals of a stopped thread.
pub(super) fn blocked(tid: Tid) -> io::Result<u64> {
    let mut blocked = 0_u64;
    request(GETSIGMASK, tid, size_of::<u64>(), (&raw mut blocked).addr())?;
    Ok(blocked)
}

/// Sets the blocked signals of a stopped thread.
pub(super) fn set_blocked(tid: Tid, blocked: u64) -> io::Result<()> {
    request(
        SETSIGMASK,
        tid,
        size_of::<u64>(),
        (&raw const blocked).addr(),
    )
}

/// Returns the registration for restartable sequences of a stopped thread.
pub(super) fn rseq(tid: Tid) -> io::Result<Rseq> {
    let mut registered = Rseq::default();
    request(
        GET_RSEQ_CONFIGURATION,
        tid,
        size_of::<Rseq>(),
        (&raw mut registered).addr(),
    )?;
    Ok(registered)
}
