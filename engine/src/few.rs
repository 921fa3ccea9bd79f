//! Lists that mostly have one entry, which then takes no memory of its own: a plan may have millions of them.
//!
//! `SmallVec<[T; 1]>` keeps a capacity and is aligned for its length, so that it takes more: 48 bytes for the points
//! of an instrument, not 32, 24 for its prerequisites, not 16, and 72 for the lists of a patch, not 48. A plan of
//! 524,861 timestamps would be 25 MB larger.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A list that most often has one element: that one is in place, without an allocation.
#[derive(Clone)]
pub struct Few<T>(List<T>);

#[derive(Clone)]
enum List<T> {
    One(T),
    /// None, or several.
    Many(Box<[T]>),
}

impl<T> Few<T> {
    /// Changes it as a `Vec`.
    pub fn edit<R>(&mut self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let mut list = Vec::from(std::mem::take(self));
        let result = change(&mut list);
        *self = list.into();
        result
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(List::Many(Box::default()))
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(mut list: Vec<T>) -> Self {
        Self(match list.pop() {
            Some(one) if list.is_empty() => List::One(one),
            last => {
                list.extend(last);
                List::Many(list.into())
            }
        })
    }
}

impl<T> From<Few<T>> for Vec<T> {
    fn from(few: Few<T>) -> Self {
        match few.0 {
            List::One(one) => vec![one],
            List::Many(list) => list.into(),
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> Self {
        let mut list = list.into_iter();
        Self(match (list.next(), list.next()) {
            (Some(one), None) => List::One(one),
            (first, second) => List::Many(first.into_iter().chain(second).chain(list).collect()),
        })
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            List::One(one) => std::slice::from_ref(one),
            List::Many(list) => list,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            List::One(one) => std::slice::from_mut(one),
            List::Many(list) => list,
        }
    }
}

impl<'l, T> IntoIterator for &'l Few<T> {
    type Item = &'l T;
    type IntoIter = std::slice::Iter<'l, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'l, T> IntoIterator for &'l mut Few<T> {
    type Item = &'l mut T;
    type IntoIter = std::slice::IterMut<'l, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: PartialEq> PartialEq for Few<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Few<T> {}

impl<T: fmt::Debug> fmt::Debug for Few<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_vec_would(mut list in prop::collection::vec(any::<u8>(), 0..4), more in prop::collection::vec(any::<u8>(), 0..3)) {
            let mut few: Few<u8> = list.clone().into();
            prop_assert_eq!(&few, &list.iter().copied().collect());
            prop_assert_eq!(&*few, list.as_slice());
            few.edit(|few| few.extend(&more));
            list.extend(&more);
            few.iter_mut().for_each(|one| *one ^= 1);
            list.iter_mut().for_each(|one| *one ^= 1);
            prop_assert_eq!(Vec::from(few), list);
        }
    }
}
