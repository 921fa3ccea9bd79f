//! The rules of translated code.

use thiserror::Error;

use crate::Addr;

/// Defines the rules with their texts, which are their documentation too.
macro_rules! rules {
    ($($variant:ident = $text:literal,)*) => {
        /// The rule that translated code breaks. [`Display`](std::fmt::Display) is the end of a sentence that begins
        /// with the place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
        #[non_exhaustive]
        pub enum FragmentRule {
            $(
                #[doc = concat!("Rule: ", $text, ".")]
                #[error($text)]
                $variant,
            )*
        }

        impl FragmentRule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

rules! {
    Layout = "the words of the cache are not in the lower 2 GiB, or overlap",
    Resident = "the resident code is not the one that searches the table",
    OutsideArena = "the code is not in the arena, or overlaps what was written before",
    BlockTwice = "the original address has another translation",
    NoOriginal = "no original code that can be decoded is there",
    Undecodable = "the cache has no whole instruction there",
    NotACopy = "it does not do what the original instruction does",
    NotMovable = "the original instruction means something by its address, and may only be stepped",
    WrongTarget = "it branches to neither the translation of the original target nor a lookup of it",
    WrongReturnAddress = "a call pushes another value than the original return address",
    WrongReturn = "a return does not look up the address that it pops",
    WrongIndirect = "an indirect branch does not look up its operand",
    WrongSystemCall = "a system call is not watched for changes of code, or leaves another rcx",
    WrongLanding = "a landing does not compare the target with its address and fall into its block",
    FlagsLive = "the counter changes flags that may be read",
    CounterMissing = "a block does not count its executions exactly once",
    ForeignCounter = "a counter is not the block's own",
    Unlocked = "an increment is not locked, or not by this cache's convention",
    WrongRecording = "a block does not record its accesses as it states",
    RecorderNamed = "an instruction names a register that the recorder holds",
    AccessMissing = "a block does not record an access",
    PatchMissing = "control passes an instruction with instruments without their patch",
    Reader = "the code that reads memory for instruments is not the one of its listing, or not after all other code",
    LateInstruments = "instruments are added to a function that is translated or has those of another plan, or removed from a translated one",
    StackUntested = "instruments read memory, and their block does not find out first whether the stack has the space",
    WrongPatch = "a patch does not run the instruments of its block, or does not continue there as the original code",
    WrongExtent = "a block does not end where it states",
    WrongRow = "a row does not have the original instruction or the state of the registers",
    WrongLink = "a link is not the displacement of a branch to that target",
}

/// A broken rule of translated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("The translation of {original} is wrong at {at}: {rule}.")]
pub struct FragmentViolation {
    /// The original instruction.
    pub original: Addr,
    /// The place in the cache.
    pub at: Addr,
    /// The rule that is broken.
    pub rule: FragmentRule,
}
