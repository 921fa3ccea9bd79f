//! The least widths of panes: columns next to each other keep them as long as the window has room for all.

use egui_tiles::{Container, LinearDir, Tile, TileId, Tiles, Tree};

use super::Pane;

impl Pane {
    /// Returns the width in points below which its contents do not fit.
    const fn least_width(self) -> f32 {
        match self {
            Self::Graph | Self::Timeline | Self::Schedule | Self::Patch => 300.0,
            Self::Inspector | Self::Session | Self::Editor => 250.0,
            Self::Functions
            | Self::Instruments
            | Self::Statistics
            | Self::Calls
            | Self::Console => 170.0,
        }
    }
}

/// Widens the columns of a layout that is drawn at this width, where they are narrower than their panes need and
/// their neighbours have more. `gap` is between two columns.
pub(super) fn widen(tree: &mut Tree<Pane>, width: f32, gap: f32) {
    if let Some(root) = tree.root() {
        widen_below(&mut tree.tiles, root, width, gap);
    }
}

fn widen_below(tiles: &mut Tiles<Pane>, tile: TileId, width: f32, gap: f32) {
    let children: Vec<TileId> = match tiles.get(tile) {
        Some(Tile::Container(container)) => container
            .children()
            .filter(|&&child| tiles.is_visible(child))
            .copied()
            .collect(),
        _ => return,
    };
    let mut widths = vec![width; children.len()];
    if let Some(Tile::Container(Container::Linear(linear))) = tiles.get(tile)
        && linear.dir == LinearDir::Horizontal
    {
        let room = width - gap * children.len().saturating_sub(1) as f32;
        let least: Vec<f32> = children
            .iter()
            .map(|&child| least_of(tiles, child, gap))
            .collect();
        let shares: Vec<f32> = children.iter().map(|&child| linear.shares[child]).collect();
        let total: f32 = shares.iter().sum();
        widths = shares
            .iter()
            .map(|share| share / total.max(f32::MIN_POSITIVE) * room)
            .collect();
        if let Some(wider) = distributed(&widths, &least, room) {
            widths = wider;
            if let Some(Tile::Container(Container::Linear(linear))) = tiles.get_mut(tile) {
                for (&child, &width) in children.iter().zip(&widths) {
                    linear.shares.set_share(child, width / room * total);
                }
            }
        }
    }
    for (child, width) in children.into_iter().zip(widths) {
        widen_below(tiles, child, width, gap);
    }
}

/// Returns the least width of a tile with all that is visible in it.
fn least_of(tiles: &Tiles<Pane>, tile: TileId, gap: f32) -> f32 {
    match tiles.get(tile) {
        Some(Tile::Pane(pane)) => pane.least_width(),
        Some(Tile::Container(container)) => {
            let visible = container.children().filter(|&&one| tiles.is_visible(one));
            let widths = visible.map(|&one| least_of(tiles, one, gap));
            match container {
                Container::Linear(linear) if linear.dir == LinearDir::Horizontal => {
                    widths.reduce(|all, one| all + gap + one).unwrap_or(0.0)
                }
                // Of stacked tabs the active one counts: the others are not drawn.
                Container::Tabs(tabs) => {
                    tabs.active.map_or(0.0, |front| least_of(tiles, front, gap))
                }
                _ => widths.fold(0.0, f32::max),
            }
        }
        None => 0.0,
    }
}

/// Returns widths of at least `least` each, taken from those that have more in proportion to what they have; `None`
/// if all have enough, or if the window is too narrow for all.
fn distributed(widths: &[f32], least: &[f32], room: f32) -> Option<Vec<f32>> {
    let lacking: f32 = widths
        .iter()
        .zip(least)
        .map(|(width, least)| (least - width).max(0.0))
        .sum();
    let spare: f32 = widths
        .iter()
        .zip(least)
        .map(|(width, least)| (width - least).max(0.0))
        .sum();
    let is_lacking = lacking > 0.5;
    (is_lacking && least.iter().sum::<f32>() <= room).then(|| {
        widths
            .iter()
            .zip(least)
            .map(|(&width, &least)| {
                if width < least {
                    least
                } else {
                    width - (width - least) * lacking / spare.max(lacking)
                }
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::Desk;
    use super::*;

    fn shares(tree: &Tree<Pane>) -> Vec<f32> {
        let root = tree.root().unwrap();
        match tree.tiles.get(root).unwrap() {
            Tile::Container(Container::Linear(linear)) => {
                let all: f32 = linear.children.iter().map(|&one| linear.shares[one]).sum();
                linear
                    .children
                    .iter()
                    .map(|&one| linear.shares[one] / all)
                    .collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_narrow_column_takes_from_its_neighbour_and_a_wide_window_stays() {
        let mut desk = Desk::default();
        let before = shares(&desk.tree);
        widen(&mut desk.tree, 1600.0, 3.0);
        assert_eq!(shares(&desk.tree), before);
        widen(&mut desk.tree, 900.0, 3.0);
        let after = shares(&desk.tree);
        assert!((after[1] * 897.0 - 250.0).abs() < 1.0, "{after:?}");
        widen(&mut desk.tree, 900.0, 3.0);
        assert_eq!(shares(&desk.tree), after, "it is at rest");
    }

    #[test]
    fn what_one_lacks_others_give_in_proportion_and_never_too_much() {
        let wider = distributed(&[100.0, 500.0, 300.0], &[200.0, 300.0, 250.0], 900.0).unwrap();
        assert_eq!(wider, [200.0, 420.0, 280.0]);
        assert_eq!(distributed(&[400.0, 500.0], &[200.0, 300.0], 900.0), None);
        assert_eq!(
            distributed(&[100.0, 200.0], &[200.0, 300.0], 300.0),
            None,
            "all together are too wide"
        );
    }
}
