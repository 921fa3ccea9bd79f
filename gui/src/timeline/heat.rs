//! A lane of very many values as heat: time to the right, values upwards, and the brighter the more
//! samples are in a cell. Which cells there are is worked out again only when something changes.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{Color32, Mesh, Rect, Shape, pos2};
use gilk_samples::index::{Column, Part};

use super::Range;

/// Edge of a cell, in points.
const CELL: f32 = 4.0;
/// Up to so many samples in view each is looked at; more are drawn as least and greatest.
pub(crate) const MOST: u64 = 1 << 19;
/// From this ratio on of greatest to least the scale is a logarithm's.
const WIDE: u64 = 32;

/// Where values are in a lane: 0 at its foot, 1 at its top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Heights {
    least: u64,
    most: u64,
}

impl Heights {
    pub(crate) const fn new(least: u64, most: u64) -> Self {
        Self { least, most }
    }

    pub(crate) fn share(self, value: u64) -> f32 {
        let Self { least, most } = self;
        let value = value.clamp(least, most);
        if most == least {
            0.5
        } else if most / WIDE >= least.max(1) {
            let log = |value: u64| ((value - least) as f64).ln_1p();
            (log(value) / log(most)) as f32
        } else {
            ((value - least) as f64 / (most - least) as f64) as f32
        }
    }
}

/// What the cells of a lane were counted for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Asked {
    range: Range,
    ticks: (u64, u64),
    cells: (usize, usize),
    seen: Column,
}

/// Samples in each cell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    columns: usize,
    rows: usize,
    /// Column after column, each from its foot on.
    counts: Vec<u32>,
    /// The most in one cell.
    pub(crate) most: u32,
}

/// Those that were counted last, by lane.
#[derive(Debug, Default)]
pub(crate) struct Heats {
    kept: HashMap<(u64, Option<u16>), (Asked, Arc<Cells>)>,
}

impl Heats {
    /// The cells of a lane between two ticks, for a place on the screen.
    pub(crate) fn of(
        &mut self,
        (id, cpu): (u64, Option<u16>),
        part: Part<'_>,
        (range, ticks): (Range, (u64, u64)),
        seen: Column,
        rect: Rect,
    ) -> Arc<Cells> {
        let cells = |length: f32| (length / CELL).floor().max(1.0) as usize;
        let asked = Asked {
            range,
            ticks,
            cells: (cells(rect.width()), cells(rect.height())),
            seen,
        };
        if let Some((known, cells)) = self.kept.get(&(id, cpu))
            && *known == asked
        {
            return Arc::clone(cells);
        }
        let counted = Arc::new(count(part, id, &asked));
        self.kept.insert((id, cpu), (asked, Arc::clone(&counted)));
        counted
    }

    /// Forgets those of another recording.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

fn count(part: Part<'_>, id: u64, asked: &Asked) -> Cells {
    let ((columns, rows), (first, end)) = (asked.cells, asked.ticks);
    let heights = Heights::new(asked.seen.min, asked.seen.max);
    let mut counts = vec![0u32; columns * rows];
    let width = u128::from(end.saturating_sub(first).max(1));
    part.visit(id, first, end, |point| {
        let column = (u128::from(point.tsc - first) * columns as u128 / width) as usize;
        let row = ((heights.share(point.value) * rows as f32) as usize).min(rows - 1);
        if let Some(count) = counts.get_mut(column * rows + row) {
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
    /// All of them as one shape.
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
            let asked = Asked {
                range: Range { start: 0.0, end: 1.0 },
                ticks: (0, 1000),
                cells: (30, 7),
                seen,
            };
            let cells = count(index.part(Some(2)), 1, &asked);
            prop_assert_eq!(cells.counts.iter().map(|&count| u64::from(count)).sum::<u64>(), seen.count);
            prop_assert_eq!(&cells, &count(index.part(None), 1, &asked));
            prop_assert_eq!(count(index.part(Some(3)), 1, &asked).most, 0);
        }

        #[test]
        fn greater_values_stand_no_lower(a in any::<u64>(), b in any::<u64>(), bounds in any::<(u64, u64)>()) {
            let heights = Heights::new(bounds.0.min(bounds.1), bounds.0.max(bounds.1));
            let (low, high) = (heights.share(a.min(b)), heights.share(a.max(b)));
            prop_assert!((0.0..=1.0).contains(&low) && low <= high && high <= 1.0, "{} {}", low, high);
        }
    }

    #[test]
    fn a_wide_range_is_a_logarithms() {
        let heights = Heights::new(0, 1_000_000);
        assert!((0.45..0.55).contains(&heights.share(1000)));
        assert!(Heights::new(500, 1000).share(750) == 0.5);
    }
}
