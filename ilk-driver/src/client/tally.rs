//! The running totals of a session, by instrument.

use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::{InstrumentId, Plan};
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::Clock;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{Loss, LossCause, Mark, MarkKind};
use gilk_samples::{Batch, Sample};
use serde::{Deserialize, Serialize};

use super::aggregates;
use super::event::{AggregateSummary, Counted, Gap, InstrumentSummary, Switch};
use crate::protocol::{CpuLosses, Outage, Return, Switched, Total};

/// The part of a plan needed to interpret the agent's messages, small enough for a sidecar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Outline {
    /// Instruments with a counter.
    counting: Vec<u64>,
    /// Instruments launched and splashed by each batch.
    batches: Vec<(Vec<u64>, Vec<u64>)>,
    aggregates: Vec<aggregates::AggregateWords>,
    failed_reads: Vec<aggregates::FailureWord>,
    storage_full: Vec<aggregates::FailureWord>,
}

impl Outline {
    pub(super) fn of(plan: &Plan) -> Self {
        let ids = |ids: &[InstrumentId]| ids.iter().map(|id| id.pack()).collect();
        let instruments = plan.instruments.iter();
        let counting = instruments.filter(|instrument| instrument.counter.is_some());
        let batches = plan.batches.iter();
        Self {
            counting: counting.map(|instrument| instrument.id.pack()).collect(),
            batches: batches
                .map(|batch| (ids(&batch.launched), ids(&batch.splashed)))
                .collect(),
            aggregates: aggregates::aggregate_words(plan),
            failed_reads: aggregates::failed_reads(plan),
            storage_full: aggregates::storage_full(plan),
        }
    }
}

/// The running totals of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) clock: Clock,
    samples: BTreeMap<u64, u64>,
    totals: BTreeMap<u64, u64>,
    pub(super) received: u64,
    /// Further words of samples among those received.
    #[serde(default)]
    pub(super) words: u64,
    losses: BTreeMap<u16, CpuLosses>,
    launched: BTreeSet<u64>,
    pub(super) switches: Vec<Switch>,
    pub(super) workload: Option<String>,
    /// Times without instruments.
    pub(super) gaps: Vec<Gap>,
    /// Instruments that are left out since the last of them.
    left_out: BTreeSet<u64>,
    /// Number of retired splices.
    pub(super) retired: u64,
    /// Stacks of the kernel and of processes.
    pub(super) stacks: KeptStacks,
}

impl Tally {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            samples: BTreeMap::new(),
            totals: BTreeMap::new(),
            received: 0,
            words: 0,
            losses: BTreeMap::new(),
            launched: BTreeSet::new(),
            switches: Vec::new(),
            workload: None,
            gaps: Vec::new(),
            left_out: BTreeSet::new(),
            retired: 0,
            stacks: KeptStacks::default(),
        }
    }

    /// Decodes samples of 24 bytes each. Returns `None` if the length is no multiple of that.
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
            match sample.is_word() {
                true => self.words += 1,
                false => *self.samples.entry(sample.id).or_default() += 1,
            }
        }
        Some(Batch { cpu, samples })
    }

    /// Converts totals of counters to samples of no CPU.
    pub(super) fn totals(&mut self, tsc: u64, totals: &[Total]) -> Batch {
        for total in totals {
            self.totals.insert(total.id, total.hits);
            if aggregates::is_aggregate_word(total.id) {
                continue;
            }
            *self.samples.entry(total.id).or_default() += 1;
        }
        let samples = totals
            .iter()
            .filter(|total| !aggregates::is_aggregate_word(total.id))
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

    /// Returns the losses since the last call.
    pub(super) fn losses(&mut self, tsc: u64, losses: &[CpuLosses]) -> Vec<Loss> {
        let mut new_losses = Vec::new();
        for now in losses {
            let before = self.losses.insert(now.cpu, *now).unwrap_or_default();
            let mut add = |cause, count| {
                if count > 0 {
                    new_losses.push(Loss {
                        cpu: now.cpu,
                        tsc,
                        cause,
                        count,
                    });
                }
            };
            for (cause, now, before) in [
                (LossCause::RingFull, now.full, before.full),
                (LossCause::RingOff, now.disabled, before.disabled),
                (LossCause::Overwritten, now.overwritten, before.overwritten),
                (LossCause::Overtaken, now.overtaken, before.overtaken),
                (LossCause::Unfinished, now.unfinished, before.unfinished),
            ] {
                add(cause, now.saturating_sub(before));
            }
        }
        new_losses
    }

    /// Records an applied batch; returns its event, and a mark for each instrument launched or
    /// splashed.
    pub(super) fn switched(
        &mut self,
        outline: &Outline,
        switched: &Switched,
    ) -> (Switch, Vec<Mark>) {
        let Switched {
            batch,
            scheduled,
            tsc_begin,
            tsc_end,
            gone,
            ..
        } = *switched;
        let switch = Switch {
            batch: batch as usize,
            scheduled,
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
                // One that is left out was splashed before.
                if self.launched.remove(&id) {
                    marks.push(mark(MarkKind::Splash, id));
                }
            }
            for &id in launched.iter().filter(|id| !self.left_out.contains(id)) {
                self.launched.insert(id);
                marks.push(mark(MarkKind::Launch, id));
            }
        } else {
            marks.extend(
                std::mem::take(&mut self.launched)
                    .into_iter()
                    .map(|id| mark(MarkKind::Splash, id)),
            );
        }
        (switch, marks)
    }

    /// Records that every splice was removed; returns the begun gap, and a mark for each instrument that was in place.
    pub(super) fn out(&mut self, outage: &Outage) -> (Gap, Vec<Mark>) {
        let gap = Gap {
            out: self.clock.seconds(outage.tsc),
            why: outage.why.clone(),
            ..Gap::default()
        };
        self.gaps.push(gap.clone());
        let splashed = std::mem::take(&mut self.launched).into_iter();
        let marks = splashed.map(|id| Mark {
            kind: MarkKind::Splash,
            tsc: outage.tsc,
            id,
            value: 0,
        });
        (gap, marks.collect())
    }

    /// Records that the splices are in place again; returns the gap, and a mark for each instrument that is. `None`
    /// if no gap was open.
    pub(super) fn back(&mut self, outline: &Outline, back: &Return) -> Option<(Gap, Vec<Mark>)> {
        let gap = self.gaps.last_mut().filter(|gap| gap.back.is_none())?;
        gap.back = Some(self.clock.seconds(back.tsc_end));
        gap.left_out = back.left_out.len();
        gap.replaced.clone_from(&back.replaced);
        let gap = gap.clone();
        self.left_out = back.left_out.iter().copied().collect();
        self.launched.clear();
        for (launched, splashed) in outline.batches.iter().take(back.batches as usize) {
            self.launched.extend(launched);
            for id in splashed {
                self.launched.remove(id);
            }
        }
        self.launched.retain(|id| !self.left_out.contains(id));
        let marks = self.launched.iter().map(|&id| Mark {
            kind: MarkKind::Launch,
            tsc: back.tsc_end,
            id,
            value: back.tsc_end.saturating_sub(back.tsc_begin),
        });
        Some((gap, marks.collect()))
    }

    /// Returns the counts of failed reads of memory.
    pub(super) fn failed_reads(&self, outline: &Outline) -> Vec<Counted> {
        aggregates::counts(&outline.failed_reads, std::slice::from_ref(&self.totals))
    }

    /// Returns the counts of values without storage.
    pub(super) fn no_room(&self, outline: &Outline) -> Vec<Counted> {
        aggregates::counts(&outline.storage_full, std::slice::from_ref(&self.totals))
    }

    /// Returns the values of aggregates.
    pub(super) fn aggregates(&self, outline: &Outline) -> Vec<AggregateSummary> {
        aggregates::summaries(&outline.aggregates, std::slice::from_ref(&self.totals))
    }

    /// Returns the results of instruments, given their labels.
    pub(super) fn instruments(
        &self,
        outline: &Outline,
        labels: impl Iterator<Item = (u64, String)>,
    ) -> Vec<InstrumentSummary> {
        let counting: BTreeSet<u64> = outline.counting.iter().copied().collect();
        let summary = |(id, label)| {
            let count = |of: &BTreeMap<u64, u64>| of.get(&id).copied().unwrap_or(0);
            InstrumentSummary {
                id,
                label,
                samples: count(&self.samples),
                total: counting.contains(&id).then(|| count(&self.totals)),
            }
        };
        labels.map(summary).collect()
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
            scheduled: 0.5,
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
    fn losses_are_reported_as_differences() {
        let mut tally = Tally::new(CLOCK);
        let lost = |full, disabled| {
            [CpuLosses {
                cpu: 3,
                full,
                disabled,
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
        assert_eq!(tally.losses(7, &lost(5, 2)), [loss(LossCause::RingOff, 2)]);
        assert_eq!(tally.losses(7, &lost(6, 2)), [loss(LossCause::RingFull, 1)]);
        assert_eq!(tally.losses(7, &lost(6, 2)), []);
    }

    #[test]
    fn partial_samples_are_refused() {
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
    fn marks_follow_the_plan_and_a_stop_splashes_launched_instruments() {
        let mut tally = Tally::new(CLOCK);
        let outline = outline();
        let (switch, marks) = tally.switched(&outline, &switched(0, 1100));
        assert_eq!(
            switch,
            Switch {
                batch: 0,
                scheduled: 0.5,
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

    #[test]
    fn a_gap_splashes_what_is_in_place_and_launches_what_the_schedule_has_after_it() {
        let mut tally = Tally::new(CLOCK);
        let outline = Outline {
            batches: vec![
                (vec![1, 2, 3], vec![]),
                (vec![4], vec![1]),
                (vec![5], vec![3]),
            ],
            ..Outline::default()
        };
        tally.switched(&outline, &switched(0, 1100));
        let outage = Outage {
            tsc: 1200,
            why: "a test".to_owned(),
        };
        let (gap, marks) = tally.out(&outage);
        assert_eq!((gap.out, gap.back), (2.0, None));
        let of = |marks: &[Mark]| -> Vec<(MarkKind, u64, u64)> {
            marks
                .iter()
                .map(|one| (one.kind, one.tsc, one.id))
                .collect()
        };
        let splashed = [1, 2, 3].map(|id| (MarkKind::Splash, 1200, id));
        assert_eq!(of(&marks), splashed);

        let back = Return {
            tsc_begin: 1290,
            tsc_end: 1300,
            batches: 2,
            left_out: vec![2, 5],
            replaced: vec!["f".to_owned()],
        };
        let (gap, marks) = tally.back(&outline, &back).unwrap();
        assert_eq!((gap.back, gap.left_out), (Some(3.0), 2));
        assert_eq!(of(&marks), [3, 4].map(|id| (MarkKind::Launch, 1300, id)));
        assert_eq!(tally.gaps, [gap]);
        assert_eq!(tally.back(&outline, &back), None, "no gap is open");
        // What is left out is not launched later.
        let (_, marks) = tally.switched(&outline, &switched(2, 1400));
        assert_eq!(of(&marks), [(MarkKind::Splash, 1410, 3)]);
    }
}
