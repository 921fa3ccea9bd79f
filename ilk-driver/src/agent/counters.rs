//! Counters of a session: where they are, and what was last told of them.

use super::device::Device;
use crate::protocol::{Counter, Total};

pub(super) struct Counters {
    wanted: Vec<(Counter, u64)>,
    /// Of each bank, the first counter wanted and how many from there.
    ranges: Vec<(u32, u32, u32)>,
}

impl Counters {
    pub(super) fn new(wanted: Vec<Counter>) -> Self {
        let mut banks: Vec<u32> = wanted.iter().map(|counter| counter.bank).collect();
        banks.sort_unstable();
        banks.dedup();
        let range = |bank: u32| {
            let slots = || {
                wanted
                    .iter()
                    .filter(|counter| counter.bank == bank)
                    .map(|counter| counter.slot)
            };
            let (first, last) = (slots().min()?, slots().max()?);
            Some((bank, first, (last - first).saturating_add(1)))
        };
        let ranges = banks.into_iter().filter_map(range).collect();
        Self {
            wanted: wanted.into_iter().map(|counter| (counter, 0)).collect(),
            ranges,
        }
    }

    /// Reads all of them, and returns those that have changed since they were last read.
    pub(super) fn changed(&mut self, device: &Device) -> std::io::Result<Vec<Total>> {
        let mut changed = Vec::new();
        for &(bank, first, count) in &self.ranges {
            let sums = device.counters(bank, first, count)?;
            for (counter, last) in self
                .wanted
                .iter_mut()
                .filter(|(counter, _)| counter.bank == bank)
            {
                let Some(hits) = sums.get((counter.slot - first) as usize).copied() else {
                    continue;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bank_is_read_in_one_piece() {
        let counter = |bank, slot| Counter { id: 0, bank, slot };
        let counters = Counters::new(vec![counter(1, 7), counter(0, 3), counter(1, 5)]);
        assert_eq!(counters.ranges, [(0, 3, 1), (1, 5, 3)]);
        assert!(Counters::new(Vec::new()).ranges.is_empty());
    }
}
