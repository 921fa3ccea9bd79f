//! Counters of a session: where they are, and what was last told of them.

use super::device::Device;
use crate::protocol::{Counter, Total};

pub(super) struct Counters {
    /// By bank.
    banks: Vec<Bank>,
}

struct Bank {
    bank: u32,
    /// The first counter wanted, and how many from there.
    first: u32,
    count: u32,
    /// What was last told of each.
    wanted: Vec<(Counter, u64)>,
}

impl Counters {
    pub(super) fn new(mut wanted: Vec<Counter>) -> Self {
        wanted.sort_by_key(|counter| counter.bank);
        let banks = wanted.chunk_by(|one, next| one.bank == next.bank);
        Self {
            banks: banks.filter_map(Bank::new).collect(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.banks.iter().map(|bank| bank.wanted.len()).sum()
    }

    /// Reads all of them, and returns those that have changed since they were last read.
    pub(super) fn changed(&mut self, device: &Device) -> std::io::Result<Vec<Total>> {
        let mut changed = Vec::new();
        for bank in &mut self.banks {
            let words = device.counters(bank.bank, bank.first, bank.count)?;
            for (counter, last) in &mut bank.wanted {
                let Some(word) = words.get((counter.slot - bank.first) as usize) else {
                    continue;
                };
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

impl Bank {
    /// Counters of one bank; `None` if there are none.
    fn new(wanted: &[Counter]) -> Option<Self> {
        let slots = || wanted.iter().map(|counter| counter.slot);
        let (first, last) = (slots().min()?, slots().max()?);
        Some(Self {
            bank: wanted.first()?.bank,
            first,
            count: (last - first).saturating_add(1),
            wanted: wanted.iter().map(|counter| (*counter, 0)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bank_is_read_in_one_piece() {
        let counter = |bank, slot| Counter {
            id: 0,
            bank,
            slot,
            largest: false,
        };
        let counters = Counters::new(vec![counter(1, 7), counter(0, 3), counter(1, 5)]);
        let ranges = |bank: &Bank| (bank.bank, bank.first, bank.count);
        assert_eq!(
            counters.banks.iter().map(ranges).collect::<Vec<_>>(),
            [(0, 3, 1), (1, 5, 3)]
        );
        assert_eq!(counters.count(), 3);
        assert_eq!(Counters::new(Vec::new()).count(), 0);
    }
}
