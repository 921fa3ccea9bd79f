//! Rows for the target's stack unwinder: how it finds the callers of a thread interrupted inside a patch.

use crate::Addr;

/// An unwind entry of a patch, valid up to the next row: the stack is that of the original
/// instruction whose copy executes, or is about to, below the bytes that the patch has pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Bytes from the start of the patch.
    pub at: u32,
    /// Bytes pushed, beyond those that the original code has on the stack there.
    pub pushed: u32,
    /// The original instruction.
    pub original: Addr,
}
