//! The code patch: instrument code, relocated sequence, terminating branch.
//!
//! ```text
//! entry                    instruments of Point::Entry: save, code in order, restore
//! relocated sequence       copy of what is displaced, with the instruments of Point::Before
//!                          and, where it runs on, of Point::On in the line
//! terminating branch       or more original code: a run-on's copy, like the relocated sequence
//! stubs                    for branches of the copies with instruments or a run-on on their way:
//!                          the instruments, then a terminating branch or a run-on's copy
//! lost                     the rare ways of the instruments: count the loss and jump back
//! ```
//!
//! A branch with nothing on its way leads to the text at once. There is one stub an edge, and one copy
//! a span: a run-on to what is copied already jumps there, so a patch may have a loop of the original.
//!
//! What generated code touches, besides saved registers on the stack (pushes and pops balance, the
//! kernel has no red zone): `gs:` words of the layout, the slot of the ring that it has just
//! reserved, and the entry of its timer. It takes no lock, and calls nothing but native instruments. The instruments' only cycle is
//! the retry of a reservation, which fails only if an interrupt, or a migration, came between:
//! whoever came has made progress.

mod assemble;
mod compile;
mod emit;
mod entry;
mod instrument;
mod native;
mod pieces;
mod registers;

use std::ops::Range;

use gilk_instruments::Native;

use crate::layout::CounterSlot;
use crate::unwind::Row;
use crate::{Addr, InstrumentId};

pub(crate) use registers::given;

pub use assemble::{Assembler, Hooks, Originals};
pub use compile::{Home, Homes, Probed};
pub(crate) use compile::{is_stacked, may_fault};
pub use entry::{TIMER_BUSY, TIMER_BYTES, TIMER_FACTOR};
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
}

/// A function of an object file, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called<'p> {
    /// What it is called with.
    pub native: &'p Native,
    /// Where it begins, in the arena.
    pub entry: Addr,
}

/// What a stretch of a patch is, for screens; [`verify`](mod@crate::verify) does not believe it.
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
}

/// A stretch of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
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
    /// What the kernel does then.
    pub recovery: Recovery<u32>,
}

/// What the kernel does when an instruction of a patch faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery<Place = Addr> {
    /// It goes on elsewhere in the same patch, registers as they are.
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
    /// Rows from the first byte on, in order; none where the layout says that nobody unwinds.
    pub rows: Vec<Row>,
    /// Instructions that may fault, in order.
    pub faults: Vec<Fault>,
    /// Stretches in order; together they cover all bytes.
    pub pieces: Vec<Piece>,
}
