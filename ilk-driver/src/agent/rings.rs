//! Readers of the module's rings.

use std::io;
use std::sync::Arc;

use gilk_samples::Sample;
use gilk_samples::ring::RingReader;

use super::device::Device;

/// The readers of every CPU's ring, starting at the first sample.
pub(super) struct Rings {
    readers: Vec<RingReader>,
    device: Arc<Device>,
}

impl Rings {
    pub(super) fn new(device: Arc<Device>) -> Option<Self> {
        let (mapping, stride_log2) = device.rings();
        let stride = 1_usize.checked_shl(stride_log2)?;
        let readers = (0..device.cpus() as usize)
            .map(|cpu| {
                let offset = cpu
                    .checked_mul(stride)
                    .filter(|offset| offset + stride <= mapping.length())?;
                // SAFETY: the ring at `offset` is within the mapping, which lives as long as
                // `device`, which this struct holds; only patches write there.
                #[allow(unsafe_code, reason = "memory shared with the module")]
                unsafe {
                    RingReader::new(mapping.base().add(offset), stride, device.slots_log2())
                }
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { readers, device })
    }

    /// Takes at most `max` samples from the ring of each CPU, frees their slots, and passes the
    /// samples of each CPU to `take`. Returns the largest count of a CPU.
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

    /// Takes the samples of overwriting rings after the last write. Returns for each CPU the number
    /// of missing samples, in whose slots a sample of an earlier lap is.
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
                let remaining = usize::try_from(state.head - reader.tail()).unwrap_or(usize::MAX);
                if reader.drain(&mut samples, remaining) < remaining {
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

    /// Returns whether every sample of every CPU was read.
    pub(super) fn is_drained(&self) -> io::Result<bool> {
        let states = self.device.states()?;
        Ok(self
            .readers
            .iter()
            .zip(&states)
            .all(|(reader, state)| reader.tail() == state.head))
    }
}
