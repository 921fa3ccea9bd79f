//! The agent of a code cache as a process of its own, so that it outlives the command that has started it: when that is
//! killed, the process is let go as if this was requested.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use crate::interrupt;

/// The name of the agent among processes.
const NAME: &std::ffi::CStr = c"ilk agent";

/// The two processes after [`AgentProcess::start`].
#[derive(Debug)]
pub enum AgentProcess {
    /// This is the agent's process. A signal that requests its end, and the end of the command, set the flag of
    /// [`interrupt`]; nothing but SIGKILL ends it.
    Agent,
    /// This is the command's process, whose agent has ended with this status.
    Command(ExitStatus),
}

impl AgentProcess {
    /// Forks: the child returns at once, and the command's process when the child has ended. Until then it forwards the
    /// signals that request its end. It must have one thread.
    ///
    /// # Errors
    /// There is no second process.
    pub fn start() -> io::Result<Self> {
        // The child must not miss a signal that is forwarded, and this process none of the child.
        let before = block(&interrupt::ENDING, libc::SIGCHLD)?;
        // SAFETY: getpid has no arguments; this process has one thread, so the child has all of it.
        #[allow(unsafe_code, reason = "getpid(2), fork(2)")]
        let (command, child) = unsafe { (libc::getpid(), libc::fork()) };
        match child {
            -1 => {
                let error = io::Error::last_os_error();
                restore(&before)?;
                Err(error)
            }
            0 => {
                interrupt::watch_always();
                ends_with(command)?;
                restore(&before)?;
                Ok(Self::Agent)
            }
            child => wait(child).map(Self::Command),
        }
    }

    /// Has signals to the command's group, such as a killed job of a shell, not reach the agent. A program that it has
    /// started before stays in that group, and so has the terminal.
    ///
    /// The session is another one, too: at the end of an agent that has only another group, the kernel may find the group
    /// of its program orphaned, and sends SIGHUP and SIGCONT to all of it if one of it is stopped (`kill_orphaned_pgrp` of
    /// kernel/exit.c).
    ///
    /// # Errors
    /// The process is the leader of a group.
    pub fn leave_group() -> io::Result<()> {
        // SAFETY: setsid has no arguments.
        #[allow(unsafe_code, reason = "setsid(2)")]
        match unsafe { libc::setsid() } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// Has the end of the command set the flag of [`interrupt`], and names this process.
fn ends_with(command: libc::pid_t) -> io::Result<()> {
    // SAFETY: prctl takes a number, or a string that ends in 0; getppid has no arguments.
    #[allow(unsafe_code, reason = "prctl(2), getppid(2)")]
    let (done, parent) = unsafe {
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        let done = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGHUP);
        (done, libc::getppid())
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // It ended before.
    if parent != command {
        interrupt::request();
    }
    Ok(())
}

/// Waits for the end of the agent's process, and forwards signals to it.
fn wait(child: libc::pid_t) -> io::Result<ExitStatus> {
    let wanted = set_of(&interrupt::ENDING, libc::SIGCHLD);
    loop {
        let mut status = 0;
        // SAFETY: the status is written to a local.
        #[allow(unsafe_code, reason = "waitpid(2)")]
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {}
            _ => return Ok(ExitStatus::from_raw(status)),
        }
        // SAFETY: the set is a local, and nothing is written about the signal.
        #[allow(unsafe_code, reason = "sigwaitinfo(2)")]
        let signal = unsafe { libc::sigwaitinfo(&raw const wanted, std::ptr::null_mut()) };
        if interrupt::ENDING.contains(&signal) {
            // SAFETY: kill takes numbers.
            #[allow(unsafe_code, reason = "kill(2)")]
            // It may have ended.
            let _ended = unsafe { libc::kill(child, signal) };
        }
    }
}

fn set_of(signals: &[libc::c_int], other: libc::c_int) -> libc::sigset_t {
    // SAFETY: a set of bits is valid if all are 0; the calls change a local.
    #[allow(unsafe_code, reason = "sigsetops(3)")]
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals.iter().chain([&other]) {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Blocks signals; returns those that were blocked before.
fn block(signals: &[libc::c_int], other: libc::c_int) -> io::Result<libc::sigset_t> {
    mask(libc::SIG_BLOCK, &set_of(signals, other))
}

fn restore(before: &libc::sigset_t) -> io::Result<()> {
    mask(libc::SIG_SETMASK, before).map(drop)
}

fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    // SAFETY: a set of bits is valid if all are 0; the call writes to a local.
    #[allow(unsafe_code, reason = "sigprocmask(2)")]
    unsafe {
        let mut before: libc::sigset_t = std::mem::zeroed();
        match libc::sigprocmask(how, std::ptr::from_ref(set), &raw mut before) {
            0 => Ok(before),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
