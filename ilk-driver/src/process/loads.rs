//! The objects that a process loads while a session runs in it: their plans, and their part of the recording.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use gilk_engine::Session;
use gilk_engine::plan::Stage;
use gilk_instruments::Library;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::totals::Totals;

use super::listener::Listener;
use super::{FollowedEnd, FollowedLoads, LaterPlan, LoadedPart, ObjectChoice, Scope, Subject};
use crate::Result;
use crate::client::{Event, TargetInfo, append_metadata, metadata};
use crate::possible::PossiblePlan;
use crate::script::TypesWanted;

/// Part of the plan for an object that its results need.
pub(super) struct KeptPlan {
    pub(super) session: Session,
    /// A line for each rule that left placements out.
    left_out: String,
}

/// The description of a recording, with the objects that were loaded so far.
pub(super) struct LoadedDescription<'r> {
    info: &'r TargetInfo,
    clock: Clock,
    described: Metadata,
    has_loaded: bool,
    /// Once the run has begun.
    listener: Option<Listener>,
}

impl<'r> LoadedDescription<'r> {
    /// The description of the objects from the start.
    pub(super) fn new(info: &'r TargetInfo, described: Metadata) -> Self {
        Self {
            info,
            clock: described.clock,
            described,
            has_loaded: false,
            listener: None,
        }
    }

    /// Reports loads from now on, and that there were some.
    pub(super) fn begin(&mut self, listener: Listener) {
        listener.describe(&self.described);
        let is_reported = listener.is_of_several();
        self.listener = Some(listener);
        if self.has_loaded && !is_reported {
            self.report();
        }
    }

    fn report(&self) {
        if let Some(listener) = &self.listener {
            listener.send(Event::Loaded(Box::new(self.described.clone())));
        }
    }

    fn add(&mut self, part: &LoadedPart<KeptPlan>) -> Result<()> {
        let session = &part.kept.session;
        let further = metadata(part.plan.plan(), session, self.info, self.clock)?;
        let placement = append_metadata(&mut self.described, &further, part.first_major)?;
        debug_assert_eq!(
            placement, part.first_placement,
            "all placements of a plan are planned"
        );
        self.has_loaded = true;
        self.report();
        Ok(())
    }

    /// Gives it away, if objects were loaded.
    pub(super) fn loaded(&self) -> Option<Metadata> {
        self.has_loaded.then(|| self.described.clone())
    }
}

/// A session whose placements are placed when their objects are loaded.
#[derive(Clone, Copy)]
pub(super) struct LoadedSession<'s> {
    pub(super) session: &'s Session,
    pub(super) library: &'s Library,
}

impl<'s> LoadedSession<'s> {
    /// The objects that the functions of the session are in.
    pub(super) fn choice(self) -> ObjectChoice {
        ObjectChoice::of_session(self.session)
    }

    /// Plans for the objects that the process loads, and adds each to a description.
    pub(super) fn loads<'l>(
        self,
        description: &'l RefCell<LoadedDescription<'_>>,
        is_over: &'l dyn Fn() -> bool,
    ) -> FollowedLoads<'l, KeptPlan>
    where
        's: 'l,
    {
        FollowedLoads {
            choice: self.choice(),
            planner: Box::new(move |subject: &Subject| {
                let planned = self.planned_later(subject, is_over);
                planned.map_err(|error| error.to_string())
            }),
            news: Box::new(move |part| description.borrow_mut().add(part)),
        }
    }

    /// Plans for an object that a process has loaded; `None` if no placement is in it.
    fn planned_later(
        self,
        subject: &Subject,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<LaterPlan<KeptPlan>>> {
        let session = Scope::later(subject, &self.choice()).within(self.session);
        if session.placements.is_empty() {
            return Ok(None);
        }
        subject.read_wanted_types(&session, is_over)?;
        let work = (&session, self.library);
        let (reserved, planned) = subject.planned(work, false, &mut watch(is_over))?;
        let PossiblePlan {
            plan,
            session,
            left_out,
            ..
        } = planned;
        let kept = KeptPlan { session, left_out };
        Ok(Some(LaterPlan {
            reserved,
            plan,
            kept,
        }))
    }

    /// Returns sentences about the objects that were loaded, those that were left alone, and those that were awaited.
    pub(super) fn notes_of_loads(
        self,
        start: &Session,
        end: &FollowedEnd<KeptPlan>,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        for part in &end.parts {
            let object = &part.object;
            notes.push(match part.loads.len() {
                1 => format!("{object} was loaded once."),
                times => format!("{object} was loaded {times} times."),
            });
            let left_out = part.kept.left_out.lines();
            notes.extend(left_out.map(|line| format!("{line}.")));
        }
        notes.extend(
            end.notes
                .iter()
                .map(|note| format!("Not instrumented: {}.", note.trim_end_matches('.'))),
        );
        let loaded = end.parts.iter().map(|part| &part.object);
        let loaded = loaded.chain(&end.notes);
        let loaded: BTreeSet<&str> = loaded.filter_map(|path| file_name(path)).collect();
        for library in awaited(self.session, start) {
            if !loaded.contains(library) {
                notes.push(format!(
                    "{library} was not loaded, so nothing was placed in it."
                ));
            }
        }
        notes
    }
}

/// Returns the name of the file whose path begins a line.
fn file_name(line: &str) -> Option<&str> {
    line.split(": ").next()?.rsplit('/').next()
}

/// Returns the libraries of a session in which nothing is placed at the start.
pub(super) fn awaited<'s>(session: &'s Session, start: &Session) -> BTreeSet<&'s str> {
    fn libraries(session: &Session) -> impl Iterator<Item = &str> {
        let placements = session.placements.iter();
        placements.filter_map(|one| Some(one.function.split_once(':')?.0))
    }
    let present: BTreeSet<&str> = libraries(start).collect();
    libraries(session)
        .filter(|library| !present.contains(library))
        .collect()
}

/// Returns why nothing at all would be measured, if so: nothing is placed at the start, and loads are not followed.
pub(super) fn nothing(
    pid: u32,
    awaited: &BTreeSet<&str>,
    (start, not_followed): (&Session, Option<&str>),
) -> Result<()> {
    let Some(why) = not_followed.filter(|_| start.placements.is_empty()) else {
        return Ok(());
    };
    let awaited: Vec<&str> = awaited.iter().copied().collect();
    Err(super::refused(
        pid,
        format!(
            "nothing is instrumented: it has not mapped {}, and objects that it loads later are not seen: {why}",
            awaited.join(", ")
        ),
    ))
}

impl Subject {
    /// Reads the types that the instruments of a session name, in the debug information of its objects.
    pub(super) fn read_wanted_types(
        &self,
        session: &Session,
        is_over: &dyn Fn() -> bool,
    ) -> Result<()> {
        let wanted = TypesWanted::of_session(session, self.image());
        if !wanted.is_empty() {
            // What is not read is refused by its name.
            let _unread = self.read_types(&wanted, &|_| !is_over())?;
        }
        Ok(())
    }
}

/// Adds the totals of objects that were loaded to those of the recording.
pub(super) fn append_totals(totals: &mut Totals, parts: &[LoadedPart<KeptPlan>]) {
    for part in parts {
        part.append_totals(totals, std::iter::empty());
    }
}

/// Ends a plan when the run is over.
pub(super) fn watch(is_over: &dyn Fn() -> bool) -> impl FnMut(Stage) -> ControlFlow<()> {
    move |_| match is_over() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}
