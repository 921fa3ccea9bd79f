//! The kind of a target.

/// The kind of target that an image is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A Linux kernel.
    Kernel,
    /// A program or a shared library. There is no runtime for its patches yet, so that nothing is planned
    /// for it.
    Object,
}
