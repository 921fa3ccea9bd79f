//! Decodes the keys and their totals from the sums of their buckets.

use std::collections::BTreeMap;

use super::{Aggregate, Table};

/// What a table has of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The number of its values.
    pub(super) count: u64,
    /// Their sum, if the table has sums.
    pub(super) sum: u64,
}

/// The sums of one bucket.
#[derive(Clone, PartialEq)]
struct Bucket(Vec<u64>);

impl Bucket {
    fn sum(&self, number: u32) -> u64 {
        self.0.get(number as usize).copied().unwrap_or(0)
    }

    /// Returns the words of the key, and its entry, if values of a single one came here.
    fn only(&self, place: u32, half: u32, table: Table) -> Option<(Vec<u64>, Entry)> {
        let count = self.sum(0);
        let mean = |number: u32| {
            let sum = self.sum(number);
            let mean = sum.checked_div(count)?;
            (sum.is_multiple_of(count) && mean <= 0xffff_ffff).then_some(mean)
        };
        let mut words = Vec::new();
        for key in 0..table.keys {
            words.push(mean(2 + 2 * key)? << 32 | mean(1 + 2 * key)?);
        }
        let mark = 1 + 2 * table.keys + u32::from(table.binned);
        if table.binned {
            words.push(mean(mark - 1)?);
        }
        let hash = Aggregate::hash(&words);
        let alike = Aggregate::mark(hash).wrapping_mul(count) == self.sum(mark)
            && Aggregate::place(table.room_log2, half, hash) == place;
        let sum = if table.summed { self.sum(mark + 1) } else { 0 };
        alike.then_some((words, Entry { count, sum }))
    }

    fn without(&self, words: &[u64], entry: Entry, table: Table) -> Option<Self> {
        let mut rest = self.0.clone();
        let parts = table.parts(words, 0);
        for (sum, part) in rest.iter_mut().zip(parts) {
            *sum = sum.wrapping_sub(part.wrapping_mul(entry.count));
        }
        // The last sum, if there are sums, is not a multiple of the count.
        if let (true, Some(sum)) = (table.summed, rest.last_mut()) {
            *sum = sum.wrapping_sub(entry.sum);
        }
        (self.sum(0) >= entry.count).then_some(Self(rest))
    }
}

/// Returns the entries by the words of their keys, and the number of values that cannot be decoded.
pub(super) fn decode(table: Table, sums: &[u64]) -> (BTreeMap<Vec<u64>, Entry>, u64) {
    let room = 1_u32 << table.room_log2;
    let at = |place: u32, sum: u32| {
        let word = sums.get((place + (sum << table.room_log2)) as usize);
        word.copied().unwrap_or(0)
    };
    let bucket = |place| Bucket((0..table.sums()).map(|sum| at(place, sum)).collect());
    let mut buckets: Vec<Bucket> = (0..room).map(bucket).collect();
    let mut seen = BTreeMap::<Vec<u64>, Entry>::new();
    // A key that was taken out may leave another one alone.
    let mut looked: Vec<u32> = (0..room).collect();
    while let Some(place) = looked.pop() {
        let half = u32::from(place >= room / 2);
        let bucket = buckets.get(place as usize);
        let Some((words, entry)) = bucket.and_then(|one| one.only(place, half, table)) else {
            continue;
        };
        let other = Aggregate::place(table.room_log2, 1 - half, Aggregate::hash(&words));
        // While sums are read they change: what is in one table only stays where it is.
        let there = buckets
            .get(other as usize)
            .and_then(|one| one.without(&words, entry, table));
        if let (Some(there), Some(left)) = (there, buckets.get_mut(other as usize)) {
            *left = there;
            if let Some(here) = buckets.get_mut(place as usize) {
                here.0.fill(0);
            }
            let known = seen.entry(words).or_default();
            known.count += entry.count;
            known.sum = known.sum.wrapping_add(entry.sum);
            looked.push(other);
        }
    }
    let first = buckets.iter().take(room as usize / 2);
    (seen, first.map(|bucket| bucket.sum(0)).sum())
}
