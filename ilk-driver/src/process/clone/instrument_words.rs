//! The words of all instruments in a cache: those of the objects from the start, and those of each load of later ones. The
//! agent adds and ends loads, while another thread takes samples and counts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gilk_engine::{Plan, Span, VerifiedPlan};
use gilk_samples::kept_stacks::KeptStacks;

use super::super::objects::Object;
use super::super::parts::{LoadedPart, LoadedParts, MappedCounts, NextNumbers};
use super::super::recorder::Recorder;
use super::super::rings::SampleRings;
use super::super::stacks::NumberedStacks;
use super::instruments::MappedWords;
use super::live_instruments::InstrumentsNow;
use crate::Result;
use crate::client::{is_aggregate_word, totals};
use crate::process::tsc;

/// Counts by key, and the objects that were loaded later, with all of their loads.
pub(super) type LastCounts = (Vec<(u64, u64)>, Vec<LoadedPart<usize>>);

/// The words of all instruments, of several threads.
#[derive(Clone)]
pub(super) struct CacheWords(Arc<Mutex<InstrumentWords>>);

struct InstrumentWords {
    /// Those of the objects from the start.
    start: MappedWords,
    parts: LoadedParts<usize>,
    /// Loads that are mapped, each with the index of its part.
    loads: Vec<(usize, MappedWords)>,
    /// Rings of loads that have ended, and the number of their first function.
    left: Vec<(SampleRings, u32)>,
    /// Stacks of loads that have ended.
    left_stacks: KeptStacks,
}

impl InstrumentWords {
    /// The stacks of all words that are mapped.
    fn stacks(&mut self) -> impl Iterator<Item = &mut NumberedStacks> {
        let loads = self.loads.iter_mut().map(|(_, words)| &mut words.stacks);
        std::iter::once(&mut self.start.stacks).chain(loads)
    }

    /// The hits up to now, by recorded identifier, and words of aggregates of the objects from the start.
    fn counts(&self) -> Result<Vec<(u64, u64)>> {
        let mut all = self.start.counts()?;
        all.extend(self.parts.counts(&self.mapped()?));
        Ok(all)
    }

    /// The counts of loads that are mapped.
    fn mapped(&self) -> Result<Vec<MappedCounts>> {
        let loads = self.loads.iter();
        let loads = loads.map(|(part, words)| Ok((*part, words.counts()?)));
        loads.collect()
    }

    /// The hits and totals up to now; `plan` is of the objects from the start.
    fn now(&self, plan: &Plan) -> Result<InstrumentsNow> {
        let (tsc, start, mapped) = (tsc(), self.start.counts()?, self.mapped()?);
        let mut totals = totals(plan, &start.iter().copied().collect());
        self.parts.append_totals(&mut totals, &mapped);
        let counts = start.into_iter().filter(|(id, _)| !is_aggregate_word(*id));
        let counts = counts.chain(self.parts.counts(&mapped));
        let parts = self.parts.iter();
        Ok(InstrumentsNow {
            tsc,
            counts: counts.collect(),
            totals,
            parts: parts.map(|part| (part.kept, part.first_major)).collect(),
        })
    }

    /// Takes all samples, then the stacks that they have.
    fn take_samples(&mut self, recorder: &mut Recorder) -> Result<()> {
        let parts = &self.parts;
        recorder.describe_later(parts.plans());
        let loads = self.loads.iter_mut();
        let loads = loads.map(|(part, words)| (&mut words.rings, parts.first_major(*part)));
        let left = self.left.iter_mut().map(|(rings, major)| (rings, *major));
        recorder.take_all(Some(&mut self.start.rings), loads.chain(left))?;
        self.left.clear();
        let left = std::mem::take(&mut self.left_stacks);
        recorder.take_stacks(left, self.stacks())
    }

    /// Keeps the counts of loads that no thread adds to any more.
    fn end(&mut self, is_over: impl Fn(&MappedWords) -> bool) -> Result<()> {
        for (part, mut words) in self.loads.extract_if(.., |(_, words)| is_over(words)) {
            words.rings.end();
            self.left_stacks.add(words.stacks.report()?);
            self.parts.add_load(part, words.counts()?);
            self.left.push((words.rings, self.parts.first_major(part)));
        }
        Ok(())
    }
}

impl CacheWords {
    /// Begins with those of the objects from the start; objects that are loaded later are numbered from `next` on.
    pub(super) fn new(start: MappedWords, next: NextNumbers) -> Self {
        Self(Arc::new(Mutex::new(InstrumentWords {
            start,
            parts: LoadedParts::after(next),
            loads: Vec::new(),
            left: Vec::new(),
            left_stacks: KeptStacks::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, InstrumentWords> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a load of an object.
    ///
    /// # Errors
    /// [`crate::Error::Plan`] if identifiers have no numbers for its functions.
    pub(super) fn begin_load(
        &self,
        object: &Object,
        plan: VerifiedPlan,
        kept: usize,
        words: MappedWords,
    ) -> Result<()> {
        let mut all = self.lock();
        let (part, _) = all.parts.part(object, plan, kept)?;
        all.loads.push((part, words));
        Ok(())
    }

    /// Ends the load whose words are at a span, which no thread executes any more.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if its words cannot be read.
    pub(super) fn end_load(&self, span: Span) -> Result<()> {
        self.lock().end(|words| words.start == span.start)
    }

    /// The hits up to now, by recorded identifier, and words of aggregates of the objects from the start.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if they cannot be read.
    pub(super) fn counts(&self) -> Result<Vec<(u64, u64)>> {
        self.lock().counts()
    }

    /// The hits and totals up to now; `plan` is of the objects from the start.
    ///
    /// # Errors
    /// As [`counts`](Self::counts).
    pub(super) fn now(&self, plan: &Plan) -> Result<InstrumentsNow> {
        self.lock().now(plan)
    }

    /// Has stacks numbered with the objects that the process has loaded.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the tables cannot be written.
    pub(super) fn refresh_stacks(&self) -> Result<()> {
        let mut all = self.lock();
        all.stacks().try_for_each(NumberedStacks::refresh)
    }

    /// Takes the samples and stacks that there are.
    ///
    /// # Errors
    /// [`crate::Error::Target`] if the process has written over the words of its rings.
    pub(super) fn take_samples(&self, recorder: &mut Recorder) -> Result<()> {
        self.lock().take_samples(recorder)?;
        recorder.deliver_settled();
        Ok(())
    }

    /// Takes the rest, once no thread executes instruments: samples, counts, and the parts with all of their loads; `plan` is
    /// of the objects from the start.
    ///
    /// # Errors
    /// As [`counts`](Self::counts) and [`take_samples`](Self::take_samples).
    pub(super) fn finish(&self, recorder: &mut Recorder, plan: &Plan) -> Result<LastCounts> {
        let end = tsc();
        let mut all = self.lock();
        all.start.rings.end();
        all.end(|_| true)?;
        all.take_samples(recorder)?;
        recorder.deliver_rest();
        let counts = all.counts()?;
        recorder.counts(&counts);
        recorder.splashes([(plan, 0)].into_iter().chain(all.parts.plans()), end);
        Ok((counts, all.parts.take()))
    }
}
