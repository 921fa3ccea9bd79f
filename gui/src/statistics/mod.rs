//! The table of statistics: one row per instrument and function, sorted by any column, filtered, and
//! limited to the range between the markers of the timeline.
//!
//! `rows` computes it on a thread, `pane` draws it.

mod cells;
pub mod comparison;
mod comparison_view;
mod detail;
pub(crate) mod pane;
pub mod rows;
pub mod texts;
pub(crate) mod values;

use std::cmp::Ordering;
use std::sync::Arc;

use comparison::ComparedRuns;
use rows::StatisticsRow;

/// State of the pane.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Text of the filter.
    pub filter: String,
    /// The column that orders the rows, largest first unless `ascending`.
    pub column: Column,
    /// True if the smallest value is first.
    pub ascending: bool,
    /// The selected row: its function and its instrument.
    selected: Option<(String, String)>,
    /// Two recordings side by side, in place of the rows.
    pub comparison: Option<ComparedRuns>,
    /// The computed rows.
    pub rows: Vec<StatisticsRow>,
    /// The contents that `rows` answers.
    pub(crate) answered: Option<StatisticsKey>,
    /// The contents being computed.
    pub(crate) requested: Option<StatisticsKey>,
    /// The place of the selected row in `rows`.
    selected_place: Option<usize>,
    /// The places of the rows that match, in the chosen order, with what they depend on.
    listed: Option<(ListKey, Arc<Vec<usize>>)>,
}

/// Contents, filter, column and direction of a list.
type ListKey = (Option<StatisticsKey>, String, Column, bool);

/// Contents of the table: the recording, the ticks between the markers, and the number of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatisticsKey {
    pub(crate) recording: u64,
    pub(crate) between: Option<(u64, u64)>,
    pub(crate) samples: u64,
    /// Number of stacks and symbols that have names.
    pub(crate) names: usize,
}

/// A column of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// Name of the function.
    Function,
    /// Name of the instrument.
    Instrument,
    /// Number of samples or hits.
    #[default]
    Count,
    /// Samples per second.
    Rate,
    /// Sum of the values.
    Sum,
    /// Mean of the values.
    Mean,
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 99th percentile.
    P99,
    /// Maximum.
    Max,
    /// Sum of durations as a share of the time.
    Share,
}

impl Column {
    /// All columns from left to right, with their titles.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Function, "function"),
        (Self::Instrument, "instrument"),
        (Self::Count, "count"),
        (Self::Rate, "per second"),
        (Self::Sum, "sum"),
        (Self::Mean, "mean"),
        (Self::P50, "p50"),
        (Self::P90, "p90"),
        (Self::P99, "p99"),
        (Self::Max, "max"),
        (Self::Share, "of time"),
    ];

    /// Returns the number of a row in this column; `None` for names and where there is no value.
    fn number(self, row: &StatisticsRow) -> Option<f64> {
        let values = row.values;
        let percentile = |place: usize| Some(*values?.percentiles.get(place)? as f64);
        match self {
            Self::Function | Self::Instrument => None,
            Self::Count => Some(row.count as f64),
            Self::Rate => Some(row.rate),
            Self::Sum => Some(values?.sum),
            Self::Mean => Some(values?.mean),
            Self::P50 => percentile(0),
            Self::P90 => percentile(1),
            Self::P99 => percentile(2),
            Self::Max => Some(values?.max as f64),
            Self::Share => values?.share,
        }
    }

    /// Returns whether the column is about values.
    const fn is_of_values(self) -> bool {
        !matches!(
            self,
            Self::Function | Self::Instrument | Self::Count | Self::Rate
        )
    }

    fn compare(self, a: &StatisticsRow, b: &StatisticsRow) -> Ordering {
        match self {
            Self::Function => b.function.cmp(&a.function),
            Self::Instrument => b.instrument.cmp(&a.instrument),
            _ => {
                let number = |row| self.number(row).unwrap_or(f64::NEG_INFINITY);
                number(a).total_cmp(&number(b))
            }
        }
    }
}

impl Statistics {
    /// Returns the selected row.
    pub(crate) fn chosen(&self) -> Option<&StatisticsRow> {
        self.rows.get(self.selected_place?)
    }

    /// Selects a row, which stays selected among other contents.
    fn select(&mut self, place: usize) {
        if let Some(row) = self.rows.get(place) {
            self.selected = Some((row.function.clone(), row.instrument.clone()));
            self.selected_place = Some(place);
        }
    }

    /// Takes computed rows.
    pub(crate) fn answer(&mut self, key: StatisticsKey, rows: Vec<StatisticsRow>) {
        let is_selected = |row: &StatisticsRow| {
            let selected = self.selected.as_ref();
            selected.is_some_and(|(function, instrument)| {
                (function, instrument) == (&row.function, &row.instrument)
            })
        };
        self.selected_place = rows.iter().position(is_selected);
        self.rows = rows;
        self.answered = Some(key);
    }

    /// Returns the rows that match the filter, in the chosen order.
    #[must_use]
    pub fn shown(&self) -> Vec<&StatisticsRow> {
        let places = self.places().into_iter();
        places.filter_map(|place| self.rows.get(place)).collect()
    }

    /// Returns the places in `rows` of the rows that match the filter, in the chosen order; computed
    /// after a change only.
    pub(crate) fn listed(&mut self) -> Arc<Vec<usize>> {
        let filter = self.filter.clone();
        let key = (self.answered.clone(), filter, self.column, self.ascending);
        match self.listed.take().filter(|(known, _)| *known == key) {
            Some((key, places)) => Arc::clone(&self.listed.insert((key, places)).1),
            None => {
                let places = Arc::new(self.places());
                Arc::clone(&self.listed.insert((key, places)).1)
            }
        }
    }

    fn places(&self) -> Vec<usize> {
        let wanted = self.filter.trim().to_lowercase();
        let matches = |row: &StatisticsRow| {
            row.function.to_lowercase().contains(&wanted)
                || row.instrument.to_lowercase().contains(&wanted)
        };
        let mut shown: Vec<(usize, &StatisticsRow)> = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| matches(row))
            .collect();
        shown.sort_by(|(_, a), (_, b)| {
            let order = self.column.compare(a, b);
            if self.ascending {
                order
            } else {
                order.reverse()
            }
        });
        shown.into_iter().map(|(place, _)| place).collect()
    }
}
