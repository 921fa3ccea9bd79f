//! Branches to code that is not translated, by their targets.

use rustc_hash::FxHashMap;

use crate::Addr;

/// The displacement of a branch, and the number of another one to the same target.
type UnlinkedBranch = (Addr, Option<usize>);

/// Displacements of branches, in a list for each target.
#[derive(Clone, Debug, Default)]
pub(super) struct UnlinkedBranches {
    /// The number of the last displacement to each target.
    last: FxHashMap<Addr, usize>,
    all: Vec<UnlinkedBranch>,
}

impl UnlinkedBranches {
    /// Adds the displacement at an address, of a branch to a target.
    pub(super) fn add(&mut self, target: Addr, at: Addr) {
        let number = self.all.len();
        let before = self.last.insert(target, number);
        self.all.push((at, before));
    }

    /// Takes the addresses of all displacements to a target.
    pub(super) fn take(&mut self, target: Addr) -> impl Iterator<Item = Addr> {
        let mut next = self.last.remove(&target);
        std::iter::from_fn(move || {
            let &(at, before) = self.all.get(next?)?;
            next = before;
            Some(at)
        })
    }
}
