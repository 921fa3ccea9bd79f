//! Statistics of each instrument of a recording, as [`statistics`] defines them,
//! read once, in memory that does not grow with it.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::histogram::{Histogram, rank};
use crate::level::{self, Average, LevelAverage};
use crate::metadata::Metadata;
use crate::record::known_cpu;
use crate::recording::Recording;
use crate::statistics::{self, Rate};
use crate::{Error, Meaning, Sample};

/// Number of values up to which percentiles are found by sorting; above it, they are read from a
/// histogram.
pub const EXACT_VALUES: usize = 1 << 16;
/// Number of distinct values that are counted; beyond it, the rarest are dropped.
const DISTINCT: usize = 4096;

/// Percentiles of a [`Distribution`], in percent.
pub const PERCENTS: [f64; 9] = [1.0, 5.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

/// Summary of a set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Minimum.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Maximum.
    pub max: u64,
    /// Percentiles, as listed in [`PERCENTS`].
    pub percentiles: [u64; 9],
    /// The percentiles are values that occurred; otherwise they are at most 1.6 % too great.
    pub exact: bool,
}

/// Statistics of an instrument over a span of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// The packed identifier.
    pub id: u64,
    /// Label for people; the identifier if the recording has no label for it.
    pub label: String,
    /// Meaning of its values.
    pub meaning: Meaning,
    /// The unit of its values.
    pub unit: String,
    /// Hits in the span.
    pub hits: u64,
    /// Seconds of the span in which it was in place.
    pub seconds: f64,
    /// Hits per second of that time.
    pub rate: Rate,
    /// Distribution of its values; `None` without samples, or if they are no quantities.
    pub values: Option<Distribution>,
    /// Times between consecutive samples over all CPUs, in TSC ticks; `None` of a counter, and with
    /// fewer than two samples.
    pub gaps: Option<Distribution>,
    /// Most frequent values and their counts, in descending order; none of counters and events.
    pub top: Vec<(u64, u64)>,
    /// The counts of `top` are exact; otherwise each may be too small by [`Profile::top_error`].
    pub top_exact: bool,
    /// Maximum error of a count of `top`.
    pub top_error: u64,
    /// Number of samples by CPU; none of a counter.
    #[serde(serialize_with = "by_known_cpu")]
    pub cpus: Vec<(u16, u64)>,
    /// Distribution of the values in detail.
    #[serde(skip)]
    pub histogram: Histogram,
}

/// Writes counts by CPU, where no CPU is null.
fn by_known_cpu<S: serde::Serializer>(cpus: &[(u16, u64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(cpus.iter().map(|(cpu, count)| (known_cpu(*cpu), count)))
}

/// Statistics of all instruments.
#[derive(Debug)]
pub struct Profiles {
    /// Half-open span in TSC ticks.
    pub span: (u64, u64),
    /// One for each instrument that can have samples, in the order of the session, and then for each
    /// unknown one that has some.
    pub instruments: Vec<Profile>,
    /// One for each level that was known for a tick of the span, in the order of the session.
    pub levels: Vec<LevelProfile>,
    /// An error for each batch that could not be read.
    pub damaged: Vec<Error>,
}

/// Average of a level over a span of time; its samples may come from several instruments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelProfile {
    /// The packed identifier of its first instrument.
    pub id: u64,
    /// Label for people: `threads-inside of vfs_read`.
    pub label: String,
    /// The unit of its values.
    pub unit: String,
    /// Average over the span.
    #[serde(flatten)]
    pub average: Average,
}

/// Streaming statistics of numbers.
#[derive(Default)]
struct Numbers {
    count: u64,
    min: u64,
    max: u64,
    /// Running mean and sum of squared differences from it (Welford).
    mean: f64,
    squares: f64,
    /// All numbers, as long as there are few.
    all: Vec<u64>,
    histogram: Histogram,
}

impl Numbers {
    fn add(&mut self, number: u64) {
        self.min = if self.count == 0 {
            number
        } else {
            self.min.min(number)
        };
        self.max = self.max.max(number);
        self.count += 1;
        let difference = number as f64 - self.mean;
        self.mean += difference / self.count as f64;
        self.squares += difference * (number as f64 - self.mean);
        self.histogram.add(number);
        if self.all.len() < EXACT_VALUES {
            self.all.push(number);
        }
    }

    fn summed_up(mut self) -> (Distribution, Histogram) {
        let exact = self.count == self.all.len() as u64;
        self.all.sort_unstable();
        let percentiles = PERCENTS.map(|percent| {
            let rank = rank(self.count, percent / 100.0);
            match self.all.get(rank as usize) {
                Some(&value) if exact => value,
                _ => self.histogram.nth(rank).clamp(self.min, self.max),
            }
        });
        let variance = self.squares / self.count.max(1) as f64;
        let distribution = Distribution {
            count: self.count,
            min: self.min,
            mean: self.mean,
            deviation: variance.max(0.0).sqrt(),
            max: self.max,
            percentiles,
            exact,
        };
        (distribution, self.histogram)
    }
}

/// Counts of distinct values: exact up to [`DISTINCT`] of them, and beyond that too small by a
/// known amount (Misra and Gries, 1982).
#[derive(Default)]
struct Frequent {
    counts: HashMap<u64, u64>,
    forgotten: u64,
}

impl Frequent {
    fn add(&mut self, value: u64) {
        *self.counts.entry(value).or_default() += 1;
        if self.counts.len() <= DISTINCT {
            return;
        }
        // Subtracts as much from each as makes half of them vanish: this happens seldom enough to
        // cost next to nothing.
        let mut sorted: Vec<u64> = self.counts.values().copied().collect();
        let middle = sorted.len() / 2;
        let (_, &mut median, _) = sorted.select_nth_unstable(middle);
        self.forgotten += median;
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(median);
            *count > 0
        });
    }

    fn top(self, most: usize) -> Vec<(u64, u64)> {
        let mut top: Vec<(u64, u64)> = self.counts.into_iter().collect();
        top.sort_unstable_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
        top.truncate(most);
        top
    }
}

struct InstrumentSamples {
    meaning: Meaning,
    /// True if its values are quantities.
    has_values: bool,
    /// Readings of a counter: the last one before the span, and in it.
    readings: (u64, u64),
    samples: u64,
    values: Numbers,
    gaps: Numbers,
    frequent: Frequent,
    cpus: BTreeMap<u16, u64>,
    last: Option<u64>,
}

impl InstrumentSamples {
    fn new(meaning: Meaning, has_values: bool) -> Self {
        Self {
            meaning,
            has_values,
            readings: (0, 0),
            samples: 0,
            values: Numbers::default(),
            gaps: Numbers::default(),
            frequent: Frequent::default(),
            cpus: BTreeMap::new(),
            last: None,
        }
    }

    fn add(&mut self, cpu: u16, sample: &Sample) {
        if self.meaning == Meaning::Count {
            self.readings.1 = self.readings.1.max(sample.value);
            return;
        }
        self.samples += 1;
        if self.has_values {
            self.values.add(sample.value);
        }
        if self.meaning != Meaning::Event {
            self.frequent.add(sample.value);
        }
        *self.cpus.entry(cpu).or_default() += 1;
        if let Some(last) = self.last.replace(sample.tsc) {
            self.gaps.add(sample.tsc.saturating_sub(last));
        }
    }

    fn hits(&self) -> u64 {
        match self.meaning {
            Meaning::Count => statistics::counted(self.readings.0, self.readings.1),
            _ => self.samples,
        }
    }
}

/// Reads `recording` from `t0` to `t1` (exclusive), in TSC ticks, or all of it, and summarizes it
/// by instrument, with the `most` frequent values of each. `progress` receives the number of
/// samples at intervals, and stops the read by breaking.
pub fn profiles(
    recording: &Recording,
    span: Option<(u64, u64)>,
    most: usize,
    mut progress: impl FnMut(u64) -> bool,
) -> Profiles {
    let (mut damaged, mut seen) = (Vec::new(), 0u64);
    let whole = recording.whole().unwrap_or_else(|error| {
        damaged.push(error);
        recording.span().unwrap_or_default()
    });
    let (t0, t1) = span.unwrap_or(whole);
    let metadata = recording.measured().unwrap_or_else(|error| {
        damaged.push(error);
        recording.metadata().clone()
    });
    let sampling = || {
        metadata
            .instruments
            .iter()
            .filter(|known| known.delivers.is_samples())
    };
    let mut gathered: HashMap<u64, InstrumentSamples> = sampling()
        .map(|known| {
            let has_values = statistics::is_quantity(&metadata, known);
            (known.id, InstrumentSamples::new(known.meaning, has_values))
        })
        .collect();
    for (id, (_, reading)) in readings_before(recording, t0, &metadata, &mut damaged) {
        if let Some(of) = gathered.get_mut(&id) {
            of.readings = (reading, reading);
        }
    }
    let lost = recording.losses().unwrap_or_else(|error| {
        damaged.push(error);
        Vec::new()
    });
    let at_least = lost
        .iter()
        .any(|loss| loss.count > 0 && (t0..t1).contains(&loss.tsc));
    let heads = level::heads(&metadata);
    let mut held = begun(recording, t0, &heads, &mut damaged);
    for sample in recording.merged_between(t0, t1) {
        match sample {
            Ok((cpu, sample)) => {
                let of = gathered.entry(sample.id);
                // A sample of an unknown instrument is shown as a value.
                let of = of.or_insert_with(|| InstrumentSamples::new(Meaning::Value, true));
                of.add(cpu, &sample);
                if let Some(head) = heads.get(&sample.id) {
                    let held = held.entry(*head).or_insert(LevelAverage::since(t0));
                    held.sample(sample.tsc, sample.value);
                }
            }
            Err(error) => damaged.push(error),
        }
        seen += 1;
        if seen.is_multiple_of(1 << 16) && !progress(seen) {
            break;
        }
    }
    let mut instruments = Vec::new();
    let mut sum_up =
        |id: u64, gathered: InstrumentSamples, label: &str, unit: &str, seconds: f64| {
            let hits = gathered.hits();
            let (values, histogram) = gathered.values.summed_up();
            let some = |of: Distribution| (of.count > 0).then_some(of);
            let top_error = gathered.frequent.forgotten;
            instruments.push(Profile {
                id,
                label: label.to_owned(),
                meaning: gathered.meaning,
                unit: unit.to_owned(),
                hits,
                seconds,
                rate: Rate::of(hits, seconds, at_least),
                values: some(values),
                gaps: some(gathered.gaps.summed_up().0),
                top: gathered.frequent.top(most),
                top_exact: top_error == 0,
                top_error,
                cpus: gathered.cpus.into_iter().collect(),
                histogram,
            });
        };
    for known in sampling() {
        if let Some(of) = gathered.remove(&known.id) {
            let seconds = statistics::seconds_in_place(known, &metadata.clock, (t0, t1));
            sum_up(known.id, of, &known.label, &known.unit, seconds);
        }
    }
    let seconds = t1.saturating_sub(t0) as f64 / metadata.clock.hz.max(1) as f64;
    let mut others: Vec<(u64, InstrumentSamples)> = gathered.into_iter().collect();
    others.sort_unstable_by_key(|(id, _)| *id);
    for (id, of) in others {
        let label =
            crate::InstrumentId::unpack(id).map_or_else(|| id.to_string(), |id| id.to_string());
        sum_up(id, of, &label, "", seconds);
    }
    let levels = metadata.instruments.iter().filter_map(|info| {
        let held = held.remove(&info.id)?;
        let end = level::end(&metadata, info, held.last(), t1);
        Some(LevelProfile {
            id: info.id,
            label: info.whole(),
            unit: info.unit.clone(),
            average: held.until(end)?,
        })
    });
    Profiles {
        span: (t0, t1),
        instruments,
        levels: levels.collect(),
        damaged,
    }
}

/// Returns time and value of the last reading of each counter before a span.
pub(crate) fn readings_before(
    recording: &Recording,
    t0: u64,
    metadata: &Metadata,
    damaged: &mut Vec<Error>,
) -> HashMap<u64, (u64, u64)> {
    let counters = metadata.instruments.iter();
    let counters = counters.filter(|info| info.meaning == Meaning::Count);
    let counters: HashSet<u64> = counters.map(|info| info.id).collect();
    if counters.is_empty() {
        return HashMap::new();
    }
    let before = recording.last_before(t0, counters.len(), |id| {
        counters.contains(&id).then_some(id)
    });
    before.unwrap_or_else(|error| {
        damaged.push(error);
        HashMap::new()
    })
}

/// Returns accumulators of the levels, by first instrument, with their values at the start of a
/// span.
fn begun(
    recording: &Recording,
    t0: u64,
    heads: &HashMap<u64, u64>,
    damaged: &mut Vec<Error>,
) -> HashMap<u64, LevelAverage> {
    if heads.is_empty() {
        return HashMap::new();
    }
    let levels: HashSet<u64> = heads.values().copied().collect();
    let before = recording.last_before(t0, levels.len(), |id| heads.get(&id).copied());
    let before = before.unwrap_or_else(|error| {
        damaged.push(error);
        HashMap::new()
    });
    let held = before.into_iter().map(|(head, (tsc, value))| {
        let mut held = LevelAverage::since(t0);
        held.sample(tsc, value);
        (head, held)
    });
    held.collect()
}

#[cfg(test)]
mod tests;
