//! Aggregates of the instruments of several machines.

use std::collections::BTreeMap;

use super::Joined;
use super::turn::{HZ, TICKS};
use crate::totals::{TotalValue, Totals};

impl Joined {
    /// Returns the aggregates of all machines' instruments: names are prefixed with the machine's,
    /// and values in ticks are converted to the joint clock.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut all = Totals::default();
        let mut symbols: BTreeMap<u64, Option<String>> = BTreeMap::new();
        let mut stacks: BTreeMap<u64, Option<Vec<String>>> = BTreeMap::new();
        for (member, machine) in self.members.iter().zip(&self.metadata.machines) {
            let mut totals = member.recording.totals().clone();
            let name =
                |instrument: &mut String| *instrument = format!("{}: {instrument}", machine.name);
            totals
                .added_up
                .iter_mut()
                .for_each(|one| name(&mut one.instrument));
            if !totals.ended.is_empty() {
                all.ended += &format!("{}: {} ", machine.name, totals.ended);
            }
            let counted = totals.failed_reads.iter_mut().chain(&mut totals.no_room);
            counted.for_each(|one| name(&mut one.instrument));
            for one in totals.added_up.iter_mut().filter(|one| one.unit == TICKS) {
                let ticks =
                    |ticks: i128| ticks.saturating_mul(HZ.into()) / i128::from(member.turn.hz);
                in_ticks(&mut one.value, &ticks, HZ as f64 / member.turn.hz as f64);
            }
            all.added_up.append(&mut totals.added_up);
            all.failed_reads.append(&mut totals.failed_reads);
            all.no_room.append(&mut totals.no_room);
            all.stacks.lost += totals.stacks.lost;
            for (number, frames) in totals.stacks.frames {
                let known = stacks.entry(number).or_insert_with(|| Some(frames.clone()));
                if known.as_ref() != Some(&frames) {
                    *known = None;
                }
            }
            for (address, symbol) in totals.symbols {
                // Kernels with other code at an address share no name of it.
                let known = symbols
                    .entry(address)
                    .or_insert_with(|| Some(symbol.clone()));
                if known.as_ref() != Some(&symbol) {
                    *known = None;
                }
            }
        }
        let framed = |(number, frames): (u64, Option<Vec<String>>)| Some((number, frames?));
        all.stacks.frames = stacks.into_iter().filter_map(framed).collect();
        let named = |(address, symbol): (u64, Option<String>)| Some((address, symbol?));
        all.symbols = symbols.into_iter().filter_map(named).collect();
        all
    }
}

/// Converts the values of a total. The keys of a map have no unit.
fn in_ticks(total: &mut TotalValue, ticks: &impl Fn(i128) -> i128, factor: f64) {
    match total {
        TotalValue::Number(value) => *value = ticks(*value),
        TotalValue::Mean(mean) => *mean *= factor,
        TotalValue::Values(values, _) => values
            .iter_mut()
            .for_each(|(value, _)| *value = ticks(*value)),
        TotalValue::Map(rows, _) => rows
            .iter_mut()
            .for_each(|row| in_ticks(&mut row.value, ticks, factor)),
        TotalValue::Buckets(buckets) => {
            let ends = buckets
                .iter_mut()
                .flat_map(|one| [&mut one.from, &mut one.to]);
            ends.for_each(|end| *end = end.map(ticks));
        }
        TotalValue::Nothing => {}
    }
}
