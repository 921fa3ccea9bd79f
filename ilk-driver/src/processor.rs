//! The processor: requirements of generated code, and its clock.

use std::arch::x86_64::__cpuid;

use crate::{Error, Result};

/// Leaf of CPUID with the extended features, and the bit in ecx for `lahf` and `sahf` in 64-bit mode (Intel's
/// manual, volume 2A, CPUID).
const EXTENDED: u32 = 0x8000_0001;
const LAHF: u32 = 1;
/// The bit in edx for `rdtscp`.
const RDTSCP: u32 = 1 << 27;

/// Checks that the processor executes `lahf` and `sahf`, with which patches save the flags.
///
/// # Errors
/// [`Error::Processor`] if it does not, as some of the first 64-bit processors, until 2006.
pub(crate) fn check() -> Result<()> {
    if __cpuid(EXTENDED).ecx & LAHF == 0 {
        return Err(Error::Processor);
    }
    Ok(())
}

/// Returns whether the processor executes `rdtscp`, as those do since about 2009.
pub(crate) fn has_rdtscp() -> bool {
    __cpuid(EXTENDED).edx & RDTSCP != 0
}

/// Returns the processor's time-stamp counter.
pub(crate) fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has rdtsc, and Linux permits it in user mode.
    #[allow(unsafe_code, unused_unsafe, reason = "rdtsc")]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

/// Readings of another clock beside the counter, of which the one that was interrupted least is taken.
const READINGS: usize = 8;

/// A reading of another clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadingBesideTsc<T> {
    /// The time of the other clock.
    pub(crate) value: T,
    /// The time-stamp counter in the middle of the reading.
    pub(crate) tsc: u64,
    /// Ticks that the reading took.
    pub(crate) ticks: u64,
}

/// Reads another clock, between two readings of the time-stamp counter.
pub(crate) fn beside_tsc<T>(read: impl Fn() -> T) -> ReadingBesideTsc<T> {
    let once = || {
        let (before, value, after) = (tsc(), read(), tsc());
        let ticks = after.wrapping_sub(before);
        ReadingBesideTsc {
            value,
            tsc: before.wrapping_add(ticks / 2),
            ticks,
        }
    };
    (1..READINGS).fold(once(), |best, _| {
        let next = once();
        if next.ticks < best.ticks { next } else { best }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_tsc_advances() {
        let before = tsc();
        std::thread::sleep(Duration::from_millis(1));
        assert!(tsc() > before);
    }
}
