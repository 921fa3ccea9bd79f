//! Where control is on its way through a patch, and what it has met there.

use super::hit::{Expected, Progress};
use crate::placement::{Edge, Point};

/// Where the original code is while control is in the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Goal {
    /// Its next instruction.
    pub(super) at: u64,
    pub(super) by: By,
}

/// What runs the next original instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum By {
    /// The patch has a copy: of what is displaced (0), or of the run-on of that number, from 1.
    Copy(usize),
    /// The text; control leaves the instruction at `from`.
    Text { from: u64 },
}

/// What part of the way control is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Instruments of a point run, and `done` of them have; `None` behind the last of them.
    Instruments {
        point: Option<Point>,
        done: usize,
        progress: Progress,
        goal: Goal,
    },
    /// Nothing stands between two original instructions.
    Straight(Goal),
    /// The count of the static key at the goal has been compared with zero.
    Keyed { at: u64, copy: usize },
    /// The return address of the call at `at` is pushed; what is called is here.
    Called { at: u64, target: u64 },
}

pub(super) type Node = (u64, Phase);

/// What a walk has found out: sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Edges of the original code that are taken, and whether the patch is left by them.
    pub(super) edges: Vec<(Edge, bool)>,
    /// Calls that are moved: they return to the text.
    pub(super) calls: Vec<u64>,
}

impl Facts {
    pub(super) fn sort(&mut self) {
        self.edges.sort_unstable();
        self.edges.dedup();
        self.edges.shrink_to_fit();
        self.calls.sort_unstable();
        self.calls.dedup();
        self.calls.shrink_to_fit();
    }
}

/// Instruments by point.
pub(super) type Lists = Vec<(Point, Vec<Expected>)>;
