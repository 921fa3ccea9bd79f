//! A session's counters: their ranges in the module's banks, and their last reported values.

use super::device::Device;
use crate::protocol::Total;
use crate::writes::Counter;

/// The counters of a session.
pub(super) struct Counters {
    ranges: Vec<CounterRange>,
}

/// The counters of one bank, which are read by one request.
struct CounterRange {
    bank: u32,
    /// The first requested slot, and the number of slots from there.
    first: u32,
    count: u32,
    /// The requested counters with their last reported values.
    requested: Vec<(Counter, u64)>,
}

impl Counters {
    pub(super) fn new(mut requested: Vec<Counter>) -> Self {
        requested.sort_by_key(|counter| counter.bank);
        let banks = requested.chunk_by(|counter, next| counter.bank == next.bank);
        Self {
            ranges: banks.filter_map(CounterRange::new).collect(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.ranges.iter().map(|range| range.requested.len()).sum()
    }

    /// Reads all counters, and returns those that have changed since the last call.
    pub(super) fn changed(&mut self, device: &Device) -> std::io::Result<Vec<Total>> {
        let mut changed = Vec::new();
        for range in &mut self.ranges {
            let words = device.counters(range.bank, range.first, range.count)?;
            for (counter, last) in &mut range.requested {
                let word = words
                    .get((counter.slot - range.first) as usize)
                    .ok_or_else(|| std::io::Error::other("a counter is outside its range"))?;
                let hits = if counter.largest {
                    word.largest
                } else {
                    word.sum
                };
                if hits != *last {
                    *last = hits;
                    changed.push(Total {
                        id: counter.id,
                        hits,
                    });
                }
            }
        }
        Ok(changed)
    }
}

impl CounterRange {
    /// Covers the counters of one bank; `None` if there are none.
    fn new(requested: &[Counter]) -> Option<Self> {
        let slots = || requested.iter().map(|counter| counter.slot);
        let (first, last) = (slots().min()?, slots().max()?);
        Some(Self {
            bank: requested.first()?.bank,
            first,
            count: (last - first).saturating_add(1),
            requested: requested.iter().map(|counter| (*counter, 0)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bank_is_read_by_one_request() {
        let counter = |bank, slot| Counter {
            id: 0,
            bank,
            slot,
            largest: false,
        };
        let counters = Counters::new(vec![counter(1, 7), counter(0, 3), counter(1, 5)]);
        let range = |range: &CounterRange| (range.bank, range.first, range.count);
        assert_eq!(
            counters.ranges.iter().map(range).collect::<Vec<_>>(),
            [(0, 3, 1), (1, 5, 3)]
        );
        assert_eq!(counters.count(), 3);
        assert_eq!(Counters::new(Vec::new()).count(), 0);
    }
}
