//! The kind of a target.

/// The kind of target that an image is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A Linux kernel.
    Kernel,
    /// A program or a shared library, in a file or as a process has it.
    Object,
}
