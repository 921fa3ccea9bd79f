//! Columns that were drawn before, to be drawn from again: a view that moves a little is put together from
//! pieces that are known.
//!
//! A *tile* is [`COLUMNS`] columns of a lane, each a power of two of ticks wide and half a column of the
//! screen at most, and exact. So a view that moves, or is zoomed by less than two, is made of the same tiles. A tile is
//! good as long as there are as many samples in its time as when it was made: samples are only ever added.

use std::collections::HashMap;
use std::sync::Arc;

use super::edges::Edges;
use super::{Column, Part};

/// Columns of a tile.
const COLUMNS: usize = 1 << TILE;
/// The same, as a power of two.
const TILE: u32 = 10;
/// Samples in view up to which each is looked at.
const NEAR: u64 = 1 << 13;
/// Tiles that are made in a frame, of all lanes: a millisecond or two. What is not made yet is looked up.
const A_FRAME: u32 = 16;
/// Those of a lane.
const A_LANE: u32 = 2;
/// Tiles that are kept: they take 50 MB.
const KEPT: usize = 1 << 10;

/// A lane: its instrument, and the CPU if it is one's.
type Key = (u64, Option<u16>);

/// From when up to but without when, and in how many columns.
type View = (u64, u64, usize);

/// What was seen of lanes.
#[derive(Debug, Default)]
pub struct Tiles {
    frame: u64,
    /// Tiles made in this frame.
    made: u32,
    /// By lane, width of a column as a power of two, and place.
    tiles: HashMap<(Key, u32, u64), Tile>,
    /// What was seen last, of how many samples the lane then had.
    seen: HashMap<Key, (View, u64, Arc<[Column]>)>,
}

#[derive(Debug)]
struct Tile {
    columns: Box<[Column]>,
    /// Samples in its time.
    count: u64,
    /// Samples that the lane had when that was looked at.
    of: u64,
    /// The frame in which it was used last.
    used: u64,
}

impl Tiles {
    /// A new frame begins.
    pub fn begin(&mut self) {
        self.frame += 1;
        self.made = 0;
        let (frame, is_full) = (self.frame, self.tiles.len() > KEPT);
        if is_full {
            self.tiles.retain(|_, tile| tile.used + 1 >= frame);
        }
    }

    /// As [`Part::view`](Part::view), and quicker where much of it was seen before: every sample is in
    /// exactly one column, and none is more than half a column away from it.
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

    /// The view put together, unless it is quicker looked up or not all tiles are there.
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

    /// Whether a tile is there; it is made unless `most` were in this frame.
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

    /// A view from tiles that are all there; what sticks out of them at the ends is looked up.
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
                // The middle of it says where it belongs.
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
