//! The rules of the verifier, as the reasons of its violations.

use thiserror::Error;

use crate::{Addr, InstrumentId};

/// Defines the variants with their text, which is the documentation of the rule too.
macro_rules! reasons {
    ($($variant:ident $({ $($field:ident: $type:ty),+ })? = $text:literal,)*) => {
        /// The rule that a plan breaks, and where. [`Display`](std::fmt::Display) is the end of a sentence
        /// that begins with the part of the plan.
        #[derive(Clone, Debug, PartialEq, Error)]
        #[non_exhaustive]
        pub enum Reason {
            $(
                #[doc = concat!("Rule: ", $text, ".")]
                #[error($text)]
                $variant $({
                    $(#[doc = concat!("The `", stringify!($field), "` of the text.")] $field: $type,)+
                })?,
            )*
        }

        /// The names of all rules.
        #[cfg(test)]
        pub(crate) const RULES: &[&str] = &[$(stringify!($variant)),*];

        impl Reason {
            fn own_rule(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                }
            }
        }
    };
}

reasons! {

    // The plan and its target.
    ForeignRelease { plan: String, image: String } = "the plan is for kernel {plan}, and the image is of {image}",
    Duration { seconds: f64 } = "its duration is {seconds} s",
    RingSize { slots_log2: u32, stride_log2: u32 } = "rings of 2^{slots_log2} slots cannot be 2^{stride_log2} bytes apart",
    RingOwner { why: &'static str } = "{why}",
    NoRuntime = "a process has no runtime but restartable sequences",
    SequenceRows { why: &'static str } = "the counters of its CPUs {why}",
    TrapInProcess = "a process has no handler of int3",
    KeyBits { free_bits: u8, busy_bit: u8 } = "keys of its storage have {free_bits} free low bits and are busy by bit {busy_bit}",
    RedZoneSize { bytes: u8 } = "its red zone has {bytes} bytes",
    TableSize { timers_log2: u32 } = "its table of storage has 2^{timers_log2} entries",
    ArenaInText { start: Addr, end: Addr } = "its arena, {start} to {end}, overlaps the text of the kernel",
    ArenasOverlap { start: Addr, end: Addr } = "its arena, {start} to {end}, overlaps another",
    OverlappingWords { first: u64, second: u64 } = "the per-CPU words at gs:{first:#x} and gs:{second:#x} overlap",
    SitesOverlap = "another site displaces some of the same bytes, or the sites are not in order",
    BounceOrder = "its bounces are not in order",
    WritesOverlap { first: Addr, second: Addr } = "the bytes it writes at {first} and at {second} overlap",
    OutsideArena { bytes: u64, start: Addr, end: Addr } = "its {bytes} bytes are not inside the arena, {start} to {end}",
    PatchesOverlap { patch: usize, at: Addr } = "it overlaps patch {patch} at {at}",
    NumberedFunction { number: usize, name: String } = "function {number}, {name}, does not have the number, name or blocks that the image gives it",
    NoSite = "no such site exists",
    NoBounce = "no such bounce exists",
    NoPatch = "no such patch exists",
    OutsideImage = "it is not inside the image",

    // The original code.
    Unread { name: String } = "the bytes of {name} are not in the image",
    Undecodable { name: String, at: Addr } = "the bytes of {name} at {at} are not an instruction",
    Routine { at: Addr, why: Box<Reason> } = "at {at}: {why}",
    StrayBranch { name: String } = "{name} branches into the middle of an instruction",
    NoFunction = "no function of the image that decodes contains it",
    OutsideFunction { start: Addr, end: Addr, name: String } = "the bytes {start} to {end} are not inside {name}",
    NotWhole = "it does not begin and end at instruction boundaries",
    OverwrittenCount { stated: u32, counted: usize } = "it states that {stated} instructions are overwritten, and {counted} are",
    FilledByte = "it is filled with int3, and the site does not displace it or a bounce needs it",
    SpliceTooLong { displaced: u64, written: u64, why: Box<Reason> } = "it displaces {displaced} bytes, and its splice needs {written}: {why}",
    NotTracers = "it is not a site of the function tracer",
    EndsEarly = "an instruction that does not fall through is displaced and is not the last one",
    NotOverCall = "its splice is a call, and it does not displace exactly one direct call of that length",
    ContinuationStart = "a continuation does not begin at the target of its edge",
    ContinuationOrder = "its continuations are not sorted, or two have the same edge",
    FixedSite { kind: &'static str, action: &'static str } = "{kind} is {action}",
    FixedSiteAt { kind: Box<Reason>, at: Addr } = "{kind} at {at}",
    Immovable { instruction: String, action: &'static str, why: &'static str } = "`{instruction}` is {action}: {why}",
    ExposedByTracer = "the site that exposes its bytes displaces nothing",
    BeforeSplice = "it is not after the splice of the site that exposes its bytes",
    ForeignDisplacement = "a site other than the one that exposes its bytes displaces them",
    TargetInside = "control may enter the middle of the displaced bytes here",
    ReturnInside = "a call returns into the middle of the displaced bytes",
    TracerEntry { at: Addr } = "the function tracer may write at {at}",
    EntersPadding { at: Addr } = "control may reach {at} in it",
    TakesSpeculationStop = "it takes the int3 that stops speculation past a return",
    NotAfterFunction = "it does not follow a function that decodes",
    NotBetweenFunctions = "it is not between two functions of which the first never falls through",
    SymbolInside = "a symbol begins there",
    PaddingUnread = "its bytes are not in the image",
    NotPadding = "its bytes are not padding",
    PastFunction = "it is partly after the function",
    BeginsFunction = "it begins the function",
    Executes { instruction: String, at: Addr } = "`{instruction}` at {at} executes there or falls through to it",

    // Patches: their lists, and the way of control.
    PointOrder = "its points are not sorted",
    UnplannedInstrument { id: InstrumentId } = "its instrument {id} is not in the plan",
    ForeignPoint { id: InstrumentId } = "instrument {id} belongs to another site, or to another point of this one",
    EmptyPoint = "one of its points has no instruments",
    NoNativeCode { id: InstrumentId } = "the function of instrument {id} is not in the plan",
    OtherEdges = "it takes other edges than another version of its site does",
    OtherEntry { key: String } = "it finds the entry of {key} elsewhere than other patches do",
    EntryByOther = "the entry of its storage does not depend on the running task or the stack pointer alone",
    LeavesIntoSite = "its patch leaves to the middle of the bytes that another site displaces",
    StackDepth = "two paths meet here with different depths of the stack",
    Loops = "the code may loop for ever here",
    TooComplex = "the code takes too many steps to prove",
    PastEnd = "control falls off the end of the patch",
    InsideInstruction = "control reaches the middle of an instruction",
    NoInstruction = "control reaches bytes that are not an instruction of the patch",
    Unreached = "control never reaches this byte, and it is not int3",
    JumpCircle = "the original code jumps in a circle",
    Unfinished { why: Box<Reason>, id: InstrumentId, missing: &'static str } = "{why}; instrument {id} is not done here: {missing}",
    Awaited { why: Box<Reason>, awaited: String, because: String } = "{why}; {awaited} should come next{because}",
    NotOriginal { instruction: String, awaited: String, because: String } = "it is `{instruction}` in place of {awaited}{because}",
    Leaves { to: Addr } = "control leaves for {to}",
    Descriptor { why: &'static str } = "the descriptor of a restartable sequence {why}",
    NoDescriptor = "the address that it stores is not that of a descriptor of the sequence that follows",
    OutsideSequence = "it stores to memory or calls, outside of a restartable sequence",
    OtherRingWord = "it is not the word of the CPU's ring that the sample increments",
    InSequence { instruction: String } = "`{instruction}` is not permitted at this place of a restartable sequence",
    BytesPushed { bytes: u64 } = "{bytes} bytes are still on the stack",
    NotRestored { registers: String } = "{registers} may be used later and does not have its value",
    NothingToCopy { at: Addr } = "no instruction begins at {at} to be copied",
    ReturnHalf = "a return of the upper half of a cache line is moved to the lower half",
    ReturnUnguarded = "no int3 follows the return",
    Uncopyable { instruction: String, at: Addr } = "`{instruction}` at {at} cannot be copied",
    SpoiltOperand { instruction: String, registers: String } = "`{instruction}` uses {registers}, which does not have its value",
    UnknownKey = "the static key is unknown",
    KeyUndecided = "no branch tests whether the static key is on",
    ShadowStack = "it moves a call, and the target compares return addresses with a shadow stack",
    ReturnHalves = "the upper half of the return address does not follow the lower half",
    MovesSegment { instruction: String } = "`{instruction}` is copied, and may move the words of the target's segment",
    OtherCallee = "the moved call does not branch to its target",
    SpeculatesPastEnd = "nothing stops speculation past the end of the patch",
    UndecidedSite { at: Addr } = "the instruction that the kernel writes at {at} is unknown",
    OtherTarget { target: Addr, expected: Addr } = "it branches to {target}, and should branch to {expected}",
    RowOrder = "its unwind rows are not in order",
    UselessRows = "it has unwind rows, and the target cannot use them",
    NoRow = "no unwind row covers this instruction",
    OtherRow { original: Addr, pushed: u32, expected: Addr, depth: u64 } = "its unwind row states {original} below {pushed} bytes, and {expected} below {depth} is right",
    FramePointer = "rbp does not have its value, and the unwinder uses it",
    MayFault { instruction: String, at: Addr } = "`{instruction}` at {at} may fault, and only the original may",
    HookOnFault { to: Addr } = "a hook is on the way to {to}, the fixup of the original instruction",
    FaultsTwice = "it may fault as two original instructions do",
    FaultOrder = "the instructions that may fault are not in order",
    TooManyFaults = "more instructions may fault than the target has entries for",
    NeverFaults = "the plan states that it may fault, and it cannot",
    UnplannedFault = "it may fault, and the plan has no recovery for it",
    OtherRecovery = "the plan states another recovery for its fault",

    // Patches: instructions of instruments.
    Prefix = "instrument code has no lock or repeat prefixes here",
    UntestedExchange = "cmpxchg is not followed by a branch on its result",
    PopsOriginal = "it pops a word that the patch has not pushed",
    OtherFlags = "it restores flags from a register that does not have the saved flags",
    RereadsSample = "it reads again a value that its sample depends on",
    ForeignWord { word: u64 } = "it reads gs:{word:#x}, which is not one of its words",
    ForeignMemory = "it reads memory that is not its own",
    VariableShift = "it shifts by a register",
    LongShift = "it shifts by more than its operand has bits",
    MovesStack = "it changes the stack pointer other than by push and pop",
    WritesWord { word: u64 } = "it writes gs:{word:#x}",
    UnhookedStore = "it writes memory where no instrument runs",
    UnhookedCount = "it counts where no instrument runs",
    UnhookedReservation = "it reserves a slot where no instrument runs",
    NoEntry = "it exchanges memory that is no entry of the table of storage",
    UnlockedEntry = "it exchanges an entry that all CPUs share without a lock prefix",
    UnlockedRing = "it changes a word of the ring that all threads share without a lock prefix",
    OtherExchange = "cmpxchg may only move the head of the ring",
    DeepStack = "it pushes more words than an instrument needs",
    Instruction { instruction: String } = "`{instruction}` is not an instruction that instrument code may have here",
    NarrowMemory = "it accesses memory that is not a word of eight bytes",
    OtherSegment = "it accesses memory relative to a segment that is not the one of the target's words",
    RedZone = "it pushes without stepping over the bytes below the stack pointer that the original code may use",
    SteppedOver = "it steps over the red zone after a push, or twice, or by another length",
    UnknownWord = "it accesses a per-CPU word at an address that is not constant",
    ForeignStack = "it accesses the stack outside of the words that it has pushed",
    AddressRegisters = "its address is not computed from 64-bit registers",
    Divides = "it divides, and the quotient may not fit",
    ReadsTwice = "it reads a value twice that may have changed in between",
    StaleEntry = "it uses a word of an entry of the table of storage that it read before its own store",
    Unguarded = "it reads memory, and the layout does not state which addresses may be read",
    UserMemory = "it reads an address that may be user memory",
    OtherLoad = "it reads memory that its program does not read",
    UnknownEvent = "it reads an event counter that the plan does not have",
    OtherEvent = "it reads an event counter that its program does not read",
    OtherStack = "it reads a stack that its program does not read",
    OtherUserRead = "it reads something of the running process that its program does not read",
    OtherFrame = "it reads the stack from another frame than that of the original instruction",
    UnhookedFailure = "it counts a failed load where no program runs",
    NotFailed = "it counts a load as failed that may have succeeded",

    // Patches: the effect of a hit.
    CountsLoss = "it counts a sample as lost though the ring may have a free slot",
    CountsForeign { word: u64 } = "it adds to gs:{word:#x}, which is not its counter",
    NeedlessSlot = "it reserves a slot that its instrument does not use",
    ReservesOtherHead = "rax is not the head that was read when it reserves a slot",
    HeadStep = "it does not advance the head by one slot",
    LongLine { words: u8 } = "its line has {words} words, and a slot of the ring has not as many",
    RingFull = "it reserves a slot though the ring may be full",
    StaleClock = "it does not read the clock between the head and the reservation",
    EarlyMark = "it writes the mark before the rest of the sample",
    OtherMark = "the mark is not the head that was reserved",
    OtherTime = "the time in the sample is not the clock that was read for it",
    OtherIdentifier { id: InstrumentId } = "the identifier in the sample is not that of instrument {id}",
    OutsideSlot = "it writes outside of the slot that it has reserved",
    StoresForeign = "it writes memory that is not its own",
    OtherValue = "the value in the sample is not the value that its instrument measures",
    OtherMaximum = "cmpxchg may only move the head of the ring or a maximum",
    NoMaximum = "it keeps a maximum that its program does not have",
    OtherKept = "the value it keeps is not the value of its program",
    NotLarger = "it replaces a maximum that may be larger",
    EarlyWrite = "it writes before its predicate is known to hold",
    OverflowCount = "a value other than 0 without a free entry is not counted by one in its own word",
    OutsideSample = "it writes outside of the slot of its sample",
    Undetermined = "the value it computes cannot be determined",
    OutsideTable = "it writes outside of the table of storage",
    OtherVariable = "it writes a word that is not the word of its variable",
    OtherStored = "the value it stores or adds is not the value of its program",
    NoAggregate = "its program has no such aggregate",
    AggregateWrite = "it does not add to a per-CPU word of its aggregate",
    OtherBucket = "it counts in a bucket that is not the bucket of its value",
    HistogramBank = "its histogram does not fit its bank of counters",
    OtherAggregate = "it adds to a word that is not a word of its aggregate",
    OtherAmount = "the amount it adds is not the value of its program",
    ValuesBank = "its table of values does not fit its bank of counters",
    OtherValuesBucket = "it adds to a bucket of the table of values that is not the bucket of its value",
    OtherPart = "the amount it adds is not the next part of its value",
    KeepsNothing = "it changes the table of storage, and its instrument stores nothing there",
    OtherKey = "it locks an entry for a key that is not its own",
    LockOrder = "it locks an entry out of turn",
    ForeignEntry = "it locks an entry that is neither free nor its own",
    NoLockedEntry = "it writes to the table of storage without a locked entry",
    OutsideEntry = "it writes outside of its entry of the table of storage",
    StoresNothing = "its instrument stores nothing",
    EntryOrder = "it does not write the value of its entry and then its owner, each one time",
    OtherOwner = "the owner it writes is not its key, or 0 for the value 0",

    // Native functions.
    NativeAbi = "native functions are compiled for the kernel's conventions, and the target has others",
    UnplannedCall = "it calls a function, and its instrument has none",
    OtherFunction { function: String, entry: Addr } = "it does not call {function} at {entry}",
    OtherParameter { number: u8, parameter: String } = "its parameter {number} is not {parameter}",
    NativeCode { file: String, why: Box<Reason> } = "the code of {file}: {why}",
    NativeOutsideArena = "it is not inside the arena",
    NativeOverwritten = "other bytes are written over it",
    NativeInstruction { at: Addr, why: Box<Reason> } = "the instruction at {at} {why}",
    NativeUnfollowed = "cannot be followed",
    NativeStackDepth { to: Addr } = "branches to {to} with another stack pointer",
    NativeStackPointer = "leaves with another stack pointer than it was called with",
    NativeRegister { register: u8 } = "leaves where register {register} may not have the value of its caller",
    NativeUnknownStack = "leaves the stack pointer unknown",
    NativeOverwrites = "writes over the stack of its caller",
    NotAFunction { at: Addr } = "it calls {at}, where no function begins",
    ReachesFunction { at: Addr, name: String, why: &'static str } = "it calls {at}, and from there control reaches {name}, {why}",

    // Instruments and their hooks.
    IdentifierBits = "its identifier does not fit its bits",
    SameIdentifier = "another instrument has the same identifier",
    NeedlessCounter = "it counts and has no counter, or has one and does not count",
    SameCounter = "another instrument has the same counter",
    CounterBank = "its counter is outside of the banks of counters",
    TwoPrograms = "it runs a probe and a native function, or neither",
    NoProbe = "its program has no such probe",
    InstrumentOrder = "its points and dependences are not sorted, or not on sites of the plan",
    LoadsInHandler { id: InstrumentId } = "instrument {id} reads memory where the kernel handles failed reads",
    BlockNumber = "its block is not in the function of its number",
    BlockBoundary = "its block does not begin and end at instruction boundaries",
    FaultsToNext = "its last instruction may also fault and continue where the next block begins",
    ReturnedUnknown = "the return value of the function is unknown here",
    StackArgument = "arguments on the stack are known at the entry of the function only",
    ReplacedInside = "a function is replaced at its entry only, which no branch of its own targets",
    ReplacedReliedOn = "the function that it replaces is called by functions that may rely on more than the calling convention",
    ArgumentGone = "the argument it reads may have changed since the entry of the function",
    NotTwoWay = "it is a hook of a branch, and its block does not end with a two-way branch",
    EntersBlock = "control may enter the middle of its block here",
    LeavesBlock = "control may leave the middle of its block here",
    InstrumentFunction = "its function is not a function of the image that decodes",
    NothingOnEdge { to: Addr } = "no patch covers its edge to {to}",
    WrongHits { from: String, runs: String, hits: String } = "when control comes from {from}, instruments {runs} run, and it hits {hits}",

    // Batches and pokes.
    UnsortedDependences = "its dependences are not sorted",
    MissingDependence { part: String, on: String } = "it does not state that {part} depends on {on}",
    CyclicDependence { part: String } = "{part} depends on itself",
    BatchTime { duration: f64 } = "its time is not after that of the previous batch and within the {duration} s of the session",
    PokeCount { count: usize, most: usize } = "it has {count} pokes, and must have 1 to {most}",
    PokeOrder = "its pokes are not in the order in which they are written",
    PokedTwice = "another poke of the batch writes the same part",
    NoPart = "it is not at the address of a part of the plan",
    PokeLength { expect: usize, write: usize, len: u64 } = "it expects {expect} bytes and writes {write}, and should {len}",
    OtherBytes { expect: Vec<u8>, memory: Vec<u8> } = "it expects {expect:02x?} where memory holds {memory:02x?}",
    NoPatchNumber { patch: usize } = "patch {patch} does not exist",
    PatchOfSite { patch: usize, site: u32 } = "patch {patch} is of site {site}",
    HookedDetour = "threads are diverted to another version with instruments",
    PokeKind { kind: String, before: Option<usize> } = "it is an {kind}, and the patch of the splice in place is {before:?}",
    NotRestoredBytes { write: Vec<u8>, original: Vec<u8> } = "it restores {write:02x?} where the original has {original:02x?}",
    PokeOverwritten { stated: u32 } = "it states {stated} overwritten instructions, for which the driver would not wait correctly",
    PokeRank { stated: u8, rank: u8 } = "it states rank {stated}, and the rank by its dependences is {rank}",
    NotInPlace { part: String } = "{part} is not in place before it",
    OtherBounce { part: String } = "{part} branches to another patch",
    StillInPlace { part: String } = "{part} is still in place",
    SameRank { part: String } = "{part} is written in the same rank",
    NotShort { bytes: Vec<u8>, bounce: Addr } = "the bytes {bytes:02x?} are not a short jump to the bounce at {bounce}",
    NotSplice = "the bytes are not those of its kind of splice",
    NotCall { bytes: Vec<u8>, patch: usize, at: Addr } = "the bytes {bytes:02x?} are not a call of patch {patch} at {at}",
    NotJump { bytes: Vec<u8>, patch: usize, at: Addr } = "the bytes {bytes:02x?} are not a jump to patch {patch} at {at}",
    NotDue { change: &'static str } = "the instruments it states as {change} are not those that are due",
    RunsAtPoints { id: InstrumentId, runs: usize, expected: usize } = "after it instrument {id} runs at {runs} points, and should at {expected}",
    LeftInPlace { part: String } = "at its end the text is not the original: {part} is still in place",
    NoBatchAt { launch: f64, splash: f64 } = "no batches launch it at {launch} s and splash it at {splash} s",

    // The verifier itself.
    Internal { missing: &'static str } = "internal error of the verifier: {missing} is missing",
}

impl Reason {
    /// The name of the rule, which is the variant's: of a reason that adds context to another, the other's.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Routine { why, .. }
            | Self::SpliceTooLong { why, .. }
            | Self::FixedSiteAt { kind: why, .. }
            | Self::Unfinished { why, .. }
            | Self::Awaited { why, .. }
            | Self::NativeCode { why, .. }
            | Self::NativeInstruction { why, .. } => why.rule(),
            _ => self.own_rule(),
        }
    }

    /// Returns whether the verifier itself is defective, whatever the plan is.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.rule() == "Internal"
    }
}
