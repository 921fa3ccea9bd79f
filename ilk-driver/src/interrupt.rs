//! Ctrl-C as a flag, so that an interrupted session still ends properly. A second Ctrl-C ends the
//! program at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The signals that request the end of a program.
pub(crate) const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Signals whose action was changed, a bit each.
static CHANGED: AtomicU64 = AtomicU64::new(0);
/// Those of them that were ignored before.
static IGNORED: AtomicU64 = AtomicU64::new(0);

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
        change(signal, handler as libc::sighandler_t, flags);
    }
}

/// Gives a signal an action: a handler that only stores to an atomic, which is allowed at any time, or none.
fn change(signal: libc::c_int, to: libc::sighandler_t, flags: libc::c_int) {
    // SAFETY: an all-zero sigaction is a valid one: an empty mask and no flags.
    #[allow(unsafe_code, reason = "sigaction(2)")]
    let [mut action, mut before]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
    action.sa_sigaction = to;
    action.sa_flags = flags;
    // SAFETY: both are valid for the call, and the handler may execute at any time.
    #[allow(unsafe_code, reason = "sigaction(2)")]
    let _known_signal = unsafe { libc::sigaction(signal, &raw const action, &raw mut before) };
    let bit = 1 << signal;
    let is_first = CHANGED.fetch_or(bit, Ordering::AcqRel) & bit == 0;
    if is_first && before.sa_sigaction == libc::SIG_IGN {
        IGNORED.fetch_or(bit, Ordering::AcqRel);
    }
}

/// Gives all signals the actions that this program was started with, in a child that is about to execute another. System
/// calls alone are executed.
pub(crate) fn inherit() {
    let [changed, ignored] = [&CHANGED, &IGNORED].map(|bits| bits.load(Ordering::Acquire));
    for signal in (1..64).filter(|signal| changed & 1 << signal != 0) {
        let action = match ignored & 1 << signal {
            0 => libc::SIG_DFL,
            _ => libc::SIG_IGN,
        };
        // SAFETY: no handler is installed.
        #[allow(unsafe_code, reason = "signal(2)")]
        let _before = unsafe { libc::signal(signal, action) };
    }
}

/// Sets the flag.
pub(crate) fn request() {
    note(0);
}

/// Ignores SIGXFSZ, so that exceeding the file size limit (`ulimit -f`) is a write error, like a
/// full disk, instead of the end of the program.
pub fn outlive_limits() {
    change(libc::SIGXFSZ, libc::SIG_IGN, 0);
}

/// Returns whether one of the signals arrived.
#[must_use]
pub fn arrived() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}
