//! Ctrl-C as a flag, so that an interrupted session still ends properly. A second Ctrl-C ends the
//! program at once.

use std::sync::atomic::{AtomicBool, Ordering};

/// The signals that request the end of a program.
pub(crate) const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Release);
}

/// Makes SIGINT, SIGTERM and SIGHUP set the flag on first arrival.
pub fn watch() {
    set(libc::SA_RESETHAND | libc::SA_RESTART);
}

/// Makes SIGINT, SIGTERM and SIGHUP set the flag, and never end the program: it has changes to undo.
pub(crate) fn watch_always() {
    set(libc::SA_RESTART);
}

fn set(flags: libc::c_int) {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in ENDING {
        // SAFETY: an all-zero sigaction is a valid one: an empty mask and no flags.
        #[allow(unsafe_code, reason = "sigaction(2)")]
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = flags;
        // SAFETY: the handler only stores to an atomic, which is allowed at any time.
        #[allow(unsafe_code, reason = "sigaction(2)")]
        let _known_signal =
            unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// Sets the flag.
pub(crate) fn request() {
    note(0);
}

/// Ignores SIGXFSZ, so that exceeding the file size limit (`ulimit -f`) is a write error, like a
/// full disk, instead of the end of the program.
pub fn outlive_limits() {
    // SAFETY: no handler is installed.
    #[allow(unsafe_code, reason = "signal(2)")]
    let _before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Returns whether one of the signals arrived.
#[must_use]
pub fn arrived() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}
