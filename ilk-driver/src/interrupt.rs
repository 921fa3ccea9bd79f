//! Ctrl-C as a flag: a session that is interrupted still ends properly. A second Ctrl-C ends the
//! program at once.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Release);
}

/// From now on SIGINT, SIGTERM and SIGHUP set the flag, the first time that each comes.
pub fn watch() {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is a valid one: an empty mask and no flags.
        #[allow(unsafe_code, reason = "sigaction(2)")]
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: the handler only stores to an atomic, which is allowed at any time.
        #[allow(unsafe_code, reason = "sigaction(2)")]
        let _known_signal =
            unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// From now on a file that may not grow any further (`ulimit -f`) is an error where it is written, as a full
/// disk is, and not the end of the program.
pub fn outlive_limits() {
    // SAFETY: no handler of ours runs.
    #[allow(unsafe_code, reason = "signal(2)")]
    let _before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether one of them came.
#[must_use]
pub fn came() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}
