//! A layered layout for control-flow graphs: pure and deterministic.
//!
//! Sugiyama's algorithm: back edges by an iterative depth-first search (`layers`), longest-path
//! layers, a dummy cell in every layer that an edge crosses, barycentre sweeps (`order`),
//! coordinates (`position`), and orthogonal routes through the dummies (`route`). The entry is
//! alone on the top layer, and every edge, back edges included, leaves its block at the bottom and
//! enters its destination at the top.

use egui::Vec2;

use super::grid::{Cell, Chain, Grid, Join};
use super::layers::{back_links, layers};
use super::order;
use super::position;
use super::route;
use super::table::Table;

pub use super::grid::{Layout, Link, Route};

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
    let is_between_nodes = |link: &&Link| link.from < sizes.len() && link.to < sizes.len();
    let valid: Vec<Link> = links.iter().filter(is_between_nodes).copied().collect();

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
                .filter(is_between_nodes)
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
