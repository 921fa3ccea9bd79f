//! The table of an aggregate by key: where the values of a key are added, and how they are read.

use std::collections::BTreeMap;

/// The table of an aggregate that distinguishes keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Words of a key.
    pub keys: u32,
    /// True if the index of a histogram's bucket follows them.
    pub binned: bool,
    /// True if a bucket has the sum of its values.
    pub summed: bool,
    /// Binary logarithm of the number of buckets in both tables together.
    pub room_log2: u32,
}

impl Table {
    /// Factors of the two hash functions: odd, and without a pattern.
    pub const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];
    /// Bits that a value is shifted by to be mixed with itself.
    pub const MIXED: u32 = 29;
    /// Factor of the hash of a key of several words.
    pub const SPREAD: u64 = 0xbf58_476d_1ce4_e5b9;

    /// Returns the number of sums of a bucket: the number of values, the lower and upper half of each word, the index,
    /// the mark, the sum.
    #[must_use]
    pub fn sums(self) -> u32 {
        2 + 2 * self.keys + u32::from(self.binned) + u32::from(self.summed)
    }

    /// Returns the terms that an entry adds to the sums of its bucket: its words, with the index of a histogram's bucket
    /// among them, and the value for a sum.
    #[must_use]
    pub fn parts(self, words: &[u64], value: u64) -> Vec<u64> {
        let (keys, bin) = words.split_at(words.len().min(self.keys as usize));
        let halves = keys
            .iter()
            .flat_map(|&word| [word & 0xffff_ffff, word >> 32]);
        let mark = Self::mark(Self::hash(words));
        let parts = std::iter::once(1).chain(halves).chain(bin.iter().copied());
        parts
            .chain([mark])
            .chain(self.summed.then_some(value))
            .collect()
    }

    /// Returns the hash of the words of a key: the word, if there is one.
    #[must_use]
    pub fn hash(words: &[u64]) -> u64 {
        let next = |hash: u64, word: &u64| {
            let mixed = (hash ^ hash >> Self::MIXED).wrapping_mul(Self::SPREAD);
            mixed.wrapping_add(*word)
        };
        let (first, rest) = words.split_first().unwrap_or((&0, &[]));
        rest.iter().fold(*first, next)
    }

    /// The bucket of a value in one of the two tables.
    #[must_use]
    pub fn place(room_log2: u32, table: u32, value: u64) -> u32 {
        let half_log2 = room_log2.saturating_sub(1);
        let [first, second] = Self::FACTORS;
        let factor = if table == 0 { first } else { second };
        let place = value.wrapping_mul(factor).checked_shr(64 - half_log2);
        u32::try_from(place.unwrap_or(0)).unwrap_or(0) + (table << half_log2)
    }

    /// Returns a hash that distinguishes one value from several with the same mean.
    #[must_use]
    pub fn mark(value: u64) -> u64 {
        let mixed = value ^ value >> Self::MIXED;
        mixed.wrapping_mul(mixed)
    }

    /// Returns the entries by the words of their keys, and the number of values that cannot be decoded.
    pub(super) fn decode(self, sums: &[u64]) -> (BTreeMap<Vec<u64>, KeyTotal>, u64) {
        let room = 1_u32 << self.room_log2;
        let at = |place: u32, sum: u32| {
            let word = sums.get((place + (sum << self.room_log2)) as usize);
            word.copied().unwrap_or(0)
        };
        let bucket = |place| Bucket((0..self.sums()).map(|sum| at(place, sum)).collect());
        let mut buckets: Vec<Bucket> = (0..room).map(bucket).collect();
        let mut seen = BTreeMap::<Vec<u64>, KeyTotal>::new();
        // A key that was taken out may leave another one alone.
        let mut looked: Vec<u32> = (0..room).collect();
        while let Some(place) = looked.pop() {
            let half = u32::from(place >= room / 2);
            let bucket = buckets.get(place as usize);
            let Some((words, entry)) = bucket.and_then(|one| one.only(place, half, self)) else {
                continue;
            };
            let other = Table::place(self.room_log2, 1 - half, Table::hash(&words));
            // While sums are read they change: what is in one table only stays where it is.
            let there = buckets
                .get(other as usize)
                .and_then(|one| one.without(&words, entry, self));
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
}

/// The total of a key in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyTotal {
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
    fn only(&self, place: u32, half: u32, table: Table) -> Option<(Vec<u64>, KeyTotal)> {
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
        let hash = Table::hash(&words);
        let alike = Table::mark(hash).wrapping_mul(count) == self.sum(mark)
            && Table::place(table.room_log2, half, hash) == place;
        let sum = if table.summed { self.sum(mark + 1) } else { 0 };
        alike.then_some((words, KeyTotal { count, sum }))
    }

    fn without(&self, words: &[u64], entry: KeyTotal, table: Table) -> Option<Self> {
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
