//! A vector for graph algorithms whose every index is answered.

use std::ops::{Index, IndexMut};

/// A vector indexed by nodes, cells or layers. An index beyond its end reads the fallback and
/// writes into a spare, so that a mistake in a layout draws a wrong line and never ends the window.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    items: Vec<T>,
    fallback: T,
    spare: T,
}

impl<T: Clone + Default> Table<T> {
    /// `len` items, all of them `T::default()`.
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

    /// How many items there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// All items in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.items.iter()
    }

    /// All items in order, to change.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    /// The items as a plain vector.
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
