//! The permissions of clients.

/// Permissions of clients beyond verified plans. Each of them equals root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// A session's workload is executed, as root.
    pub run: bool,
    /// Functions of object files are executed in the kernel; nothing verifies them.
    pub native: bool,
    /// Instruments read memory, and splices stand in assembly, on a kernel that the lists of functions by name were not
    /// compared with.
    pub unknown_kernel: bool,
}
