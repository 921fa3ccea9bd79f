//! Files mapped into this process, shared with the kernel or with other processes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Use of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingAccess {
    Read,
    ReadWrite,
}

/// A shared mapping of a file, which is removed with the value.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    length: usize,
}

// SAFETY: a mapping belongs to no thread. It gives its address alone: what is accessed there, and how, is for its user.
#[allow(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a raw pointer is not Sync by itself")]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps bytes of a file from an offset on, which is a multiple of a page.
    ///
    /// # Errors
    /// mmap failed.
    pub(crate) fn new(
        file: &File,
        offset: i64,
        length: usize,
        access: MappingAccess,
    ) -> io::Result<Self> {
        let protection = match access {
            MappingAccess::Read => libc::PROT_READ,
            MappingAccess::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this process.
        #[allow(unsafe_code, reason = "mmap(2)")]
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            length,
        })
    }

    /// The address of the first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The number of bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and no user of its address outlives it.
        #[allow(unsafe_code, reason = "munmap(2)")]
        let _never_fails = unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}
