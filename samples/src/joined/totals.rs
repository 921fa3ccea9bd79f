//! Aggregates of the instruments of several machines.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Joined;
use super::turn::{HZ, TICKS};
use crate::totals::{TotalValue, Totals};

impl Joined {
    /// Returns the aggregates of all machines' instruments: names are prefixed with the machine's,
    /// and values in ticks are converted to the joint clock.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut all = Totals::default();
        let mut symbols = BTreeMap::new();
        let mut stacks = BTreeMap::new();
        for (member, machine) in self.members.iter().zip(&self.metadata.machines) {
            let mut totals = member.recording.totals().clone();
            for mut gap in std::mem::take(&mut totals.gaps) {
                for time in [Some(&mut gap.out), gap.back.as_mut()]
                    .into_iter()
                    .flatten()
                {
                    let tsc = member.recording.metadata().clock.tsc(*time);
                    *time = self.metadata.clock.seconds(member.turn.unix_ns(tsc));
                }
                gap.why = format!("on {}, {}", machine.name, gap.why);
                all.gaps.push(gap);
            }
            for end in &mut totals.ends {
                machine.name.clone_into(&mut end.machine);
            }
            for one in totals.added_up.iter_mut().filter(|one| one.unit == TICKS) {
                let ticks =
                    |ticks: i128| ticks.saturating_mul(HZ.into()) / i128::from(member.turn.hz);
                in_ticks(&mut one.value, &ticks, HZ as f64 / member.turn.hz as f64);
            }
            // Kernels with other code at an address share no name of it, and no stack of its number.
            agree(&mut stacks, std::mem::take(&mut totals.stacks.frames));
            agree(&mut symbols, std::mem::take(&mut totals.symbols));
            let first_placement = member.turn.first_placement as usize;
            all.append(totals.named(&machine.name), first_placement);
        }
        all.stacks.frames = agreed(stacks);
        all.symbols = agreed(symbols);
        all
    }
}

/// Adds the entries of a machine; where machines differ there is `None`.
fn agree<V: PartialEq>(all: &mut BTreeMap<u64, Option<V>>, of_machine: BTreeMap<u64, V>) {
    for (key, value) in of_machine {
        match all.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Some(value));
            }
            Entry::Occupied(mut entry) => {
                entry.get_mut().take_if(|known| *known != value);
            }
        }
    }
}

/// Returns the entries in which machines do not differ.
fn agreed<V>(all: BTreeMap<u64, Option<V>>) -> BTreeMap<u64, V> {
    let entry = |(key, value): (u64, Option<V>)| Some((key, value?));
    all.into_iter().filter_map(entry).collect()
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
