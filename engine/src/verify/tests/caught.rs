//! Mutants of one kind, and the rules that may catch them.
//!
//! A mutant that is refused for a reason that cannot have anything to do with it is a defect of the verifier
//! or of the test, as one that passes is.

use std::collections::BTreeMap;
use std::fmt;

use crate::Image;
use crate::plan::Plan;
use crate::verify::reason::RULES;
use crate::verify::verify;

/// Verdicts on the mutants of one kind. Printed when a test fails.
pub(crate) struct Caught {
    kind: &'static str,
    /// Rules that may catch such a mutant.
    allowed: Vec<&'static str>,
    /// Violations by rule.
    by_rule: BTreeMap<&'static str, usize>,
    mutants: usize,
    refused: usize,
}

impl Caught {
    /// No mutants yet of a kind that these groups of rules may catch.
    #[track_caller]
    pub(crate) fn new(kind: &'static str, groups: &[&[&'static str]]) -> Self {
        let allowed = groups.concat();
        for rule in &allowed {
            assert!(RULES.contains(rule), "the verifier has no rule {rule}");
        }
        assert!(!allowed.contains(&"Internal"), "a defect catches nothing");
        Self {
            kind,
            allowed,
            by_rule: BTreeMap::new(),
            mutants: 0,
            refused: 0,
        }
    }

    /// Verifies a mutant. Returns whether it is refused, and fails unless every violation is of an allowed rule.
    #[track_caller]
    #[must_use]
    pub(crate) fn refuses(&mut self, image: &Image, mutant: Plan, what: impl fmt::Display) -> bool {
        self.mutants += 1;
        let Err(violations) = verify(image, mutant) else {
            return false;
        };
        self.refused += 1;
        for violation in &violations {
            let rule = violation.reason().rule();
            *self.by_rule.entry(rule).or_default() += 1;
            assert!(
                self.allowed.contains(&rule),
                "{}: {what}: {rule} may not catch it: {violation}",
                self.kind
            );
        }
        true
    }

    /// Verifies a mutant that must be refused, by an allowed rule.
    #[track_caller]
    pub(crate) fn must_refuse(&mut self, image: &Image, mutant: Plan, what: impl fmt::Display) {
        let refused = self.refuses(image, mutant, &what);
        assert!(refused, "{}: {what}: it passes", self.kind);
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{self}");
        }
    }
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} of {} mutants refused; violations by rule:",
            self.kind, self.refused, self.mutants
        )?;
        for (rule, count) in &self.by_rule {
            writeln!(f, "{count:8} {rule}")?;
        }
        Ok(())
    }
}

/// Rules of the target, the layout and the lists of a plan.
pub(crate) const PLAN: &[&str] = &[
    "ForeignRelease",
    "Duration",
    "RingSize",
    "TableSize",
    "ArenaInText",
    "ArenasOverlap",
    "OverlappingWords",
    "OutsideArena",
    "PatchesOverlap",
    "NumberedFunction",
    "NoPatch",
    "OutsideImage",
];

/// Rules of the original code that is displaced, copied or overwritten.
pub(crate) const SITES: &[&str] = &[
    "Unread",
    "Undecodable",
    "Routine",
    "StrayBranch",
    "NoFunction",
    "OutsideFunction",
    "NotWhole",
    "OverwrittenCount",
    "FilledByte",
    "SpliceTooLong",
    "NotTracers",
    "NotOverCall",
    "EndsEarly",
    "ContinuationStart",
    "ContinuationOrder",
    "FixedSite",
    "FixedSiteAt",
    "Immovable",
    "ExposedByTracer",
    "BeforeSplice",
    "ForeignDisplacement",
    "TargetInside",
    "ReturnInside",
    "TracerEntry",
    "EntersPadding",
    "TakesSpeculationStop",
    "NotAfterFunction",
    "NotBetweenFunctions",
    "SymbolInside",
    "PaddingUnread",
    "NotPadding",
    "PastFunction",
    "BeginsFunction",
    "Executes",
    "SitesOverlap",
    "BounceOrder",
    "WritesOverlap",
    "NoSite",
    "NoBounce",
];

/// Rules of the lists of a patch.
pub(crate) const LISTS: &[&str] = &[
    "PointOrder",
    "UnplannedInstrument",
    "ForeignPoint",
    "EmptyPoint",
    "NoNativeCode",
];

/// Rules of the code of patches.
pub(crate) const CODE: &[&str] = &[
    "StackDepth",
    "Loops",
    "TooComplex",
    "PastEnd",
    "InsideInstruction",
    "NoInstruction",
    "Unreached",
    "JumpCircle",
    "Unfinished",
    "Awaited",
    "NotOriginal",
    "Leaves",
    "BytesPushed",
    "NotRestored",
    "NothingToCopy",
    "ReturnHalf",
    "ReturnUnguarded",
    "Uncopyable",
    "SpoiltOperand",
    "UnknownKey",
    "KeyUndecided",
    "OtherCallee",
    "SpeculatesPastEnd",
    "UndecidedSite",
    "OtherTarget",
    "RowOrder",
    "UselessRows",
    "NoRow",
    "OtherRow",
    "FramePointer",
    "MayFault",
    "HookOnFault",
    "FaultsTwice",
    "FaultOrder",
    "TooManyFaults",
    "NeverFaults",
    "UnplannedFault",
    "OtherRecovery",
    "OtherEntry",
    "EntryByOther",
    "Prefix",
    "UntestedExchange",
    "PopsOriginal",
    "OtherFlags",
    "RereadsSample",
    "ForeignWord",
    "ForeignMemory",
    "VariableShift",
    "LongShift",
    "MovesStack",
    "WritesWord",
    "UnhookedStore",
    "UnhookedCount",
    "UnhookedReservation",
    "NoEntry",
    "UnlockedEntry",
    "UnlockedRing",
    "OtherExchange",
    "DeepStack",
    "Instruction",
    "NarrowMemory",
    "OtherSegment",
    "UnknownWord",
    "ForeignStack",
    "AddressRegisters",
    "Divides",
    "ReadsTwice",
    "StaleEntry",
    "UserMemory",
    "OtherLoad",
    "UnknownEvent",
    "OtherEvent",
    "OtherStack",
    "OtherUserRead",
    "OtherFrame",
    "UnhookedFailure",
    "NotFailed",
    "CountsLoss",
    "CountsForeign",
    "NeedlessSlot",
    "ReservesOtherHead",
    "HeadStep",
    "LongLine",
    "RingFull",
    "StaleClock",
    "EarlyMark",
    "OtherMark",
    "OtherTime",
    "OtherIdentifier",
    "OutsideSlot",
    "StoresForeign",
    "OtherValue",
    "OtherMaximum",
    "NoMaximum",
    "OtherKept",
    "NotLarger",
    "EarlyWrite",
    "OverflowCount",
    "OutsideSample",
    "Undetermined",
    "OutsideTable",
    "OtherVariable",
    "OtherStored",
    "NoAggregate",
    "AggregateWrite",
    "OtherBucket",
    "HistogramBank",
    "OtherAggregate",
    "OtherAmount",
    "ValuesBank",
    "OtherValuesBucket",
    "OtherPart",
    "KeepsNothing",
    "OtherKey",
    "LockOrder",
    "ForeignEntry",
    "NoLockedEntry",
    "OutsideEntry",
    "StoresNothing",
    "EntryOrder",
    "OtherOwner",
    "UnplannedCall",
    "OtherFunction",
    "OtherParameter",
];

/// Rules of instruments and their hooks.
pub(crate) const INSTRUMENTS: &[&str] = &[
    "IdentifierBits",
    "SameIdentifier",
    "NeedlessCounter",
    "SameCounter",
    "CounterBank",
    "TwoPrograms",
    "NoProbe",
    "InstrumentOrder",
    "LoadsInHandler",
    "BlockNumber",
    "BlockBoundary",
    "FaultsToNext",
    "ReturnedUnknown",
    "StackArgument",
    "ReplacedInside",
    "ReplacedReliedOn",
    "ArgumentGone",
    "NotTwoWay",
    "EntersBlock",
    "LeavesBlock",
    "InstrumentFunction",
];

/// Rules of the hits of instruments while splices are in place.
pub(crate) const HITS: &[&str] = &["WrongHits", "NothingOnEdge", "LeavesIntoSite", "OtherEdges"];

/// Rules of batches and their writes.
pub(crate) const POKES: &[&str] = &[
    "UnsortedDependences",
    "MissingDependence",
    "CyclicDependence",
    "BatchTime",
    "PokeCount",
    "PokeOrder",
    "PokedTwice",
    "NoPart",
    "PokeLength",
    "OtherBytes",
    "NoPatchNumber",
    "PatchOfSite",
    "HookedDetour",
    "PokeKind",
    "NotRestoredBytes",
    "PokeOverwritten",
    "PokeRank",
    "NotInPlace",
    "OtherBounce",
    "StillInPlace",
    "SameRank",
    "NotShort",
    "NotSplice",
    "NotJump",
    "NotCall",
    "NotDue",
    "RunsAtPoints",
    "LeftInPlace",
    "NoBatchAt",
];
