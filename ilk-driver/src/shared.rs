//! Memory shared by agent and client when the target is a virtual machine on the client's host: a
//! byte ring from agent to client with a higher throughput than a virtio port.
//!
//! The memory is a PCI device of the machine (`ivshmem-plain`, docs/specs/ivshmem-spec of QEMU),
//! which needs no driver, and a file next to the socket. The client writes a number at its start
//! and sends the number over the port; a matching number proves to the agent that both map the same
//! memory. Neither side wakes the other; both poll.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::{Mapping, MappingAccess};

/// Bytes of the memory in the lab.
pub(crate) const BYTES: usize = 16 << 20;
/// Offsets of the client's number, the count of bytes written and the count of bytes read, each in
/// a cache line of its own.
const NUMBER: usize = 0;
const WRITTEN: usize = 64;
const READ: usize = 128;
/// Offset of the ring.
const DATA: usize = 4096;
/// Bytes copied at a time. For longer copies the C library uses one `rep movsb`, which an emulated
/// processor executes byte by byte at a tenth of the speed.
const PIECE: usize = 1024;

/// The mapped memory. Its words are only used as atomics, and each byte of the ring only by the side that owns it
/// according to the words; each side has one thread that writes or reads.
#[derive(Debug)]
pub(crate) struct Shared(Mapping);

impl Shared {
    /// Maps a whole file, which must have at least two pages.
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if length <= DATA || length % DATA != 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Mapping::new(file, 0, length, MappingAccess::ReadWrite).map(Self)
    }

    /// Resets the ring and stores the client's number.
    pub(crate) fn begin(&self, number: u64) {
        self.word(WRITTEN).store(0, Ordering::Relaxed);
        self.word(READ).store(0, Ordering::Relaxed);
        self.word(NUMBER).store(number, Ordering::SeqCst);
    }

    /// Returns whether the client stored this number.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.word(NUMBER).load(Ordering::SeqCst) == number
    }

    /// Writes as many bytes as are free and returns their count.
    pub(crate) fn write(&self, bytes: &[u8]) -> usize {
        let written = self.word(WRITTEN).load(Ordering::Relaxed);
        let read = self.word(READ).load(Ordering::Acquire);
        // Nothing outside the ring is written, whatever value the other side's word has.
        let used = usize::try_from(written.wrapping_sub(read)).unwrap_or(usize::MAX);
        let count = self.ring().saturating_sub(used).min(bytes.len());
        let (first, second) = self.split(written, count);
        let (head, tail) = bytes.split_at(first.1.min(bytes.len()));
        let tail = tail.get(..second.1).unwrap_or_default();
        for (part, at) in [(head, first.0), (tail, second.0)] {
            for (piece, at) in part.chunks(PIECE).zip((at..).step_by(PIECE)) {
                // SAFETY: both parts lie in the ring by `split`, and are free: the reader has consumed them.
                #[allow(unsafe_code, reason = "memory shared with the client")]
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        piece.as_ptr(),
                        self.0.base().add(at),
                        piece.len(),
                    );
                }
            }
        }
        self.word(WRITTEN)
            .store(written.wrapping_add(count as u64), Ordering::Release);
        count
    }

    /// Reads as many bytes as are available and fit, and returns their count.
    pub(crate) fn read(&self, into: &mut [u8]) -> usize {
        let read = self.word(READ).load(Ordering::Relaxed);
        let written = self.word(WRITTEN).load(Ordering::Acquire);
        let available = usize::try_from(written.wrapping_sub(read)).unwrap_or(0);
        let count = available.min(self.ring()).min(into.len());
        let (first, second) = self.split(read, count);
        let (head, tail) = into.split_at_mut(first.1.min(count));
        // SAFETY: both parts lie in the ring by `split`, and are written: the writer does not touch them.
        #[allow(unsafe_code, reason = "memory shared with the agent")]
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.base().add(first.0), head.as_mut_ptr(), first.1);
            std::ptr::copy_nonoverlapping(self.0.base().add(second.0), tail.as_mut_ptr(), second.1);
        }
        self.word(READ)
            .store(read.wrapping_add(count as u64), Ordering::Release);
        count
    }

    fn ring(&self) -> usize {
        self.0.length() - DATA
    }

    /// Splits `count` bytes of the ring from stream position `from` into two ranges (offset,
    /// length): up to the ring's end, and from its start.
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
            AtomicU64::from_ptr(self.0.base().add(offset).cast())
        }
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
    fn bytes_arrive_in_order_across_wraparound() {
        let (agent, client) = memory(8192);
        client.begin(42);
        assert!(agent.has(42) && !agent.has(41));
        let all: Vec<u8> = (0..100_000_u32).map(|n| (n / 3) as u8).collect();
        let (mut sent, mut received) = (0, Vec::new());
        let mut buffer = [0; 1000];
        let mut turn = 0;
        while received.len() < all.len() {
            turn += 1;
            let most = (sent + 1 + turn * 37 % 5000).min(all.len());
            sent += agent.write(&all[sent..most]);
            assert!(sent - received.len() <= 4096);
            let count = client.read(&mut buffer);
            received.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(received, all);
        assert_eq!((agent.write(&[0; 5000]), agent.write(&[1])), (4096, 0));
    }

    #[test]
    fn invalid_counters_never_exceed_the_ring() {
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
    fn a_file_without_space_for_a_ring_is_refused() {
        let file = tempfile::tempfile().unwrap();
        for bytes in [0, 4096, 5000] {
            file.set_len(bytes).unwrap();
            assert!(Shared::map(&file).is_err());
        }
    }
}
