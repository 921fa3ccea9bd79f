//! Where control is on its way through a patch, and what it has met there.

use super::hit::{Expected, Progress};
use crate::Addr;
use crate::placement::{InsnEdge, Point};
use crate::verify::reason::Reason;

/// Where the original code is while control is in the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Goal {
    /// Its next instruction.
    pub(crate) at: u64,
    pub(crate) by: By,
}

/// What runs the next original instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// The patch has a copy: of what is displaced (0), or of the run-on of that number, from 1.
    Copy(usize),
    /// The text; control leaves the instruction at `from`.
    Text { from: u64 },
}

/// What part of the way control is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
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

pub(crate) type Node = (u64, Phase);

/// What a walk has found out: sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Edges of the original code that are taken, and whether the patch is left by them.
    pub(crate) edges: Vec<(InsnEdge, bool)>,
    /// Calls that are moved: they return to the text.
    pub(crate) calls: Vec<u64>,
}

impl Facts {
    pub(crate) fn sort(&mut self) {
        self.edges.sort_unstable();
        self.edges.dedup();
        self.edges.shrink_to_fit();
        self.calls.sort_unstable();
        self.calls.dedup();
        self.calls.shrink_to_fit();
    }
}

/// Instruments by point.
pub(crate) type Lists = Vec<(Point, Vec<Expected>)>;

/// Where, and what is wrong there.
pub(crate) type Wrong = (Addr, Reason);
