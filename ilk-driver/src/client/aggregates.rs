//! Aggregates of instruments: the words that hold them, and their values at the end.

use std::collections::BTreeMap;

use gilk_engine::Plan;
use gilk_engine::layout::CounterSlot;
use gilk_engine::patch::Probed;
use gilk_engine::plan::PlannedInstrument;
use gilk_instruments::program::{Aggregate, AggregateKind};
use serde::{Deserialize, Serialize};

use super::event::{AggregateSummary, Counted};
use crate::protocol::Counter;

/// Number of bits in a packed instrument identifier.
const ID_BITS: u32 = 48;

/// Returns whether a total belongs to a word of an aggregate instead of a counter.
pub(super) fn is_aggregate_word(id: u64) -> bool {
    id >> ID_BITS != 0
}

/// Returns the first instrument of each placement that has aggregates or counts failures.
fn owners(plan: &Plan) -> impl Iterator<Item = (&PlannedInstrument, &Probed)> {
    let placements = plan
        .instruments
        .chunk_by(|instrument, next| instrument.placement == next.placement);
    placements.filter_map(|all| {
        let first = all.first()?;
        let probed = first.probe.as_deref()?;
        let homes = &probed.homes;
        let counted = homes.failed.is_some() || homes.no_room.is_some();
        // The counter of an instrument that only counts its hits is no aggregate's word.
        let any = !homes.aggregates.is_empty() || counted;
        any.then_some((first, probed))
    })
}

/// Returns the aggregates of a placement, each with its words: their keys in [`Counter::id`] and
/// their slots.
fn aggregates_of<'p>(
    owner: &'p PlannedInstrument,
    probed: &'p Probed,
) -> impl Iterator<Item = (&'p Aggregate, Vec<(u64, CounterSlot)>)> {
    let mut keys = (1_u64..).map(move |number| owner.id.pack() | number << ID_BITS);
    let homes = probed.homes.aggregates.iter();
    let aggregates = probed.checked.aggregates.iter().zip(homes);
    aggregates.map(move |(aggregate, first)| {
        let slot_of = |word| CounterSlot {
            slot: first.slot.saturating_add(word),
            ..*first
        };
        let words = (0..aggregate.words()).map(slot_of);
        let keyed = words.filter_map(|word| Some((keys.next()?, word)));
        (aggregate, keyed.collect())
    })
}

/// Returns the key of the extra word `number`, which follows the words of all aggregates.
fn extra_key(owner: &PlannedInstrument, probed: &Probed, number: u64) -> u64 {
    let words = probed.checked.aggregates.iter();
    let words: u64 = words.map(|aggregate| u64::from(aggregate.words())).sum();
    owner.id.pack() | (words + number) << ID_BITS
}

/// Returns the word that counts failed reads of memory and counters, with its key.
fn failed_reads_word(owner: &PlannedInstrument, probed: &Probed) -> Option<(u64, CounterSlot)> {
    Some((extra_key(owner, probed, 1), probed.homes.failed?))
}

/// Returns the word that counts values without storage, with its key.
fn storage_full_word(owner: &PlannedInstrument, probed: &Probed) -> Option<(u64, CounterSlot)> {
    Some((extra_key(owner, probed, 2), probed.homes.no_room?))
}

/// Returns every word to read.
pub(super) fn words(plan: &Plan) -> Vec<Counter> {
    let mut all = Vec::new();
    for (owner, probed) in owners(plan) {
        let counted = [
            failed_reads_word(owner, probed),
            storage_full_word(owner, probed),
        ];
        all.extend(counted.into_iter().flatten().map(|(id, slot)| Counter {
            id,
            bank: slot.bank,
            slot: slot.slot,
            largest: false,
        }));
        for (aggregate, words) in aggregates_of(owner, probed) {
            let keeps = matches!(aggregate.kind, AggregateKind::Min | AggregateKind::Max);
            for (number, (id, slot)) in words.into_iter().enumerate() {
                all.push(Counter {
                    id,
                    bank: slot.bank,
                    slot: slot.slot,
                    largest: keeps && number == 1,
                });
            }
        }
    }
    all
}

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
                unit: owner.definition.unit.clone(),
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
