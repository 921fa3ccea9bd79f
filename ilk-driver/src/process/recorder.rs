//! The samples, losses and totals of a process, on their way to a recording and to a listener.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gilk_engine::Plan;
use gilk_samples::collector::Collector;
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::Metadata;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{Loss, Mark, MarkKind};
use gilk_samples::texts::SampleTexts;
use gilk_samples::totals::Totals;
use gilk_samples::{Batch, InstrumentId, Sample};

use super::listener::Listener;
use super::stacks::NumberedStacks;
use super::{FollowedEnd, FollowedProcess, SampleRings, tsc};
use crate::client::{CpuLosses, Event, is_aggregate_word, samples, texts};
use crate::{Error, Result};

/// Interval at which rings are emptied.
const DRAINED: Duration = Duration::from_millis(5);
/// Interval at which totals are recorded, and the process is looked at.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which a listener has the values of aggregates.
const AGGREGATES: Duration = Duration::from_millis(300);

/// Takes samples and counts of a process while it executes.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Writes in a thread of its own, so that the disk does not delay the reading of rings.
    collector: Option<Collector>,
    listener: Option<Listener>,
    /// The listener is sent the values of aggregates.
    reports_aggregates: bool,
    /// The last totals that were recorded.
    last: HashMap<u64, u64>,
    /// Samples and losses since the start, by CPU.
    losses: BTreeMap<u16, CpuLosses>,
    /// Numbers of samples by identifier.
    samples: BTreeMap<u64, u64>,
    /// Stacks that were numbered.
    stacks: KeptStacks,
    /// The number of objects that were loaded later whose texts were reported.
    described: usize,
    /// Samples by CPU, until their stacks are recorded, and no older one of another ring may follow.
    waiting: BTreeMap<u16, Vec<Sample>>,
    /// The time up to which no older sample may follow, if rings of objects that were loaded later were read.
    settled: Option<u64>,
    /// True if samples wait for a stack that a thread is writing.
    awaits_stacks: bool,
}

/// Ticks after which no ring has a sample that is older: one is written in less time after its clock is read.
const SETTLED: u64 = 10_000_000;

impl Recorder {
    /// Returns a recorder that writes to a recording, if there is one, and sends events to a listener, if there is one.
    #[must_use]
    pub fn new(collector: Option<Collector>, listener: Option<Sender<Event>>) -> Self {
        Self {
            collector,
            listener: listener.map(Listener::from),
            ..Self::default()
        }
    }

    /// Sends events to a listener from now on.
    pub(super) fn listen(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    /// Has the listener sent the values of aggregates ([`Event::Aggregates`]) while a process is recorded.
    pub(super) const fn report_aggregates(&mut self, report: bool) {
        self.reports_aggregates = report;
    }

    /// Records a process that is instrumented by a plan, until `length` is over, it ends, `is_stopped`, or the recording
    /// cannot be written, which [`Self::finish`] reports. Then removes everything from the process.
    ///
    /// # Errors
    /// [`Error::Process`] if the counters or rings cannot be read, or the process cannot be stopped for the removal.
    pub fn follow<P>(
        &mut self,
        mut process: FollowedProcess<'_, P>,
        plan: &Plan,
        length: Duration,
        is_stopped: impl Fn() -> bool,
    ) -> Result<FollowedEnd<P>> {
        let mut rings = process.take_rings();
        let samples = |plan: &Plan| plan.instruments.iter().any(samples);
        let begun = Instant::now();
        let (mut counted, mut added_up) = (begun, begun);
        while !is_stopped()
            && begun.elapsed() < length
            && !process.has_ended()
            && !self.has_failed()
        {
            let interval =
                match samples(plan) || process.later_plans().any(|(plan, _)| samples(plan)) {
                    true => DRAINED,
                    false => INTERVAL,
                };
            process.wait(interval.min(length.saturating_sub(begun.elapsed())))?;
            self.drain_all(rings.as_mut(), &mut process)?;
            self.deliver_settled();
            process.give_up(rings.as_mut());
            if counted.elapsed() >= INTERVAL {
                counted = Instant::now();
                let words = process.words()?;
                self.counts(&process.counts(&words));
                if self.reports_aggregates && added_up.elapsed() >= AGGREGATES {
                    added_up = Instant::now();
                    self.aggregates(process.totals(plan, &words));
                }
                process.stacks().try_for_each(NumberedStacks::refresh)?;
            }
        }
        let end = tsc();
        let removed = process.remove()?;
        if let Some(rings) = &mut rings {
            rings.end();
        }
        self.drain_all(rings.as_mut(), &mut process)?;
        self.deliver_rest();
        let words = process.words()?;
        self.counts(&process.counts(&words));
        self.splashes([(plan, 0)].into_iter().chain(process.later_plans()), end);
        Ok(process.into_end(removed))
    }

    /// Records the end of the instruments of plans, each with the number of its first function in recorded identifiers: it
    /// may be earlier than planned.
    pub(super) fn splashes<'p>(&self, plans: impl Iterator<Item = (&'p Plan, u32)>, tsc: u64) {
        let Some(collector) = &self.collector else {
            return;
        };
        let marks = plans.flat_map(|(plan, first_major)| {
            plan.instruments.iter().map(move |one| Mark {
                kind: MarkKind::Splash,
                tsc,
                id: InstrumentId::renumbered(one.id.pack(), first_major),
                value: 0,
            })
        });
        collector.marks(marks.collect());
    }

    /// Takes all samples out of all rings of a process, then the stacks that they have.
    fn drain_all<P>(
        &mut self,
        rings: Option<&mut SampleRings>,
        process: &mut FollowedProcess<'_, P>,
    ) -> Result<()> {
        self.describe_later(process.later_plans());
        self.take_all(rings, process.later_rings())?;
        process.forget_rings();
        self.take_stacks(process.take_left_stacks(), process.stacks())
    }

    /// Reports the texts of samples of objects that were loaded since the last call, before their samples. Each has a plan,
    /// and the number of its first function in recorded identifiers.
    pub(super) fn describe_later<'p>(&mut self, plans: impl Iterator<Item = (&'p Plan, u32)>) {
        for (plan, first_major) in plans.skip(self.described) {
            self.described += 1;
            let mut recorded = SampleTexts::default();
            for (id, texts) in texts(plan).iter() {
                recorded.insert(InstrumentId::renumbered(id, first_major), texts.clone());
            }
            if !recorded.is_empty() {
                self.send(|_| Event::Texts(Box::new(recorded)));
            }
        }
    }

    /// Takes all samples out of rings, and out of those of objects that were loaded later, whose functions are numbered
    /// from some number on. They are delivered by [`deliver_settled`](Self::deliver_settled), after the stacks that they
    /// have.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn take_all<'r>(
        &mut self,
        rings: Option<&mut SampleRings>,
        later: impl Iterator<Item = (&'r mut SampleRings, u32)>,
    ) -> Result<()> {
        let settled = tsc().saturating_sub(SETTLED);
        if let Some(rings) = rings {
            self.drain(rings, 0, Self::wait)?;
        }
        let mut is_several = self.settled.is_some();
        for (rings, first_major) in later {
            is_several = true;
            self.drain(rings, first_major, Self::wait)?;
        }
        self.settled = is_several.then_some(settled);
        Ok(())
    }

    /// Delivers the samples that were taken, if all their stacks are recorded. Those of several rings are put in order of
    /// time, and the last of them are kept.
    pub(super) fn deliver_settled(&mut self) {
        if self.awaits_stacks {
            return;
        }
        self.deliver_waiting(self.settled.unwrap_or(u64::MAX));
    }

    /// Delivers the samples that were kept: no ring is read any more.
    pub(super) fn deliver_rest(&mut self) {
        self.deliver_waiting(u64::MAX);
    }

    /// Keeps samples until their stacks and other rings are read.
    fn wait(&mut self, batch: Batch) {
        let Batch { cpu, samples } = batch;
        self.waiting.entry(cpu).or_default().extend(samples);
    }

    /// Delivers the samples that were kept, up to a time.
    fn deliver_waiting(&mut self, settled: u64) {
        let mut waiting = std::mem::take(&mut self.waiting);
        for (&cpu, kept) in &mut waiting {
            if self.settled.is_some() {
                kept.sort_by_key(|sample| sample.tsc);
            }
            let end = kept.partition_point(|sample| sample.tsc <= settled);
            let rest = kept.split_off(end);
            let samples = std::mem::replace(kept, rest);
            if !samples.is_empty() {
                self.deliver(Batch { cpu, samples });
            }
        }
        waiting.retain(|_, kept| !kept.is_empty());
        self.waiting = waiting;
    }

    /// Takes all samples out of the rings of a process.
    ///
    /// # Errors
    /// [`Error::Target`] if the process has written over the words of its rings.
    pub fn take(&mut self, rings: &mut SampleRings) -> Result<()> {
        self.drain(rings, 0, Self::deliver)
    }

    fn has_failed(&self) -> bool {
        self.collector.as_ref().is_some_and(Collector::has_failed)
    }

    /// Takes all samples out of rings, whose functions are numbered from `first_major` on.
    fn drain(
        &mut self,
        rings: &mut SampleRings,
        first_major: u32,
        take: impl Fn(&mut Self, Batch),
    ) -> Result<()> {
        let drained = rings.drain()?;
        for mut batch in drained.batches {
            let cpu = self.of_cpu(batch.cpu);
            cpu.taken += batch.len() as u64;
            for sample in &mut batch.samples {
                sample.id = InstrumentId::renumbered(sample.id, first_major);
                if !sample.is_word() {
                    *self.samples.entry(sample.id).or_default() += 1;
                }
            }
            take(self, batch);
        }
        if drained.losses.is_empty() {
            return Ok(());
        }
        for &Loss {
            cpu, cause, count, ..
        } in &drained.losses
        {
            self.of_cpu(cpu).add(cause, count);
        }
        if let Some(collector) = &self.collector {
            collector.losses(drained.losses);
        }
        self.send(|recorder| Event::Losses(recorder.losses()));
        Ok(())
    }

    /// Records the counts that have changed, by identifier; words of aggregates are recorded at the end only.
    pub fn counts(&mut self, counts: &[(u64, u64)]) {
        let tsc = tsc();
        let last = &mut self.last;
        let changed = counts
            .iter()
            .filter(|(id, _)| !is_aggregate_word(*id))
            .filter(|&&(id, value)| last.insert(id, value) != Some(value));
        let samples: Vec<Sample> = changed
            .map(|&(id, value)| Sample { id, value, tsc })
            .collect();
        if !samples.is_empty() {
            let cpu = ALL_CPUS;
            self.deliver(Batch { cpu, samples });
        }
    }

    /// Reports the values of aggregates to a listener, if there are some.
    fn aggregates(&self, totals: Totals) {
        if !totals.added_up.is_empty() {
            self.send(|_| Event::Aggregates(totals.added_up));
        }
    }

    /// Records the stacks up to now: those that are left of what was unmapped, and those of what is mapped. All samples
    /// that were taken before have theirs among these, since a patch writes a stack before the sample that has it,
    /// unless another thread is writing the same stack, which [`deliver_settled`](Self::deliver_settled) waits for.
    ///
    /// # Errors
    /// [`Error::Process`] if stacks cannot be read.
    pub(super) fn take_stacks<'s>(
        &mut self,
        left: KeptStacks,
        mapped: impl Iterator<Item = &'s mut NumberedStacks>,
    ) -> Result<()> {
        let mut new = left;
        self.awaits_stacks = false;
        for stacks in mapped {
            new.add(stacks.report()?);
            self.awaits_stacks |= stacks.are_awaited();
        }
        if !new.is_empty() {
            let lost = self.stacks.lost + new.lost;
            self.stacks.add(new.clone());
            self.send(|_| Event::Stacks(KeptStacks { lost, ..new }));
        }
        Ok(())
    }

    /// The stacks that were recorded.
    #[must_use]
    pub fn kept_stacks(&self) -> &KeptStacks {
        &self.stacks
    }

    /// Samples and losses since the start, of each CPU; those of threads without one are of
    /// [`ALL_CPUS`].
    #[must_use]
    pub fn losses(&self) -> Vec<CpuLosses> {
        self.losses.values().copied().collect()
    }

    /// The number of samples of an identifier.
    #[must_use]
    pub fn samples_of(&self, id: u64) -> u64 {
        self.samples.get(&id).copied().unwrap_or_default()
    }

    /// Replaces the metadata of the recording: objects were loaded that it does not describe.
    pub fn describe(&self, metadata: Metadata) {
        if let Some(collector) = &self.collector {
            collector.describe(metadata);
        }
    }

    /// Writes the totals with the stacks, and ends the recording; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Recording`] if the recording could not be written.
    pub fn finish(&mut self, totals: Totals) -> Result<Option<gilk_samples::recording::Summary>> {
        let Some(collector) = self.collector.take() else {
            return Ok(None);
        };
        collector.totals(Totals {
            stacks: self.stacks.clone(),
            ..totals
        });
        let summary = collector.finish();
        summary
            .map(Some)
            .map_err(|source| Error::Recording { source })
    }

    fn of_cpu(&mut self, cpu: u16) -> &mut CpuLosses {
        self.losses.entry(cpu).or_insert(CpuLosses {
            cpu,
            ..CpuLosses::default()
        })
    }

    fn deliver(&mut self, batch: Batch) {
        let batch = Arc::new(batch);
        if let Some(collector) = &self.collector {
            collector.samples(&batch);
        }
        self.send(|_| Event::Samples(batch));
    }

    fn send(&self, event: impl FnOnce(&Self) -> Event) {
        if let Some(listener) = &self.listener {
            listener.send(event(self));
        }
    }
}
