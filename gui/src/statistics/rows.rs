//! Rows of the table of statistics: one per instrument and function, over all its lanes.

use std::collections::BTreeMap;

use gilk_samples::Meaning;
use gilk_samples::histogram::Histogram;
use gilk_samples::index::{Index, Shared};
use gilk_samples::metadata::{Clock, InstrumentInfo, Metadata};
use gilk_samples::statistics::{self, Rate};
use gilk_samples::totals::Totals;

use super::texts::{TextCounter, TextCounts};
use super::values::Values;

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
    /// Statistics of the values; `None` for events, counters and texts, which have none.
    pub values: Option<ValueStatistics>,
    /// Histogram of the values; empty without values.
    pub histogram: Histogram,
    /// The texts of its samples; `None` if they are no texts.
    pub texts: Option<TextCounts>,
}

/// Sum, mean, percentiles and maximum of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueStatistics {
    /// Total of the values, in their unit.
    pub sum: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Percentiles 50, 90 and 99, by nearest rank; of very many values at most 1.6 % too great.
    pub percentiles: [u64; 3],
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Sum of durations as a share of the selected time, which may exceed 1; `None` for other
    /// values.
    pub share: Option<f64>,
}

/// Computes the rows from tick `from` to tick `to` (exclusive), most samples first. Stacks and symbols in texts have
/// their names in `named`.
pub(crate) fn rows(
    metadata: &Metadata,
    index: &Shared,
    named: &Totals,
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
    let row = |((instrument, function), infos): ((String, String), Vec<&InstrumentInfo>)| {
        row(
            instrument,
            function,
            &infos,
            (metadata, index, named),
            (from, to),
        )
    };
    let mut rows: Vec<StatisticsRow> = groups.into_iter().filter_map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

/// Returns the hits of an instrument in a span, and their rate, as `ilk stats` defines them.
pub(crate) fn hits(
    info: &InstrumentInfo,
    index: &Index,
    (from, to): (u64, u64),
    clock: Clock,
) -> (u64, f64) {
    let hits = index.part(None).hits(info.id, info.meaning, (from, to));
    let seconds = statistics::seconds_in_place(info, &clock, (from, to));
    let rate = Rate::of(hits, seconds, false);
    (hits, rate.per_second.unwrap_or(0.0))
}

fn row(
    instrument: String,
    function: String,
    infos: &[&InstrumentInfo],
    (metadata, index, named): (&Metadata, &Shared, &Totals),
    (from, to): (u64, u64),
) -> Option<StatisticsRow> {
    let first = infos.first()?;
    let mut texts = None;
    let (mut count, mut rate, mut sum) = (0, 0.0, 0.0);
    let mut all = Values::default();
    for info in infos {
        // One lane at a time, so that arriving samples wait for one lane at most.
        let index = index.look();
        let (hits, per_second) = hits(info, &index, (from, to), metadata.clock);
        count += hits;
        rate += per_second;
        if metadata.texts.get(info.id).is_some() {
            let counter = texts.get_or_insert_with(|| TextCounter::new(metadata, named));
            counter.add(info.id, &index, (from, to));
            continue;
        }
        let has_values = statistics::is_quantity(metadata, info);
        let total = index.total(info.id, from, to);
        if has_values && total.count > 0 {
            sum += total.mean().unwrap_or(0.0) * total.count as f64;
            index.visit(info.id, from, to, |point| all.add(point.value));
        }
    }
    let span = to.saturating_sub(from).max(1) as f64;
    let values = all.bounds().map(|(min, max)| ValueStatistics {
        sum,
        mean: sum / count.max(1) as f64,
        percentiles: all.percentiles([0.5, 0.9, 0.99]),
        min,
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
        histogram: all.histogram,
        texts: texts.map(TextCounter::counted),
    })
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use crate::fixture;
    use gilk_engine::{HookType, InstrumentId};
    use gilk_samples::profile::profiles;
    use gilk_samples::recording::{Mark, MarkKind, Recording, Writer};
    use gilk_samples::{Batch, Sample};
    use proptest::prelude::*;

    use super::*;

    const MEANINGS: [Meaning; 5] = [
        Meaning::Event,
        Meaning::Count,
        Meaning::Value,
        Meaning::Duration,
        Meaning::Level,
    ];
    const START: u64 = 1000;

    fn id(place: usize) -> u64 {
        let id = InstrumentId::new(0, HookType::Pre, place as u32, 0);
        id.unwrap().pack()
    }

    /// A recording of an instrument per meaning, with a measured launch and splash.
    fn recorded(path: &std::path::Path, samples: &[(u16, usize, u64, u64)]) -> Recording {
        let info = |(place, meaning): (usize, &Meaning)| InstrumentInfo {
            id: id(place),
            label: format!("{meaning:?} pre f block {place}"),
            instrument: format!("{meaning:?}"),
            meaning: *meaning,
            splash: 1e9,
            ..fixture::instrument()
        };
        let metadata = Metadata {
            cpus: 2,
            clock: Clock {
                hz: 1_000_000,
                start: START,
                start_unix_ns: 0,
            },
            instruments: MEANINGS.iter().enumerate().map(info).collect(),
            ..Metadata::default()
        };
        let mut rows = samples.to_vec();
        rows.sort_by_key(|row| row.3);
        let mut total = 0;
        let mut writer = Writer::create(path, &metadata).unwrap();
        for (cpu, place, value, at) in rows {
            total += value;
            let counts = MEANINGS[place] == Meaning::Count;
            let value = if counts { total } else { value };
            let tsc = START + at;
            let samples = vec![Sample {
                id: id(place),
                value,
                tsc,
            }];
            writer.write(&Batch { cpu, samples }).unwrap();
        }
        for place in 0..MEANINGS.len() {
            for (kind, at) in [(MarkKind::Launch, 10), (MarkKind::Splash, 9000)] {
                let mark = Mark {
                    kind,
                    id: id(place),
                    tsc: START + at,
                    value: 0,
                };
                writer.mark(mark).unwrap();
            }
        }
        writer.finish().unwrap();
        Recording::open(path).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The table of statistics and the list between the markers have the numbers of `ilk stats`.
        #[test]
        fn the_window_has_the_numbers_of_the_terminal(
            samples in prop::collection::vec((0u16..2, 0..MEANINGS.len(), 0u64..500, 10u64..9000), 1..120),
            span in prop::option::of((0u64..5000, 1u64..6000)),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let recording = recorded(&folder.path().join("r.arrow"), &samples);
            let span = span.map(|(from, length)| (START + from, START + from + length));
            let printed = profiles(&recording, span, 0, |_| true);
            let metadata = recording.measured().unwrap();
            let (index, troubles) = gilk_samples::index::Index::of(&recording, |_| ControlFlow::Continue(()));
            prop_assert!(troubles.is_empty());
            let index = Shared::from(index);
            let shown = rows(&metadata, &index, &Totals::default(), printed.span);
            for expected in &printed.instruments {
                let row = shown.iter().find(|row| row.lanes == [expected.id]).unwrap();
                prop_assert_eq!(row.count, expected.hits);
                prop_assert_eq!(Some(row.rate), expected.rate.per_second.or(Some(0.0)));
                let info = metadata.instruments.iter().find(|info| info.id == expected.id).unwrap();
                let between = hits(info, &index.look(), printed.span, metadata.clock);
                prop_assert_eq!(between, (row.count, row.rate));
                prop_assert_eq!(row.values.is_some(), expected.values.is_some());
                let (Some(values), Some(expected)) = (row.values, &expected.values) else {
                    continue;
                };
                prop_assert_eq!((values.min, values.max), (expected.min, expected.max));
                let [p50, p90, p99] = [3, 5, 7].map(|place| expected.percentiles[place]);
                prop_assert_eq!(values.percentiles, [p50, p90, p99]);
                prop_assert!((values.mean - expected.mean).abs() <= 1e-9 * expected.mean.max(1.0));
            }
        }
    }
}
