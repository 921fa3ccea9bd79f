//! Why something may not be hooked: every refusal has a rule with a name, known before the click.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Addr;

/// The safety rules. Sources are kernel/kprobes.c and arch/x86/kernel/kprobes/{core,opt}.c of Linux
/// unless said otherwise.
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
    /// Another tool's probe stands in the function: an `int3` that is run, or a jump out of the kernel.
    Probed,
    /// Fewer than five bytes are left in the block for the splice.
    BlockTooShort,
    /// A branch may land inside the bytes the splice would overwrite.
    BranchTarget,
    /// The bytes hold a jump label (static key), which the kernel rewrites itself.
    StaticKey,
    /// The bytes hold a static call, which the kernel rewrites itself.
    StaticCall,
    /// The bytes hold an alternative or lock prefix, which the kernel may rewrite itself.
    Alternative,
    /// The bytes are the function tracer's.
    FtraceSite,
    /// The instruction may fault, and wait for a page of a process then: it has an entry in the exception table,
    /// and [`faults_alike`](crate::isa::relocate::faults_alike) does not say that a copy may have one like it. Or a fault
    /// leads to where it runs on.
    MayFault,
    /// The instruction is `ud1`/`ud2`: a BUG or WARN is known by its address.
    Trap,
    /// `endbr64` must stay the first instruction.
    Endbr,
    /// A system, far or interrupt-shadow instruction that is not moved.
    System,
    /// A call among the displaced bytes would return into the splice.
    ReturnInsideSplice,
    /// The post-hook would stand behind a call that returns to the original text.
    PostBehindCall,
    /// The block has no instruction that can be displaced for this hook.
    NothingToDisplace,
    /// The instruction refers to memory or a branch target out of reach from the patch.
    OutOfReach,
    /// A kind of instruction that cannot be relocated.
    Unrelocatable,
    /// The value asked for may have been overwritten on the way from the function's entry.
    ArgumentGone,
    /// The program needs what no code is generated for yet, or more registers than there are.
    ProgramUnsupported,
    /// Where control leaves the function, or what for, cannot be told.
    ExitUnknown,
    /// What the function returns is not known there.
    ReturnUnknown,
    /// The block does not end with a branch whose ways could be told apart.
    NoBranch,
    /// The object file of an instrument holds, or calls, what may not run in a patch.
    NativeUnsafe,
    /// Two hooks want the same bytes with different splices.
    Overlap,
    /// Not all ways into the block are known, so its edges cannot stand for it.
    WaysUnknown,
    /// Another function branches into the block, so the edges of its own cannot stand for it.
    EnteredFromElsewhere,
    /// Nothing leads to the block.
    Unreached,
    /// Every bounce slot that a two-byte splice here could reach is taken.
    NoSlot,
    /// Too many copies of instructions would be needed to get there from where a splice fits.
    TooFar,
}

impl Rule {
    /// The rule's name, as it stands on screens, in files and in the documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotText => "not-text",
            Self::OwnText => "own-text",
            Self::Blacklisted => "blacklisted",
            Self::Undecodable => "undecodable",
            Self::Probed => "probed",
            Self::BlockTooShort => "block-too-short",
            Self::BranchTarget => "branch-target",
            Self::StaticKey => "static-key",
            Self::StaticCall => "static-call",
            Self::Alternative => "alternative",
            Self::FtraceSite => "ftrace-site",
            Self::MayFault => "may-fault",
            Self::Trap => "trap",
            Self::Endbr => "endbr",
            Self::System => "system",
            Self::ReturnInsideSplice => "return-inside-splice",
            Self::PostBehindCall => "post-behind-call",
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
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A refusal: the rule, where it bites, and a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The rule.
    pub rule: Rule,
    /// The instruction or byte that the rule is about.
    pub at: Addr,
    /// One sentence that says what is in the way.
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
