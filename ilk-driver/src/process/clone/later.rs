//! Objects that a process loads while it is in the cache: they are planned for when a thread first executes them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gilk_engine::Span;

use super::super::maps::MappedSpan;
use super::super::objects::{Object, ObjectChoice, objects, program_of};
use super::super::parts::LaterPlan;
use super::super::stopped::BETWEEN;
use super::super::subject::Subject;
use crate::Result;

/// Readings of objects that a process may be loading and unloading, at most.
const READINGS: usize = 50;

/// Plans for an object that a process has loaded; `None` if it has no place for the instruments. What is kept with a plan
/// is a number of the planner's.
pub type CachePlanner<'p> =
    dyn FnMut(&Subject) -> std::result::Result<Option<LaterPlan<usize>>, String> + Send + 'p;

/// The choice of the objects that are instrumented when they are loaded, and their planner.
pub struct LaterInstruments<'p> {
    /// Functions and objects that the session names.
    pub choice: ObjectChoice,
    /// Plans for one of them.
    pub planner: Box<CachePlanner<'p>>,
}

impl Subject {
    /// Reads the chosen objects that a process has mapped, but for those that it loads or unloads at this moment: they are
    /// met when they are executed. Returns the patterns of libraries, too, of which none is mapped.
    ///
    /// # Errors
    /// As [`Self::read_mapped`].
    pub fn read_steady(pid: u32, choice: &ObjectChoice) -> Result<(Self, Vec<String>)> {
        let before = objects(pid)?;
        for _ in 0..READINGS {
            let read = Self::read_mapped(pid, choice);
            let Err(error) = read else {
                return read;
            };
            let now = objects(pid)?;
            let [gone, new] = [(&before, &now), (&now, &before)].map(|(some, others)| {
                let is_alone = |object: &&Object| !others.iter().any(|other| other.has(object));
                let alone = some.iter().filter(is_alone).cloned();
                alone.collect::<Vec<Object>>()
            });
            let rest = choice.without(&[gone, new].concat());
            if rest != *choice {
                return Self::read_mapped(pid, &rest);
            }
            if !choice.has_libraries() {
                return Err(error);
            }
            std::thread::sleep(BETWEEN);
        }
        Self::read_mapped(pid, choice)
    }
}

/// The objects that a process has mapped, as far as they were met.
pub(super) struct LaterObjects<'p> {
    chosen: LaterInstruments<'p>,
    program: PathBuf,
    /// Mappings of code that need no look at their objects any more.
    settled: Vec<MappedSpan>,
    /// Chosen objects that are left alone.
    left_alone: Vec<Object>,
    /// The reasons, each once.
    notes: BTreeSet<String>,
}

impl<'p> LaterObjects<'p> {
    /// None was met yet.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the program of the process is not known.
    pub(super) fn new(pid: u32, chosen: LaterInstruments<'p>) -> Result<Self> {
        Ok(Self {
            chosen,
            program: program_of(pid)?,
            settled: Vec::new(),
            left_alone: Vec::new(),
            notes: BTreeSet::new(),
        })
    }

    pub(super) fn planner(&mut self) -> &mut CachePlanner<'p> {
        &mut *self.chosen.planner
    }

    /// Returns whether code needs no look at its object.
    pub(super) fn is_settled(&self, code: &MappedSpan) -> bool {
        self.settled.contains(code)
    }

    /// Returns whether an object is instrumented when it is loaded.
    pub(super) fn is_chosen(&self, object: &Object) -> bool {
        !object.is_program(&self.program) && self.chosen.choice.takes_library(object.name())
    }

    /// Returns whether a chosen object is left alone.
    pub(super) fn is_left_alone(&self, object: &Object) -> bool {
        self.left_alone.iter().any(|one| one.is(object))
    }

    /// Notes that code needs no look at its object any more, as long as it is mapped.
    pub(super) fn settle(&mut self, code: MappedSpan) {
        self.settled.push(code);
    }

    /// Leaves a chosen object alone.
    pub(super) fn leave_alone(&mut self, object: Object, why: &str) {
        self.note(&object.path, why);
        self.left_alone.push(object);
    }

    /// Notes why an object has no instruments.
    pub(super) fn note(&mut self, object: &str, why: &str) {
        self.notes.insert(format!("{object}: {why}"));
    }

    /// Forgets what was unmapped: mappings that have a byte of some spans, and objects. What is mapped still is
    /// translated, and has no other instruments from then on.
    pub(super) fn forget(&mut self, gone: &[Span], is_gone: impl Fn(&Object) -> bool) {
        let is_over = |one: &MappedSpan| gone.iter().any(|span| span.overlaps(one.span));
        self.settled.retain(|one| !is_over(one));
        self.left_alone.retain(|object| !is_gone(object));
    }

    /// Gives away the reasons why objects have no instruments.
    pub(super) fn take_notes(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.notes)
    }
}
