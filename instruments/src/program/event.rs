//! Events that the processor counts.

/// An event that a counter of the processor's counts, by perf's names
/// (`enum perf_hw_id` of include/uapi/linux/perf_event.h).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Event {
    /// Cycles of the processor, of as many a second as it runs at.
    Cycles,
    /// Instructions that were completed.
    Instructions,
    /// Accesses to the last level of cache.
    CacheReferences,
    /// Those that it did not have.
    CacheMisses,
    /// Branches that were completed.
    Branches,
    /// Those that were foreseen wrongly.
    BranchMisses,
    /// Cycles of a clock that does not change.
    RefCycles,
}

impl Event {
    /// All of them, in the order in which an agent opens them: those first that have counters of their own.
    pub const ALL: [Self; 7] = [
        Self::Cycles,
        Self::Instructions,
        Self::RefCycles,
        Self::CacheReferences,
        Self::CacheMisses,
        Self::Branches,
        Self::BranchMisses,
    ];

    /// Its word in the language.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::CacheReferences => "cache_references",
            Self::CacheMisses => "cache_misses",
            Self::Branches => "branches",
            Self::BranchMisses => "branch_misses",
            Self::RefCycles => "ref_cycles",
        }
    }

    /// The event of a word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.word() == word)
    }

    /// Its number among perf's events of hardware.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Cycles => 0,
            Self::Instructions => 1,
            Self::CacheReferences => 2,
            Self::CacheMisses => 3,
            Self::Branches => 4,
            Self::BranchMisses => 5,
            Self::RefCycles => 9,
        }
    }

    /// The event of a number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_find_their_events() {
        for event in Event::ALL {
            assert_eq!(Event::named(event.word()), Some(event));
            assert_eq!(Event::numbered(event.number()), Some(event));
        }
        assert_eq!(Event::named("bus_cycles"), None);
        assert_eq!(Event::numbered(6), None);
    }
}
