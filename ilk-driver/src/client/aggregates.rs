//! Aggregates of instruments: their values at the end, by the keys of their words.

use std::collections::BTreeMap;

use gilk_engine::Plan;
use gilk_engine::layout::CounterSlot;
use gilk_engine::patch::Probed;
use gilk_engine::plan::PlannedInstrument;
use gilk_instruments::program::{Aggregate, AggregateKind, Mapped};
use gilk_samples::totals::Totals;
use serde::{Deserialize, Serialize};

use super::event::{AggregateSummary, Counted};
pub use crate::writes::is_aggregate_word;
use crate::writes::{aggregates_of, failed_reads_word, owners, storage_full_word};

/// An aggregate, and the keys of its words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AggregateWords {
    placement: usize,
    instrument: String,
    unit: String,
    aggregate: Aggregate,
    words: Vec<u64>,
}

/// Returns every aggregate, in the order of the session.
pub(super) fn aggregate_words(plan: &Plan) -> Vec<AggregateWords> {
    let mut all = Vec::new();
    for (owner, probed) in owners(plan) {
        for (aggregate, words) in aggregates_of(owner, probed) {
            all.push(AggregateWords {
                placement: owner.placement,
                instrument: owner.definition.name.clone(),
                unit: match aggregate.kind {
                    // A unit belongs to values, and not to their number.
                    AggregateKind::Count
                    | AggregateKind::Map {
                        of: Mapped::Count, ..
                    } => String::new(),
                    _ => owner.definition.unit.clone(),
                },
                aggregate: aggregate.clone(),
                words: words.into_iter().map(|(id, _)| id).collect(),
            });
        }
    }
    all
}

/// Returns the values of aggregates according to the last totals by key.
pub(super) fn summaries(
    aggregates: &[AggregateWords],
    totals: &BTreeMap<u64, u64>,
) -> Vec<AggregateSummary> {
    let summary = |aggregate: &AggregateWords| {
        // A word without a total is still zero: only changes are reported.
        let word = |key| totals.get(key).copied().unwrap_or(0);
        let words: Vec<u64> = aggregate.words.iter().map(word).collect();
        AggregateSummary {
            placement: aggregate.placement,
            instrument: aggregate.instrument.clone(),
            name: aggregate.aggregate.name.clone(),
            unit: aggregate.unit.clone(),
            value: aggregate.aggregate.read([words.as_slice()]),
        }
    };
    aggregates.iter().map(summary).collect()
}

/// Returns the totals of a plan's aggregates, given the values of its words by key.
#[must_use]
pub fn totals(plan: &Plan, words: &BTreeMap<u64, u64>) -> Totals {
    Totals {
        added_up: summaries(&aggregate_words(plan), words),
        failed_reads: counts(&failed_reads(plan), words),
        no_room: counts(&storage_full(plan), words),
        ..Totals::default()
    }
}

/// A word that counts failures of a placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FailureWord {
    placement: usize,
    instrument: String,
    word: u64,
}

/// Selects a word of a placement, with its key.
type Find = fn(&PlannedInstrument, &Probed) -> Option<(u64, CounterSlot)>;

/// Returns every word that counts failed reads, in the order of the session.
pub(super) fn failed_reads(plan: &Plan) -> Vec<FailureWord> {
    failure_words(plan, failed_reads_word)
}

/// Returns every word that counts values without storage, in the order of the session.
pub(super) fn storage_full(plan: &Plan) -> Vec<FailureWord> {
    failure_words(plan, storage_full_word)
}

fn failure_words(plan: &Plan, find: Find) -> Vec<FailureWord> {
    let failure_word = |(owner, probed): (&PlannedInstrument, &Probed)| {
        let (word, _) = find(owner, probed)?;
        Some(FailureWord {
            placement: owner.placement,
            instrument: owner.definition.name.clone(),
            word,
        })
    };
    owners(plan).filter_map(failure_word).collect()
}

/// Returns the counts in these words according to the last totals by key.
pub(super) fn counts(words: &[FailureWord], totals: &BTreeMap<u64, u64>) -> Vec<Counted> {
    let count = |failure: &FailureWord| Counted {
        placement: failure.placement,
        instrument: failure.instrument.clone(),
        count: totals.get(&failure.word).copied().unwrap_or(0),
    };
    words.iter().map(count).collect()
}
