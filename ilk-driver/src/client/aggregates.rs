//! Aggregates of instruments in the language: which words they are, and what these say at the end.

use std::collections::BTreeMap;

use gilk_engine::Plan;
use gilk_engine::layout::CounterSlot;
use gilk_engine::patch::Probed;
use gilk_engine::plan::PlannedInstrument;
use gilk_instruments::program::{Aggregate, AggregateKind};
use serde::{Deserialize, Serialize};

use super::event::{AggregateSummary, Counted};
use crate::protocol::Counter;

/// Bits of an instrument's identifier.
const ID_BITS: u32 = 48;

/// Whether a total is of a word of an aggregate, not of a counter.
pub(super) fn is_word(id: u64) -> bool {
    id >> ID_BITS != 0
}

/// The first instrument of each placement that adds something up.
fn owners(plan: &Plan) -> impl Iterator<Item = (&PlannedInstrument, &Probed)> {
    let placements = plan
        .instruments
        .chunk_by(|one, next| one.placement == next.placement);
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

/// The aggregates of a placement, and the words of each: its place, and the name it is told by.
fn of<'p>(
    owner: &'p PlannedInstrument,
    probed: &'p Probed,
) -> impl Iterator<Item = (&'p Aggregate, Vec<(u64, CounterSlot)>)> {
    let mut names = (1_u64..).map(move |number| owner.id.pack() | number << ID_BITS);
    let homes = probed.homes.aggregates.iter();
    let aggregates = probed.checked.aggregates.iter().zip(homes);
    aggregates.map(move |(aggregate, first)| {
        let place = |word| CounterSlot {
            slot: first.slot.saturating_add(word),
            ..*first
        };
        let words = (0..aggregate.words()).map(place);
        let named = words.filter_map(|word| Some((names.next()?, word)));
        (aggregate, named.collect())
    })
}

/// The name that the word of that number behind those of all aggregates is told by.
fn behind(owner: &PlannedInstrument, probed: &Probed, number: u64) -> u64 {
    let words = probed.checked.aggregates.iter();
    let words: u64 = words.map(|aggregate| u64::from(aggregate.words())).sum();
    owner.id.pack() | (words + number) << ID_BITS
}

/// Where reads of memory and counters are counted that fail, and the name that this is told by.
fn failed(owner: &PlannedInstrument, probed: &Probed) -> Option<(u64, CounterSlot)> {
    Some((behind(owner, probed, 1), probed.homes.failed?))
}

/// Where values are counted that find no room, and the name that this is told by.
fn crowded_out(owner: &PlannedInstrument, probed: &Probed) -> Option<(u64, CounterSlot)> {
    Some((behind(owner, probed, 2), probed.homes.no_room?))
}

/// Every word that is to be read.
pub(super) fn words(plan: &Plan) -> Vec<Counter> {
    let mut all = Vec::new();
    for (owner, probed) in owners(plan) {
        let counted = [failed(owner, probed), crowded_out(owner, probed)];
        all.extend(counted.into_iter().flatten().map(|(id, slot)| Counter {
            id,
            bank: slot.bank,
            slot: slot.slot,
            largest: false,
        }));
        for (aggregate, words) in of(owner, probed) {
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

/// An aggregate, and the names that its words are told by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    placement: usize,
    instrument: String,
    unit: String,
    aggregate: Aggregate,
    words: Vec<u64>,
}

/// Every aggregate, in the order of the session.
pub(super) fn known(plan: &Plan) -> Vec<Known> {
    let mut all = Vec::new();
    for (owner, probed) in owners(plan) {
        for (aggregate, words) in of(owner, probed) {
            all.push(Known {
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

/// What the words say that were told last, by name.
pub(super) fn read(known: &[Known], told: &BTreeMap<u64, u64>) -> Vec<AggregateSummary> {
    let read = |known: &Known| {
        let word = |id| told.get(id).copied().unwrap_or(0);
        let words: Vec<u64> = known.words.iter().map(word).collect();
        AggregateSummary {
            placement: known.placement,
            instrument: known.instrument.clone(),
            name: known.aggregate.name.clone(),
            unit: known.unit.clone(),
            value: known.aggregate.read([words.as_slice()]),
        }
    };
    known.iter().map(read).collect()
}

/// Where something of a placement is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Word {
    placement: usize,
    instrument: String,
    word: u64,
}

/// Finds a word of a placement, and the name that it is told by.
type Find = fn(&PlannedInstrument, &Probed) -> Option<(u64, CounterSlot)>;

/// Every word that failed reads are counted in, in the order of the session.
pub(super) fn failures(plan: &Plan) -> Vec<Word> {
    found(plan, failed)
}

/// Every word that values are counted in that find no room, in the order of the session.
pub(super) fn crowded(plan: &Plan) -> Vec<Word> {
    found(plan, crowded_out)
}

fn found(plan: &Plan, find: Find) -> Vec<Word> {
    let known = |(owner, probed): (&PlannedInstrument, &Probed)| {
        let (word, _) = find(owner, probed)?;
        Some(Word {
            placement: owner.placement,
            instrument: owner.definition.name.clone(),
            word,
        })
    };
    owners(plan).filter_map(known).collect()
}

/// What these words say that were told last.
pub(super) fn counted(known: &[Word], told: &BTreeMap<u64, u64>) -> Vec<Counted> {
    let read = |known: &Word| Counted {
        placement: known.placement,
        instrument: known.instrument.clone(),
        count: told.get(&known.word).copied().unwrap_or(0),
    };
    known.iter().map(read).collect()
}
