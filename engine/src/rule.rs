//! Refusals: the named rules by which a hook cannot be had, known before the click.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Addr;

/// The safety rules. Their sources are kernel/kprobes.c and arch/x86/kernel/kprobes/{core,opt}.c of
/// Linux except where another is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Rule {
    /// The address is outside the kernel's text, or in text that boot frees.
    NotText,
    /// The text is that of the module that does the splicing.
    OwnText,
    /// The kernel forbids probes here (kprobe blacklist, noinstr, entry text).
    Blacklisted,
    /// The function's bytes do not decode as instructions from its start.
    Undecodable,
    /// Another tool's probe is in the function: in a kernel an `int3` that may execute, or a jump out of it; in a process
    /// bytes that its file does not have.
    Probed,
    /// Fewer than five bytes are left in the block for the splice.
    BlockTooShort,
    /// The bytes hold a jump label (static key), which the kernel rewrites itself.
    StaticKey,
    /// The bytes hold a static call, which the kernel rewrites itself.
    StaticCall,
    /// The bytes hold an alternative or lock prefix, which the kernel may rewrite itself.
    Alternative,
    /// The bytes are the function tracer's.
    FtraceSite,
    /// The instruction may fault and then wait for a page of a process: it has an entry in the exception
    /// table, and [`faults_alike`](crate::isa::relocate::faults_alike) does not allow a copy the same entry. Or it falls
    /// through into a fixup.
    MayFault,
    /// The instruction is `ud1`/`ud2`: a BUG or WARN is known by its address.
    Trap,
    /// `endbr64` must stay the first instruction.
    Endbr,
    /// A branch skips the `lock` prefix of the instruction, which therefore executes in two ways.
    SkippedPrefix,
    /// A system, far or interrupt-shadow instruction that is not moved.
    System,
    /// The post-hook would be after a call that returns to the original text.
    PostAfterCall,
    /// The block has no instruction that can be displaced for this hook.
    NothingToDisplace,
    /// The instruction refers to memory or a branch target out of reach from the patch.
    OutOfReach,
    /// A kind of instruction that cannot be relocated.
    Unrelocatable,
    /// The requested value may have been overwritten since the function's entry.
    ArgumentGone,
    /// The program uses an operation for which no code is generated yet, or more registers than there are.
    ProgramUnsupported,
    /// An exit of the function, or its target, is unknown.
    ExitUnknown,
    /// The function's result is unknown at the hook.
    ReturnUnknown,
    /// The block does not end with a conditional branch.
    NoBranch,
    /// The object file of an instrument has, or calls, code that may not execute in a patch.
    NativeUnsafe,
    /// Two hooks need the same bytes for different splices.
    Overlap,
    /// Not all edges into the block are known.
    WaysUnknown,
    /// Another function branches into the block, so that its own function's edges are not all of them.
    EnteredFromElsewhere,
    /// The block is unreachable.
    Unreached,
    /// Every bounce slot that a two-byte splice here could reach is taken.
    NoSlot,
    /// The nearest splice would need copies of too many instructions.
    TooFar,
    /// Lists of functions by name were not compared with this kernel, and the instrument reads memory, which depends on
    /// those that a failed read executes, or the function may be assembly.
    UnknownKernel,
    /// The function jumps to computed addresses that are not proven to be entries of a jump table.
    JumpUnknown,
    /// The code is a restartable sequence: the kernel restarts it by the address of its instructions.
    Restartable,
    /// The layout is not that of the target's runtime for generated code.
    NoRuntime,
    /// A call would be moved, and the target's processor compares return addresses with a shadow stack.
    ShadowStack,
    /// The target's rings belong to threads, for which no code is generated; or its counters are reached by
    /// restartable sequences, and no single store completes what the instrument does.
    RingOwner,
    /// The instrument reads memory, and the target does not state which addresses may be read; or a process has a system
    /// call that may begin to filter others, before which reads would have to end, where no guard can stand.
    Unguarded,
    /// The code is in memory that the process may write, or shares with others that may.
    MayChange,
    /// The process wrote the page of this code too many times after it was translated.
    WrittenOften,
    /// The code cache has no more bytes, counters or entries of its table.
    CacheFull,
    /// The code cache does not run the instrument: it is on an edge or at the end of a block that no branch ends, calls
    /// native code, reads memory, or is not in place for the whole session.
    NotInCache,
    /// The function cannot be replaced there: not at its entry, not in a process that has the object file, or its callers
    /// may rely on more than the calling convention.
    NotReplaceable,
}

impl Rule {
    /// The rule's name on screens, in files and in the documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotText => "not-text",
            Self::OwnText => "own-text",
            Self::Blacklisted => "blacklisted",
            Self::Undecodable => "undecodable",
            Self::Probed => "probed",
            Self::BlockTooShort => "block-too-short",
            Self::StaticKey => "static-key",
            Self::StaticCall => "static-call",
            Self::Alternative => "alternative",
            Self::FtraceSite => "ftrace-site",
            Self::MayFault => "may-fault",
            Self::Trap => "trap",
            Self::Endbr => "endbr",
            Self::SkippedPrefix => "skipped-prefix",
            Self::System => "system",
            Self::PostAfterCall => "post-after-call",
            Self::NothingToDisplace => "nothing-to-displace",
            Self::OutOfReach => "out-of-reach",
            Self::Unrelocatable => "unrelocatable",
            Self::ArgumentGone => "argument-gone",
            Self::ProgramUnsupported => "program-unsupported",
            Self::ExitUnknown => "exit-unknown",
            Self::ReturnUnknown => "return-unknown",
            Self::NoBranch => "no-branch",
            Self::NativeUnsafe => "native-unsafe",
            Self::Overlap => "overlap",
            Self::WaysUnknown => "ways-unknown",
            Self::EnteredFromElsewhere => "entered-from-elsewhere",
            Self::Unreached => "unreached",
            Self::NoSlot => "no-slot",
            Self::TooFar => "too-far",
            Self::UnknownKernel => "unknown-kernel",
            Self::JumpUnknown => "jump-unknown",
            Self::Restartable => "restartable",
            Self::NoRuntime => "no-runtime",
            Self::ShadowStack => "shadow-stack",
            Self::RingOwner => "ring-owner",
            Self::Unguarded => "unguarded",
            Self::MayChange => "may-change",
            Self::WrittenOften => "written-often",
            Self::CacheFull => "cache-full",
            Self::NotInCache => "not-in-cache",
            Self::NotReplaceable => "not-replaceable",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A refusal: the rule, the address that it is about, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The rule that forbids the hook.
    pub rule: Rule,
    /// The instruction or byte that the rule is about.
    pub at: Addr,
    /// The obstacle, as a sentence.
    pub why: String,
}

impl Refusal {
    /// Refuses what is at `at` by `rule`, with the reason as a sentence.
    pub fn new(rule: Rule, at: Addr, why: impl Into<String>) -> Self {
        Self {
            rule,
            at,
            why: why.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.rule, self.at, self.why)
    }
}
