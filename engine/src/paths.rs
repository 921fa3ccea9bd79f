//! Path profiling (T. Ball and J. Larus, "Efficient Path Profiling", MICRO 1996): how often control takes
//! each path through a function, from its entry or a loop's start to its exit or a loop's end.
//!
//! Every such path has a number, the sum of the increments on the edges of an acyclic graph. Only edges
//! outside of a spanning tree need an instrument ([`Numbered`]). The instruments are added to a session
//! ([`Paths::add_to`]), and the numbers that they have counted become paths again ([`Paths::read`]).

mod graph;
mod number;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gilk_instruments::program::Summary;

pub use graph::{Arc, Graph};
pub use number::Numbered;
pub use session::{PathCounts, counted_function, counts_paths_of};

use crate::cfg::{BlockIndex, Cfg};
use crate::{Refusal, Result, Session};

/// The paths of one function.
#[derive(Clone, Debug)]
pub struct Paths {
    function: String,
    numbered: Numbered,
    /// The instrumented edges, with their actions.
    marks: Vec<session::EdgeAction>,
}

/// A path and the number of its executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Its Ball-Larus number.
    pub number: u64,
    /// The blocks, in order.
    pub blocks: Vec<BlockIndex>,
    /// The number of its executions.
    pub count: u64,
    /// True if it begins at the function's entry; otherwise at a loop's next iteration.
    pub from_entry: bool,
    /// True if it ends at an exit of the function; otherwise at the end of a loop's iteration.
    pub to_exit: bool,
}

/// The path profile of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Executed paths, most frequent first.
    pub paths: Vec<Path>,
    /// Executions that were counted without their number.
    pub others: u64,
}

impl Profile {
    /// Executions of each block, as far as the paths cover them.
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
    /// The rule and the address, if control enters or leaves by edges that its graph does not have, an edge
    /// that needs an instrument can have none, or there are more than [`Paths::MOST`] paths.
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

    /// The number of paths; they are numbered from 0.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.numbered.count()
    }

    /// The blocks of a path, for drawing; `None` if there is none of that number.
    #[must_use]
    pub fn path(&self, number: u64) -> Option<Path> {
        let arcs = self.numbered.arcs(number)?;
        let blocks = arcs.iter().filter_map(|arc| arc.to);
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

    /// Reads a profile from the aggregates of a session's placements: pairs of an instrument's name and a summary.
    #[must_use]
    pub fn read<'a>(&self, summaries: impl IntoIterator<Item = (&'a str, &'a Summary)>) -> Profile {
        session::read(self, summaries)
    }
}
