//! Memory that agent and client share, where the target is a virtual machine on the client's own: a ring
//! of bytes from the one to the other, for more than a virtio port carries.
//!
//! The memory is a device of the machine (`ivshmem-plain`, docs/specs/ivshmem-spec of QEMU), which needs
//! no driver, and a file beside the socket. The client writes a number at its beginning and tells it by
//! the port: so the agent knows that it has the same memory before it. Nothing wakes the other side;
//! both look again.

#![cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "the agent alone only writes")
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the memory in the lab.
pub(crate) const BYTES: usize = 16 << 20;
/// The client's number; bytes ever written; bytes ever read: each in a cache line of its own.
const NUMBER: usize = 0;
const WRITTEN: usize = 64;
const READ: usize = 128;
/// Where the ring begins.
const DATA: usize = 4096;
/// Bytes copied at a time. Of more, the C library's copy is one instruction that goes byte by byte, which
/// an emulated processor does word for word: a tenth of the speed.
const PIECE: usize = 1024;

/// The memory, mapped.
#[derive(Debug)]
pub(crate) struct Shared {
    base: *mut u8,
    length: usize,
}

// SAFETY: the words are only used as atomics, and the bytes of the ring only by the side whose they are by
// the words.
#[allow(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for Shared {}
// SAFETY: as above; each side has one thread that writes or reads.
#[allow(unsafe_code, reason = "a raw pointer is not Sync by itself")]
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps all of a file, which is to be of some pages.
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if length <= DATA || length % DATA != 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this process.
        #[allow(unsafe_code, reason = "mmap(2)")]
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
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

    /// The client's beginning: an empty ring, and its number.
    pub(crate) fn begin(&self, number: u64) {
        self.word(WRITTEN).store(0, Ordering::Relaxed);
        self.word(READ).store(0, Ordering::Relaxed);
        self.word(NUMBER).store(number, Ordering::SeqCst);
    }

    /// Whether the client began with this number.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.word(NUMBER).load(Ordering::SeqCst) == number
    }

    /// Writes as much as there is room for, and returns how much that was.
    pub(crate) fn write(&self, bytes: &[u8]) -> usize {
        let written = self.word(WRITTEN).load(Ordering::Relaxed);
        let read = self.word(READ).load(Ordering::Acquire);
        // Whatever stands in the other's word, nothing outside of the ring is written.
        let used = usize::try_from(written.wrapping_sub(read)).unwrap_or(usize::MAX);
        let count = self.ring().saturating_sub(used).min(bytes.len());
        let (first, second) = self.split(written, count);
        let (one, two) = bytes.split_at(first.1.min(bytes.len()));
        let two = two.get(..second.1).unwrap_or_default();
        for (part, at) in [(one, first.0), (two, second.0)] {
            for (piece, at) in part.chunks(PIECE).zip((at..).step_by(PIECE)) {
                // SAFETY: both parts lie in the ring by `split`, and are free: the reader is past them.
                #[allow(unsafe_code, reason = "memory shared with the client")]
                unsafe {
                    std::ptr::copy_nonoverlapping(piece.as_ptr(), self.base.add(at), piece.len());
                }
            }
        }
        self.word(WRITTEN)
            .store(written.wrapping_add(count as u64), Ordering::Release);
        count
    }

    /// Reads as much as there is and fits, and returns how much that was.
    pub(crate) fn read(&self, into: &mut [u8]) -> usize {
        let read = self.word(READ).load(Ordering::Relaxed);
        let written = self.word(WRITTEN).load(Ordering::Acquire);
        let there = usize::try_from(written.wrapping_sub(read)).unwrap_or(0);
        let count = there.min(self.ring()).min(into.len());
        let (first, second) = self.split(read, count);
        let (one, two) = into.split_at_mut(first.1.min(count));
        // SAFETY: both parts lie in the ring by `split`, and are written: the writer stays off them.
        #[allow(unsafe_code, reason = "memory shared with the agent")]
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.add(first.0), one.as_mut_ptr(), first.1);
            std::ptr::copy_nonoverlapping(self.base.add(second.0), two.as_mut_ptr(), second.1);
        }
        self.word(READ)
            .store(read.wrapping_add(count as u64), Ordering::Release);
        count
    }

    fn ring(&self) -> usize {
        self.length - DATA
    }

    /// `count` bytes of the ring from byte number `from` on: offset and length up to its end, and of what
    /// goes on at its beginning.
    fn split(&self, from: u64, count: usize) -> ((usize, usize), (usize, usize)) {
        let at = (from % self.ring() as u64) as usize;
        let first = count.min(self.ring() - at);
        ((DATA + at, first), (DATA, count - first))
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset is one of the three above, in the first page, aligned; both sides use the
        // word as an atomic.
        #[allow(unsafe_code, reason = "memory shared with the other side")]
        unsafe {
            AtomicU64::from_ptr(self.base.add(offset).cast())
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, of which nothing is left.
        #[allow(unsafe_code, reason = "munmap(2)")]
        let _never_fails = unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: u64) -> (Shared, Shared) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        (Shared::map(&file).unwrap(), Shared::map(&file).unwrap())
    }

    #[test]
    fn what_one_side_writes_the_other_reads_around_and_around() {
        let (agent, client) = memory(8192);
        client.begin(42);
        assert!(agent.has(42) && !agent.has(41));
        let all: Vec<u8> = (0..100_000_u32).map(|n| (n / 3) as u8).collect();
        let (mut sent, mut got) = (0, Vec::new());
        let mut buffer = [0; 1000];
        let mut turn = 0;
        while got.len() < all.len() {
            turn += 1;
            let most = (sent + 1 + turn * 37 % 5000).min(all.len());
            sent += agent.write(&all[sent..most]);
            assert!(sent - got.len() <= 4096);
            let count = client.read(&mut buffer);
            got.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(got, all);
        assert_eq!((agent.write(&[0; 5000]), agent.write(&[1])), (4096, 0));
    }

    #[test]
    fn nonsense_in_the_words_harms_nobody() {
        let (agent, client) = memory(8192);
        for word in [1, 4095, 4096, 4097, u64::MAX / 2, u64::MAX] {
            client.begin(1);
            client.word(WRITTEN).store(word, Ordering::SeqCst);
            assert!(client.read(&mut [0; 10_000]) <= 4096);
            client.begin(1);
            client.word(READ).store(word, Ordering::SeqCst);
            assert!(agent.write(&[7; 10_000]) <= 4096);
        }
    }

    #[test]
    fn a_file_that_has_no_room_is_refused() {
        let file = tempfile::tempfile().unwrap();
        for bytes in [0, 4096, 5000] {
            file.set_len(bytes).unwrap();
            assert!(Shared::map(&file).is_err());
        }
    }
}
