//! Functions by address, of which the last that were listed stay.

use std::collections::BTreeMap;

/// Limits on what a process may list: functions, and bytes of a name.
const MAX_FUNCTIONS: usize = 1 << 17;
const MAX_NAME: usize = 255;

/// Functions of generated code.
#[derive(Clone, Debug, Default)]
pub(super) struct GeneratedFunctions {
    /// End and name, by start; no two overlap.
    functions: BTreeMap<u64, (u64, String)>,
}

impl GeneratedFunctions {
    /// Returns whether there are as many as may be.
    pub(super) fn is_full(&self) -> bool {
        self.functions.len() >= MAX_FUNCTIONS
    }

    /// Adds a function. Those that it overlaps are removed: their memory was used again.
    pub(super) fn add(&mut self, start: u64, end: u64, name: &str) {
        let before = |functions: &BTreeMap<u64, (u64, String)>| {
            let (first, (until, _)) = functions.range(..end).next_back()?;
            (*until > start).then_some(*first)
        };
        while let Some(first) = before(&self.functions) {
            self.functions.remove(&first);
        }
        let name = name[..name.floor_char_boundary(MAX_NAME)].to_owned();
        self.functions.insert(start, (end, name));
    }

    /// Returns the function that has the byte `back` bytes before an address, and the address's offset in it.
    pub(super) fn function(&self, at: u64, back: u64) -> Option<(&str, u64)> {
        let byte = at.checked_sub(back)?;
        let (start, (end, name)) = self.functions.range(..=byte).next_back()?;
        (byte < *end).then_some((name, at - start))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.functions.len()
    }
}
