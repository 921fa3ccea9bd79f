//! A map as a sorted list: states have some tens of entries, and are copied and compared at every branch.

/// Values by key, in order of key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Copy + Ord, V> SortedMap<K, V> {
    /// Returns the value of a key.
    pub(super) fn get(&self, key: K) -> Option<&V> {
        let at = self.0.binary_search_by_key(&key, |(own, _)| *own).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Sets the value of a key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.0.binary_search_by_key(&key, |(own, _)| *own) {
            Ok(at) => {
                if let Some((_, known)) = self.0.get_mut(at) {
                    *known = value;
                }
            }
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Keeps the entries whose keys satisfy a predicate.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(K) -> bool) {
        self.0.retain(|(key, _)| keep(*key));
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Iterates over the entries from a place among the keys on: the first for which `before` does not hold.
    pub(super) fn iter_from(&self, before: impl Fn(K) -> bool) -> impl Iterator<Item = (K, &V)> {
        let first = self.0.partition_point(|(key, _)| before(*key));
        let entries = self.0.get(first..).unwrap_or_default().iter();
        entries.map(|(key, value)| (*key, value))
    }

    /// Iterates over the entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// Iterates over the entries, whose values may be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (*key, value))
    }
}

impl<K: Copy + Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut all = Self::default();
        for (key, value) in entries {
            all.insert(key, value);
        }
        all
    }
}
