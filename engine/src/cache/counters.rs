//! The numbers of counters: each is of one block at a time.

use crate::ids::to_u32;

/// The numbers of counters that no block has: those of dropped blocks, and all from one on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterNumbers {
    released: Vec<u32>,
    next: u32,
}

impl CounterNumbers {
    /// The number that is the next one after some others are taken.
    pub(super) fn after(&self, others: u32) -> u32 {
        let released = to_u32(self.released.len());
        match self.released.iter().rev().nth(others as usize) {
            Some(number) => *number,
            None => self.next.saturating_add(others.saturating_sub(released)),
        }
    }

    /// Takes as many numbers: blocks have them now.
    pub(super) fn take(&mut self, count: u32) {
        let released = to_u32(self.released.len());
        let left = released.saturating_sub(count);
        self.released.truncate(left as usize);
        self.next = self.next.saturating_add(count.saturating_sub(released));
    }

    /// Gives back the number of a block that no thread is in or will execute.
    pub fn release(&mut self, number: u32) {
        debug_assert!(number < self.next, "counter {number} is of no block");
        self.released.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_numbers_are_taken_before_new_ones() {
        let mut numbers = CounterNumbers::default();
        numbers.take(3);
        numbers.release(2);
        numbers.release(0);
        assert_eq!(
            [0, 1, 2, 3].map(|others| numbers.after(others)),
            [0, 2, 3, 4]
        );
        numbers.take(1);
        assert_eq!([0, 1].map(|others| numbers.after(others)), [2, 3]);
        numbers.take(2);
        assert_eq!(numbers.after(0), 4);
    }
}
