//! The threads that are taken into the cache: all, one, or those that execute a function.
//!
//! Entries of the function are breakpoints of the processor, which each thread has for itself: no text is written, and
//! code elsewhere is as fast as ever. In the cache the function has another address.

use std::io;
use std::mem::offset_of;

use gilk_engine::Addr;

use super::super::ptrace::{self, Tid};
use super::condition::Condition;

/// Breakpoints that a processor has.
pub(super) const BREAKPOINTS: usize = 4;
/// Bytes of a stack, at most: what is further away is another stack.
const STACK: u64 = 8 << 20;

/// The threads that are taken into the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Trigger {
    /// All of them.
    #[default]
    Always,
    /// One.
    Thread(Tid),
    /// Those that execute a function, which begins at one of these addresses, in a call for which the condition holds.
    Function(Vec<Addr>, Option<Condition>),
}

impl Trigger {
    /// The addresses of breakpoints.
    pub(super) fn entries(&self) -> &[Addr] {
        match self {
            Self::Function(entries, _) => entries,
            Self::Always | Self::Thread(_) => &[],
        }
    }
}

/// The call that a thread is in the cache for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TriggeredCall {
    /// The address that it returns to.
    returns_to: Addr,
    /// The stack pointer after its return.
    stack: u64,
}

impl TriggeredCall {
    /// The call of a thread that is at the function's entry.
    pub(super) fn at_entry(stack_pointer: u64, returns_to: Addr) -> Self {
        Self {
            returns_to,
            stack: stack_pointer.wrapping_add(8),
        }
    }

    /// Returns whether a thread that continues with a stack pointer has returned, or has left the call by a longer jump.
    pub(super) fn is_over(self, stack_pointer: u64) -> bool {
        (0..STACK).contains(&stack_pointer.wrapping_sub(self.stack))
    }

    /// Returns whether a thread that continues at an address with a stack pointer has returned. Handlers of signals, which
    /// may have a stack above, are elsewhere.
    pub(super) fn has_returned(self, at: Addr, stack_pointer: u64) -> bool {
        at == self.returns_to && self.is_over(stack_pointer)
    }
}

/// Sets the breakpoints of a stopped thread, or removes them.
pub(super) fn set_breakpoints(tid: Tid, entries: &[Addr], enabled: bool) -> io::Result<()> {
    let used = || entries.iter().take(BREAKPOINTS).enumerate();
    let control = match enabled {
        // Bits 0, 2, 4 and 6 enable a breakpoint; it is one of execution if its other bits are 0 (Intel SDM 3B,
        // 18.2.4).
        true => used().fold(0, |bits, (number, _)| bits | 1 << (2 * number)),
        false => 0,
    };
    set_debug_register(tid, 7, 0)?;
    for (number, entry) in used() {
        set_debug_register(tid, number, entry.0)?;
    }
    set_debug_register(tid, 7, control)
}

/// Sets a debug register of a stopped thread.
fn set_debug_register(tid: Tid, number: usize, value: u64) -> io::Result<()> {
    let offset = offset_of!(libc::user, u_debugreg) + number * size_of::<u64>();
    let value = usize::try_from(value).map_err(io::Error::other)?;
    ptrace::request(libc::PTRACE_POKEUSER, tid, offset, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_over_at_its_return_and_above_its_stack_alone() {
        let return_address = Addr(0x40_1000);
        let call = TriggeredCall::at_entry(0x7fff_0000_0ff8, return_address);
        assert!(call.is_over(0x7fff_0000_1000));
        // A recursive call returns to the same address.
        assert!(!call.is_over(0x7fff_0000_0f00));
        assert!(call.is_over(0x7fff_0000_1040));
        // The handler of a signal, on another stack.
        assert!(!call.is_over(0x7fff_8000_0000));
        assert!(call.has_returned(return_address, 0x7fff_0000_1000));
        assert!(!call.has_returned(return_address, 0x7fff_0000_0f00));
        assert!(!call.has_returned(Addr(0x40_2000), 0x7fff_0000_1040));
    }
}
