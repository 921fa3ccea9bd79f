//! Column boundaries of a view, to the tick.

use std::ops::Range;

/// The first tick of each column of a view, and the end of the last column.
#[derive(Debug)]
pub(super) struct Edges(Vec<u64>);

impl Edges {
    /// Returns the edges of columns of equal width: column `c` has the ticks with `(t - start) *
    /// columns / width == c`.
    pub(super) fn of(view: &Range<u64>, columns: usize) -> Self {
        let (width, columns) = (view.end.saturating_sub(view.start), columns as u64);
        let (step, rest) = match (width.checked_div(columns), width.checked_rem(columns)) {
            (Some(step), Some(rest)) => (step, rest),
            _ => (0, 0),
        };
        // Bresenham's way, without a division per edge: whole ticks, and the remainder in fractions
        // of a tick.
        let (mut edge, mut over) = (view.start, 0);
        let mut edges = Vec::with_capacity(columns as usize + 1);
        edges.push(edge);
        for _ in 0..columns {
            edge += step;
            over += rest;
            if over >= columns {
                over -= columns;
                edge += 1;
            }
            // The first tick at or after the edge.
            edges.push(edge + u64::from(over > 0));
        }
        Self(edges)
    }

    /// Returns the column of `tsc`, which is known to be in `column` or a later one.
    pub(super) fn column_from(&self, column: usize, tsc: u64) -> usize {
        let later = self.0.get(column + 1..).unwrap_or_default();
        column + later.iter().take_while(|edge| **edge <= tsc).count()
    }

    /// Returns the end of a column, exclusive.
    pub(super) fn end(&self, column: usize) -> u64 {
        self.0.get(column + 1).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn edges_equal_a_division_for_every_tick(
            start in prop_oneof![0u64..100, any::<u64>()], width in prop_oneof![1u64..5000, 1u64..u64::MAX],
            columns in 1usize..300, part in 0.0f64..1.0,
        ) {
            let end = start.saturating_add(width);
            prop_assume!(end > start);
            let width = end - start;
            let edges = Edges::of(&(start..end), columns);
            let tsc = start + ((width as f64 * part) as u64).min(width - 1);
            let column = u128::from(tsc - start) * columns as u128 / u128::from(width);
            prop_assert_eq!(edges.column_from(0, tsc) as u128, column);
            prop_assert!(tsc < edges.end(column as usize));
            prop_assert_eq!(edges.end(columns - 1), end);
        }
    }
}
