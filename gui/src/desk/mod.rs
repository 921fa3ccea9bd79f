//! Layout of the panes: tiles that can be moved, resized, stacked as tabs and hidden.
//!
//! [`Desk`] is saved in the sidecar of the session and, for sessions without a file, in the state
//! folder; [`shelf`] is its serialized form, `panes` draws it.

mod focus;
pub(crate) mod panes;
pub mod shelf;
mod widths;

use egui_tiles::{Container, Linear, LinearDir, Tile, TileId, Tiles, Tree};
use serde::{Deserialize, Serialize};

pub(crate) use focus::{PaneFocus, filter_field};
pub use shelf::Shelf;

/// A pane of the window, shown as a tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pane {
    /// The list of functions.
    Functions,
    /// The graph of the open function.
    Graph,
    /// Facts about a block, and the form to add an instrument.
    Inspector,
    /// The session and its instruments.
    Session,
    /// The samples.
    Timeline,
    /// The table of statistics of the samples.
    Statistics,
    /// The calls of the recording, by callers and callees.
    Calls,
    /// The times of each instrument.
    Schedule,
    /// The code that will be written.
    Patch,
    /// The list of instruments.
    Instruments,
    /// The instrument editor.
    Editor,
    /// The console of the lab's kernel.
    Console,
}

impl Pane {
    /// All panes, in the order of the menu.
    pub const ALL: [Self; 12] = [
        Self::Functions,
        Self::Graph,
        Self::Inspector,
        Self::Session,
        Self::Timeline,
        Self::Statistics,
        Self::Calls,
        Self::Schedule,
        Self::Patch,
        Self::Instruments,
        Self::Editor,
        Self::Console,
    ];

    /// Returns the label of the pane's tab.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Functions => "Functions",
            Self::Graph => "Graph",
            Self::Inspector => "Inspector",
            Self::Session => "Session",
            Self::Timeline => "Timeline",
            Self::Statistics => "Statistics",
            Self::Calls => "Calls",
            Self::Schedule => "Schedule",
            Self::Patch => "Patch",
            Self::Instruments => "Instruments",
            Self::Editor => "Source",
            Self::Console => "Console",
        }
    }

    /// Returns the label of the command that shows or hides the pane.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Functions => "Functions pane",
            Self::Graph => "Graph pane",
            Self::Inspector => "Inspector pane",
            Self::Session => "Session pane",
            Self::Timeline => "Timeline pane",
            Self::Statistics => "Statistics pane",
            Self::Calls => "Calls pane",
            Self::Schedule => "Schedule pane",
            Self::Patch => "Patch pane",
            Self::Instruments => "Instruments pane",
            Self::Editor => "Source pane",
            Self::Console => "Console pane",
        }
    }
}

/// Layout of the panes.
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
        let functions = tabs(&[Pane::Functions, Pane::Instruments]);
        let graph = tabs(&[Pane::Graph]);
        let below = tabs(&[
            Pane::Timeline,
            Pane::Schedule,
            Pane::Statistics,
            Pane::Calls,
            Pane::Patch,
            Pane::Editor,
            Pane::Console,
        ]);
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
    /// Returns a layout with every pane visible, for large screens.
    #[must_use]
    pub fn tiled() -> Self {
        const ROWS: [([Pane; 3], [f32; 3]); 4] = [
            (
                [Pane::Functions, Pane::Graph, Pane::Inspector],
                [0.7, 1.5, 0.8],
            ),
            (
                [Pane::Instruments, Pane::Editor, Pane::Session],
                [0.8, 1.3, 0.9],
            ),
            (
                [Pane::Statistics, Pane::Calls, Pane::Schedule],
                [1.0, 1.0, 1.0],
            ),
            (
                [Pane::Timeline, Pane::Patch, Pane::Console],
                [1.3, 1.1, 0.6],
            ),
        ];
        let mut tiles = Tiles::default();
        let mut row = |(panes, shares): ([Pane; 3], [f32; 3])| {
            let mut line = Linear::new(LinearDir::Horizontal, Vec::new());
            for (pane, share) in panes.into_iter().zip(shares) {
                let tile = tiles.insert_pane(pane);
                let tabs = tiles.insert_tab_tile(vec![tile]);
                line.add_child(tabs);
                line.shares.set_share(tabs, share);
            }
            tiles.insert_container(Container::Linear(line))
        };
        let rows = ROWS.map(&mut row).to_vec();
        let root = tiles.insert_vertical_tile(rows);
        Self {
            tree: Tree::new(egui::Id::unique("desk"), root, tiles),
        }
    }

    fn tile(&self, pane: Pane) -> Option<TileId> {
        self.tree.tiles.find_pane(&pane)
    }

    /// Returns whether a pane is not hidden; another tab may cover it.
    #[must_use]
    pub fn has(&self, pane: Pane) -> bool {
        self.tile(pane)
            .is_some_and(|tile| self.tree.tiles.is_visible(tile))
    }

    /// Returns whether a pane is visible.
    #[must_use]
    pub fn sees(&self, pane: Pane) -> bool {
        self.tile(pane)
            .is_some_and(|tile| self.tree.active_tiles().contains(&tile))
    }

    /// Shows a pane in front of its tabs.
    pub fn show(&mut self, pane: Pane) {
        if let Some(tile) = self.tile(pane) {
            self.tree.set_visible(tile, true);
            self.tree
                .make_active(|_, tile| matches!(tile, Tile::Pane(one) if *one == pane));
        }
    }

    /// Hides a pane.
    pub fn hide(&mut self, pane: Pane) {
        if let Some(tile) = self.tile(pane) {
            self.tree.set_visible(tile, false);
        }
    }

    /// Shows a hidden or covered pane, or hides a visible one.
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
    fn the_tiled_layout_shows_every_pane() {
        let desk = Desk::tiled();
        assert!(Pane::ALL.into_iter().all(|pane| desk.sees(pane)));
    }

    #[test]
    fn panes_can_be_hidden_and_shown() {
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
