//! A layered layout for control-flow graphs: pure and deterministic.
//!
//! Sugiyama's algorithm: back edges by an iterative depth-first search (`layers`), longest-path
//! layers, a dummy cell in every layer that an edge crosses, barycentre sweeps (`order`),
//! coordinates (`position`), and orthogonal routes through the dummies (`route`). The entry is
//! alone on the top layer, and every edge, back edges included, leaves its block at the bottom and
//! enters its destination at the top.

use egui::{Pos2, Rect, Vec2, pos2};

use super::layers::{back_links, layers};
use super::order;
use super::position;
use super::route;
use super::table::Table;

/// An edge to lay out, by the indices of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The source box.
    pub from: usize,
    /// The destination box.
    pub to: usize,
}

/// A routed edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// A polyline from the bottom of one box to the top of another; each segment is horizontal or
    /// vertical.
    pub points: Vec<Pos2>,
    /// True for a back edge, which runs upwards.
    pub back: bool,
}

/// A graph that was laid out, in points at zoom 1, from (0, 0) to `size`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// The boxes, in the order in which their sizes were given.
    pub boxes: Vec<Rect>,
    /// The edges, in the order in which they were given.
    pub routes: Vec<Route>,
    /// The extent of everything.
    pub size: Vec2,
}

/// Distances of the layout, in points at zoom 1.
pub(super) mod gap {
    /// Between two boxes of a layer.
    pub(crate) const BOXES: f32 = 36.0;
    /// Between a box and an edge that passes it.
    pub(crate) const PASSING: f32 = 22.0;
    /// Between two edges that run side by side.
    pub(crate) const EDGES: f32 = 14.0;
    /// Between two horizontal segments in a channel.
    pub(crate) const TRACKS: f32 = 10.0;
    /// Between a layer and the first horizontal segment above or below it.
    pub(crate) const LAYER: f32 = 17.0;
    /// Between two edges' ends on one side of a box.
    pub(crate) const PORTS: f32 = 22.0;
    /// Between a box's corner and an edge's end.
    pub(crate) const CORNER: f32 = 12.0;
    /// Around the whole graph.
    pub(crate) const MARGIN: f32 = 24.0;
}

/// A cell of a layer: a box, or a dummy of an edge that crosses the layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) layer: usize,
    pub(super) width: f32,
    pub(super) real: bool,
}

/// Two cells of adjacent layers joined by an edge. Ports are offsets from a cell's centre.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Join {
    pub(super) upper: usize,
    pub(super) lower: usize,
    pub(super) upper_port: f32,
    pub(super) lower_port: f32,
    pub(super) weight: f32,
}

/// The cells of one edge from source to destination, ends included.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) cells: Vec<usize>,
    pub(super) back: bool,
    /// Offsets from the centres of the first and last cell.
    pub(super) leaves_at: f32,
    pub(super) enters_at: f32,
}

/// Intermediate state of the algorithm.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) cells: Table<Cell>,
    /// Cells of each layer from left to right.
    pub(super) rows: Table<Vec<usize>>,
    /// One chain per edge.
    pub(super) chains: Vec<Chain>,
    pub(super) joins: Vec<Join>,
    /// Centre of each cell.
    pub(super) x: Table<f32>,
}

/// Lays out boxes of the given sizes, connected by `links`; box 0 is the entry. Links to boxes that
/// do not exist have empty routes.
#[must_use]
pub fn layout(sizes: &[Vec2], links: &[Link]) -> Layout {
    if sizes.is_empty() {
        return Layout {
            routes: links
                .iter()
                .map(|_| Route {
                    points: Vec::new(),
                    back: false,
                })
                .collect(),
            ..Layout::default()
        };
    }
    let known = |link: &&Link| link.from < sizes.len() && link.to < sizes.len();
    let valid: Vec<Link> = links.iter().filter(known).copied().collect();

    let back = back_links(sizes.len(), &valid);
    let layer = layers(sizes.len(), &valid, &back);
    let mut grid = grid(sizes, &valid, &back, &layer);
    order::arrange(&mut grid);
    position::place(&mut grid); // edges' ends are sorted by these positions
    position::ports(&mut grid);
    position::place(&mut grid);
    position::straighten(&mut grid);
    let mut laid = route::route(&grid, sizes);

    let mut routes = std::mem::take(&mut laid.routes).into_iter();
    laid.routes = links
        .iter()
        .map(|link| {
            Some(link)
                .filter(known)
                .and_then(|_| routes.next())
                .unwrap_or(Route {
                    points: Vec::new(),
                    back: false,
                })
        })
        .collect();
    laid
}

/// Builds cells, rows, chains and joins from layers; rows are in depth-first order.
fn grid(sizes: &[Vec2], links: &[Link], back: &[bool], layer: &Table<usize>) -> Grid {
    let depth = layer.iter().max().copied().unwrap_or(0);
    let mut grid = Grid {
        cells: Table::new(0),
        rows: Table::new(depth + 1),
        chains: Vec::with_capacity(links.len()),
        joins: Vec::new(),
        x: Table::new(0),
    };
    for (node, size) in sizes.iter().enumerate() {
        grid.cells.push(Cell {
            layer: layer[node],
            width: size.x,
            real: true,
        });
    }
    for (link, &back) in links.iter().zip(back) {
        let (from, to) = (layer[link.from], layer[link.to]);
        // A back edge also crosses the layers of both its ends: it leaves below its source and
        // enters above its destination.
        let passed: Vec<usize> = if back {
            (to..=from).rev().collect()
        } else {
            (from + 1..to).collect()
        };
        let mut cells = vec![link.from];
        for layer in passed {
            cells.push(grid.cells.push(Cell {
                layer,
                width: 0.0,
                real: false,
            }));
        }
        cells.push(link.to);
        for pair in cells.windows(2) {
            let &[one, other] = pair else { continue };
            let (a, b) = (&grid.cells[one], &grid.cells[other]);
            if a.layer == b.layer {
                continue; // the end of a back edge, next to its box
            }
            let weight = match (a.real, b.real) {
                (false, false) => 8.0,
                (true, true) => 1.0,
                _ => 2.0,
            };
            let (upper, lower) = if a.layer < b.layer {
                (one, other)
            } else {
                (other, one)
            };
            grid.joins.push(Join {
                upper,
                lower,
                weight,
                ..Join::default()
            });
        }
        grid.chains.push(Chain {
            cells,
            back,
            ..Chain::default()
        });
    }
    for cell in order::first(&grid, sizes.len(), links) {
        let layer = grid.cells[cell].layer;
        grid.rows[layer].push(cell);
    }
    grid.x = Table::new(grid.cells.len());
    grid
}

/// Returns the box of `size` whose top centre is at (`x`, `top`).
pub(super) fn boxed(x: f32, top: f32, size: Vec2) -> Rect {
    Rect::from_min_size(pos2(x - size.x / 2.0, top), size)
}
