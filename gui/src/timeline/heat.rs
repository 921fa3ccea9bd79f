//! Heat map of a lane with many values: time to the right, values upwards, brighter cells have more
//! samples. Cells are recomputed only when the view or the samples change.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{Color32, Mesh, Rect, Shape, pos2};
use gilk_samples::index::{Column, Owner, Part, Tiles};

use super::Range;
use super::order::Axis;

/// Side of a cell, in points.
const CELL: f32 = 4.0;
/// Maximum number of samples in view that are counted; lanes with more are drawn as minimum and
/// maximum.
const MAX_SAMPLES: u64 = 1 << 19;
/// Maximum number of samples that are counted while the view moves or samples arrive.
const MAX_WHILE_MOVING: u64 = 1 << 13;
/// Maximum number of samples counted per frame, over all lanes: a few milliseconds.
const MAX_PER_FRAME: u64 = 1 << 18;
/// Minimum ratio of maximum to minimum for a logarithmic scale.
const WIDE_RATIO: u64 = 32;

/// Maps values to heights in a lane: 0 at the bottom, 1 at the top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Heights {
    least: u64,
    most: u64,
    /// The height of the whole range on a logarithmic scale, if it is logarithmic.
    log: Option<f64>,
}

impl Heights {
    pub(crate) fn new(least: u64, most: u64, axis: Axis) -> Self {
        let is_log = match axis {
            Axis::Automatic => most / WIDE_RATIO >= least.max(1),
            Axis::Linear => false,
            Axis::Logarithmic => true,
        };
        let log = (is_log && most > least).then(|| ((most - least) as f64).ln_1p());
        Self { least, most, log }
    }

    /// Returns the least and the greatest value.
    pub(crate) const fn bounds(self) -> (u64, u64) {
        (self.least, self.most)
    }

    /// Returns the value at half the height, on a logarithmic scale.
    pub(crate) fn middle(self) -> Option<u64> {
        let whole = self.log?;
        Some(self.least.saturating_add((whole / 2.0).exp_m1() as u64))
    }

    pub(crate) fn share(self, value: u64) -> f32 {
        let above = (value.clamp(self.least, self.most) - self.least) as f64;
        match self.log {
            Some(whole) => (above.ln_1p() / whole) as f32,
            None if self.most == self.least => 0.5,
            None => (above / (self.most - self.least) as f64) as f32,
        }
    }
}

/// LaneId of a heat map.
#[derive(Clone, Copy, Debug, PartialEq)]
struct HeatKey {
    range: Range,
    axis: Axis,
    ticks: (u64, u64),
    cells: (usize, usize),
    seen: Column,
}

/// A heat map.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    columns: usize,
    rows: usize,
    /// Counts by column, each column from the bottom.
    counts: Vec<u32>,
    /// Maximum count.
    pub(crate) most: u32,
}

/// A lane: its instrument, and the owner of its samples.
type LaneId = (u64, Owner);

/// Cache of heat maps, by lane.
#[derive(Debug, Default)]
pub(crate) struct Heats {
    kept: HashMap<LaneId, (HeatKey, Arc<Cells>)>,
    /// Keys not computed in this frame, because the view moved or the frame's budget was spent.
    waiting: HashMap<LaneId, HeatKey>,
    /// The same of the previous frame.
    before: HashMap<LaneId, HeatKey>,
    /// Samples counted in this frame.
    looked: u64,
    /// Cache of drawn columns.
    pub(crate) tiles: Tiles,
}

impl Heats {
    /// Starts a new frame.
    pub(crate) fn begin(&mut self) {
        self.looked = 0;
        self.tiles.begin();
        self.before = std::mem::take(&mut self.waiting);
    }

    /// Returns the heat map of a lane between two ticks, or `None` if it exceeds the frame's
    /// budget.
    pub(crate) fn of(
        &mut self,
        lane: LaneId,
        part: Part<'_>,
        (range, ticks, axis): (Range, (u64, u64), Axis),
        seen: Column,
        rect: Rect,
    ) -> Option<Arc<Cells>> {
        let cells = |length: f32| (length / CELL).floor().max(1.0) as usize;
        let key = HeatKey {
            range,
            axis,
            ticks,
            cells: (cells(rect.width()), cells(rect.height())),
            seen,
        };
        if let Some((known, cells)) = self.kept.get(&lane)
            && *known == key
        {
            return Some(Arc::clone(cells));
        }
        let is_still = self.before.get(&lane) == Some(&key);
        let in_time = self.looked < MAX_PER_FRAME && is_still && seen.count <= MAX_SAMPLES;
        if seen.count > MAX_WHILE_MOVING && !in_time {
            self.waiting.insert(lane, key);
            return None;
        }
        self.looked += seen.count;
        let counted = Arc::new(count(part, lane.0, &key));
        self.kept.insert(lane, (key, Arc::clone(&counted)));
        Some(counted)
    }

    /// Returns whether a heat map waits for the next frame.
    pub(crate) fn waits(&self) -> bool {
        self.waiting
            .values()
            .any(|key| key.seen.count <= MAX_SAMPLES)
    }

    /// Clears the cache, for another recording.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn count(part: Part<'_>, id: u64, key: &HeatKey) -> Cells {
    let ((columns, rows), (first, end)) = (key.cells, key.ticks);
    let heights = Heights::new(key.seen.min, key.seen.max, key.axis);
    let mut counts = vec![0u32; columns * rows];
    let a_tick = columns as f64 / end.saturating_sub(first).max(1) as f64;
    part.visit(id, first, end, |point| {
        let column = ((point.tsc - first) as f64 * a_tick) as usize;
        let row = (heights.share(point.value) * rows as f32) as usize;
        let cell = column.min(columns - 1) * rows + row.min(rows - 1);
        if let Some(count) = counts.get_mut(cell) {
            *count = count.saturating_add(1);
        }
    });
    Cells {
        columns,
        rows,
        most: counts.iter().copied().max().unwrap_or(0),
        counts,
    }
}

impl Cells {
    /// Returns all cells as one shape.
    pub(crate) fn shape(&self, rect: Rect, color: Color32) -> Shape {
        let (wide, high) = (
            rect.width() / self.columns as f32,
            rect.height() / self.rows as f32,
        );
        let full = f64::from(self.most).ln_1p().max(f64::MIN_POSITIVE);
        let mut mesh = Mesh::default();
        let columns = self.counts.chunks(self.rows).enumerate();
        for (column, counts) in columns {
            for (row, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let left = rect.left() + column as f32 * wide;
                let foot = rect.bottom() - row as f32 * high;
                let cell = Rect::from_min_max(pos2(left, foot - high), pos2(left + wide, foot));
                let share = f64::from(count).ln_1p() / full;
                mesh.add_colored_rect(cell, color.gamma_multiply(0.18 + 0.82 * share as f32));
            }
        }
        Shape::mesh(mesh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_samples::index::Index;
    use gilk_samples::{Batch, Sample};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_sample_is_in_one_cell(values in prop::collection::vec((0u64..1000, any::<u64>()), 1..400)) {
            let samples = values.iter().map(|&(tsc, value)| Sample { id: 1, value, tsc }).collect();
            let mut index = Index::new();
            index.append(&Batch { cpu: 2, samples });
            let seen = index.total(1, 0, 1000);
            let key = HeatKey {
                range: Range { start: 0.0, end: 1.0 },
                axis: Axis::Automatic,
                ticks: (0, 1000),
                cells: (30, 7),
                seen,
            };
            let cells = count(index.part(Some(2)), 1, &key);
            prop_assert_eq!(cells.counts.iter().map(|&count| u64::from(count)).sum::<u64>(), seen.count);
            prop_assert_eq!(&cells, &count(index.part(None), 1, &key));
            prop_assert_eq!(count(index.part(Some(3)), 1, &key).most, 0);
        }

        #[test]
        fn heights_increase_with_values(a in any::<u64>(), b in any::<u64>(), bounds in any::<(u64, u64)>(), axis in prop::sample::select(Axis::ALL.to_vec())) {
            let heights = Heights::new(bounds.0.min(bounds.1), bounds.0.max(bounds.1), axis);
            let (low, high) = (heights.share(a.min(b)), heights.share(a.max(b)));
            prop_assert!((0.0..=1.0).contains(&low) && low <= high && high <= 1.0, "{} {}", low, high);
        }
    }

    #[test]
    fn large_heat_maps_wait_for_a_still_view_and_a_free_frame() {
        let each = MAX_PER_FRAME / 2 + 1;
        let mut index = Index::new();
        for id in 0..3 {
            let samples = (0..each).map(|tsc| Sample {
                id,
                value: tsc % 97,
                tsc,
            });
            index.append(&Batch {
                cpu: 0,
                samples: samples.collect(),
            });
        }
        let mut heats = Heats::default();
        let mut frame = |range: Range| {
            heats.begin();
            let rect = Rect::from_min_max(pos2(0.0, 0.0), pos2(400.0, 40.0));
            let ticks = (0, each);
            let cells = (0..3).map(|id| {
                let seen = index.total(id, 0, each);
                heats.of(
                    (id, Owner::All),
                    index.part(None),
                    (range, ticks, Axis::Automatic),
                    seen,
                    rect,
                )
            });
            let had = cells.map(|cells| cells.is_some()).collect::<Vec<_>>();
            (had, heats.waits())
        };
        let (one, other) = (Range::whole(1.0), Range::whole(2.0));
        assert_eq!(frame(one), (vec![false; 3], true));
        assert_eq!(frame(other), (vec![false; 3], true), "the view moved");
        assert_eq!(frame(other), (vec![true, true, false], true));
        assert_eq!(frame(other), (vec![true; 3], false));
    }

    #[test]
    fn wide_ranges_use_a_logarithmic_scale() {
        let heights = Heights::new(0, 1_000_000, Axis::Automatic);
        assert!((0.45..0.55).contains(&heights.share(1000)));
        assert!((900..1100).contains(&heights.middle().unwrap()));
        assert!(Heights::new(500, 1000, Axis::Automatic).share(750) == 0.5);
        assert!(Heights::new(500, 1000, Axis::Logarithmic).share(750) > 0.8);
        assert!(Heights::new(0, 1_000_000, Axis::Linear).share(1000) < 0.01);
    }
}
