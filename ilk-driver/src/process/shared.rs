//! Words and code that a process and this one share, and the waiting for a change of a word.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use crate::mapping::{Mapping, MappingAccess};

/// Words of a file that a process has mapped, too. They are read and written with atomic operations only.
#[derive(Debug)]
pub(super) struct SharedWords(Mapping);

impl SharedWords {
    /// Maps the first bytes of a file.
    ///
    /// # Errors
    /// `mmap` failed.
    pub(super) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        Mapping::new(file, 0, bytes, MappingAccess::ReadWrite).map(Self)
    }

    /// The number of words of eight bytes.
    fn words(&self) -> usize {
        self.0.length() / size_of::<u64>()
    }

    /// A word of eight bytes, by its index.
    pub(super) fn word(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: the word is inside of the mapping, which is aligned to a page and lives as long as `self`; both
        // processes access its words as whole words.
        #[allow(unsafe_code, reason = "shared memory is reached through a raw pointer")]
        let word = (index < self.words())
            .then(|| unsafe { AtomicU64::from_ptr(self.0.base().cast::<u64>().add(index)) });
        word
    }

    /// The bytes of a range of words, none of which the process writes meanwhile; `None` if they are not all there.
    pub(super) fn read(&self, words: Range<usize>) -> Option<Vec<u8>> {
        let count = words.end.checked_sub(words.start)?;
        if words.end > self.words() {
            return None;
        }
        let mut bytes = vec![0; count * size_of::<u64>()];
        // SAFETY: the words are inside of the mapping, which lives as long as `self`, and the bytes are as many. A word
        // that is written in spite of it is copied in part.
        #[allow(unsafe_code, reason = "shared memory is reached through a raw pointer")]
        unsafe {
            let from = self.0.base().cast::<u64>().add(words.start).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        Some(bytes)
    }

    /// A word of four bytes, by its index; words of this size and of the other have no bytes in common.
    pub(super) fn short_word(&self, index: usize) -> Option<&AtomicU32> {
        // SAFETY: the word is inside of the mapping, which is aligned to a page and lives as long as `self`; both
        // processes access its words as whole words.
        #[allow(unsafe_code, reason = "shared memory is reached through a raw pointer")]
        let word = (index / 2 < self.words())
            .then(|| unsafe { AtomicU32::from_ptr(self.0.base().cast::<u32>().add(index)) });
        word
    }
}

/// Code that a process executes from a file, and this one writes.
#[derive(Debug)]
pub(super) struct SharedCode(Mapping);

impl SharedCode {
    /// Maps bytes of a file from an offset on, which is a multiple of a page.
    ///
    /// # Errors
    /// `mmap` failed.
    pub(super) fn new(file: &File, offset: i64, bytes: usize) -> io::Result<Self> {
        Mapping::new(file, offset, bytes, MappingAccess::ReadWrite).map(Self)
    }

    /// Writes bytes at an offset; returns false if they are not inside.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let end = offset.checked_add(bytes.len());
        let is_inside = end.is_some_and(|end| end <= self.0.length());
        if is_inside {
            // SAFETY: the bytes are inside of the mapping, which lives as long as `self`. The process reads them only
            // once a table or a branch that is written later has their address.
            #[allow(unsafe_code, reason = "shared memory is reached through a raw pointer")]
            unsafe {
                let to = self.0.base().add(offset);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
        is_inside
    }
}

/// Sleeps until a word that has a value is woken, or a time is over.
pub(super) fn wait_while(word: &AtomicU32, value: u32, longest: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(longest.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    // SAFETY: the word and the time live until the call returns.
    #[allow(unsafe_code, reason = "futex(2)")]
    // Another value, a signal and the end of the time are found by the next look at the word.
    let _woken_or_not = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const time,
        )
    };
}

/// Wakes all threads, of any process, that wait for a word.
pub(super) fn wake(word: &AtomicU32) {
    // SAFETY: the word lives until the call returns.
    #[allow(unsafe_code, reason = "futex(2)")]
    // No thread may wait.
    let _woken =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
