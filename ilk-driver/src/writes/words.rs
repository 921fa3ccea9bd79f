//! Keys and slots of the words of aggregates and failures.

use gilk_engine::Plan;
use gilk_engine::layout::CounterSlot;
use gilk_engine::patch::Probed;
use gilk_engine::plan::PlannedInstrument;
use gilk_instruments::program::{Aggregate, AggregateKind};

use super::model::Counter;

/// Number of bits in a packed instrument identifier.
const ID_BITS: u32 = 48;

/// Returns whether a total belongs to a word of an aggregate instead of a counter.
#[must_use]
pub fn is_aggregate_word(id: u64) -> bool {
    id >> ID_BITS != 0
}

/// Returns the first instrument of each placement that has aggregates or counts failures.
pub(crate) fn owners(plan: &Plan) -> impl Iterator<Item = (&PlannedInstrument, &Probed)> {
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
pub(crate) fn aggregates_of<'p>(
    owner: &'p PlannedInstrument,
    probed: &'p Probed,
) -> impl Iterator<Item = (&'p Aggregate, Vec<(u64, CounterSlot)>)> {
    let mut keys = (1_u64..).map(move |number| owner.id.pack() | number << ID_BITS);
    let homes = probed.homes.aggregates.values().iter();
    let aggregates = probed.checked.aggregates.values().iter().zip(homes);
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
    let words = probed.checked.aggregates.values().iter();
    let words: u64 = words.map(|aggregate| u64::from(aggregate.words())).sum();
    owner.id.pack() | (words + number) << ID_BITS
}

/// Returns the word that counts failed reads of memory and counters, with its key.
pub(crate) fn failed_reads_word(
    owner: &PlannedInstrument,
    probed: &Probed,
) -> Option<(u64, CounterSlot)> {
    Some((extra_key(owner, probed, 1), probed.homes.failed?))
}

/// Returns the word that counts values without storage, with its key.
pub(crate) fn storage_full_word(
    owner: &PlannedInstrument,
    probed: &Probed,
) -> Option<(u64, CounterSlot)> {
    Some((extra_key(owner, probed, 2), probed.homes.no_room?))
}

/// Returns the words that count failures of a placement, with their keys.
pub(crate) fn failure_words(
    owner: &PlannedInstrument,
    probed: &Probed,
) -> impl Iterator<Item = (u64, CounterSlot)> {
    let failed = failed_reads_word(owner, probed);
    failed.into_iter().chain(storage_full_word(owner, probed))
}

/// Returns every word to read.
pub(super) fn words(plan: &Plan) -> Vec<Counter> {
    let mut all = Vec::new();
    for (owner, probed) in owners(plan) {
        all.extend(failure_words(owner, probed).map(|(id, slot)| Counter {
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
