//! Memory that programs may read.

use serde::{Deserialize, Serialize};

use crate::Addr;

/// The test of an address before a program reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Guard {
    /// None is known: programs that read memory are refused ([`Rule::Unguarded`](crate::Rule::Unguarded)).
    Missing,
    /// Addresses below this one, compared with sign, may be read: a fault there reaches the recovery. At other
    /// addresses a fault would not, or the memory is another's. The bound is a sign-extended 32-bit number.
    Below(Addr),
    /// Every address may be read: a fault reaches the recovery wherever it is.
    Everywhere,
}

impl Guard {
    /// Memory of a Linux kernel on x86-64: the upper half of the address space, up to the page that processes may
    /// call into (`VSYSCALL_ADDR` of arch/x86/include/uapi/asm/vsyscall.h). A fault of the kernel there, or in
    /// memory of a process, does not reach a fixup (`copy_from_kernel_nofault_allowed` of arch/x86/mm/maccess.c).
    pub const KERNEL: Self = Self::Below(Addr(0xffff_ffff_ff60_0000 - 8));
}
