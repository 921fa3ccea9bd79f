//! Entries into functions, other than at their start and by branches of their own.

use super::Function;
use crate::ids::part;
use crate::{Addr, Span};

/// A branch, a call or a static key of another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Branch {
    /// The address that control reaches.
    pub target: Addr,
    /// The instruction.
    pub source: Addr,
}

/// All entries, sorted by target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    branches: Vec<Branch>,
    pointed: Vec<Addr>,
    /// Both, without starts of functions.
    entered: Vec<Addr>,
}

/// The elements whose address is in `span`.
fn within<T>(sorted: &[T], span: Span, at: impl Fn(&T) -> Addr) -> &[T] {
    let first = sorted.partition_point(|element| at(element) < span.start);
    let end = sorted.partition_point(|element| at(element) < span.end);
    part(sorted, first..end)
}

impl Entries {
    /// Keeps the branches to other addresses than the starts of whole functions; `pointed` are addresses
    /// that indirect branches may target.
    pub(crate) fn new(
        mut branches: Vec<Branch>,
        mut pointed: Vec<Addr>,
        functions: &[Function],
    ) -> Self {
        let starting = |at: Addr| {
            functions
                .binary_search_by_key(&at, |function| function.span.start)
                .ok()
                .and_then(|index| functions.get(index))
        };
        branches.sort_unstable();
        branches.dedup();
        let mut last = (Addr(0), false);
        branches.retain(|branch| {
            if last.0 != branch.target {
                let kept = starting(branch.target).is_none_or(Function::is_part);
                last = (branch.target, kept);
            }
            last.1
        });
        pointed.sort_unstable();
        pointed.dedup();
        let mut entered: Vec<Addr> = branches.iter().map(|branch| branch.target).collect();
        entered.extend(&pointed);
        entered.sort_unstable();
        entered.dedup();
        entered.retain(|&at| starting(at).is_none());
        Self {
            branches,
            pointed,
            entered,
        }
    }

    /// Adds those into another object.
    pub(crate) fn join(&mut self, other: Self) {
        self.branches.extend(other.branches);
        self.branches.sort_unstable();
        for (list, further) in [
            (&mut self.pointed, other.pointed),
            (&mut self.entered, other.entered),
        ] {
            list.extend(further);
            list.sort_unstable();
        }
    }

    pub(crate) fn branches_into(&self, span: Span) -> &[Branch] {
        within(&self.branches, span, |branch| branch.target)
    }

    pub(crate) fn pointed_at(&self, span: Span) -> &[Addr] {
        within(&self.pointed, span, |&at| at)
    }

    pub(crate) fn entered(&self, span: Span) -> &[Addr] {
        within(&self.entered, span, |&at| at)
    }
}
