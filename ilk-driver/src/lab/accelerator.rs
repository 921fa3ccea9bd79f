//! The accelerators of the lab.

/// QEMU's way of executing the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accelerator {
    /// Execution by the processor itself.
    Kvm,
    /// Translation of all CPUs on one thread: with a thread per CPU, QEMU 7.2 continues to execute
    /// old translations after another CPU has written text.
    Emulate,
    /// Emulation of one CPU whose time stamp counter counts instructions, without KASLR: for
    /// reproducible measurements.
    CountInstructions,
}

impl Accelerator {
    /// Returns its arguments for QEMU.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm"],
            Self::Emulate => &["-accel", "tcg,thread=single"],
            Self::CountInstructions => &["-accel", "tcg,thread=single", "-icount", "shift=0"],
        }
    }

    /// Returns QEMU's name of the processor.
    ///
    /// QEMU 7.2 leaves wrong flags after an emulated cmpxchg16b, the trap flag among them: code that pushes them then,
    /// an interrupt too, is single-stepped. And it repeats `rep movsb` and `rep stosb` byte by byte: a kernel that is
    /// not promised that they are fast copies and clears by words, which takes a quarter of the time from the lab's tests.
    pub(super) fn processor(self) -> &'static str {
        match self {
            Self::Kvm => "max",
            Self::Emulate => "max,-cx16,-erms",
            // The instructions that were measured are those of a kernel with all that processors have.
            Self::CountInstructions => "max,-cx16",
        }
    }

    /// Returns its name for users.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Emulate => "emulation",
            Self::CountInstructions => "emulation that counts instructions",
        }
    }
}
