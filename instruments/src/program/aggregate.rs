//! Aggregates: what is added up where it happens, in words of each CPU, and read now and then.

use gilk_samples::texts::{ValueNames, text_of};
use gilk_samples::totals::{KeyPart, TotalRow};
pub use gilk_samples::totals::{TotalBucket as Bucket, TotalValue as Summary};
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Type;
use super::table::{KeyTotal, Table};

/// Something added up in memory, by CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// Its name, without the `@`.
    pub name: String,
    /// The function that is computed.
    pub kind: AggregateKind,
    /// Type of the values.
    pub ty: Type,
    /// Names of the values of each part of a key; none if no part has names.
    pub names: Vec<ValueNames>,
}

/// The function that an aggregate computes.
///
/// Each CPU has [`words`](Aggregate::words) of its own, all zero at the start, and a value changes them by
/// [`update`](Aggregate::update). Each step is one addition to one word, or (smallest and largest) one unsigned
/// maximum, so an interrupt between two steps loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AggregateKind {
    /// The number of values: word 0.
    Count,
    /// The sum, wrapping: word 0 how many, by which a sum of 0 differs from none, word 1 their sum.
    Sum,
    /// The smallest: word 0 how many, word 1 the largest of the values' complements.
    Min,
    /// The largest: word 0 how many, word 1 the largest value. Signed values have their sign bit
    /// flipped, so that they compare without signs.
    Max,
    /// The mean: word 0 how many, word 1 their sum.
    Average,
    /// By powers of two: word 0 below zero, word 1 zero, word 2 + n from 2^n to 2^(n+1) - 1.
    Log2,
    /// By equal steps: word 0 below `from`, word 1 + n from `from + n * step`, the last word from `to`.
    Linear {
        /// The lower bound of the first bucket.
        from: i64,
        /// The upper bound of the last.
        to: i64,
        /// Width of a bucket.
        step: u64,
    },
    /// The number of occurrences of each value, in an invertible Bloom lookup table (Goodrich and Mitzenmacher,
    /// 2011). There are two tables of buckets, and a value goes into one bucket of each, by
    /// [`place`](Table::place). A bucket has the number of its values, the sums of their lower and of their
    /// upper halves, and the sum of their [`mark`](Table::mark)s: sums only, so that processors and
    /// interrupts do not disturb each other. A bucket with a single value yields that value and its count;
    /// subtracted from the other table, it may leave further buckets with a single value. Words: the counts of
    /// all buckets, the lower halves, the upper halves, the marks.
    Values {
        /// Binary logarithm of the number of buckets in both tables together.
        room_log2: u32,
    },
    /// A total for each key, in the same kind of table: a bucket has the number of its values, the sums of the halves
    /// of each word of their keys, the sum of the marks, and for a sum or a mean the sum of the values. A histogram
    /// counts pairs of a key and the index of a bucket of the histogram, as if that were another word of the key.
    Map {
        /// The parts of a key.
        keys: Keys,
        /// The total of a key.
        of: Mapped,
        /// Binary logarithm of the number of buckets in both tables together.
        room_log2: u32,
    },
}

/// The parts of a key; the second may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Keys(pub Key, pub Option<Key>);

/// A part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Key {
    /// A word.
    Number(Type),
    /// A text of 16 bytes: two words.
    Name,
}

impl Key {
    /// Last byte of a text that has more than 15.
    pub const CUT: u8 = gilk_samples::texts::CUT;

    /// Returns the number of its words.
    #[must_use]
    pub const fn words(self) -> u32 {
        match self {
            Self::Number(_) => 1,
            Self::Name => 2,
        }
    }
}

impl Keys {
    /// The most words of a key.
    pub const MOST_WORDS: u32 = 4;

    /// Returns the number of words of a key.
    #[must_use]
    pub fn words(self) -> u32 {
        self.0.words() + self.1.map_or(0, Key::words)
    }

    /// Returns the parts that words stand for.
    fn parts(self, words: &[u64]) -> Vec<KeyPart> {
        let mut words = words.iter().copied();
        let mut next = || words.next().unwrap_or(0);
        let part = |key| match key {
            Key::Number(ty) => KeyPart::Number(if ty.signed() {
                next().cast_signed().into()
            } else {
                next().into()
            }),
            Key::Name => KeyPart::Text(text_of([next(), next()])),
        };
        std::iter::once(self.0).chain(self.1).map(part).collect()
    }
}

/// The total of a key. No smallest and no largest is among them: a bucket of several keys is decoded by subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mapped {
    /// The number of values.
    Count,
    /// The sum of the values, wrapping.
    Sum,
    /// The mean.
    Average,
    /// By powers of two.
    Log2,
    /// By equal steps, as [`AggregateKind::Linear`].
    Linear {
        /// The lower bound of the first bucket.
        from: i64,
        /// The upper bound of the last.
        to: i64,
        /// Width of a bucket.
        step: u64,
    },
}

impl Mapped {
    /// Returns the table of a map.
    #[must_use]
    pub fn table(self, keys: Keys, room_log2: u32) -> Table {
        Table {
            keys: keys.words(),
            binned: matches!(self, Self::Log2 | Self::Linear { .. }),
            summed: matches!(self, Self::Sum | Self::Average),
            room_log2,
        }
    }

    /// Returns the same total without keys.
    #[must_use]
    pub const fn plain(self) -> AggregateKind {
        match self {
            Self::Count => AggregateKind::Count,
            Self::Sum => AggregateKind::Sum,
            Self::Average => AggregateKind::Average,
            Self::Log2 => AggregateKind::Log2,
            Self::Linear { from, to, step } => AggregateKind::Linear { from, to, step },
        }
    }
}

impl Aggregate {
    /// Words of the histogram by powers of two.
    pub const LOG2_WORDS: u32 = 66;
    /// Most words of a linear histogram.
    pub const LINEAR_WORDS: u32 = 258;

    /// Returns the number of words of each CPU.
    #[must_use]
    pub fn words(&self) -> u32 {
        match self.kind {
            AggregateKind::Count => 1,
            AggregateKind::Sum
            | AggregateKind::Min
            | AggregateKind::Max
            | AggregateKind::Average => 2,
            AggregateKind::Log2 => Self::LOG2_WORDS,
            AggregateKind::Linear { from, to, step } => linear_words(from, to, step),
            AggregateKind::Values { .. } | AggregateKind::Map { .. } => self
                .table()
                .map_or(0, |table| table.sums() << table.room_log2),
        }
    }

    /// Returns the table of the aggregate, if it distinguishes keys.
    #[must_use]
    pub fn table(&self) -> Option<Table> {
        match self.kind {
            AggregateKind::Values { room_log2 } => Some(Table {
                keys: 1,
                binned: false,
                summed: false,
                room_log2,
            }),
            AggregateKind::Map {
                keys,
                of,
                room_log2,
            } => Some(of.table(keys, room_log2)),
            _ => None,
        }
    }

    /// Returns the aggregate that a map has for each key.
    #[must_use]
    pub fn mapped(&self) -> Option<Self> {
        match self.kind {
            AggregateKind::Map { of, .. } => Some(Self {
                name: self.name.clone(),
                kind: of.plain(),
                ty: self.ty,
                names: Vec::new(),
            }),
            _ => None,
        }
    }

    /// Adds a value, after the words of its key if it has one, to the words of its CPU. Missing words are left out.
    pub fn update(&self, words: &mut [u64], values: &[u64]) {
        let value = values.last().copied().unwrap_or(0);
        let flip = if self.ty.signed() { 1 << 63 } else { 0 };
        let mut add = |index: u32, amount: u64| {
            if let Some(word) = words.get_mut(index as usize) {
                *word = word.wrapping_add(amount);
            }
        };
        match self.kind {
            AggregateKind::Count => add(0, 1),
            AggregateKind::Sum | AggregateKind::Average => {
                add(0, 1);
                add(1, value);
            }
            AggregateKind::Min | AggregateKind::Max => {
                add(0, 1);
                let key = if self.kind == AggregateKind::Min {
                    !(value ^ flip)
                } else {
                    value ^ flip
                };
                if let Some(word) = words.get_mut(1) {
                    *word = (*word).max(key);
                }
            }
            AggregateKind::Log2 | AggregateKind::Linear { .. } => {
                add(self.bucket(value).unwrap_or(0), 1);
            }
            AggregateKind::Values { .. } | AggregateKind::Map { .. } => {
                let Some(table) = self.table() else { return };
                let mut entry: Vec<u64> =
                    values.iter().copied().take(table.keys as usize).collect();
                let bin = self.mapped().and_then(|mapped| mapped.bucket(value));
                entry.extend(bin.map(u64::from));
                for half in [0, 1] {
                    let place = Table::place(table.room_log2, half, Table::hash(&entry));
                    for (sum, amount) in (0..).zip(table.parts(&entry, value)) {
                        add(place + (sum << table.room_log2), amount);
                    }
                }
            }
        }
    }

    /// The word that a histogram counts a value in.
    #[must_use]
    pub fn bucket(&self, value: u64) -> Option<u32> {
        match self.kind {
            AggregateKind::Log2 if self.ty.signed() && value.cast_signed() < 0 => Some(0),
            AggregateKind::Log2 => Some(value.checked_ilog2().map_or(1, |log| 2 + log)),
            AggregateKind::Linear { from, to, step } => {
                let last = linear_words(from, to, step) - 1;
                let value = self.wide(value);
                Some(if value < i128::from(from) {
                    0
                } else if value >= i128::from(to) {
                    last
                } else {
                    let place = (value - i128::from(from)) / i128::from(step.max(1));
                    u32::try_from(1 + place).unwrap_or(last)
                })
            }
            _ => None,
        }
    }

    /// The value that 64 bits are.
    #[must_use]
    pub fn wide(&self, bits: u64) -> i128 {
        if self.ty.signed() {
            i128::from(bits.cast_signed())
        } else {
            i128::from(bits)
        }
    }

    /// Returns the result from the words of all CPUs.
    #[must_use]
    pub fn read<'a>(&self, cpus: impl IntoIterator<Item = &'a [u64]>) -> Summary {
        let cpus: Vec<&[u64]> = cpus.into_iter().collect();
        let word = |words: &[u64], index: u32| words.get(index as usize).copied().unwrap_or(0);
        let sum = |index: u32| {
            cpus.iter()
                .fold(0u64, |sum, words| sum.wrapping_add(word(words, index)))
        };
        let flip = if self.ty.signed() { 1 << 63 } else { 0 };
        match self.kind {
            AggregateKind::Count => Summary::Number(i128::from(sum(0))),
            AggregateKind::Min | AggregateKind::Max if sum(0) == 0 => Summary::Nothing,
            AggregateKind::Min | AggregateKind::Max => {
                let key = cpus.iter().map(|words| word(words, 1)).max().unwrap_or(0);
                let value = if self.kind == AggregateKind::Min {
                    !key ^ flip
                } else {
                    key ^ flip
                };
                Summary::Number(self.wide(value))
            }
            AggregateKind::Sum | AggregateKind::Average if sum(0) == 0 => Summary::Nothing,
            AggregateKind::Sum => Summary::Number(self.wide(sum(1))),
            #[expect(clippy::cast_precision_loss, reason = "a mean is a fraction")]
            AggregateKind::Average => Summary::Mean(self.wide(sum(1)) as f64 / sum(0) as f64),
            AggregateKind::Log2 | AggregateKind::Linear { .. } => Summary::Buckets(
                (0..self.words())
                    .map(|index| {
                        let (from, to) = self.bounds(index);
                        Bucket {
                            from,
                            to,
                            count: sum(index),
                        }
                    })
                    .collect(),
            ),
            AggregateKind::Values { .. } => {
                let sums: Vec<u64> = (0..self.words()).map(sum).collect();
                let (seen, other) = self.decoded(&sums);
                let mut values: Vec<(i128, u64)> = seen
                    .into_iter()
                    .map(|(words, entry)| (self.wide(Table::hash(&words)), entry.count))
                    .collect();
                values.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
                Summary::Values(values, other)
            }
            AggregateKind::Map { keys, of, .. } => {
                let sums: Vec<u64> = (0..self.words()).map(sum).collect();
                let (seen, other) = self.decoded(&sums);
                Summary::Map(self.rows(keys, of, seen), other)
            }
        }
    }

    /// Returns the entries of the table, and the number of values of those that cannot be decoded.
    fn decoded(&self, sums: &[u64]) -> (BTreeMap<Vec<u64>, KeyTotal>, u64) {
        self.table()
            .map(|table| table.decode(sums))
            .unwrap_or_default()
    }

    /// Returns the totals of all keys, the largest first.
    fn rows(&self, keys: Keys, of: Mapped, seen: BTreeMap<Vec<u64>, KeyTotal>) -> Vec<TotalRow> {
        let mut bins = BTreeMap::<Vec<KeyPart>, Vec<u64>>::new();
        let mut rows = Vec::new();
        let buckets = self.mapped().map_or(0, |mapped| mapped.words());
        for (words, KeyTotal { count, sum }) in seen {
            let key = self.named(keys.parts(&words));
            let value = match of {
                Mapped::Count => Summary::Number(count.into()),
                Mapped::Sum => Summary::Number(self.wide(sum)),
                #[expect(clippy::cast_precision_loss, reason = "a mean is a fraction")]
                Mapped::Average => Summary::Mean(self.wide(sum) as f64 / count.max(1) as f64),
                Mapped::Log2 | Mapped::Linear { .. } => {
                    let all = bins.entry(key).or_insert_with(|| vec![0; buckets as usize]);
                    let bin = words.last().and_then(|&bin| usize::try_from(bin).ok());
                    if let Some(counted) = bin.and_then(|bin| all.get_mut(bin)) {
                        *counted += count;
                    }
                    continue;
                }
            };
            rows.push(TotalRow { key, value });
        }
        rows.extend(bins.into_iter().filter_map(|(key, words)| {
            let value = self.mapped()?.read([words.as_slice()]);
            Some(TotalRow { key, value })
        }));
        TotalRow::sort(&mut rows);
        rows
    }

    /// Replaces the values of enumerations by their names.
    fn named(&self, mut key: Vec<KeyPart>) -> Vec<KeyPart> {
        for (part, names) in key.iter_mut().zip(&self.names) {
            if let KeyPart::Number(value) = part
                && let Some(name) = names.name(*value)
            {
                *part = KeyPart::Text(name);
            }
        }
        key
    }

    /// The smallest and the largest value of a histogram's word.
    fn bounds(&self, index: u32) -> (Option<i128>, Option<i128>) {
        match self.kind {
            AggregateKind::Log2 => match index {
                0 => (None, Some(-1)),
                1 => (Some(0), Some(0)),
                _ => (Some(1 << (index - 2)), Some((1 << (index - 1)) - 1)),
            },
            AggregateKind::Linear { from, to, step } => {
                let (from, to, step) = (i128::from(from), i128::from(to), i128::from(step));
                let last = self.words() - 1;
                if index == 0 {
                    (None, Some(from - 1))
                } else if index == last {
                    (Some(to), None)
                } else {
                    let low = from + (i128::from(index) - 1) * step;
                    (Some(low), Some((low + step).min(to) - 1))
                }
            }
            _ => (None, None),
        }
    }
}

/// Words of a linear histogram: below, the steps, above.
fn linear_words(from: i64, to: i64, step: u64) -> u32 {
    let room = u128::try_from(i128::from(to) - i128::from(from)).unwrap_or(0);
    let steps = room.div_ceil(u128::from(step.max(1)));
    u32::try_from(steps + 2).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
