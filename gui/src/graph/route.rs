//! Orthogonal routes: between two layers is a channel, and each edge that moves sideways has its
//! horizontal segment on a track of the channel.

use egui::{Pos2, Vec2, pos2, vec2};

use super::grid::{Chain, Grid, Layout, Route, boxed, gap};
use super::table::Table;

/// The part of an edge in one channel.
#[derive(Clone, Copy, Debug, Default)]
struct Leg {
    chain: usize,
    channel: usize,
    /// Horizontal positions of its start and end.
    from: f32,
    to: f32,
    /// True if it starts below the channel.
    upward: bool,
    /// The box that it enters at its end, if any.
    enters: Option<usize>,
    turn: Turn,
    track: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Starts and ends above the channel: the lower turn of a back edge.
    Under,
    /// From one layer to the next.
    #[default]
    Through,
    /// Starts and ends below the channel: the upper turn of a back edge.
    Over,
}

impl Leg {
    fn span(&self) -> (f32, f32) {
        (self.from.min(self.to), self.from.max(self.to))
    }

    /// Returns whether it runs to the left on its way down, regardless of the edge's direction.
    fn leftward(&self) -> bool {
        (self.to < self.from) != self.upward
    }

    fn straight(&self) -> bool {
        (self.from - self.to).abs() < 0.5
    }

    /// Returns whether two legs may not share a track. Legs into the same box may, because they
    /// join.
    fn overlaps(&self, other: &Self) -> bool {
        if self.enters.is_some() && self.enters == other.enters {
            return false;
        }
        let ((a, b), (c, d)) = (self.span(), other.span());
        a < d + gap::EDGES / 2.0 && c < b + gap::EDGES / 2.0
    }
}

/// Computes boxes and routes from positions.
pub(super) fn route(grid: &Grid, sizes: &[Vec2]) -> Layout {
    let layers = grid.rows.len();
    let mut heights: Table<f32> = Table::new(layers);
    for (node, size) in sizes.iter().enumerate() {
        let layer = grid.cells[node].layer;
        heights[layer] = heights[layer].max(size.y);
    }

    let mut legs: Vec<Leg> = grid
        .chains
        .iter()
        .enumerate()
        .flat_map(|(index, chain)| passages(grid, index, chain))
        .collect();
    let mut channels: Table<Vec<usize>> = Table::new(layers + 1);
    for (index, leg) in legs.iter().enumerate() {
        if !leg.straight() || leg.turn != Turn::Through {
            channels[leg.channel].push(index);
        }
    }
    let mut legs_table: Table<Leg> = Table::from(std::mem::take(&mut legs));
    let mut tracks: Table<usize> = Table::new(layers + 1);
    for channel in 0..=layers {
        tracks[channel] = assign(&mut legs_table, &channels[channel]);
    }

    // Channel i is above layer i.
    let mut channel_top: Table<f32> = Table::new(layers + 1);
    let mut layer_top: Table<f32> = Table::new(layers);
    let mut y = gap::MARGIN;
    for channel in 0..=layers {
        channel_top[channel] = y;
        let legs = tracks[channel];
        let outermost = channel == 0 || channel == layers;
        if legs > 0 {
            y += 2.0 * gap::LAYER + (legs - 1) as f32 * gap::TRACKS;
        } else if !outermost {
            y += 1.5 * gap::LAYER;
        }
        if channel < layers {
            layer_top[channel] = y;
            y += heights[channel];
        }
    }
    let bottom = y + gap::MARGIN;

    let shift = gap::MARGIN - leftmost(grid);
    let boxes = sizes
        .iter()
        .enumerate()
        .map(|(node, &size)| {
            boxed(
                grid.x[node] + shift,
                layer_top[grid.cells[node].layer],
                size,
            )
        })
        .collect::<Vec<_>>();

    let mut points: Table<Vec<Pos2>> = Table::new(grid.chains.len());
    for leg in legs_table.iter() {
        let y = channel_top[leg.channel] + gap::LAYER + leg.track as f32 * gap::TRACKS;
        if !leg.straight() || leg.turn != Turn::Through {
            points[leg.chain].extend([pos2(leg.from + shift, y), pos2(leg.to + shift, y)]);
        }
    }
    let mut routes = Vec::with_capacity(grid.chains.len());
    for (index, chain) in grid.chains.iter().enumerate() {
        let (from, to) = ends(chain);
        let (Some(from_box), Some(to_box)) = (boxes.get(from), boxes.get(to)) else {
            debug_assert!(false, "boxes {from} and {to} of {}", boxes.len());
            continue;
        };
        let mut line = vec![pos2(
            grid.x[from] + chain.leaves_at + shift,
            from_box.bottom(),
        )];
        line.append(&mut points[index]);
        line.push(pos2(grid.x[to] + chain.enters_at + shift, to_box.top()));
        routes.push(Route {
            points: square(line),
            back: chain.back,
        });
    }
    let right = boxes
        .iter()
        .map(|rect| rect.right())
        .chain(
            routes
                .iter()
                .flat_map(|route| route.points.iter().map(|point| point.x)),
        )
        .fold(0.0, f32::max);
    Layout {
        boxes,
        routes,
        size: vec2(right + gap::MARGIN, bottom),
    }
}

fn ends(chain: &Chain) -> (usize, usize) {
    debug_assert!(chain.cells.len() >= 2, "a chain has both its ends");
    (
        chain.cells.first().copied().unwrap_or(0),
        chain.cells.last().copied().unwrap_or(0),
    )
}

fn leftmost(grid: &Grid) -> f32 {
    (0..grid.cells.len())
        .map(|cell| grid.x[cell] - grid.cells[cell].width / 2.0)
        .fold(f32::INFINITY, f32::min)
}

/// Returns the legs of an edge, from source to destination.
fn passages(grid: &Grid, index: usize, chain: &Chain) -> Vec<Leg> {
    let (from, to) = ends(chain);
    let place = |position: usize, cell: usize| {
        if position == 0 {
            grid.x[from] + chain.leaves_at
        } else if position + 1 == chain.cells.len() {
            grid.x[to] + chain.enters_at
        } else {
            grid.x[cell]
        }
    };
    let mut legs = Vec::with_capacity(chain.cells.len());
    let mut x = place(0, from);
    for (position, pair) in chain.cells.windows(2).enumerate() {
        let &[one, other] = pair else { continue };
        let (layer, next) = (grid.cells[one].layer, grid.cells[other].layer);
        let (turn, channel) = match (chain.back, position == 0, position + 2 == chain.cells.len()) {
            (false, ..) => (Turn::Through, next),
            (true, true, _) => (Turn::Under, layer + 1),
            (true, _, true) => (Turn::Over, next),
            (true, false, false) => (Turn::Through, layer),
        };
        let upward = chain.back && turn == Turn::Through;
        let enters = (!chain.back && position + 2 == chain.cells.len()).then_some(to);
        let mut leg = Leg {
            chain: index,
            channel,
            from: x,
            to: place(position + 1, other),
            upward,
            enters,
            turn,
            track: 0,
        };
        if leg.straight() {
            leg.to = x;
        }
        x = leg.to;
        legs.push(leg);
    }
    legs
}

/// Assigns a track to each leg of a channel, from the top, and returns the number of tracks.
///
/// Of two overlapping legs in the same direction, the one that starts further along is above, so
/// that they do not cross. Turns are outermost, narrow turns innermost.
fn assign(legs: &mut Table<Leg>, channel: &[usize]) -> usize {
    let mut order: Vec<(Turn, bool, f32, usize)> = channel
        .iter()
        .map(|&index| {
            let leg = &legs[index];
            let upper = if leg.upward { leg.to } else { leg.from };
            let (left, right) = leg.span();
            let key = match leg.turn {
                Turn::Under => right - left,
                Turn::Over => left - right,
                Turn::Through if leg.leftward() => upper,
                Turn::Through => -upper,
            };
            (leg.turn, leg.leftward(), key, index)
        })
        .collect();
    order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.total_cmp(&b.2)));
    let mut used: Vec<Vec<Leg>> = Vec::new();
    for (turn, leftward, _, index) in order {
        let leg = legs[index];
        let before = |other: &Leg| {
            other.turn != turn || turn != Turn::Through || other.leftward() == leftward
        };
        let below = |track: &Vec<Leg>| {
            track
                .iter()
                .any(|other| other.overlaps(&leg) && before(other))
        };
        let least = used.iter().rposition(below).map_or(0, |track| track + 1);
        let free = |track: &Vec<Leg>| !track.iter().any(|other| other.overlaps(&leg));
        let track = used
            .iter()
            .skip(least)
            .position(free)
            .map_or(used.len(), |found| least + found);
        if let Some(track) = used.get_mut(track) {
            track.push(leg);
        } else {
            used.push(vec![leg]);
        }
        legs[index].track = track;
    }
    used.len()
}

/// Drops collinear points, and makes segments exactly horizontal or vertical.
fn square(line: Vec<Pos2>) -> Vec<Pos2> {
    let mut squared: Vec<Pos2> = Vec::with_capacity(line.len());
    for point in line {
        let mut point = point;
        if let Some(last) = squared.last()
            && (last.x - point.x).abs() < 0.5
        {
            point.x = last.x;
        }
        if let [.., before, last] = squared.as_slice()
            && ((before.x == last.x && last.x == point.x)
                || (before.y == last.y && last.y == point.y))
        {
            squared.pop();
        }
        squared.push(point);
    }
    squared
}
