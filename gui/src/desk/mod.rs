//! Where the panes stand: tiles that can be dragged, resized, stacked as tabs and put away.
//!
//! [`Desk`] is kept beside the session and, for sessions that have none, in the state folder;
//! [`shelf`] is its text, `panes` draws it.

pub(crate) mod panes;
pub mod shelf;

use egui_tiles::{Container, Linear, LinearDir, Tile, TileId, Tiles, Tree};
use serde::{Deserialize, Serialize};

pub use shelf::Shelf;

/// A pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pane {
    /// The list of functions.
    Functions,
    /// The graph of the open function.
    Graph,
    /// What a block is, and what can be added.
    Inspector,
    /// The session and its instruments.
    Session,
    /// The samples.
    Timeline,
    /// When each instrument is in place.
    Schedule,
    /// What will be written.
    Patch,
}

impl Pane {
    /// All of them, in the order in which menus list them.
    pub const ALL: [Self; 7] = [
        Self::Functions,
        Self::Graph,
        Self::Inspector,
        Self::Session,
        Self::Timeline,
        Self::Schedule,
        Self::Patch,
    ];

    /// What its tab says.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Functions => "Functions",
            Self::Graph => "Graph",
            Self::Inspector => "Inspector",
            Self::Session => "Session",
            Self::Timeline => "Timeline",
            Self::Schedule => "Schedule",
            Self::Patch => "Patch",
        }
    }

    /// What menus call showing it or putting it away.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Functions => "Functions pane",
            Self::Graph => "Graph pane",
            Self::Inspector => "Inspector pane",
            Self::Session => "Session pane",
            Self::Timeline => "Timeline pane",
            Self::Schedule => "Schedule pane",
            Self::Patch => "Patch pane",
        }
    }
}

/// The arrangement of the panes.
#[derive(Clone, Debug)]
pub struct Desk {
    pub(crate) tree: Tree<Pane>,
}

impl Default for Desk {
    fn default() -> Self {
        let mut tiles = Tiles::default();
        let mut tabs = |panes: &[Pane]| {
            let children = panes.iter().map(|&pane| tiles.insert_pane(pane)).collect();
            tiles.insert_tab_tile(children)
        };
        let functions = tabs(&[Pane::Functions]);
        let graph = tabs(&[Pane::Graph]);
        let below = tabs(&[Pane::Timeline, Pane::Schedule, Pane::Patch]);
        let inspector = tabs(&[Pane::Inspector]);
        let session = tabs(&[Pane::Session]);
        let mut split = |dir, pair: [TileId; 2], first: f32| {
            tiles.insert_container(Container::Linear(Linear::new_binary(dir, pair, first)))
        };
        let upper = split(LinearDir::Horizontal, [functions, graph], 0.24);
        let left = split(LinearDir::Vertical, [upper, below], 0.68);
        let right = split(LinearDir::Vertical, [inspector, session], 0.6);
        let root = split(LinearDir::Horizontal, [left, right], 0.775);
        Self {
            tree: Tree::new(egui::Id::unique("desk"), root, tiles),
        }
    }
}

impl Desk {
    fn tile(&self, pane: Pane) -> Option<TileId> {
        self.tree.tiles.find_pane(&pane)
    }

    /// Whether a pane is on the desk; its tab may be behind another.
    #[must_use]
    pub fn has(&self, pane: Pane) -> bool {
        self.tile(pane)
            .is_some_and(|tile| self.tree.tiles.is_visible(tile))
    }

    /// Whether a pane is seen.
    #[must_use]
    pub fn sees(&self, pane: Pane) -> bool {
        self.tile(pane)
            .is_some_and(|tile| self.tree.active_tiles().contains(&tile))
    }

    /// Brings a pane to the front.
    pub fn show(&mut self, pane: Pane) {
        if let Some(tile) = self.tile(pane) {
            self.tree.set_visible(tile, true);
            self.tree
                .make_active(|_, tile| matches!(tile, Tile::Pane(one) if *one == pane));
        }
    }

    /// Puts a pane away.
    pub fn hide(&mut self, pane: Pane) {
        if let Some(tile) = self.tile(pane) {
            self.tree.set_visible(tile, false);
        }
    }

    /// Shows a pane that is away or behind another, or puts it away.
    pub fn toggle(&mut self, pane: Pane) {
        if self.sees(pane) {
            self.hide(pane);
        } else {
            self.show(pane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panes_come_and_go() {
        let mut desk = Desk::default();
        assert!(desk.has(Pane::Timeline));
        desk.toggle(Pane::Patch);
        assert!(desk.sees(Pane::Patch) && !desk.sees(Pane::Timeline));
        desk.toggle(Pane::Patch);
        assert!(!desk.has(Pane::Patch));
        desk.show(Pane::Timeline);
        assert!(desk.sees(Pane::Timeline));
    }
}
