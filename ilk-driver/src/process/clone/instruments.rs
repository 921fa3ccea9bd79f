//! Instruments in the cache: those of a plan, whose code is in blocks of the cache in place of patches of splices, and
//! their words and rings, which the process maps.

use std::fs::File;
use std::sync::Arc;

use gilk_engine::cache::CacheInstruments;
use gilk_engine::layout::ReadGate;
use gilk_engine::verify::fragments::InstrumentProof;
use gilk_engine::{Addr, Session, Span, VerifiedPlan};

use super::super::mapped::{counters, place_words};
use super::super::objects::Object;
use super::super::parts::NextNumbers;
use super::super::record::text_of;
use super::super::refused;
use super::super::registered::Registered;
use super::super::remote::Remote;
use super::super::reserved::{Reserved, STORAGE};
use super::super::rings::SampleRings;
use super::super::stacks::NumberedStacks;
use super::super::subject::Subject;
use super::super::words::PlannedWords;
use super::files::{close_file, create_file};
use crate::{Error, Result};

/// Instruments for the code cache of one process.
#[derive(Clone)]
pub struct CloneInstruments {
    pid: u32,
    pub(super) translated: Arc<CacheInstruments>,
    pub(super) proof: Arc<InstrumentProof>,
    planned: PlannedWords,
    /// Words, rings, and the table for variables.
    span: Span,
    /// Words that end reads of memory, also of objects that are loaded later.
    pub(super) gate: ReadGate,
    saves_all: bool,
    /// An instrument reads memory.
    pub(super) reads: bool,
    /// The objects that the plan is for, as far as they are mapped.
    pub(super) objects: Vec<Object>,
    pub(super) registered: Registered,
    /// The numbers of objects that are loaded later, after those of the plan.
    pub(super) next: NextNumbers,
}

impl CloneInstruments {
    /// Takes the instruments of a plan, which was made for the subject's image and the reserved layout.
    ///
    /// # Errors
    /// [`Error::Process`] by the rule `not-in-cache` for an instrument that the cache does not run; [`Error::Target`] if
    /// one begins or ends within the session; [`Error::Plan`] if the plan is of another process.
    pub fn new(
        subject: Subject,
        reserved: &Reserved,
        plan: &VerifiedPlan,
        session: &Session,
    ) -> Result<Self> {
        let how = (reserved.gate(), session.save_all);
        Self::of(subject, reserved, plan, how)
    }

    /// Takes those of an object that was loaded later, whose reads of memory end with those of these.
    pub(super) fn later(
        &self,
        subject: Subject,
        reserved: &Reserved,
        plan: &VerifiedPlan,
    ) -> Result<Self> {
        Self::of(subject, reserved, plan, (self.gate, self.saves_all))
    }

    fn of(
        subject: Subject,
        reserved: &Reserved,
        plan: &VerifiedPlan,
        (gate, saves_all): (ReadGate, bool),
    ) -> Result<Self> {
        text_of(plan.plan())?;
        let (objects, registered) = (subject.objects.clone(), subject.registered);
        let (pid, image) = subject.into_image();
        reserved.check(plan.plan(), &image)?;
        let translated = CacheInstruments::of(&image, plan.plan(), gate, saves_all);
        let translated = translated.map_err(|refusal| {
            refused(
                pid,
                format!("an instrument is not in the code cache: {refusal}"),
            )
        })?;
        let reads = translated.read_memory();
        let image = Arc::new(image);
        let proof = InstrumentProof::new(&image, plan, gate).map_err(|(at, why)| {
            let why = format!("the instruments of the code cache are not proved at {at}: {why}");
            Error::Plan { reason: why }
        })?;
        Ok(Self {
            pid,
            translated: Arc::new(translated),
            proof: Arc::new(proof),
            planned: PlannedWords::of(plan.plan(), reserved),
            span: reserved.words,
            gate,
            saves_all,
            reads,
            objects,
            registered,
            next: NextNumbers::after(plan.plan()),
        })
    }

    /// Has no instruments any more in objects that are mapped no more.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&Object) -> bool) {
        let (gone, rest): (Vec<Object>, _) = self.objects.drain(..).partition(is_gone);
        self.objects = rest;
        for object in &gone {
            self.translated = Arc::new(self.translated.outside(object.span));
            self.proof = Arc::new(self.proof.outside(object.span));
        }
    }

    /// The addresses of words and rings.
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Maps words and rings into a stopped process, and opens the rings.
    pub(super) fn map(&self, remote: &Remote<'_>) -> Result<MappedWords> {
        let number = create_file(remote)?;
        let file = counters(self.pid, number, self.span.len()).and_then(|file| {
            place_words(remote, (self.span, STORAGE), number)?;
            Ok(file)
        });
        close_file(remote, number)?;
        let file = file?;
        let rings = SampleRings::open(&file, &self.planned.layout).map_err(|error| {
            refused(
                self.pid,
                format!("its rings of samples cannot be opened ({error})"),
            )
        })?;
        let start = self.span.start;
        let stacks = self.planned.write_callers(self.pid, &file, start)?;
        Ok(MappedWords {
            pid: self.pid,
            planned: self.planned.clone(),
            start,
            file,
            rings,
            stacks,
        })
    }
}

/// The words of instruments, which outlive the process.
pub(super) struct MappedWords {
    pid: u32,
    planned: PlannedWords,
    /// Their first address.
    pub(super) start: Addr,
    file: File,
    /// The reader of the samples.
    pub(super) rings: SampleRings,
    /// The stacks that the instruments number.
    pub(super) stacks: NumberedStacks,
}

impl MappedWords {
    /// The hits and totals up to now, by key.
    pub(super) fn counts(&self) -> Result<Vec<(u64, u64)>> {
        self.planned.counts(self.pid, &self.file, self.start)
    }
}
