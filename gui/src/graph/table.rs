//! A vector for graph algorithms with total indexing.

use std::ops::{Index, IndexMut};

/// A vector indexed by nodes, cells or layers. An index out of range is a bug that panics in debug
/// builds; in release builds it yields the fallback and writes to a spare item, so that a mistake
/// in a layout draws a wrong line and does not end the window.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    items: Vec<T>,
    fallback: T,
    spare: T,
}

impl<T: Clone + Default> Table<T> {
    /// Creates `len` items, each `T::default()`.
    pub(crate) fn new(len: usize) -> Self {
        Self {
            items: vec![T::default(); len],
            fallback: T::default(),
            spare: T::default(),
        }
    }

    /// Appends an item and returns its index.
    pub(crate) fn push(&mut self, item: T) -> usize {
        self.items.push(item);
        self.items.len() - 1
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Iterates over the items in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.items.iter()
    }

    /// Iterates over the items in order, mutably.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    /// Returns the items as a plain vector.
    pub(crate) fn into_vec(self) -> Vec<T> {
        self.items
    }
}

impl<T: Clone + Default> From<Vec<T>> for Table<T> {
    fn from(items: Vec<T>) -> Self {
        Self {
            items,
            fallback: T::default(),
            spare: T::default(),
        }
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        debug_assert!(
            index < self.items.len(),
            "index {index} of {}",
            self.items.len()
        );
        self.items.get(index).unwrap_or(&self.fallback)
    }
}

impl<T> IndexMut<usize> for Table<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        debug_assert!(
            index < self.items.len(),
            "index {index} of {}",
            self.items.len()
        );
        match self.items.get_mut(index) {
            Some(item) => item,
            None => &mut self.spare,
        }
    }
}
