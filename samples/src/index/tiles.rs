//! A cache of drawn columns: a view that moves slightly is assembled from cached pieces.
//!
//! A *tile* is [`COLUMNS`] exact columns of a lane, each a power of two of ticks wide and at most
//! half a screen column. So a view that moves, or zooms by less than two, uses the same tiles. A
//! tile is valid as long as the number of samples in its time is unchanged: samples are only ever
//! added.

use std::collections::HashMap;
use std::sync::Arc;

use super::Part;
use super::column::Column;
use super::edges::Edges;

/// Columns per tile.
const COLUMNS: usize = 1 << TILE;
/// Binary logarithm of [`COLUMNS`].
const TILE: u32 = 10;
/// Number of samples in view up to which each is visited.
const NEAR: u64 = 1 << 13;
/// Tiles computed per frame over all lanes: a millisecond or two. Missing tiles are queried
/// directly.
const A_FRAME: u32 = 16;
/// Tiles computed per frame for a lane.
const A_LANE: u32 = 2;
/// Maximum number of cached tiles: they take 50 MB.
const KEPT: usize = 1 << 10;

/// A lane: its instrument, and the CPU if it has only one.
type LaneKey = (u64, Option<u16>);

/// A half-open time range, and a number of columns.
type View = (u64, u64, usize);

/// Cached columns of lanes.
#[derive(Debug, Default)]
pub struct Tiles {
    frame: u64,
    /// Tiles computed in this frame.
    made: u32,
    /// Tiles by lane, binary logarithm of a column's width, and index.
    tiles: HashMap<(LaneKey, u32, u64), Tile>,
    /// Last view of a lane, and the number of samples that the lane had then.
    seen: HashMap<LaneKey, (View, u64, Arc<[Column]>)>,
}

#[derive(Debug)]
struct Tile {
    columns: Box<[Column]>,
    /// Samples in the tile's time.
    count: u64,
    /// Number of samples of the lane when `count` was checked.
    of: u64,
    /// Frame of the last use.
    used: u64,
}

impl Tiles {
    /// Begins a new frame.
    pub fn begin(&mut self) {
        self.frame += 1;
        self.made = 0;
        let (frame, is_full) = (self.frame, self.tiles.len() > KEPT);
        if is_full {
            self.tiles.retain(|_, tile| tile.used + 1 >= frame);
        }
    }

    /// Returns the same as [`Part::view`](Part::view), faster where much of it is cached: every
    /// sample is in exactly one column, at most half a column away from its own.
    pub fn view(
        &mut self,
        part: Part<'_>,
        id: u64,
        t0: u64,
        t1: u64,
        columns: usize,
    ) -> Arc<[Column]> {
        let (key, view) = ((id, part.cpu()), (t0, t1, columns));
        let of = part.samples(id);
        if let Some((known, then, seen)) = self.seen.get(&key)
            && (*known, *then) == (view, of)
        {
            return Arc::clone(seen);
        }
        let tiled = self.tiled(part, id, view, of);
        let columns = tiled.unwrap_or_else(|| part.view(id, t0, t1, columns));
        let columns: Arc<[Column]> = columns.into();
        self.seen.insert(key, (view, of, Arc::clone(&columns)));
        columns
    }

    /// Assembles the view from tiles, unless a query is faster or tiles are missing.
    fn tiled(
        &mut self,
        part: Part<'_>,
        id: u64,
        (t0, t1, columns): View,
        of: u64,
    ) -> Option<Vec<Column>> {
        if part.count(id, t0, t1) <= NEAR {
            return None;
        }
        let half = (t1 - t0) / (2 * columns as u64).max(1);
        let shift = half.checked_ilog2()?;
        let wide = shift + TILE;
        let (first, last) = (t0.checked_shr(wide)?, (t1 - 1).checked_shr(wide)?);
        let mut are_there = true;
        let most = A_FRAME.min(self.made + A_LANE);
        for number in first..=last {
            are_there &= self.have(part, id, (shift, number), of, most);
        }
        are_there.then(|| self.put_together(part, id, (t0, t1, columns), shift))
    }

    /// Returns whether a tile is cached; computes it unless `most` were computed in this frame.
    fn have(
        &mut self,
        part: Part<'_>,
        id: u64,
        (shift, number): (u32, u64),
        of: u64,
        most: u32,
    ) -> bool {
        let start = number << (shift + TILE);
        let Some(end) = start.checked_add(1 << (shift + TILE)) else {
            return false;
        };
        let place = ((id, part.cpu()), shift, number);
        if let Some(tile) = self.tiles.get_mut(&place) {
            tile.used = self.frame;
            if tile.of == of {
                return true;
            }
            if tile.count == part.count(id, start, end) {
                tile.of = of;
                return true;
            }
        }
        if self.made >= most {
            return false;
        }
        self.made += 1;
        let columns = part.aligned(id, start, end, COLUMNS).into_boxed_slice();
        let tile = Tile {
            count: columns.iter().map(|column| column.count).sum(),
            columns,
            of,
            used: self.frame,
        };
        self.tiles.insert(place, tile);
        true
    }

    /// Assembles a view from cached tiles; the parts outside them at both ends are queried.
    fn put_together(
        &self,
        part: Part<'_>,
        id: u64,
        (t0, t1, columns): View,
        shift: u32,
    ) -> Vec<Column> {
        let mut out = vec![Column::default(); columns];
        let edges = Edges::of(&(t0..t1), columns);
        // Whole columns of tiles, by number.
        let (from, to) = (t0.div_ceil(1 << shift), t1 >> shift);
        let ends = [(t0, from << shift, 0), (to << shift, t1, columns - 1)];
        for (start, end, at) in ends {
            if let Some(out) = out.get_mut(at).filter(|_| start < end) {
                out.merge(&part.total(id, start, end));
            }
        }
        let key = (id, part.cpu());
        let mut column = 0;
        for number in (from >> TILE)..=(to.saturating_sub(1) >> TILE) {
            let Some(tile) = self.tiles.get(&(key, shift, number)) else {
                continue;
            };
            let first = number << TILE;
            let within = |at: u64| (at.clamp(first, first + COLUMNS as u64) - first) as usize;
            let inside = tile
                .columns
                .get(within(from)..within(to))
                .unwrap_or_default();
            let numbers = first.max(from)..;
            for (found, number) in inside
                .iter()
                .zip(numbers)
                .filter(|(found, _)| found.count > 0)
            {
                // The middle of a column decides its position.
                let middle = (number << shift) + (1 << shift >> 1);
                column = edges.column_from(column, middle);
                if let Some(out) = out.get_mut(column) {
                    out.merge(found);
                }
            }
        }
        out
    }
}
