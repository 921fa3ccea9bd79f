//! Typed indices and dense maps keyed by them.
//!
//! An index that belongs to one table is a type of its own ([`id!`](macro@crate::id)), and the table is an
//! [`Ids`], which is indexed by that type alone. So an index of one table cannot be used on another, and
//! an index that is not in its table is a defect of the program, not an input: [`Index`] panics and names
//! both. Use [`Ids::find`] for an index that comes from outside, such as a plan's or a file's.
//!
//! The model is `cranelift-entity`. The crate itself would bring two more crates of Wasmtime, released
//! monthly, for what these lines do.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut, Range};

/// A key of an [`Ids`].
pub trait Id: Copy + Eq + fmt::Debug {
    /// The key at a position of the table.
    fn new(index: usize) -> Self;
    /// The position in the table.
    fn index(self) -> usize;
}

/// Defines a key type, an [`Id`] of 32 bits. With `(pub)` after its name, its number is public, for
/// keys that files or messages name.
///
/// # Examples
/// ```
/// use gilk_samples::ids::{Ids, id};
///
/// id!(
///     /// Number of a lane, from the top.
///     LaneNumber
/// );
///
/// let mut labels = Ids::<LaneNumber, &str>::new();
/// let first = labels.push("counter");
/// assert_eq!(labels[first], "counter");
/// ```
#[macro_export]
macro_rules! id {
    ($(#[$attribute:meta])* $visibility:vis $name:ident $(($number:vis))?) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility struct $name($($number)? u32);

        impl $crate::ids::Id for $name {
            fn new(index: usize) -> Self {
                debug_assert!(u32::try_from(index).is_ok(), "{index} as a {}", stringify!($name));
                // Beyond 2³² entries the key is in no table, so that its use panics.
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub use id;

/// The entry of a key in a slice that has one for each key, as public types keep them. A key that is in no
/// entry is a defect, as it is in [`Ids`].
#[expect(
    clippy::indexing_slicing,
    reason = "a key that is in no entry is a defect"
)]
#[must_use]
pub fn entry<K: Id, V>(values: &[V], key: K) -> &V {
    debug_assert!(key.index() < values.len(), "{key:?} of {}", values.len());
    &values[key.index()]
}

/// The part of a slice that a range of it names. A range beyond the slice is a defect, as it is in [`Ids`].
#[expect(
    clippy::indexing_slicing,
    reason = "a range that is not in the slice is a defect"
)]
#[must_use]
pub fn part<V>(values: &[V], range: Range<usize>) -> &[V] {
    debug_assert!(
        range.start <= range.end && range.end <= values.len(),
        "{range:?} of {}",
        values.len()
    );
    &values[range]
}

/// A number of things, or of bytes, that is known to fit 32 bits: more is a defect.
#[must_use]
pub fn to_u32(count: usize) -> u32 {
    debug_assert!(
        u32::try_from(count).is_ok(),
        "{count} as a number of 32 bits"
    );
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A dense map: entry `n` belongs to key `n`.
#[derive(Clone, PartialEq, Eq)]
pub struct Ids<K, V> {
    values: Vec<V>,
    keys: PhantomData<K>,
}

impl<K: Id, V> Ids<K, V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            values: Vec::new(),
            keys: PhantomData,
        }
    }

    /// A map with one clone of `value` for each key of `other`.
    #[must_use]
    pub fn like<W>(other: &Ids<K, W>, value: V) -> Self
    where
        V: Clone,
    {
        vec![value; other.len()].into()
    }

    /// Appends a value; returns its key.
    pub fn push(&mut self, value: V) -> K {
        let key = K::new(self.values.len());
        self.values.push(value);
        key
    }

    /// The entry, or `None` for a key that is not in the map: for keys that come from outside. (A method
    /// `get` would make the lint against indexing apply to the type.)
    #[must_use]
    pub fn find(&self, key: K) -> Option<&V> {
        self.values.get(key.index())
    }

    /// Like [`Self::find`], mutable.
    #[must_use]
    pub fn find_mut(&mut self, key: K) -> Option<&mut V> {
        self.values.get_mut(key.index())
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// All keys, ascending.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = K> + ExactSizeIterator + use<K, V> {
        (0..self.values.len()).map(K::new)
    }

    /// Keys and values, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.keys().zip(&self.values)
    }

    /// Keys and mutable values, ascending.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (K, &mut V)> {
        self.keys().zip(&mut self.values)
    }

    /// All values, in the order of their keys.
    #[must_use]
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// The values, in the order of their keys.
    #[must_use]
    pub fn into_values(self) -> Vec<V> {
        self.values
    }

    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.values.clear();
    }

    /// Removes all entries from position `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.values.truncate(len);
    }
}

impl<K: Id, V> Default for Ids<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> From<Vec<V>> for Ids<K, V> {
    fn from(values: Vec<V>) -> Self {
        let keys = PhantomData;
        Self { values, keys }
    }
}

impl<K, V> FromIterator<V> for Ids<K, V> {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        Self::from(Vec::from_iter(values))
    }
}

impl<K: Id, V> Index<K> for Ids<K, V> {
    type Output = V;

    #[expect(
        clippy::indexing_slicing,
        reason = "a key that is in no entry is a defect"
    )]
    fn index(&self, key: K) -> &V {
        debug_assert!(key.index() < self.len(), "{key:?} of {}", self.len());
        &self.values[key.index()]
    }
}

impl<K: Id, V> IndexMut<K> for Ids<K, V> {
    #[expect(
        clippy::indexing_slicing,
        reason = "a key that is in no entry is a defect"
    )]
    fn index_mut(&mut self, key: K) -> &mut V {
        debug_assert!(key.index() < self.len(), "{key:?} of {}", self.len());
        &mut self.values[key.index()]
    }
}

impl<K: Id, V: fmt::Debug> fmt::Debug for Ids<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A dense map from keys to slices, which share one allocation.
#[derive(Clone, Debug)]
pub struct Slices<K, T> {
    /// End of each slice, which begins at the end of the previous one.
    ends: Vec<usize>,
    values: Vec<T>,
    keys: PhantomData<K>,
}

impl<K: Id, T: Clone> Slices<K, T> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ends: Vec::new(),
            values: Vec::new(),
            keys: PhantomData,
        }
    }

    /// An empty map with memory for so many slices and so many values.
    #[must_use]
    pub fn with_capacity(slices: usize, values: usize) -> Self {
        Self {
            ends: Vec::with_capacity(slices),
            values: Vec::with_capacity(values),
            keys: PhantomData,
        }
    }

    /// Appends a slice; returns its key.
    pub fn push(&mut self, slice: &[T]) -> K {
        let key = K::new(self.ends.len());
        self.values.extend_from_slice(slice);
        self.ends.push(self.values.len());
        key
    }

    /// Removes all slices from position `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.values.truncate(self.ends.last().copied().unwrap_or(0));
    }
}

impl<K: Id, T: Clone> Default for Slices<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Id, T> Index<K> for Slices<K, T> {
    type Output = [T];

    #[expect(
        clippy::indexing_slicing,
        reason = "a key that is in no entry is a defect"
    )]
    fn index(&self, key: K) -> &[T] {
        let index = key.index();
        debug_assert!(index < self.ends.len(), "{key:?} of {}", self.ends.len());
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.values[start..self.ends[index]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    id!(
        /// Key of the test's table.
        TestId
    );

    #[test]
    fn keys_count_from_zero_and_index_their_entries() {
        let mut names = Ids::<TestId, &str>::new();
        let (first, second) = (names.push("first"), names.push("second"));
        names[second] = "changed";
        assert_eq!((names[first], names[second]), ("first", "changed"));
        assert_eq!(names.keys().collect::<Vec<_>>(), [first, second]);
        assert_eq!(names.find(TestId::new(2)), None);
    }

    #[test]
    fn slices_are_apart_and_truncated_from_the_end() {
        let mut slices = Slices::<TestId, u8>::new();
        let keys = [&[1, 2][..], &[], &[3]].map(|slice| slices.push(slice));
        assert_eq!(
            keys.map(|key| slices[key].to_vec()),
            [vec![1, 2], vec![], vec![3]]
        );
        slices.truncate(1);
        let again = slices.push(&[4]);
        assert_eq!((again, &slices[again]), (keys[1], &[4][..]));
    }

    #[test]
    #[should_panic(expected = "TestId(1) of 1")]
    fn a_key_of_another_table_panics() {
        let names = Ids::<TestId, ()>::from(vec![()]);
        let () = names[TestId::new(1)];
    }
}
