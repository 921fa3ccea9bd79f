//! The parts of a plan in the module's terms.

use serde::Serialize;

use crate::protocol::Bytes;

/// A patch, or several adjacent ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArenaWrite {
    /// Offset in the arena.
    pub offset: u64,
    /// The machine code.
    pub code: Bytes,
    /// Unwind rows in order of offset; empty unless the target unwinds through the arena.
    pub rows: Vec<Row>,
    /// Instructions that may fault, in order of offset.
    pub faults: Vec<Fault>,
}

/// An instruction of a patch that may fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Offset in the write.
    pub offset: u32,
    /// The kernel's reaction.
    pub recovery: Recovery,
}

/// The kernel's reaction to a fault of an instruction in a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Recovery {
    /// Execution continues at this offset in the write.
    At(u32),
    /// The kernel reacts as to a fault of the instruction of its text at this address.
    Like(u64),
}

/// A range of a patch, up to the next row, that the unwinder treats as one instruction of the
/// kernel's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Offset in the write.
    pub offset: u32,
    /// Bytes pushed by the patch.
    pub pushed: u32,
    /// The instruction.
    pub original: u64,
}

/// Pokes that are applied together or not at all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Batch {
    /// Seconds from the start.
    pub at: f64,
    /// The pokes, in any order.
    pub pokes: Vec<Poke>,
}

/// One write of text, in the module's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Poke {
    /// First byte.
    pub address: u64,
    /// The patch that a thread executes if it reaches the splice while bytes change.
    pub detour: u64,
    /// The splice's branch target: the patch, or for [`SpliceKind::Short`] its bounce.
    pub target: u64,
    /// The splice that keeps threads out of the bytes of a [`SpliceKind::Bounce`]; 0 if they are
    /// padding.
    pub host: u64,
    /// Displaced bytes that are `int3` while the splice is installed: bit `n` for byte `n` after it.
    pub filled: u64,
    /// The kind of branch.
    pub kind: SpliceKind,
    /// Topological rank: lower ranks are installed first and removed last.
    pub rank: u8,
    /// Number of bytes used in `expect` and `write`.
    pub length: u8,
    /// The module's wait around the write.
    pub wait: Wait,
    /// The bytes required at the address before the write.
    pub expect: [u8; 8],
    /// The bytes to write.
    pub write: [u8; 8],
}

impl Poke {
    /// Returns whether the poke restores original bytes.
    #[must_use]
    pub fn removes(&self) -> bool {
        self.wait == Wait::AfterRemoval
    }
}

/// The module's wait until no thread executes given bytes, by RCU tasks: its form of a plan's
/// [`Quiesce`](gilk_engine::plan::Quiesce).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Wait {
    /// The bytes change at once: at most one instruction does, or no thread executes them.
    None,
    /// Before the bytes of an install, of which an `int3` diverts threads meanwhile: until none is between the
    /// overwritten instructions.
    BeforeInstall,
    /// After a removal: until none is in the patch or bounce that it leaves.
    AfterRemoval,
}

/// The kind of branch from a splice to its patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SpliceKind {
    /// `jmp rel32`, whose last bytes may equal the original ones.
    Jump,
    /// `jmp rel8` to a bounce.
    Short,
    /// The bounce: `jmp rel32` in bytes that no thread executes.
    Bounce,
    /// A permanent `int3`.
    Trap,
    /// No write: the kernel's function tracer calls the patch.
    Tracer,
    /// `call rel32` over a `call rel32`: the patch has the return address on the stack.
    Call,
}

/// A per-CPU word that is read periodically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// Key of its totals: the packed instrument identifier, and above its 48 bits 0 for a counter,
    /// or 1 and the number of a word of the instrument's aggregates.
    pub id: u64,
    /// Bank of per-CPU counters.
    pub bank: u32,
    /// Index in the bank.
    pub slot: u32,
    /// The total is the largest word of all CPUs, not their sum.
    pub largest: bool,
}

/// A splice that is retired as soon as each of its words is non-zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Retire {
    /// Address of its first byte.
    pub address: u64,
    /// The words, each by bank and index in the bank.
    pub hits: Vec<(u32, u32)>,
}
