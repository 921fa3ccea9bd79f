//! Functions of an image.

use serde::{Deserialize, Serialize};

use crate::Span;
use crate::ids::id;

id!(
    /// Index of a function in its image.
    #[derive(Default, Serialize, Deserialize)]
    pub FunctionId(pub)
);

/// The knowledge about a function's use of registers, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Contract {
    /// It keeps the System V calling convention. Of a kernel's functions, those with a tracer site: GCC
    /// compiled them with `-pg`, and "-fipa-ra is disabled when generating code for profiling" (GCC's
    /// manual).
    Believed,
    /// It may keep another convention; its code is read.
    Read,
    /// Unknown, and not to be read from its code either: thunks, and parts of functions.
    Unknown,
}

/// A function symbol and its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its index in [`Image::functions`](crate::Image::functions).
    pub id: FunctionId,
    /// The symbol; of several at one address, the one that people write.
    pub name: String,
    /// Its bytes, without the padding after them.
    pub span: Span,
    /// Its use of registers.
    pub contract: Contract,
    /// True for a part that the compiler split off a function, `f.cold`: entered only by
    /// branches, without a convention.
    pub part: bool,
    /// True if the target may execute it while it handles a fault: code there that faults each time
    /// would never end.
    pub handles_faults: bool,
}

impl Function {
    /// Returns whether it is a part that the compiler split off a function.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.part
    }
}
