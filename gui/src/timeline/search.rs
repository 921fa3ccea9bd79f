//! Search among samples: the next or previous sample that matches a query.
//!
//! A lane is searched by halves of the time: the index knows the least and the greatest value of each
//! half, so that halves without a match are not read.

use gilk_samples::index::{Owner, Part, Point};

use super::Record;
use super::query::Query;
use super::scale::tick;

/// Number of samples that are read one by one.
const FEW: u64 = 128;
/// Maximum number of halves that a search looks at, over all lanes: a tenth of a second.
const MOST: u32 = 200_000;

/// State of the search.
#[derive(Clone, Debug, Default)]
pub struct SampleSearch {
    /// The typed conditions.
    pub text: String,
    /// The last answer, and whether it is an error.
    pub answer: Option<(String, bool)>,
    pub(super) was_focused: bool,
}

/// A sample that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// Index of its instrument in the recording.
    pub lane: usize,
    /// The owner of the lane.
    pub owner: Owner,
    /// The sample.
    pub point: Point,
}

/// Outcome for the strip of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SearchResult {
    Found(Found),
    /// No further sample matches.
    Nothing,
    /// The search took too long.
    GivenUp,
}

/// Values and times of the samples that are looked for, in one lane.
#[derive(Clone, Copy)]
struct Wanted {
    values: (u64, u64),
    /// The first match from the end of the time, and not from its start.
    last: bool,
}

/// Returns the first matching sample after a tick, or with `back` the last one before it, of some
/// lanes of a recording.
pub(crate) fn search(
    record: &Record,
    lanes: &[(usize, Owner)],
    query: &Query,
    from: Option<u64>,
    back: bool,
) -> SearchResult {
    let clock = record.metadata.clock;
    let index = record.index.look();
    let mut first = query.after.map_or(0, |at| tick(clock, at));
    let mut end = query.before.map_or(u64::MAX, |at| tick(clock, at));
    match (from, back) {
        (Some(at), false) => first = first.max(at.saturating_add(1)),
        (Some(at), true) => end = end.min(at),
        (None, _) => {}
    }
    let (recorded_first, recorded_last) = index.span().unwrap_or((0, 0));
    first = first.max(recorded_first);
    end = end.min(recorded_last.saturating_add(1));
    let mut steps = MOST;
    let mut best: Option<Found> = None;
    for &(lane, owner) in lanes {
        let Some(info) = record.lanes().get(lane) else {
            continue;
        };
        let matches_thread = query.thread.as_ref().is_none_or(|wanted| {
            let name = owner.name(&record.metadata, &index);
            name.is_some_and(|name| name.to_lowercase().contains(wanted))
        });
        let Some(values) = query.values(info, clock).filter(|_| matches_thread) else {
            continue;
        };
        let part = match (owner, query.cpu) {
            (Owner::All, Some(cpu)) => index.part(Some(cpu)),
            (Owner::Cpu(own), Some(cpu)) if own != cpu => continue,
            _ => owner.part(&index),
        };
        // Only an earlier sample than the best one matters.
        let (first, end) = match (best, back) {
            (Some(best), false) => (first, end.min(best.point.tsc)),
            (Some(best), true) => (first.max(best.point.tsc.saturating_add(1)), end),
            (None, _) => (first, end),
        };
        let wanted = Wanted { values, last: back };
        match found(part, info.id, (first, end), wanted, &mut steps) {
            Ok(Some(point)) => best = Some(Found { lane, owner, point }),
            Ok(None) => {}
            Err(GivenUp) => return SearchResult::GivenUp,
        }
    }
    best.map_or(SearchResult::Nothing, SearchResult::Found)
}

/// A search that took too long.
struct GivenUp;

fn found(
    part: Part<'_>,
    id: u64,
    (from, to): (u64, u64),
    wanted: Wanted,
    steps: &mut u32,
) -> Result<Option<Point>, GivenUp> {
    if from >= to {
        return Ok(None);
    }
    *steps = steps.checked_sub(1).ok_or(GivenUp)?;
    let total = part.total(id, from, to);
    let (least, most) = wanted.values;
    if total.count == 0 || total.max < least || total.min > most {
        return Ok(None);
    }
    if total.count <= FEW || to - from == 1 {
        let mut points = part.samples_in(id, from, to, FEW as usize);
        points.retain(|point| (least..=most).contains(&point.value));
        points.sort_by_key(|point| point.tsc);
        let point = match wanted.last {
            true => points.last(),
            false => points.first(),
        };
        return Ok(point.copied());
    }
    let middle = from + (to - from) / 2;
    let mut halves = [(from, middle), (middle, to)];
    if wanted.last {
        halves.reverse();
    }
    for half in halves {
        if let Some(point) = found(part, id, half, wanted, steps)? {
            return Ok(Some(point));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use gilk_engine::{HookType, InstrumentId};
    use gilk_samples::metadata::{Clock, InstrumentInfo, Metadata};
    use gilk_samples::{Batch, Sample};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_match_is_found_in_order_forwards_and_backwards(
            values in prop::collection::vec((0u64..50, 0u16..2), 1..600),
            (least, cpu) in (0u64..60, prop::option::of(0u16..2)),
        ) {
            let id = InstrumentId::new(0, HookType::Pre, 0, 0).unwrap().pack();
            let info = InstrumentInfo {
                id,
                ..fixture::instrument()
            };
            let metadata = Metadata {
                clock: Clock { hz: 1000, start: 0, start_unix_ns: 0 },
                cpus: 2,
                instruments: vec![info],
                ..Metadata::default()
            };
            let record = Record::live("a.arrow".into(), metadata, 1.0);
            let sample = |(at, &(value, _)): (usize, &(u64, u16))| Sample { id, value, tsc: 10 + 3 * at as u64 };
            for cpu in 0..2 {
                let own = values.iter().enumerate().filter(|(_, (_, of))| *of == cpu);
                let samples: Vec<Sample> = own.map(sample).collect();
                record.append(&Batch { cpu, samples });
            }
            let mut text = format!("> {least}");
            if let Some(cpu) = cpu {
                text += &format!(" cpu {cpu}");
            }
            let query = Query::of(&text).unwrap();
            let expected: Vec<u64> = values.iter().enumerate()
                .filter(|(_, (value, of))| *value > least && cpu.is_none_or(|cpu| cpu == *of))
                .map(|(at, _)| 10 + 3 * at as u64)
                .collect();
            let walk = |back: bool| {
                let (mut found, mut from) = (Vec::new(), None);
                while let SearchResult::Found(one) = search(&record, &[(0, Owner::All)], &query, from, back) {
                    found.push(one.point.tsc);
                    from = Some(one.point.tsc);
                }
                found
            };
            prop_assert_eq!(&walk(false), &expected);
            let mut backwards = walk(true);
            backwards.reverse();
            prop_assert_eq!(backwards, expected);
        }
    }
}
