//! Order of cells in each layer: barycentre sweeps, of which the best result is kept.

use super::grid::{Grid, Link};
use super::table::Table;

/// Number of sweeps over graphs of usual size.
const SWEEPS: usize = 12;
/// Number of cells above which only two sweeps are made.
const LARGE: usize = 60_000;

/// Returns all cells in the order of a depth-first search from the entry.
pub(super) fn first(grid: &Grid, nodes: usize, links: &[Link]) -> Vec<usize> {
    let mut out: Table<Vec<usize>> = Table::new(nodes);
    for (index, link) in links.iter().enumerate() {
        out[link.from].push(index);
    }
    let mut met: Table<bool> = Table::new(nodes);
    let mut order = Vec::with_capacity(grid.cells.len());
    for root in 0..nodes {
        let mut path = Vec::new();
        if !met[root] {
            met[root] = true;
            order.push(root);
            path.push((root, 0));
        }
        while let Some((node, next)) = path.last_mut() {
            let Some(&index) = out[*node].get(*next) else {
                path.pop();
                continue;
            };
            *next += 1;
            let (Some(chain), Some(link)) = (grid.chains.get(index), links.get(index)) else {
                debug_assert!(false, "link {index} of {}", links.len());
                continue;
            };
            let inner = chain.cells.len().saturating_sub(2);
            order.extend(chain.cells.iter().skip(1).take(inner));
            if !met[link.to] {
                met[link.to] = true;
                order.push(link.to);
                path.push((link.to, 0));
            }
        }
    }
    order
}

/// Reorders the rows of `grid` to reduce crossings.
pub(super) fn arrange(grid: &mut Grid) {
    let count = grid.cells.len();
    let mut above: Table<Vec<usize>> = Table::new(count);
    let mut below: Table<Vec<usize>> = Table::new(count);
    for join in &grid.joins {
        above[join.lower].push(join.upper);
        below[join.upper].push(join.lower);
    }
    // The end of a back edge has no neighbour beyond its box, so it follows the box.
    let mut neighbour_box: Table<Option<usize>> = Table::new(count);
    for chain in grid.chains.iter().filter(|chain| chain.back) {
        if let [from, first, .., last, to] = chain.cells.as_slice() {
            neighbour_box[*first] = Some(*from);
            neighbour_box[*last] = Some(*to);
        } else if let [from, only, _] = chain.cells.as_slice() {
            neighbour_box[*only] = Some(*from);
        }
    }
    let mut rank: Table<f32> = Table::new(count);
    let layers = grid.rows.len();
    for layer in 0..layers {
        number(&mut rank, &grid.rows[layer]);
    }
    let mut best = grid.rows.clone();
    let mut fewest = crossings(grid, &rank);
    let sweeps = if count > LARGE { 2 } else { SWEEPS };
    for sweep in 0..sweeps {
        if fewest == 0 {
            break;
        }
        let down = sweep % 2 == 0;
        for step in 1..layers {
            let (layer, near) = if down {
                (step, &above)
            } else {
                (layers - 1 - step, &below)
            };
            sort_row(&mut grid.rows[layer], near, &neighbour_box, &mut rank);
        }
        let crossed = crossings(grid, &rank);
        if crossed < fewest {
            fewest = crossed;
            best = grid.rows.clone();
        }
    }
    grid.rows = best;
}

fn number(rank: &mut Table<f32>, row: &[usize]) {
    let share = 1.0 / row.len().max(1) as f32;
    for (place, &cell) in row.iter().enumerate() {
        rank[cell] = (place as f32 + 0.5) * share;
    }
}

fn sort_row(
    row: &mut [usize],
    near: &Table<Vec<usize>>,
    neighbour_box: &Table<Option<usize>>,
    rank: &mut Table<f32>,
) {
    let mean = |cell: usize| {
        let near = &near[cell];
        (!near.is_empty())
            .then(|| near.iter().map(|&other| rank[other]).sum::<f32>() / near.len() as f32)
    };
    let mut keyed: Vec<(f32, u8, usize)> = row
        .iter()
        .map(|&cell| {
            if let Some(key) = mean(cell) {
                (key, 1, cell)
            } else if let Some(box_cell) = neighbour_box[cell] {
                (mean(box_cell).unwrap_or(rank[box_cell]), 0, cell)
            } else {
                (rank[cell], 1, cell)
            }
        })
        .collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (slot, (_, _, cell)) in row.iter_mut().zip(keyed) {
        *slot = cell;
    }
    number(rank, row);
}

/// Counts the pairs of joins that cross, over all layers.
fn crossings(grid: &Grid, rank: &Table<f32>) -> u64 {
    let mut between: Table<Vec<(f32, f32)>> = Table::new(grid.rows.len());
    for join in &grid.joins {
        between[grid.cells[join.upper].layer].push((rank[join.upper], rank[join.lower]));
    }
    let mut total = 0;
    for pairs in between.iter_mut() {
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut lower: Vec<f32> = pairs.iter().map(|pair| pair.1).collect();
        total += inversions(&mut lower);
    }
    total
}

/// Counts inversions by merge sort; sorts `values`.
fn inversions(values: &mut [f32]) -> u64 {
    if values.len() < 2 {
        return 0;
    }
    let (left, right) = values.split_at_mut(values.len() / 2);
    let mut count = inversions(left) + inversions(right);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut l, mut r) = (
        left.iter().copied().peekable(),
        right.iter().copied().peekable(),
    );
    let mut waiting = left.len() as u64;
    loop {
        match (l.peek(), r.peek()) {
            (Some(a), Some(b)) if b < a => {
                count += waiting;
                merged.extend(r.next());
            }
            (Some(_), _) => {
                merged.extend(l.next());
                waiting -= 1;
            }
            (None, Some(_)) => merged.extend(r.next()),
            (None, None) => break,
        }
    }
    values.copy_from_slice(&merged);
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn inversions_agree_with_a_brute_force_count(values in prop::collection::vec(0u8..20, 0..60)) {
            let mut floats: Vec<f32> = values.iter().copied().map(f32::from).collect();
            let mut slow = 0;
            for (at, a) in values.iter().enumerate() {
                slow += values[at + 1..].iter().filter(|b| *b < a).count() as u64;
            }
            prop_assert_eq!(inversions(&mut floats), slow);
            prop_assert!(floats.is_sorted());
        }
    }
}
