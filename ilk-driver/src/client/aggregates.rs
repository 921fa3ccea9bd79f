//! Aggregates of instruments in the language: which words they are, and what these say at the end.

use std::collections::BTreeMap;

use gilk_engine::Plan;
use gilk_engine::layout::CounterSlot;
use gilk_engine::patch::Probed;
use gilk_engine::plan::PlannedInstrument;
use gilk_instruments::program::{Aggregate, AggregateKind};
use serde::{Deserialize, Serialize};

use super::event::{AggregateSummary, FailedReads};
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
        let any = !probed.checked.aggregates.is_empty() || probed.homes.failed.is_some();
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

/// Where reads of memory and counters are counted that fail, and the name that this is told by: behind all aggregates.
fn failed(owner: &PlannedInstrument, probed: &Probed) -> Option<(u64, CounterSlot)> {
    let words = probed.checked.aggregates.iter();
    let words: u64 = words.map(|aggregate| u64::from(aggregate.words())).sum();
    Some((
        owner.id.pack() | (words + 1) << ID_BITS,
        probed.homes.failed?,
    ))
}

/// Every word that is to be read.
pub(super) fn words(plan: &Plan) -> Vec<Counter> {
    let mut all = Vec::new();
    for (owner, probed) in owners(plan) {
        all.extend(failed(owner, probed).map(|(id, slot)| Counter {
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

/// Where failed reads of a placement are counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failures {
    placement: usize,
    instrument: String,
    word: u64,
}

/// Every such word, in the order of the session.
pub(super) fn failures(plan: &Plan) -> Vec<Failures> {
    let known = |(owner, probed): (&PlannedInstrument, &Probed)| {
        let (word, _) = failed(owner, probed)?;
        Some(Failures {
            placement: owner.placement,
            instrument: owner.definition.name.clone(),
            word,
        })
    };
    owners(plan).filter_map(known).collect()
}

/// What these words say that were told last.
pub(super) fn failed_reads(known: &[Failures], told: &BTreeMap<u64, u64>) -> Vec<FailedReads> {
    let read = |known: &Failures| FailedReads {
        placement: known.placement,
        instrument: known.instrument.clone(),
        count: told.get(&known.word).copied().unwrap_or(0),
    };
    known.iter().map(read).collect()
}
