//! Counted paths: a list per function, whose instruments have no lanes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use egui::{RichText, Ui};
use gilk_engine::paths::{PathCounts, counts_paths_of};
use gilk_instruments::program::Summary;
use gilk_samples::Meaning;
use gilk_samples::metadata::{InstrumentInfo, Metadata};

use super::Record;
use super::count_bars::bars;
use crate::theme::Tokens;
use crate::widgets;

/// Maximum number of paths listed.
const MAX_LISTED: usize = 20;
/// Maximum number of totals listed.
const MAX_TOTALS: usize = 200;

/// The counted paths of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathTotals {
    pub(crate) function: Arc<str>,
    pub(crate) counts: PathCounts,
}

/// Totals of a recording that are not on its lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountedTotals {
    /// Counted paths, by function.
    pub(crate) paths: Vec<PathTotals>,
    /// Number of values in all histograms and counted paths of instruments that deliver no samples.
    pub(crate) values: u64,
    /// The unit of the values that each total counts, in the order of the recording; an instrument that
    /// counts has the unit of its counts.
    pub(crate) units: Vec<String>,
    /// Places of the totals that are listed, in the order of the recording: all but those of counted paths;
    /// of more than [`MAX_TOTALS`], those with the most values.
    pub(crate) listed: Vec<usize>,
    /// Number of totals that are not listed, besides those of counted paths.
    pub(crate) unlisted: usize,
    /// Places of the totals of each placement.
    by_placement: HashMap<usize, Vec<usize>>,
}

/// Returns whether an instrument counts paths of its function.
pub(crate) fn counts_paths(info: &InstrumentInfo) -> bool {
    let placed = info.placed.as_ref();
    placed.is_some_and(|placed| counts_paths_of(&info.instrument, &placed.function))
}

impl CountedTotals {
    /// Computes the totals of a recording.
    pub(crate) fn of(record: &Record) -> Self {
        let placed = placed(&record.metadata);
        let (mut values, mut units, mut listed) = (0, Vec::new(), Vec::new());
        let mut by_placement: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut paths: BTreeMap<&str, Vec<&Summary>> = BTreeMap::new();
        for (place, total) in record.totals.iter().enumerate() {
            let info = placed.get(&total.placement);
            by_placement.entry(total.placement).or_default().push(place);
            if !info.is_some_and(|info| counts_paths(info)) {
                listed.push(place);
            }
            let counts = info.is_some_and(|info| info.meaning == Meaning::Count);
            units.push(if counts {
                String::new()
            } else {
                total.unit.clone()
            });
            let Some(info) = info else { continue };
            if !info.delivers.is_samples()
                && matches!(total.value, Summary::Buckets(_) | Summary::Values(..))
            {
                values += total.value.hits();
            }
            if let Some(placed) = info.placed.as_ref().filter(|_| counts_paths(info)) {
                let summaries = paths.entry(&placed.function).or_default();
                summaries.push(&total.value);
            }
        }
        let paths = paths.into_iter().map(|(function, summaries)| PathTotals {
            function: function.into(),
            counts: PathCounts::of(summaries),
        });
        let unlisted = listed.len().saturating_sub(MAX_TOTALS);
        if unlisted > 0 {
            let hits = |place: &usize| record.totals.get(*place).map(|total| total.value.hits());
            listed.sort_by_key(|place| Reverse(hits(place)));
            listed.truncate(MAX_TOTALS);
            listed.sort_unstable();
        }
        Self {
            paths: paths.collect(),
            values,
            units,
            listed,
            unlisted,
            by_placement,
        }
    }

    /// Returns the places of a placement's totals.
    pub(super) fn of_placement(&self, placement: u32) -> &[usize] {
        let places = self.by_placement.get(&(placement as usize));
        places.map_or(&[], Vec::as_slice)
    }
}

/// Returns an instrument of each placement.
fn placed(metadata: &Metadata) -> BTreeMap<usize, &InstrumentInfo> {
    let placed = metadata.instruments.iter().filter_map(|info| {
        let placed = info.placed.as_ref()?;
        Some((placed.placement as usize, info))
    });
    placed.collect()
}

/// Draws the counted paths of a function, most frequent first.
pub(super) fn show(ui: &mut Ui, of: &PathTotals) {
    let tokens = Tokens::of(ui);
    let name = format!("paths of {}", of.function);
    let words = format!(
        "{name}: {} taken, {} in all; its inspector draws them",
        widgets::grouped(of.counts.paths.len() as u64),
        widgets::grouped(of.counts.total())
    );
    ui.label(RichText::new(words).small().color(tokens.weak));
    let mut taken: Vec<(u64, u64)> = of.counts.paths.iter().map(|(&at, &n)| (at, n)).collect();
    taken.sort_by_key(|&(path, count)| (Reverse(count), path));
    let more = taken.iter().skip(MAX_LISTED).map(|(_, count)| count);
    let others = of.counts.others + more.sum::<u64>();
    let rows = taken.iter().take(MAX_LISTED);
    let rows = rows.map(|(path, count)| (format!("path {}", widgets::grouped(*path)), *count));
    let others = (others > 0).then(|| ("other paths".to_owned(), others));
    bars(ui, &name, &rows.chain(others).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use gilk_instruments::program::Bucket;
    use gilk_samples::metadata::{Delivers, Placed};
    use ilk_driver::client::AggregateSummary;

    #[test]
    fn paths_of_all_instruments_of_a_function_are_one_list() {
        let mut record = Record::default();
        let bucket = |number: i128, count| Bucket {
            from: Some(number),
            to: Some(number),
            count,
        };
        let values = [
            Summary::Buckets(vec![bucket(0, 103), bucket(1, 0), bucket(15, 200)]),
            Summary::Values(vec![(15, 3)], 1),
        ];
        for (placement, value) in values.into_iter().enumerate() {
            let instrument = format!("path-x64-sys-futex-{placement}");
            Arc::make_mut(&mut record.metadata)
                .instruments
                .push(InstrumentInfo {
                    id: placement as u64,
                    label: instrument.clone(),
                    instrument: instrument.clone(),
                    meaning: Meaning::Count,
                    unit: String::new(),
                    launch: 0.0,
                    splash: 1.0,
                    placed: Some(Placed {
                        placement: placement as u32,
                        function: "__x64_sys_futex".into(),
                        major: 0,
                    }),
                    delivers: Delivers::Totals,
                });
            record.totals.push(AggregateSummary {
                placement,
                instrument,
                name: "paths".into(),
                unit: String::new(),
                may_be_zero: false,
                value,
            });
        }
        let counted = CountedTotals::of(&record);
        assert_eq!(counted.values, 307);
        let [only] = counted.paths.as_slice() else {
            panic!("{counted:?}")
        };
        assert_eq!(&*only.function, "__x64_sys_futex");
        assert_eq!(only.counts.paths, [(0, 103), (15, 203)].into());
        assert_eq!(only.counts.others, 1);
        assert!(counted.listed.is_empty(), "they are in the list of paths");
    }

    #[test]
    fn of_many_totals_those_with_the_most_values_are_listed() {
        let mut record = Record::default();
        for placement in 0..1000 {
            record.totals.push(AggregateSummary {
                placement,
                instrument: "sizes".into(),
                name: "sizes".into(),
                unit: String::new(),
                may_be_zero: false,
                value: Summary::Values(vec![(0, placement as u64)], 0),
            });
        }
        let counted = CountedTotals::of(&record);
        assert_eq!((counted.listed.len(), counted.unlisted), (200, 800));
        let most: Vec<usize> = (800..1000).collect();
        assert_eq!(counted.listed, most);
        assert_eq!(counted.of_placement(7), [7]);
    }
}
