//! What has come of a session so far, instrument by instrument.

use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::Plan;
use gilk_samples::metadata::Clock;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{Loss, LossCause, Mark, MarkKind};
use gilk_samples::{Batch, Sample};

use super::event::{AggregateSummary, InstrumentSummary, Switch};
use super::{aggregates, label};
use crate::protocol::{CpuLosses, Switched, Total};

pub(super) struct Tally<'a> {
    plan: &'a Plan,
    pub(super) clock: Clock,
    samples: BTreeMap<u64, u64>,
    totals: BTreeMap<u64, u64>,
    pub(super) received: u64,
    pub(super) losses: BTreeMap<u16, CpuLosses>,
    in_place: BTreeSet<u64>,
    pub(super) switches: Vec<Switch>,
    pub(super) workload: Option<String>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(plan: &'a Plan, clock: Clock) -> Self {
        Self {
            plan,
            clock,
            samples: BTreeMap::new(),
            totals: BTreeMap::new(),
            received: 0,
            losses: BTreeMap::new(),
            in_place: BTreeSet::new(),
            switches: Vec::new(),
            workload: None,
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
    pub(super) fn switched(&mut self, switched: &Switched) -> (Switch, Vec<Mark>) {
        let Switched {
            batch,
            asked,
            tsc_begin,
            tsc_end,
            ..
        } = *switched;
        let switch = Switch {
            batch: batch as usize,
            asked,
            begun: self.clock.seconds(tsc_begin),
            done: self.clock.seconds(tsc_end),
        };
        self.switches.push(switch);
        let mark = |kind, id| Mark {
            kind,
            tsc: tsc_end,
            id,
            value: tsc_end.saturating_sub(tsc_begin),
        };
        let mut marks = Vec::new();
        if let Some(planned) = self.plan.batches.get(switch.batch) {
            for id in planned.splashed.iter().map(|id| id.pack()) {
                self.in_place.remove(&id);
                marks.push(mark(MarkKind::Splash, id));
            }
            for id in planned.launched.iter().map(|id| id.pack()) {
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

    /// What aggregates have come to.
    pub(super) fn aggregates(&self) -> Vec<AggregateSummary> {
        aggregates::read(self.plan, &self.totals)
    }

    pub(super) fn instruments(&self) -> Vec<InstrumentSummary> {
        let summary = |instrument: &gilk_engine::plan::PlannedInstrument| {
            let id = instrument.id.pack();
            let count = |of: &BTreeMap<u64, u64>| of.get(&id).copied().unwrap_or_default();
            InstrumentSummary {
                id,
                label: label(self.plan, instrument),
                samples: count(&self.samples),
                total: instrument.counter.map(|_| count(&self.totals)),
            }
        };
        self.plan.instruments.iter().map(summary).collect()
    }
}

#[cfg(test)]
mod tests {
    use gilk_engine::layout::RuntimeLayout;
    use gilk_engine::plan::Batch as PlannedBatch;
    use gilk_engine::{HookType, InstrumentId};

    use super::*;

    fn plan() -> Plan {
        let id = InstrumentId::new(0, HookType::Pre, 0, 0).unwrap();
        let batch = |at, launched, splashed| PlannedBatch {
            at,
            pokes: Vec::new(),
            launched,
            splashed,
        };
        Plan {
            release: String::new(),
            duration: 2.0,
            layout: RuntimeLayout::default(),
            functions: Vec::new(),
            instruments: Vec::new(),
            sites: Vec::new(),
            bounces: Vec::new(),
            dependences: Vec::new(),
            faults: vec![],
            patches: Vec::new(),
            batches: vec![
                batch(0.0, vec![id], Vec::new()),
                batch(1.0, Vec::new(), vec![id]),
            ],
        }
    }

    fn switched(batch: u32, tsc_begin: u64) -> Switched {
        Switched {
            batch,
            asked: 0.5,
            tsc_begin,
            tsc_end: tsc_begin + 10,
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
        let plan = plan();
        let mut tally = Tally::new(&plan, CLOCK);
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
        let plan = plan();
        let mut tally = Tally::new(&plan, CLOCK);
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
        let plan = plan();
        let id = plan.batches[0].launched[0].pack();
        let mut tally = Tally::new(&plan, CLOCK);
        let (switch, marks) = tally.switched(&switched(0, 1100));
        assert_eq!(
            switch,
            Switch {
                batch: 0,
                asked: 0.5,
                begun: 1.0,
                done: 1.1
            }
        );
        assert_eq!(
            marks,
            [Mark {
                kind: MarkKind::Launch,
                tsc: 1110,
                id,
                value: 10
            }]
        );
        let (_, marks) = tally.switched(&switched(2, 1200));
        assert_eq!(
            marks,
            [Mark {
                kind: MarkKind::Splash,
                tsc: 1210,
                id,
                value: 10
            }]
        );
        let (_, marks) = tally.switched(&switched(2, 1300));
        assert!(marks.is_empty());
    }
}
