//! The types that instruments of a process name, which are read from its debug information.

use std::collections::BTreeSet;

use gilk_engine::code::FunctionId;
use gilk_engine::{Image, Session};
use gilk_instruments::Source;

use super::parse::{Group, Script};
use super::pattern::{is_pattern, matches};
use super::point::{FunctionEvent, PointKind};

/// Types of objects that instruments name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypesWanted {
    /// Functions whose parameters or results are used.
    pub functions: BTreeSet<FunctionId>,
    /// Names of structures, unions and enumerations that something is cast to.
    pub names: BTreeSet<String>,
}

impl TypesWanted {
    /// Returns the types that a script names, in an image.
    #[must_use]
    pub fn of_script(script: &Script, image: &Image) -> Self {
        let mut wanted = Self::default();
        for (index, clause) in script.clauses.iter().enumerate() {
            for point in &clause.points {
                let event = match &point.kind {
                    PointKind::Function(event, _) => Some(*event),
                    PointKind::Tracepoint(_) => Some(FunctionEvent::Entry),
                    _ => None,
                };
                let group = Group::of(vec![(index, event)]);
                // One that is wrong is refused with its faults later.
                let Ok(source) = Source::parse(&script.aligned(&group)) else {
                    continue;
                };
                wanted.name(&source);
                // The arguments of a static probe are its note's.
                let is_static = matches!(point.kind, PointKind::Static(_));
                if let Some(pattern) = point.kind.pattern()
                    && source.depends_on_function()
                    && !is_static
                {
                    wanted.add(image, pattern);
                }
            }
        }
        wanted
    }

    /// Returns the types that the sources of a session name, in an image.
    #[must_use]
    pub fn of_session(session: &Session, image: &Image) -> Self {
        let mut wanted = Self::default();
        for (name, text) in &session.sources {
            let Ok(source) = Source::parse(text) else {
                continue;
            };
            wanted.name(&source);
            if source.depends_on_function() {
                let placements = session.placements.iter();
                let placed = placements.filter(|placement| *placement.instrument == **name);
                for placement in placed {
                    wanted.add(image, &placement.function);
                }
            }
        }
        wanted
    }

    /// Returns whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.names.is_empty()
    }

    fn name(&mut self, source: &Source) {
        let names = source.type_names().into_iter();
        self.names.extend(names.map(str::to_owned));
    }

    fn add(&mut self, image: &Image, pattern: &str) {
        if is_pattern(pattern) {
            let functions = image.functions().iter();
            let matching = functions.filter(|function| matches(pattern, &function.name));
            self.functions.extend(matching.map(|function| function.id));
        } else if let Ok(function) = image.function_named(pattern) {
            self.functions.insert(function.id);
        }
    }
}
