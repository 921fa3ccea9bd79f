//! Plans of sessions in a process: the objects that placements are looked for in, and as many words as a plan needs.

use std::sync::Arc;

use gilk_engine::plan::Watch;
use gilk_engine::{Error as EngineError, Session};
use gilk_instruments::Library;

use super::objects::{Object, ObjectChoice, objects};
use super::replaced::replacements;
use super::reserved::Reserved;
use super::stacks::{Callers, numbers_stacks};
use super::subject::Subject;
use crate::possible::PossiblePlan;
use crate::script::matches;
use crate::{Error, Result};

/// Words of each CPU that a process is given at first, and at most.
const WORDS: [u32; 2] = [64, 1 << 20];

/// The objects that placements are looked for in.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The program, too, and all that the process has mapped at the start; else a library that it has loaded.
    pub is_start: bool,
    /// Names of libraries.
    libraries: Vec<String>,
}

impl Scope {
    /// The objects that a process has mapped at the start, as far as they are chosen.
    #[must_use]
    pub fn at_start(subject: &Subject, choice: &ObjectChoice) -> Self {
        Self::of(subject, choice, true)
    }

    /// Chosen libraries that a process has loaded.
    #[must_use]
    pub fn later(subject: &Subject, choice: &ObjectChoice) -> Self {
        Self::of(subject, choice, false)
    }

    fn of(subject: &Subject, choice: &ObjectChoice, is_start: bool) -> Self {
        Self {
            is_start,
            libraries: subject.libraries(choice).map(str::to_owned).collect(),
        }
    }

    /// Returns it without libraries that are not mapped any more.
    pub(super) fn still_mapped(mut self, subject: &Subject) -> Result<Self> {
        let now = objects(subject.pid)?;
        let is_mapped = |object: &Object| now.iter().any(|one| one.is(object));
        let mapped = subject.objects.iter().filter(|object| is_mapped(object));
        let mapped: Vec<&str> = mapped.map(Object::name).collect();
        self.libraries
            .retain(|name| mapped.contains(&name.as_str()));
        Ok(self)
    }

    /// Returns whether a function, or the functions of a pattern, may be there.
    #[must_use]
    pub fn has(&self, designation: &str) -> bool {
        match designation.split_once(':') {
            Some((library, _)) => self.libraries.iter().any(|name| matches(library, name)),
            None => self.is_start,
        }
    }

    /// Returns whether all placements of a session may be there.
    pub(super) fn has_all(&self, session: &Session) -> bool {
        let mut placements = session.placements.iter();
        placements.all(|placement| self.has(&placement.function))
    }

    /// Returns a session with its placements that may be there.
    #[must_use]
    pub fn within(&self, session: &Session) -> Session {
        let mut session = session.clone();
        let placements = &mut session.placements;
        placements.retain(|placement| self.has(&placement.function));
        session
    }
}

impl ObjectChoice {
    /// The objects that the functions of a session are in.
    #[must_use]
    pub fn of_session(session: &Session) -> Self {
        let placements = session.placements.iter();
        Self::of(placements.map(|placement| &*placement.function))
    }
}

impl Subject {
    /// Plans a session for objects of a process, with as many words as the plan needs. Placements that are refused are left
    /// out, unless `is_strict`.
    ///
    /// # Errors
    /// As [`PossiblePlan::of`], [`Subject::reserve`] and [`Reserved::with_replacements`]; [`Error::Target`] if a function
    /// would not be replaced.
    pub fn planned(
        &self,
        (session, library): (&Session, &Library),
        is_strict: bool,
        watch: &mut Watch<'_>,
    ) -> Result<(Reserved, PossiblePlan)> {
        let [least, most] = WORDS;
        // A counter is one word; other instruments have more.
        let placements = u32::try_from(session.placements.len()).unwrap_or(most);
        let mut words = placements.saturating_add(least).min(most);
        let mut read = None;
        loop {
            let reserved = self.reserve_with(words, read.clone())?;
            let reserved = reserved.for_session(session, library);
            let reserved = reserved.with_replacements(self, session, library)?;
            let target = (&self.image, &reserved.layout);
            match PossiblePlan::of(target, (session, library), is_strict, watch) {
                // The number of rows decides the layout, too.
                Ok(planned) if read.is_none() && numbers_stacks(planned.plan.plan()) => {
                    read = Some(Arc::new(Callers::read(self.pid)?));
                }
                Ok(planned) => {
                    let all_replaced = replacements(&planned.session, library)
                        .map(|(placement, _)| placement)
                        .eq(replacements(session, library).map(|(placement, _)| placement));
                    if !all_replaced {
                        let left_out = planned.left_out.trim_end();
                        let what = format!("A function is not replaced:\n{left_out}");
                        return Err(Error::Target(what));
                    }
                    return Ok((reserved, planned));
                }
                // The number of words decides the layout.
                Err(Error::Engine(EngineError::Full { needed, .. })) if words < most => {
                    let needed = u32::try_from(needed).unwrap_or(most);
                    words = needed.max(words.saturating_mul(4)).min(most);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
