//! The kernel's monotonic clock for instruments in a process: a factor in their code, and a word that this program keeps.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::agent::{monotonic_ns, tsc_hz};
use crate::processor::{ReadingBesideTsc, beside_tsc};

/// Nanoseconds of a reading that was not interrupted, at most.
const SHORT: u64 = 1_000;

/// Returns the nanoseconds of a tick, times 2^32.
pub(super) fn factor() -> u64 {
    let factor = (1_000_000_000_u128 << 32) / u128::from(tsc_hz().max(1));
    u64::try_from(factor).unwrap_or(u64::MAX)
}

/// Keeps the word that makes scaled ticks the time of the kernel's clock, if that has left it by more than a reading may
/// be wrong.
pub(super) fn keep(word: &AtomicU64, factor: u64) {
    let ReadingBesideTsc { value, tsc, ticks } = beside_tsc(monotonic_ns);
    let known = word.load(Ordering::Relaxed);
    let offset = value.wrapping_sub(scaled(tsc, factor));
    let distance = offset.wrapping_sub(known).cast_signed().unsigned_abs();
    let is_short = scaled(ticks, factor) <= SHORT;
    // The first one is better than none.
    if known == 0 || is_short && distance > SHORT {
        word.store(offset, Ordering::Relaxed);
    }
}

/// Returns bits 32 to 95 of the product, as the instruments compute it.
fn scaled(ticks: u64, factor: u64) -> u64 {
    let product = u128::from(ticks) * u128::from(factor);
    (product >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::tsc;

    #[test]
    fn the_word_makes_ticks_the_kernels_time_and_steps_only_where_that_has_left_it() {
        let (word, factor) = (AtomicU64::new(0), factor());
        let late = |word: &AtomicU64| {
            let first = monotonic_ns();
            let own = scaled(tsc(), factor).wrapping_add(word.load(Ordering::Relaxed));
            (own.wrapping_sub(first)).cast_signed()
        };
        keep(&word, factor);
        let kept = word.load(Ordering::Relaxed);
        let least = (0..100).map(|_| late(&word).abs()).min().unwrap();
        assert!(least < 100_000, "{least} ns");
        word.store(kept.wrapping_add(10_000_000), Ordering::Relaxed);
        // A reading that is interrupted each time is not believed.
        for _ in 0..100 {
            keep(&word, factor);
        }
        let least = (0..100).map(|_| late(&word).abs()).min().unwrap();
        assert!(least < 100_000, "{least} ns");
    }
}
