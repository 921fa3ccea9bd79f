//! Groups of the list of instruments, by what they measure.

use gilk_instruments::{Definition, Stand};
use gilk_samples::Meaning;

use crate::icons::Icon;

/// A group, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InstrumentGroup {
    /// The session's own.
    Session,
    Counts,
    Times,
    Values,
    Branches,
    Calls,
    Threads,
    /// Functions of object files that replace functions of a process.
    Replacements,
}

impl InstrumentGroup {
    /// Returns the group of an instrument; `own` if it belongs to the session.
    pub(crate) fn of(definition: &Definition, own: bool) -> Self {
        if own {
            return Self::Session;
        }
        if definition.replaces() {
            return Self::Replacements;
        }
        // Instruments whose subject is not the kind of their values.
        match definition.name.as_str() {
            "lock-retries" | "lock-wait" | "running-thread" | "thread-name" => {
                return Self::Threads;
            }
            "coverage" | "edge-coverage" => return Self::Branches,
            "caller" | "call-trace" | "elapsed-when-called" => return Self::Calls,
            "event-totals" => return Self::Values,
            _ => {}
        }
        match (definition.stand(), definition.meaning) {
            (Stand::Branch, _) | (_, Meaning::Block) => Self::Branches,
            (_, Meaning::Level) => Self::Threads,
            (_, Meaning::Duration | Meaning::Event) => Self::Times,
            (_, Meaning::Count) => Self::Counts,
            _ => Self::Values,
        }
    }

    /// Returns its heading.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Session => "Of this session",
            Self::Counts => "Counts",
            Self::Times => "Times",
            Self::Values => "Values",
            Self::Branches => "Branches and coverage",
            Self::Calls => "Calls",
            Self::Threads => "Locks and threads",
            Self::Replacements => "Replacements of functions",
        }
    }

    /// Returns the icon of its instruments.
    pub(crate) const fn icon(self) -> Icon {
        match self {
            Self::Session => Icon::Pencil,
            Self::Counts => Icon::Tally,
            Self::Times => Icon::Clock,
            Self::Values => Icon::Bars,
            Self::Branches => Icon::Branch,
            Self::Calls => Icon::Nested,
            Self::Threads => Icon::Lock,
            Self::Replacements => Icon::Branch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_instruments::Library;
    use std::collections::BTreeMap;

    #[test]
    fn no_group_of_the_library_is_longer_than_a_screen() {
        let library = Library::builtin().unwrap();
        let mut sizes: BTreeMap<InstrumentGroup, usize> = BTreeMap::new();
        for definition in library.iter() {
            *sizes
                .entry(InstrumentGroup::of(definition, false))
                .or_default() += 1;
        }
        assert_eq!(sizes.len(), 6, "{sizes:?}");
        assert!(sizes.values().all(|&size| size <= 12), "{sizes:?}");
        let of = |name| InstrumentGroup::of(library.get(name).unwrap(), false);
        assert_eq!(of("elapsed"), InstrumentGroup::Times);
        assert_eq!(of("branch"), InstrumentGroup::Branches);
        assert_eq!(of("argument-0"), InstrumentGroup::Values);
    }
}
