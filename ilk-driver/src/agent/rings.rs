//! The module's rings, mapped into this process and read there.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use gilk_samples::Sample;
use gilk_samples::ring::RingReader;

use super::device::Device;

/// The module's rings in this process's memory, to be read only.
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
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`; readers hold the device, and so this, alive.
        #[allow(unsafe_code, reason = "munmap(2)")]
        let _never_fails = unsafe { libc::munmap(self.base, self.length) };
    }
}

/// Reads every CPU's ring, from its first sample on.
pub(super) struct Rings {
    readers: Vec<RingReader>,
    device: Arc<Device>,
}

impl Rings {
    pub(super) fn new(device: Arc<Device>) -> Option<Self> {
        let (&Mapping { base, length }, stride_log2) = device.rings();
        let stride = 1_usize.checked_shl(stride_log2)?;
        let readers = (0..device.cpus() as usize)
            .map(|cpu| {
                let offset = cpu
                    .checked_mul(stride)
                    .filter(|offset| offset + stride <= length)?;
                // SAFETY: `offset` is within the mapping; the bytes to its end stay mapped as long as
                // `device`, which this struct holds; nobody but patches writes there.
                #[allow(unsafe_code, reason = "memory shared with the module")]
                unsafe {
                    RingReader::new(
                        base.cast::<u8>().add(offset).cast_const(),
                        stride,
                        device.slots_log2(),
                    )
                }
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { readers, device })
    }

    /// Takes at most `max` samples from the ring of each CPU, gives their slots back, and hands what
    /// there is of a CPU to `take`. Returns the most that one CPU had.
    pub(super) fn drain(
        &mut self,
        max: usize,
        mut take: impl FnMut(u16, &[Sample]),
    ) -> io::Result<usize> {
        let mut most = 0;
        let mut samples = Vec::new();
        for (cpu, reader) in (0_u32..).zip(&mut self.readers) {
            samples.clear();
            if reader.drain(&mut samples, max) == 0 {
                continue;
            }
            most = most.max(samples.len());
            self.device.consume(cpu, reader.tail())?;
            take(cpu as u16, &samples);
        }
        Ok(most)
    }

    /// Takes what rings hold that have overwritten their oldest samples, when nobody writes any more.
    /// Returns how many of each CPU are not there, because a sample of a lap before stands in their
    /// slot.
    pub(super) fn newest(self, mut take: impl FnMut(u16, &[Sample])) -> io::Result<Vec<u64>> {
        let slots = 1_u64 << self.device.slots_log2();
        let states = self.device.states()?;
        let mut missing = Vec::new();
        for ((cpu, mut reader), state) in (0_u16..).zip(self.readers).zip(&states) {
            let first = state.head.saturating_sub(slots).max(reader.tail());
            reader = reader.starting_at(first);
            let mut samples = Vec::new();
            let mut overtaken = 0;
            while reader.tail() < state.head {
                let left = usize::try_from(state.head - reader.tail()).unwrap_or(usize::MAX);
                if reader.drain(&mut samples, left) < left {
                    let next = reader.tail() + 1;
                    reader = reader.starting_at(next);
                    overtaken += 1;
                }
            }
            self.device.consume(u32::from(cpu), state.head)?;
            take(cpu, &samples);
            missing.push(overtaken);
        }
        Ok(missing)
    }

    /// Whether every sample of every CPU was read.
    pub(super) fn is_drained(&self) -> io::Result<bool> {
        let states = self.device.states()?;
        Ok(self
            .readers
            .iter()
            .zip(&states)
            .all(|(reader, state)| reader.tail() == state.head))
    }
}
