//! The code patch: instrument code, relocated sequence, terminating branch.
//!
//! ```text
//! entry                    instruments of Point::Entry: save, code in order, restore
//! relocated sequence       copy of the displaced instructions, with the instruments of Point::Before
//!                          and of Point::On for edges that fall through
//! terminating branch       or the copy of a continuation, like the relocated sequence
//! stubs                    for branches of the copies with instruments or a continuation on their edge:
//!                          the instruments, then a terminating branch or the copy of a continuation
//! lost                     the rare paths of the instruments: count the loss and jump back
//! descriptors              of restartable sequences, for the kernel, if counters are reached by them
//! ```
//!
//! A branch with no instruments on its edge targets the text or a copy of the patch directly. There is one stub an edge,
//! and one copy a span: a continuation whose code has been copied jumps there, so a patch may contain a loop of the
//! original. The end of a copy is an `Exit`: to the text, to another copy of the patch, or to a continuation that
//! follows. Where the code of a branch's taken edge is to follow rather than that of the next instruction (the other edge
//! has none, or the branch goes backwards, as a loop's does), the copy has the negated condition.
//!
//! Besides saved registers on the stack (pushes and pops balance, and step over the red zone if the target has one),
//! generated code accesses words of the segment, the slot of the ring that it has just reserved, and entries of the table of
//! storage. It takes no lock, and calls only native instruments. The instruments' only loop is the retry of a
//! reservation, which fails only if an interrupt or a migration came between: the interrupting writer made
//! progress (lock-free).
//!
//! A word of a process is updated by a restartable sequence: the address of its descriptor is stored in the
//! thread's `struct rseq`, the number of the CPU is read, and one update of that CPU's word is the last instruction: of
//! a counter, or, after a slot is filled, of the head of a ring. A thread that loses its CPU between is set back by the
//! kernel to before the store.

mod assemble;
mod compile;
mod cost;
mod emit;
mod entry;
mod group;
mod instrument;
mod native;
mod pieces;
mod registers;
mod restartable;
mod shared_ring;

use std::ops::Range;

use gilk_instruments::Native;

use crate::layout::CounterSlot;
use crate::unwind::Row;
use crate::{Addr, InstrumentId};

pub(crate) use registers::given;

pub use assemble::{Assembler, Hooks, Originals};
pub use compile::{Home, Homes, Probed};
pub(crate) use compile::{is_stacked, may_fault};
pub use cost::HitWork;
pub use entry::{TIMER_BYTES, TIMER_FACTOR};
pub use pieces::{Packed, Pieces};

/// One instrument at one hook, as the code generator needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hooked<'p> {
    /// Its identifier, which also names the hook and the block.
    pub id: InstrumentId,
    /// The code of a hit.
    pub program: HookProgram<'p>,
    /// The counter of an instrument that counts its hits.
    pub counter: Option<CounterSlot>,
}

/// The code of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookProgram<'p> {
    /// A probe of an instrument in the language.
    Probe(&'p Probed),
    /// A call of a native function.
    Native(Called<'p>),
    /// A branch to the function at this address, which replaces the original one. What follows is the way back: the rest
    /// of the instruments and the original function, with the state of a call.
    Replaced(Addr),
}

/// A function of an object file, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called<'p> {
    /// The function and its parameters.
    pub native: &'p Native,
    /// Its address in the arena.
    pub entry: Addr,
}

/// The kind of a stretch of a patch, for screens; [`verify`](mod@crate::verify) does not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PieceKind {
    /// Saves registers and flags that are live.
    Save,
    /// An instrument's code.
    Instrument(InstrumentId),
    /// Restores what was saved.
    Restore,
    /// Original instructions at their new place.
    Relocated,
    /// The branch back to the original code, or to a copy of it in the patch.
    Terminating,
    /// Counts a sample that an instrument could not deliver, and goes back to its end.
    Lost(InstrumentId),
    /// Descriptors of restartable sequences, which the kernel reads.
    Descriptors,
}

/// A stretch of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Kind of the stretch.
    pub kind: PieceKind,
    /// Its bytes, from the start of the patch.
    pub range: Range<u32>,
    /// Instructions that a hit runs here on the usual way: nothing lost, no retry, and a
    /// conditional branch of the block not taken.
    pub executed: u32,
}

/// An instruction of a patch that may fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bytes from the start of the patch.
    pub at: u32,
    /// Recovery from the fault.
    pub recovery: Recovery<u32>,
}

/// Recovery from a fault of an instruction in a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery<Place = Addr> {
    /// Execution continues elsewhere in the same patch, with the same registers.
    At(Place),
    /// All that it does when the original instruction there faults, whose copy this one is: it goes by
    /// that one's entry in the exception table.
    Like(Addr),
}

/// A patch's bytes and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The bytes, for the address they were assembled for.
    pub bytes: Vec<u8>,
    /// Descriptors of restartable sequences at the end of the bytes, 32 bytes each.
    pub sequences: u32,
    /// Rows from the first byte on, in order; none if the layout has no unwinding.
    pub rows: Vec<Row>,
    /// Instructions that may fault, in order.
    pub faults: Vec<Fault>,
    /// Stretches in order; together they cover all bytes.
    pub pieces: Vec<Piece>,
}
