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

/// Returns the values of aggregates according to the last totals by key, of all banks of words.
pub(super) fn summaries(
    aggregates: &[AggregateWords],
    banks: &[BTreeMap<u64, u64>],
) -> Vec<AggregateSummary> {
    let summary = |aggregate: &AggregateWords| {
        // A word without a total is still zero: only changes are reported.
        let word = |bank: &BTreeMap<u64, u64>, key| bank.get(key).copied().unwrap_or(0);
        let words = |bank| aggregate.words.iter().map(|key| word(bank, key)).collect();
        let banks: Vec<Vec<u64>> = banks.iter().map(words).collect();
        AggregateSummary {
            placement: aggregate.placement,
            instrument: aggregate.instrument.clone(),
            name: aggregate.aggregate.name.clone(),
            unit: aggregate.unit.clone(),
            may_be_zero: matches!(
                aggregate.aggregate.kind,
                AggregateKind::Sum | AggregateKind::Min | AggregateKind::Max
            ),
            value: aggregate.aggregate.read(banks.iter().map(Vec::as_slice)),
        }
    };
    aggregates.iter().map(summary).collect()
}

/// Returns the totals of a plan's aggregates, given the values of its words by key.
#[must_use]
pub fn totals(plan: &Plan, words: &BTreeMap<u64, u64>) -> Totals {
    totals_of_banks(plan, std::slice::from_ref(words))
}

/// Returns the totals of a plan's aggregates, given the values of the words of several banks by key.
#[must_use]
pub fn totals_of_banks(plan: &Plan, banks: &[BTreeMap<u64, u64>]) -> Totals {
    Totals {
        added_up: summaries(&aggregate_words(plan), banks),
        failed_reads: counts(&failed_reads(plan), banks),
        no_room: counts(&storage_full(plan), banks),
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

/// Returns the counts in these words according to the last totals by key, of all banks of words.
pub(super) fn counts(words: &[FailureWord], banks: &[BTreeMap<u64, u64>]) -> Vec<Counted> {
    let count = |failure: &FailureWord| Counted {
        placement: failure.placement,
        instrument: failure.instrument.clone(),
        count: banks
            .iter()
            .filter_map(|bank| bank.get(&failure.word))
            .sum(),
    };
    words.iter().map(count).collect()
}
