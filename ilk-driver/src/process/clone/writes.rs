//! Writes of translated code: its pages are write-protected by userfaultfd(2), in every mapping of the process that has
//! the same memory.
//!
//! Protections stay as the process has set them, and forked children do not inherit the watch. The kernel drops it when
//! the file is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use gilk_engine::{Addr, Span};

use super::super::maps::PAGE;
use super::super::remote::Remote;
use crate::{Error, Result};

/// `UFFD_USER_MODE_ONLY`: needs no privilege.
const USER_MODE_ONLY: i32 = 1;
/// `UFFD_API` of include/uapi/linux/userfaultfd.h.
const API: u64 = 0xaa;
/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP`.
const PROTECTS: u64 = 1;
/// `UFFD_FEATURE_SIGBUS`: a thread that writes gets a signal, so it stops for the agent as for any other.
const BY_SIGNAL: u64 = 1 << 7;
/// `UFFD_FEATURE_WP_HUGETLBFS_SHMEM`, since Linux 5.19: shared memory too.
const SHARED: u64 = 1 << 12;
/// `UFFDIO_REGISTER_MODE_WP`.
const REGISTER_WRITES: u64 = 1 << 1;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
const PROTECT: u64 = 1;
/// `UFFDIO_API`, `UFFDIO_REGISTER` and `UFFDIO_WRITEPROTECT`.
const IOCTL_API: libc::c_ulong = 0xc018_aa3f;
const IOCTL_REGISTER: libc::c_ulong = 0xc020_aa00;
const IOCTL_PROTECT: libc::c_ulong = 0xc018_aa06;

/// A place where a page of code is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageMapping {
    /// The whole mapping.
    pub(super) mapping: Span,
    /// The page in it.
    pub(super) page: Addr,
}

/// The watched pages of a process.
pub(super) struct WriteWatch {
    file: OwnedFd,
    /// Pages of translated code, with the pages that have the same memory, themselves among them.
    pages: BTreeMap<Addr, Vec<Addr>>,
    /// Times that pages of code were written after they were translated.
    writes: BTreeMap<Addr, u32>,
    /// All of these times.
    pub(super) total: u64,
}

impl WriteWatch {
    /// Creates the file in a stopped process, takes it, and closes it there.
    ///
    /// # Errors
    /// The kernel does not watch writes, or does not let the process or this one have it done.
    pub(super) fn create(pid: u32, remote: &Remote<'_>) -> Result<Self> {
        let flags = u64::from((libc::O_CLOEXEC | USER_MODE_ONLY).cast_unsigned());
        let arguments = [flags, 0, 0, 0, 0, 0];
        let number = remote.call("watch its writes", libc::SYS_userfaultfd, arguments)?;
        let file = taken(pid, number);
        remote.call(
            "close the file of its writes",
            libc::SYS_close,
            [number, 0, 0, 0, 0, 0],
        )?;
        let failed =
            |error: io::Error| Error::Target(format!("Its writes cannot be watched ({error})."));
        let file = file.map_err(failed)?;
        for features in [PROTECTS | BY_SIGNAL | SHARED, PROTECTS | BY_SIGNAL] {
            let mut words = [API, features, 0];
            match ioctl(&file, IOCTL_API, &mut words) {
                Ok(()) => {
                    return Ok(Self {
                        file,
                        pages: BTreeMap::new(),
                        writes: BTreeMap::new(),
                        total: 0,
                    });
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let why = "before Linux 5.7 the kernel does not watch writes";
        Err(failed(io::Error::other(why)))
    }

    /// Watches a page of code in all its mappings, before it is read. Its bytes are in memory: it was read before.
    ///
    /// # Errors
    /// The kernel does not watch memory of that kind: mappings of files.
    pub(super) fn watch(&mut self, page: Addr, mapped: &[PageMapping]) -> io::Result<()> {
        if self.pages.contains_key(&page) {
            return Ok(());
        }
        for place in mapped {
            let mut words = [
                place.mapping.start.0,
                place.mapping.len(),
                REGISTER_WRITES,
                0,
            ];
            ioctl(&self.file, IOCTL_REGISTER, &mut words)?;
            self.protect(place.page, PROTECT)?;
        }
        let pages = mapped.iter().map(|place| place.page).collect();
        self.pages.insert(page, pages);
        Ok(())
    }

    fn protect(&self, page: Addr, mode: u64) -> io::Result<()> {
        let mut words = [page.0, PAGE, mode];
        ioctl(&self.file, IOCTL_PROTECT, &mut words)
    }

    /// The pages of code that a write to an address changes.
    pub(super) fn written(&self, at: Addr) -> BTreeSet<Addr> {
        let page = page_of(at);
        let changed = self.pages.iter().filter(|(_, all)| all.contains(&page));
        changed.map(|(code, _)| *code).collect()
    }

    /// Counts a write of a page; returns how many there were.
    pub(super) fn count(&mut self, page: Addr) -> u32 {
        self.total += 1;
        let writes = self.writes.entry(page).or_default();
        *writes = writes.saturating_add(1);
        *writes
    }

    /// All watched pages of code.
    pub(super) fn pages(&self) -> BTreeSet<Addr> {
        self.pages.keys().copied().collect()
    }

    /// Lets a page be written.
    pub(super) fn release(&mut self, page: Addr) -> io::Result<()> {
        for page in self.pages.remove(&page).unwrap_or_default() {
            match self.protect(page, 0) {
                Ok(()) => {}
                // It was unmapped, or the process has ended.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The page of an address.
pub(super) fn page_of(at: Addr) -> Addr {
    Addr(at.0 & !(PAGE - 1))
}

/// Takes a file of a process, by its number there.
fn taken(pid: u32, number: u64) -> io::Result<OwnedFd> {
    let file = |result: libc::c_long| match i32::try_from(result) {
        Ok(file @ 0..) => {
            // SAFETY: the kernel has just opened it for this process.
            #[allow(unsafe_code, reason = "a file by its number")]
            Ok(unsafe { OwnedFd::from_raw_fd(file) })
        }
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: both calls take numbers.
    #[allow(unsafe_code, reason = "pidfd_open(2), pidfd_getfd(2)")]
    unsafe {
        let process = file(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        file(libc::syscall(
            libc::SYS_pidfd_getfd,
            process.as_raw_fd(),
            number,
            0,
        ))
    }
}

/// One request, whose structure has words of 64 bits only.
fn ioctl(file: &OwnedFd, request: libc::c_ulong, words: &mut [u64]) -> io::Result<()> {
    // SAFETY: the words are as many as the request's size names.
    #[allow(unsafe_code, reason = "ioctl_userfaultfd(2)")]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, words.as_mut_ptr()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
