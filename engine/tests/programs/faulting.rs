//! Faults of a process, handled like those of the kernel: by a table of recovery addresses.

use std::cell::Cell;
use std::sync::Once;

thread_local! {
    /// Instructions that may fault, with their recovery addresses.
    static TABLE: Cell<&'static [(u64, u64)]> = const { Cell::new(&[]) };
}

/// From now on the instructions of the table may fault on this thread.
pub(crate) fn take_faults(table: Vec<(u64, u64)>) {
    static INSTALLED: Once = Once::new();
    // A handler may look at it at any time.
    TABLE.set(table.leak());
    INSTALLED.call_once(|| {
        #[allow(unsafe_code, reason = "handlers of signals are set in no other way")]
        // SAFETY: the action is plain data, all of which is set or zero; the handler changes nothing but the
        // instruction pointer of the code under test.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            // The stack of the code under test is compared byte by byte.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(
                libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()),
                0
            );
        }
    });
}

extern "C" fn on_fault(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    #[allow(
        unsafe_code,
        reason = "what the kernel hands to a handler is a pointer"
    )]
    // SAFETY: with SA_SIGINFO it points to the context of the thread that faulted, which is not shared.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
        match TABLE.get().iter().find(|(at, _)| *at as i64 == *rip) {
            Some(&(_, fixup)) => *rip = fixup as i64,
            // It faults again, and ends the test.
            None => {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            }
        }
    }
}
