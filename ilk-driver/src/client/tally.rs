//! What has come of a session so far, instrument by instrument.

use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::{InstrumentId, Plan};
use gilk_samples::metadata::Clock;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{Loss, LossCause, Mark, MarkKind};
use gilk_samples::{Batch, Sample};
use serde::{Deserialize, Serialize};

use super::aggregates;
use super::event::{AggregateSummary, Counted, InstrumentSummary, Switch};
use crate::protocol::{CpuLosses, Switched, Total};

/// What a plan says that is needed to understand what comes: small enough to be kept in a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Outline {
    /// Instruments that count.
    counting: Vec<u64>,
    /// What each batch launches and splashes.
    batches: Vec<(Vec<u64>, Vec<u64>)>,
    aggregates: Vec<aggregates::Known>,
    failures: Vec<aggregates::Word>,
    no_room: Vec<aggregates::Word>,
}

impl Outline {
    pub(super) fn of(plan: &Plan) -> Self {
        let ids = |ids: &[InstrumentId]| ids.iter().map(|id| id.pack()).collect();
        let counting = plan.instruments.iter().filter(|one| one.counter.is_some());
        let batches = plan.batches.iter();
        Self {
            counting: counting.map(|one| one.id.pack()).collect(),
            batches: batches
                .map(|batch| (ids(&batch.launched), ids(&batch.splashed)))
                .collect(),
            aggregates: aggregates::known(plan),
            failures: aggregates::failures(plan),
            no_room: aggregates::crowded(plan),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) clock: Clock,
    samples: BTreeMap<u64, u64>,
    totals: BTreeMap<u64, u64>,
    pub(super) received: u64,
    losses: BTreeMap<u16, CpuLosses>,
    in_place: BTreeSet<u64>,
    pub(super) switches: Vec<Switch>,
    pub(super) workload: Option<String>,
    /// Splices taken out before their time.
    pub(super) retired: u64,
}

impl Tally {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            samples: BTreeMap::new(),
            totals: BTreeMap::new(),
            received: 0,
            losses: BTreeMap::new(),
            in_place: BTreeSet::new(),
            switches: Vec::new(),
            workload: None,
            retired: 0,
        }
    }

    /// Samples as they came: 24 bytes each. `None` if the bytes are no whole samples.
    pub(super) fn samples(&mut self, cpu: u16, records: &[u8]) -> Option<Batch> {
        let (words, []) = records.as_chunks::<8>() else {
            return None;
        };
        let (records, []) = words.as_chunks::<3>() else {
            return None;
        };
        let samples: Vec<Sample> = records
            .iter()
            .map(|&[id, value, tsc]| Sample {
                id: u64::from_le_bytes(id),
                value: u64::from_le_bytes(value),
                tsc: u64::from_le_bytes(tsc),
            })
            .collect();
        self.received += samples.len() as u64;
        for sample in &samples {
            *self.samples.entry(sample.id).or_default() += 1;
        }
        Some(Batch { cpu, samples })
    }

    /// Totals of counters, as samples of no CPU.
    pub(super) fn totals(&mut self, tsc: u64, totals: &[Total]) -> Batch {
        for total in totals {
            self.totals.insert(total.id, total.hits);
            if aggregates::is_word(total.id) {
                continue;
            }
            *self.samples.entry(total.id).or_default() += 1;
        }
        let samples = totals
            .iter()
            .filter(|total| !aggregates::is_word(total.id))
            .map(|total| Sample {
                id: total.id,
                value: total.hits,
                tsc,
            })
            .collect();
        Batch {
            cpu: ALL_CPUS,
            samples,
        }
    }

    /// Losses since they were last told.
    pub(super) fn losses(&mut self, tsc: u64, losses: &[CpuLosses]) -> Vec<Loss> {
        let mut news = Vec::new();
        for now in losses {
            let before = self.losses.insert(now.cpu, *now).unwrap_or_default();
            let mut note = |cause, count| {
                if count > 0 {
                    news.push(Loss {
                        cpu: now.cpu,
                        tsc,
                        cause,
                        count,
                    });
                }
            };
            for (cause, now, before) in [
                (LossCause::RingFull, now.full, before.full),
                (LossCause::Unmatched, now.unmatched, before.unmatched),
                (LossCause::RingOff, now.disabled, before.disabled),
                (LossCause::Overwritten, now.overwritten, before.overwritten),
                (LossCause::Overtaken, now.overtaken, before.overtaken),
            ] {
                note(cause, now.saturating_sub(before));
            }
        }
        news
    }

    /// A batch that was done: what to tell, and a mark for each instrument that came or went.
    pub(super) fn switched(
        &mut self,
        outline: &Outline,
        switched: &Switched,
    ) -> (Switch, Vec<Mark>) {
        let Switched {
            batch,
            asked,
            tsc_begin,
            tsc_end,
            gone,
            ..
        } = *switched;
        let switch = Switch {
            batch: batch as usize,
            asked,
            begun: self.clock.seconds(tsc_begin),
            done: self.clock.seconds(tsc_end),
            gone,
        };
        self.switches.push(switch);
        let mark = |kind, id| Mark {
            kind,
            tsc: tsc_end,
            id,
            value: tsc_end.saturating_sub(tsc_begin),
        };
        let mut marks = Vec::new();
        if let Some((launched, splashed)) = outline.batches.get(switch.batch) {
            for &id in splashed {
                self.in_place.remove(&id);
                marks.push(mark(MarkKind::Splash, id));
            }
            for &id in launched {
                self.in_place.insert(id);
                marks.push(mark(MarkKind::Launch, id));
            }
        } else {
            marks.extend(
                std::mem::take(&mut self.in_place)
                    .into_iter()
                    .map(|id| mark(MarkKind::Splash, id)),
            );
        }
        (switch, marks)
    }

    /// Reads of memory that failed.
    pub(super) fn failed_reads(&self, outline: &Outline) -> Vec<Counted> {
        aggregates::counted(&outline.failures, &self.totals)
    }

    /// Values that found no room.
    pub(super) fn no_room(&self, outline: &Outline) -> Vec<Counted> {
        aggregates::counted(&outline.no_room, &self.totals)
    }

    /// What aggregates have come to.
    pub(super) fn aggregates(&self, outline: &Outline) -> Vec<AggregateSummary> {
        aggregates::read(&outline.aggregates, &self.totals)
    }

    /// What became of instruments, given what each is called.
    pub(super) fn instruments(
        &self,
        outline: &Outline,
        named: impl Iterator<Item = (u64, String)>,
    ) -> Vec<InstrumentSummary> {
        let counting: BTreeSet<u64> = outline.counting.iter().copied().collect();
        let summary = |(id, label)| {
            let count = |of: &BTreeMap<u64, u64>| of.get(&id).copied().unwrap_or_default();
            InstrumentSummary {
                id,
                label,
                samples: count(&self.samples),
                total: counting.contains(&id).then(|| count(&self.totals)),
            }
        };
        named.map(summary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline() -> Outline {
        Outline {
            batches: vec![(vec![7], vec![]), (vec![], vec![7])],
            ..Outline::default()
        }
    }

    fn switched(batch: u32, tsc_begin: u64) -> Switched {
        Switched {
            batch,
            asked: 0.5,
            tsc_begin,
            tsc_end: tsc_begin + 10,
            gone: 0,
            refused: None,
        }
    }

    const CLOCK: Clock = Clock {
        hz: 100,
        start: 1000,
        start_unix_ns: 0,
    };

    #[test]
    fn losses_become_differences() {
        let mut tally = Tally::new(CLOCK);
        let lost = |full, unmatched| {
            [CpuLosses {
                cpu: 3,
                full,
                unmatched,
                ..CpuLosses::default()
            }]
        };
        let loss = |cause, count| Loss {
            cpu: 3,
            tsc: 7,
            cause,
            count,
        };
        assert_eq!(tally.losses(7, &lost(5, 0)), [loss(LossCause::RingFull, 5)]);
        assert_eq!(
            tally.losses(7, &lost(5, 2)),
            [loss(LossCause::Unmatched, 2)]
        );
        assert_eq!(tally.losses(7, &lost(6, 2)), [loss(LossCause::RingFull, 1)]);
        assert_eq!(tally.losses(7, &lost(6, 2)), []);
    }

    #[test]
    fn samples_are_whole_or_nothing() {
        let mut tally = Tally::new(CLOCK);
        let sample = Sample {
            id: 1,
            value: 2,
            tsc: 3,
        };
        let bytes: Vec<u8> = [1_u64, 2, 3, 1, 2, 3]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        assert_eq!(
            tally.samples(4, &bytes),
            Some(Batch {
                cpu: 4,
                samples: vec![sample, sample]
            })
        );
        assert_eq!(tally.samples(4, &bytes[1..]), None);
        assert_eq!(tally.samples(4, &bytes[8..]), None);
        assert_eq!(tally.received, 2);
    }

    #[test]
    fn marks_follow_the_plan_and_a_stop_splashes_what_is_in_place() {
        let mut tally = Tally::new(CLOCK);
        let outline = outline();
        let (switch, marks) = tally.switched(&outline, &switched(0, 1100));
        assert_eq!(
            switch,
            Switch {
                batch: 0,
                asked: 0.5,
                begun: 1.0,
                done: 1.1,
                gone: 0,
            }
        );
        assert_eq!(
            marks,
            [Mark {
                kind: MarkKind::Launch,
                tsc: 1110,
                id: 7,
                value: 10
            }]
        );
        let (_, marks) = tally.switched(&outline, &switched(2, 1200));
        assert_eq!(
            marks,
            [Mark {
                kind: MarkKind::Splash,
                tsc: 1210,
                id: 7,
                value: 10
            }]
        );
        let (_, marks) = tally.switched(&outline, &switched(2, 1300));
        assert!(marks.is_empty());
    }
}
