//! The position of control in a patch, and the results of a walk.

use super::hit::{Expected, Progress};
use crate::Addr;
use crate::placement::{InsnEdge, Point};
use crate::verify::reason::Reason;
use crate::verify::text::effects::Mask;

/// The position of the original code that control in the patch corresponds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Aim {
    /// Its next instruction.
    pub(crate) at: u64,
    pub(crate) by: By,
}

/// The code that executes the next original instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// A copy in the patch: of the displaced bytes (0), or of the continuation of that number, from
    /// 1.
    Copy(usize),
    /// The text; control leaves the instruction at `from`.
    Text { from: u64 },
    /// A code cache, at a place where these registers and flags must have their values.
    Fragment { place: u64, live: Mask },
}

/// The phase of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Instruments of a point run, and `done` of them are complete; the point is `None` after the
    /// last.
    Instruments {
        point: Option<Point>,
        done: usize,
        progress: Progress,
        goal: Aim,
    },
    /// Control is between two original instructions, and no instrument is left to run.
    Straight(Aim),
    /// The count of the static key at the goal has been compared with zero.
    Keyed { at: u64, copy: usize },
    /// The lower half of the return address of the call at `at` is pushed; the upper half follows.
    HalfPushed { at: u64, target: u64 },
    /// The return address of the call at `at` is pushed; the jump to the callee follows.
    Called { at: u64, target: u64 },
}

pub(crate) type Node = (u64, Phase);

/// The results of a walk, sorted and unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Edges of the original code that are taken, and whether the patch is left by them.
    pub(crate) edges: Vec<(InsnEdge, bool)>,
    /// Moved calls, which return to the text.
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

/// A broken rule and its place.
pub(crate) type BrokenRule = (Addr, Reason);
