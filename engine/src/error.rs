use thiserror::Error;

use crate::{HookType, Refusal};

/// Errors of the engine.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The target's symbols or memory are not what an image needs.
    #[error("The kernel image cannot be used: {reason}.")]
    Image {
        /// The part that is missing or wrong.
        reason: String,
    },
    /// The file of a program or a shared library is not what an image needs.
    #[error("The ELF file cannot be used: {reason}.")]
    Elf {
        /// The part that is missing or wrong.
        reason: String,
    },
    /// The target has no runtime that generated code could use.
    #[error("Nothing can be placed in {target}: {refusal}.")]
    Unplanned {
        /// Name of the target.
        target: String,
        /// The rule and its reason.
        refusal: Refusal,
    },
    /// An invariant of the engine is violated.
    #[error("Internal error: {what}. This is a defect; please report it with the session.")]
    Internal {
        /// The invariant.
        what: String,
    },
    /// No function of that name.
    #[error("There is no function named {name:?}{hint}.")]
    NoFunction {
        /// The requested name.
        name: String,
        /// Names that are near, or empty.
        hint: String,
    },
    /// Several functions of that name.
    #[error("{count} functions are named {name:?}; write one of {choices}.")]
    Ambiguous {
        /// The requested name.
        name: String,
        /// The number of functions.
        count: usize,
        /// `name@address` for each.
        choices: String,
    },
    /// No block of that index.
    #[error(
        "The function {function} has {blocks} blocks, and no block {block}; they are numbered from 0."
    )]
    NoBlock {
        /// The function's name.
        function: String,
        /// The requested index.
        block: u32,
        /// The number of its blocks.
        blocks: usize,
    },
    /// The session's file or a field of it is wrong.
    #[error("The session cannot be used: {reason}.")]
    Session {
        /// The fault, with its position.
        reason: String,
    },
    /// A rule forbids a hook.
    #[error(
        "{instrument} cannot be placed at the {hook}-hook of block {block} of {function}: {refusal}."
    )]
    Refused {
        /// Name of the instrument.
        instrument: String,
        /// The event of the block.
        hook: HookType,
        /// The function's name.
        function: String,
        /// Index of the block.
        block: u32,
        /// The rule and its reason.
        refusal: Refusal,
    },
    /// An instrument that the library does not have, or a bad one.
    #[error(transparent)]
    Instrument(#[from] gilk_instruments::Error),
    /// A source of an instrument that is wrong.
    #[error("The instrument {name:?} is wrong, placed on {function}:\n{faults}")]
    Program {
        /// The instrument.
        name: String,
        /// The function it is placed on.
        function: String,
        /// The faults, one a line with its position.
        faults: String,
    },
    /// Generated code cannot work with the target's run-time layout.
    #[error(
        "The target cannot run generated code: {reason}. The kernel module and this program are of different versions."
    )]
    Layout {
        /// The field and what is wrong with it.
        reason: String,
    },
    /// The session needs more than the target has.
    #[error(
        "The session needs {needed} {what}, and the target has {available}; take some instruments out."
    )]
    Full {
        /// `bytes of patches`, `counters`.
        what: &'static str,
        /// The number that the session needs.
        needed: u64,
        /// The number that the target has.
        available: u64,
    },
    /// The client cancelled the plan.
    #[error("The plan was given up before it was done.")]
    GivenUp,
    /// An instruction could not be encoded at its new place.
    #[error("The instruction at {at} cannot be encoded in the patch: {reason}.")]
    Encode {
        /// The original instruction.
        at: crate::Addr,
        /// The encoder's reason.
        reason: String,
    },
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
