//! Serialized form of the layout.

use std::collections::BTreeSet;

use egui_tiles::{Container, Linear, LinearDir, Tile, TileId, Tiles, Tree};
use serde::{Deserialize, Serialize};

use super::{Desk, Pane};

/// A tile and its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Shelf {
    /// A pane, and whether it is hidden.
    Pane(Pane, bool),
    /// Tiles side by side, each with its share of the width.
    Row(Vec<(f32, Shelf)>),
    /// Tiles one above the other, each with its share of the height.
    Column(Vec<(f32, Shelf)>),
    /// Tiles stacked as tabs; the number is the active tab.
    Tabs(usize, Vec<Shelf>),
}

impl Shelf {
    /// Serializes a layout; `None` if it is empty.
    #[must_use]
    pub fn of(desk: &Desk) -> Option<Self> {
        describe(&desk.tree.tiles, desk.tree.root()?)
    }

    /// Restores the layout. Returns `None` if a pane is missing or duplicated, as in a file of
    /// another version; the default layout is then used.
    #[must_use]
    pub fn desk(&self) -> Option<Desk> {
        let mut panes = Vec::new();
        self.panes(&mut panes);
        let known: BTreeSet<Pane> = panes.iter().copied().collect();
        if panes.len() != Pane::ALL.len() || known.len() != panes.len() {
            return None;
        }
        let mut tiles = Tiles::default();
        let root = self.build(&mut tiles);
        Some(Desk {
            tree: Tree::new(egui::Id::unique("desk"), root, tiles),
        })
    }

    fn panes(&self, into: &mut Vec<Pane>) {
        match self {
            Self::Pane(pane, _) => into.push(*pane),
            Self::Row(parts) | Self::Column(parts) => {
                parts.iter().for_each(|(_, part)| part.panes(into));
            }
            Self::Tabs(_, parts) => parts.iter().for_each(|part| part.panes(into)),
        }
    }

    fn build(&self, tiles: &mut Tiles<Pane>) -> TileId {
        match self {
            Self::Pane(pane, away) => {
                let tile = tiles.insert_pane(*pane);
                tiles.set_visible(tile, !away);
                tile
            }
            Self::Row(parts) => line(tiles, LinearDir::Horizontal, parts),
            Self::Column(parts) => line(tiles, LinearDir::Vertical, parts),
            Self::Tabs(front, parts) => {
                let children: Vec<TileId> = parts.iter().map(|part| part.build(tiles)).collect();
                let mut tabs = egui_tiles::Tabs::new(children);
                if let Some(&front) = tabs.children.get(*front) {
                    tabs.set_active(front);
                }
                tiles.insert_container(Container::Tabs(tabs))
            }
        }
    }
}

fn line(tiles: &mut Tiles<Pane>, dir: LinearDir, parts: &[(f32, Shelf)]) -> TileId {
    let mut linear = Linear::new(dir, Vec::new());
    for (share, part) in parts {
        let child = part.build(tiles);
        linear.add_child(child);
        let share = if share.is_finite() { *share } else { 1.0 };
        linear.shares.set_share(child, share.clamp(0.01, 100.0));
    }
    tiles.insert_container(Container::Linear(linear))
}

fn describe(tiles: &Tiles<Pane>, tile: TileId) -> Option<Shelf> {
    Some(match tiles.get(tile)? {
        Tile::Pane(pane) => Shelf::Pane(*pane, !tiles.is_visible(tile)),
        Tile::Container(Container::Tabs(tabs)) => {
            let front = tabs
                .children
                .iter()
                .position(|&child| tabs.is_active(child));
            let parts = tabs.children.iter();
            let parts = parts.filter_map(|&child| describe(tiles, child)).collect();
            Shelf::Tabs(front.unwrap_or(0), parts)
        }
        Tile::Container(Container::Linear(linear)) => {
            let parts = linear.children.iter();
            let parts = parts
                .filter_map(|&child| Some((linear.shares[child], describe(tiles, child)?)))
                .collect();
            match linear.dir {
                LinearDir::Horizontal => Shelf::Row(parts),
                LinearDir::Vertical => Shelf::Column(parts),
            }
        }
        Tile::Container(Container::Grid(grid)) => Shelf::Row(
            grid.children()
                .filter_map(|&child| Some((1.0, describe(tiles, child)?)))
                .collect(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_survives_a_round_trip() {
        let mut desk = Desk::default();
        desk.hide(Pane::Functions);
        desk.show(Pane::Schedule);
        let shelf = Shelf::of(&desk).unwrap();
        let text = ron::to_string(&shelf).unwrap();
        let again = ron::from_str::<Shelf>(&text).unwrap().desk().unwrap();
        assert_eq!(Shelf::of(&again), Some(shelf));
        assert!(!again.has(Pane::Functions) && again.has(Pane::Graph));
    }

    #[test]
    fn incomplete_layouts_are_rejected() {
        let one = || Shelf::Pane(Pane::Graph, false);
        assert!(Shelf::Tabs(0, vec![one()]).desk().is_none());
        let twice = (0..Pane::ALL.len()).map(|_| one()).collect();
        assert!(Shelf::Tabs(0, twice).desk().is_none());
    }
}
