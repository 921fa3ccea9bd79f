//! Horizontal positions of cells in their rows, and ports of edges on boxes.

use super::grid::{Chain, Grid, Join, gap};
use super::table::Table;

/// Number of sweeps over the rows; each is exact for one row given its neighbours.
const SWEEPS: usize = 10;

/// A preference of a cell to be aligned with another.
#[derive(Clone, Copy, Debug, Default)]
struct Pull {
    other: usize,
    /// The preferred position is the other cell's centre plus this offset.
    offset: f32,
    weight: f32,
}

/// Returns the minimum distance between the centres of two adjacent cells.
fn apart(grid: &Grid, left: usize, right: usize) -> f32 {
    let (left, right) = (&grid.cells[left], &grid.cells[right]);
    let space = match (left.real, right.real) {
        (true, true) => gap::BOXES,
        (false, false) => gap::EDGES,
        _ => gap::PASSING,
    };
    (left.width + right.width) / 2.0 + space
}

/// Distributes the ends of edges over the sides of boxes, so that edges of one box do not cross.
pub(super) fn ports(grid: &mut Grid) {
    let count = grid.cells.len();
    let mut leaving: Table<Vec<(f32, usize)>> = Table::new(count);
    let mut entering: Table<Vec<(f32, usize)>> = Table::new(count);
    for (index, chain) in grid.chains.iter().enumerate() {
        if let [from, second, ..] = chain.cells.as_slice() {
            leaving[*from].push((grid.x[*second], index));
        }
        if let [.., before, to] = chain.cells.as_slice() {
            entering[*to].push((grid.x[*before], index));
        }
    }
    let mut ends: Table<(f32, f32)> = Table::new(grid.chains.len());
    for cell in 0..count {
        let room = (grid.cells[cell].width - 2.0 * gap::CORNER).max(0.0);
        for (offset, chain) in spread(&mut leaving[cell], room) {
            ends[chain].0 = offset;
        }
        for (offset, chain) in spread(&mut entering[cell], room) {
            ends[chain].1 = offset;
        }
    }
    for (chain, &(leaves, enters)) in grid.chains.iter_mut().zip(ends.iter()) {
        chain.leaves_at = leaves;
        chain.enters_at = enters;
    }
    let by_ends: std::collections::HashMap<(usize, usize), (f32, f32)> =
        grid.chains.iter().flat_map(end_joins).collect();
    for join in &mut grid.joins {
        if let Some(&(upper, lower)) = by_ends.get(&(join.upper, join.lower)) {
            (join.upper_port, join.lower_port) = (upper, lower);
        }
    }
}

/// Returns the ports of a chain's first and last join. Back edges have none: their ends are next to
/// their boxes.
fn end_joins(chain: &Chain) -> Vec<((usize, usize), (f32, f32))> {
    match chain.cells.as_slice() {
        _ if chain.back => Vec::new(),
        [from, to] => vec![((*from, *to), (chain.leaves_at, chain.enters_at))],
        [from, first, .., last, to] => {
            vec![
                ((*from, *first), (chain.leaves_at, 0.0)),
                ((*last, *to), (0.0, chain.enters_at)),
            ]
        }
        [from, only, to] => vec![
            ((*from, *only), (chain.leaves_at, 0.0)),
            ((*only, *to), (0.0, chain.enters_at)),
        ],
        _ => Vec::new(),
    }
}

fn spread(ends: &mut [(f32, usize)], room: f32) -> Vec<(f32, usize)> {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let spaces = ends.len().saturating_sub(1) as f32;
    let step = if spaces > 0.0 {
        (room / spaces).min(gap::PORTS)
    } else {
        0.0
    };
    ends.iter()
        .enumerate()
        .map(|(place, &(_, chain))| ((place as f32 - spaces / 2.0) * step, chain))
        .collect()
}

/// Positions every cell: rows keep their order, nothing overlaps, and joined cells are aligned as
/// far as possible.
pub(super) fn place(grid: &mut Grid) {
    let count = grid.cells.len();
    let mut above: Table<Vec<Pull>> = Table::new(count);
    let mut below: Table<Vec<Pull>> = Table::new(count);
    for &Join {
        upper,
        lower,
        upper_port,
        lower_port,
        weight,
    } in &grid.joins
    {
        above[lower].push(Pull {
            other: upper,
            offset: upper_port - lower_port,
            weight,
        });
        below[upper].push(Pull {
            other: lower,
            offset: lower_port - upper_port,
            weight,
        });
    }
    for chain in grid.chains.iter().filter(|chain| chain.back) {
        let ends = match chain.cells.as_slice() {
            [from, first, .., last, to] => vec![(*from, *first), (*to, *last)],
            [from, only, _] => vec![(*from, *only)],
            _ => Vec::new(),
        };
        for (its_box, cell) in ends {
            let side = if place_in_row(grid, cell) < place_in_row(grid, its_box) {
                -1.0
            } else {
                1.0
            };
            let offset = side * (grid.cells[its_box].width / 2.0 + gap::PASSING);
            for pulls in [&mut above, &mut below] {
                pulls[cell].push(Pull {
                    other: its_box,
                    offset,
                    weight: 0.6,
                });
            }
        }
    }
    let layers = grid.rows.len();
    for layer in 0..layers {
        settle(grid, layer, &[]);
    }
    for sweep in 0..SWEEPS {
        for step in 0..layers {
            if sweep % 2 == 0 {
                settle(grid, step, &[&above]);
            } else {
                settle(grid, layers - 1 - step, &[&below]);
            }
        }
    }
    for layer in (0..layers).rev() {
        settle(grid, layer, &[&above, &below]);
    }
}

fn place_in_row(grid: &Grid, cell: usize) -> usize {
    grid.rows[grid.cells[cell].layer]
        .iter()
        .position(|&other| other == cell)
        .unwrap_or_else(|| {
            debug_assert!(false, "cell {cell} is not in the row of its layer");
            0
        })
}

/// Positions one row: of all positions that keep the order and the distances, the ones nearest to
/// the preferences, by least squares. This is isotonic regression on the positions minus the
/// distances summed from the left, solved by pooling adjacent violators.
fn settle(grid: &mut Grid, layer: usize, pulls: &[&Table<Vec<Pull>>]) {
    struct Pool {
        mean: f32,
        weight: f32,
        cells: usize,
    }
    let row = grid.rows[layer].clone();
    let mut pools: Vec<Pool> = Vec::with_capacity(row.len());
    let mut shifts = Vec::with_capacity(row.len());
    let mut shift = 0.0;
    let mut left = None;
    for &cell in &row {
        shift += left.map_or(0.0, |left| apart(grid, left, cell));
        left = Some(cell);
        shifts.push(shift);
        let (mut sum, mut weight) = (0.0, 0.0);
        for pull in pulls.iter().flat_map(|pulls| &pulls[cell]) {
            sum += (grid.x[pull.other] + pull.offset) * pull.weight;
            weight += pull.weight;
        }
        let (wanted, weight) = if weight > 0.0 {
            (sum / weight, weight)
        } else {
            (grid.x[cell], 0.05)
        };
        pools.push(Pool {
            mean: wanted - shift,
            weight,
            cells: 1,
        });
        while let [.., before, last] = pools.as_slice()
            && before.mean > last.mean
        {
            let weight = before.weight + last.weight;
            let mean = (before.mean * before.weight + last.mean * last.weight) / weight;
            let cells = before.cells + last.cells;
            pools.truncate(pools.len() - 2);
            pools.push(Pool {
                mean,
                weight,
                cells,
            });
        }
    }
    let means = pools
        .iter()
        .flat_map(|pool| std::iter::repeat_n(pool.mean, pool.cells));
    for ((&cell, mean), shift) in row.iter().zip(means).zip(shifts) {
        grid.x[cell] = mean + shift;
    }
}

/// Aligns the dummies of each edge where their neighbours allow, and moves ports along the sides of
/// boxes where that saves a bend.
pub(super) fn straighten(grid: &mut Grid) {
    let mut at: Table<usize> = Table::new(grid.cells.len());
    for row in grid.rows.iter() {
        for (place, &cell) in row.iter().enumerate() {
            at[cell] = place;
        }
    }
    let chains = std::mem::take(&mut grid.chains);
    for chain in &chains {
        let (Some(&from), Some(&to)) = (chain.cells.first(), chain.cells.last()) else {
            debug_assert!(false, "a chain has both its ends");
            continue;
        };
        let inner: Vec<usize> = chain
            .cells
            .iter()
            .copied()
            .filter(|&cell| !grid.cells[cell].real)
            .collect();
        let start = grid.x[from] + chain.leaves_at;
        let end = grid.x[to] + chain.enters_at;
        align(grid, &at, &inner, start, end, chain.back);
    }
    grid.chains = chains;
    slide_ports(grid);
}

/// Aligns cells in runs as long as possible, each run on one line.
fn align(grid: &mut Grid, at: &Table<usize>, inner: &[usize], start: f32, end: f32, back: bool) {
    let mut rest = inner;
    let mut first = true;
    while !rest.is_empty() {
        let (mut low, mut high) = (f32::NEG_INFINITY, f32::INFINITY);
        let mut taken = 0;
        let mut sum = 0.0;
        for &cell in rest {
            let (l, h) = room(grid, at, cell);
            if low.max(l) > high.min(h) {
                break;
            }
            (low, high) = (low.max(l), high.min(h));
            sum += grid.x[cell];
            taken += 1;
        }
        let taken = taken.max(1);
        let (run, after) = rest.split_at(taken);
        let within = |x: f32| (low <= x && x <= high).then_some(x);
        let line = (first && !back)
            .then(|| within(start))
            .flatten()
            .or_else(|| (after.is_empty() && !back).then(|| within(end)).flatten())
            .unwrap_or_else(|| (sum / taken as f32).max(low).min(high));
        if low <= high {
            for &cell in run {
                grid.x[cell] = line;
            }
        }
        rest = after;
        first = false;
    }
}

/// Returns the range of positions between a cell's neighbours.
fn room(grid: &Grid, at: &Table<usize>, cell: usize) -> (f32, f32) {
    let row = &grid.rows[grid.cells[cell].layer];
    let place = at[cell];
    let left = place.checked_sub(1).and_then(|place| row.get(place));
    let right = row.get(place + 1);
    // The current position is always allowed, in spite of rounding.
    let x = grid.x[cell];
    (
        left.map_or(f32::NEG_INFINITY, |&left| {
            (grid.x[left] + apart(grid, left, cell)).min(x)
        }),
        right.map_or(f32::INFINITY, |&right| {
            (grid.x[right] - apart(grid, cell, right)).max(x)
        }),
    )
}

/// Moves a port that is alone on its side of a box, if that makes its edge straight.
fn slide_ports(grid: &mut Grid) {
    let count = grid.cells.len();
    let mut leaving: Table<u32> = Table::new(count);
    let mut entering: Table<u32> = Table::new(count);
    for chain in &grid.chains {
        if let (Some(&from), Some(&to)) = (chain.cells.first(), chain.cells.last()) {
            leaving[from] += 1;
            entering[to] += 1;
        }
    }
    let mut chains = std::mem::take(&mut grid.chains);
    for chain in chains.iter_mut().filter(|chain| !chain.back) {
        let ([from, second, ..], [.., before, to]) =
            (chain.cells.as_slice(), chain.cells.as_slice())
        else {
            continue;
        };
        let reach = |cell: usize| (grid.cells[cell].width / 2.0 - gap::CORNER).max(0.0);
        if entering[*to] == 1 {
            let ahead = if before == from {
                grid.x[*from] + chain.leaves_at
            } else {
                grid.x[*before]
            };
            let offset = ahead - grid.x[*to];
            if offset.abs() <= reach(*to) {
                chain.enters_at = offset;
            }
        }
        if leaving[*from] == 1 {
            let ahead = if second == to {
                grid.x[*to] + chain.enters_at
            } else {
                grid.x[*second]
            };
            let offset = ahead - grid.x[*from];
            if offset.abs() <= reach(*from) {
                chain.leaves_at = offset;
            }
        }
    }
    grid.chains = chains;
}
