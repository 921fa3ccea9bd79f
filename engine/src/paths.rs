//! Path profiling (T. Ball and J. Larus, "Efficient Path Profiling", MICRO 1996): how often control takes
//! each way through a function, from its entry or a loop's start to its exit or a loop's end.
//!
//! Every such path has a number, and the number is the sum of what stands on the edges of a graph without
//! cycles. Only edges outside of a spanning tree need an instrument ([`Numbered`]); which instruments those
//! are is said as a session ([`Paths::add_to`]), and what they have counted becomes paths again
//! ([`Paths::read`]).

mod graph;
mod number;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gilk_instruments::program::Summary;

pub use graph::{Arc, Graph};
pub use number::Numbered;

use crate::cfg::{BlockIndex, Cfg};
use crate::{Refusal, Result, Session};

/// The paths of one function.
#[derive(Clone, Debug)]
pub struct Paths {
    function: String,
    numbered: Numbered,
    /// Where chords are: what runs there.
    marks: Vec<session::Mark>,
}

/// How often control went one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Its number.
    pub number: u64,
    /// The blocks, in order.
    pub blocks: Vec<BlockIndex>,
    /// How often.
    pub count: u64,
    /// Whether it begins where the function does; otherwise it begins with a loop's next turn.
    pub from_entry: bool,
    /// Whether it ends where the function does; otherwise with a loop's turn.
    pub to_exit: bool,
}

/// What a run has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Paths by how often control went them, most often first.
    pub paths: Vec<Path>,
    /// How many were counted, and cannot be told apart.
    pub others: u64,
}

impl Profile {
    /// How often each block was passed, as far as the paths tell.
    #[must_use]
    pub fn blocks(&self) -> BTreeMap<BlockIndex, u64> {
        let mut counts = BTreeMap::new();
        for path in &self.paths {
            for block in &path.blocks {
                *counts.entry(*block).or_insert(0) += path.count;
            }
        }
        counts
    }
}

impl Paths {
    /// The most paths that a function may have.
    pub const MOST: u64 = 1 << 40;

    /// Numbers the paths of a function.
    ///
    /// # Errors
    /// The rule and the place, where control comes or goes in ways that its graph has not, or an edge that
    /// needs an instrument can have none, or there are more than [`Paths::MOST`] paths.
    pub fn of(cfg: &Cfg) -> std::result::Result<Self, Refusal> {
        let graph = graph::of(cfg)?;
        let numbered = Numbered::of(graph).ok_or_else(|| graph::too_many(cfg))?;
        let marks = session::marks(cfg, &numbered)?;
        Ok(Self {
            function: cfg.name.clone(),
            numbered,
            marks,
        })
    }

    /// How many paths there are: their numbers are 0 to one less.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.numbered.count()
    }

    /// The blocks of a path, for drawing; `None` if there is none of that number.
    #[must_use]
    pub fn path(&self, number: u64) -> Option<Path> {
        let arcs = self.numbered.arcs(number)?;
        let blocks = arcs.iter().filter_map(|arc| arc.to.map(BlockIndex));
        Some(Path {
            number,
            blocks: blocks.collect(),
            count: 0,
            from_entry: arcs.first()?.is_real,
            to_exit: arcs.last()?.is_real,
        })
    }

    /// Adds the instruments that count the function's paths to a session, from launch to splash.
    ///
    /// # Errors
    /// [`crate::Error::Session`] if the session has instruments of these names.
    pub fn add_to(&self, session: &mut Session, times: (f64, f64)) -> Result<()> {
        session::add(self, session, times)
    }

    /// What the aggregates of a session's placements say: pairs of an instrument's name and a summary.
    #[must_use]
    pub fn read<'a>(&self, told: impl IntoIterator<Item = (&'a str, &'a Summary)>) -> Profile {
        session::read(self, told)
    }
}
