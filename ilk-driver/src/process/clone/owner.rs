//! The agent's ownership of a process's word, by which its threads see that the agent has ended.

use std::os::unix::fs::FileExt;

use super::super::maps;
use super::cache::ProcessCache;
use crate::mapping::{Mapping, MappingAccess};
use crate::{Error, Result};

/// `FUTEX_OWNER_DIED` of include/uapi/linux/futex.h.
const OWNER_DIED: u32 = 0x4000_0000;

/// The list of robust futexes of the agent's thread, in a mapping of the process's words: when the thread ends, however
/// it does, the kernel sets `FUTEX_OWNER_DIED` in the agent's word (Documentation/locking/robust-futex-ABI.rst).
pub(super) struct Owned {
    mapping: Mapping,
    /// `struct robust_list_head`, and its one entry.
    list: Box<[usize; 4]>,
    before: (usize, usize),
}

/// Owns the agent's word for the current thread.
pub(super) fn own(cache: &ProcessCache) -> Result<Owned> {
    let failed = |what: &str, error: &std::io::Error| {
        Error::Target(format!("The agent cannot {what} ({error})."))
    };
    let (file, offset) = cache.agent_word();
    let length = maps::PAGE as usize;
    let mapping = Mapping::new(file, offset.cast_signed(), length, MappingAccess::ReadWrite)
        .map_err(|error| failed("map its word", &error))?;
    // SAFETY: gettid has no arguments.
    #[allow(unsafe_code, reason = "gettid(2)")]
    let tid = unsafe { libc::gettid() };
    let word = tid.cast_unsigned().to_le_bytes();
    file.write_all_at(&word, offset)
        .map_err(|error| Error::Target(format!("The agent cannot write its word ({error}).")))?;
    // The head: the next entry, the distance from an entry to its futex, and no entry that is about to be added.
    let mut list = Box::new([0_usize; 4]);
    let head = list.as_ptr() as usize;
    let entry = head + 3 * size_of::<usize>();
    *list = [
        entry,
        (mapping.base() as usize).wrapping_sub(entry),
        0,
        head,
    ];
    let mut before = (0_usize, 0_usize);
    // SAFETY: the kernel writes two words to locals, then keeps the address of a list that outlives the thread's use
    // of it: it is given the list from before when this is dropped.
    #[allow(unsafe_code, reason = "set_robust_list(2)")]
    let set = unsafe {
        let (head, bytes) = (&raw mut before.0, &raw mut before.1);
        match libc::syscall(libc::SYS_get_robust_list, 0, head, bytes) {
            0 => libc::syscall(
                libc::SYS_set_robust_list,
                list.as_ptr(),
                3 * size_of::<usize>(),
            ),
            failed => failed,
        }
    };
    if set != 0 {
        return Err(failed("own its word", &std::io::Error::last_os_error()));
    }
    Ok(Owned {
        mapping,
        list,
        before,
    })
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Forked children may still have the cache: their agent is lost.
        let word = self.mapping.base().cast::<u32>();
        // SAFETY: the mapping, of `own`, begins with the word. The list from before is the C library's.
        #[allow(unsafe_code, reason = "set_robust_list(2)")]
        unsafe {
            word.write_volatile(OWNER_DIED);
            libc::syscall(libc::SYS_set_robust_list, self.before.0, self.before.1);
        }
        self.list.fill(0);
    }
}
