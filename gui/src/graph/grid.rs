//! Data of the layout: its input and result, and the grid of cells between its steps.

use egui::{Pos2, Rect, Vec2, pos2};

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

/// Returns the box of `size` whose top centre is at (`x`, `top`).
pub(super) fn boxed(x: f32, top: f32, size: Vec2) -> Rect {
    Rect::from_min_size(pos2(x - size.x / 2.0, top), size)
}
