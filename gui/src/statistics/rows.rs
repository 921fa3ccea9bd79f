//! Rows of the table of statistics: one per instrument and function, over all its lanes.

use std::collections::BTreeMap;

use gilk_samples::Meaning;
use gilk_samples::histogram::Histogram;
use gilk_samples::index::Shared;
use gilk_samples::metadata::{Clock, InstrumentInfo, Metadata};
use gilk_samples::statistics::{self, Rate};

/// A row of the table. Values are in the unit of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct StatisticsRow {
    /// Name of the instrument.
    pub instrument: String,
    /// The function whose calls it is about.
    pub function: String,
    /// Identifiers of its lanes.
    pub lanes: Vec<u64>,
    /// Meaning of its values.
    pub meaning: Meaning,
    /// Unit of its values.
    pub unit: String,
    /// Number of hits.
    pub count: u64,
    /// Hits per second of the selected time in which it was in place, over all its lanes.
    pub rate: f64,
    /// Statistics of the values; `None` for events and counters, which have none.
    pub values: Option<ValueStatistics>,
    /// Histogram of the values; empty for events and counters.
    pub histogram: Histogram,
}

/// Sum, mean, percentiles and maximum of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueStatistics {
    /// Total of the values, in their unit.
    pub sum: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Percentiles 50, 90 and 99, by nearest rank, at most 1.6 % too great.
    pub percentiles: [u64; 3],
    /// Maximum.
    pub max: u64,
    /// Sum of durations as a share of the selected time, which may exceed 1; `None` for other
    /// values.
    pub share: Option<f64>,
}

/// Computes the rows from tick `from` to tick `to` (exclusive), most samples first.
pub(crate) fn rows(
    metadata: &Metadata,
    index: &Shared,
    (from, to): (u64, u64),
) -> Vec<StatisticsRow> {
    let names: BTreeMap<u32, &str> = metadata
        .functions
        .iter()
        .map(|function| (function.major, function.name.as_str()))
        .collect();
    let function = |info: &InstrumentInfo| {
        let placed = info.placed.as_ref().map(|placed| placed.function.clone());
        let named = || info.about().and_then(|major| names.get(&major));
        placed.or_else(|| named().map(|name| (*name).to_owned()))
    };
    let mut groups: BTreeMap<(String, String), Vec<&InstrumentInfo>> = BTreeMap::new();
    for info in metadata
        .instruments
        .iter()
        .filter(|info| info.delivers.is_samples())
    {
        // The name of a machine precedes the label.
        let machine = info
            .label
            .split_once(": ")
            .map_or("", |(machine, _)| machine);
        let named = metadata.machines.iter().any(|one| one.name == machine);
        let instrument = match named {
            true => format!("{machine}: {}", info.instrument),
            false => info.instrument.clone(),
        };
        // An imported recording has labels and no functions.
        let function = function(info).unwrap_or_else(|| info.label.clone());
        groups.entry((instrument, function)).or_default().push(info);
    }
    let clock = metadata.clock;
    let row = |((instrument, function), infos): ((String, String), Vec<&InstrumentInfo>)| {
        row(instrument, function, &infos, index, (from, to), clock)
    };
    let mut rows: Vec<StatisticsRow> = groups.into_iter().filter_map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

fn row(
    instrument: String,
    function: String,
    infos: &[&InstrumentInfo],
    index: &Shared,
    (from, to): (u64, u64),
    clock: Clock,
) -> Option<StatisticsRow> {
    let first = infos.first()?;
    let has_values = statistics::has_values(first.meaning);
    let (mut count, mut rate, mut sum, mut max) = (0, 0.0, 0.0, 0);
    let mut histogram = Histogram::new();
    for info in infos {
        // One lane at a time, so that arriving samples wait for one lane at most.
        let index = index.look();
        let hits = index.part(None).hits(info.id, info.meaning, (from, to));
        let seconds = statistics::seconds_in_place(info, &clock, (from, to));
        count += hits;
        rate += Rate::of(hits, seconds, false).per_second.unwrap_or(0.0);
        let total = index.total(info.id, from, to);
        if has_values && total.count > 0 {
            sum += total.mean().unwrap_or(0.0) * total.count as f64;
            max = max.max(total.max);
            index.visit(info.id, from, to, |point| histogram.add(point.value));
        }
    }
    let span = to.saturating_sub(from).max(1) as f64;
    let values = (has_values && histogram.count() > 0).then(|| ValueStatistics {
        sum,
        mean: sum / count.max(1) as f64,
        percentiles: [0.5, 0.9, 0.99].map(|share| histogram.quantile(share).min(max)),
        max,
        share: (first.meaning == Meaning::Duration).then_some(sum / span),
    });
    Some(StatisticsRow {
        instrument,
        function,
        lanes: infos.iter().map(|info| info.id).collect(),
        meaning: first.meaning,
        unit: first.unit.clone(),
        count,
        rate,
        values,
        histogram,
    })
}
