//! The module's rings, mapped into this process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A read-only mapping of the module's rings.
pub(super) struct Mapping {
    base: *mut libc::c_void,
    length: usize,
}

// SAFETY: the mapping is only read, with atomic loads, and belongs to no thread.
#[allow(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a raw pointer is not Sync by itself")]
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(file: &File, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this process.
        #[allow(unsafe_code, reason = "mmap(2)")]
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { base, length })
        }
    }

    pub(super) fn base(&self) -> *const u8 {
        self.base.cast::<u8>().cast_const()
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`; readers hold the device, which owns it.
        #[allow(unsafe_code, reason = "munmap(2)")]
        let _never_fails = unsafe { libc::munmap(self.base, self.length) };
    }
}
