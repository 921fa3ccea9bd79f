//! Conventions of the target that generated code follows, beyond the calling convention.

use iced_x86::Register;
use serde::{Deserialize, Serialize};

/// An offset from the base of the target's segment: `gs:[offset]`, or `fs:[offset]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SegmentOffset(pub u64);

impl SegmentOffset {
    /// The offset as a sign-extended 32-bit displacement, if it is one.
    #[must_use]
    pub fn near(self) -> Option<i32> {
        i32::try_from(self.0.cast_signed()).ok()
    }
}

/// Conventions of a target, as data. The planner and the verifier read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Abi {
    /// The segment through which generated code reaches its words.
    pub segment: WordSegment,
    /// Bytes below the stack pointer that the target's code may use without moving it: pushes of generated
    /// code first step over them. 128 in user space (System V ABI, 3.2.2), 0 in the kernel, which is compiled
    /// with `-mno-red-zone`. A multiple of 8, at most 128.
    pub red_zone: u8,
    /// Form of the push of a moved call's return address.
    pub return_push: ReturnPush,
    /// True if the processor compares return addresses with a second stack (Intel SDM, vol. 1, chapter 17):
    /// a return to a pushed address faults there, so that no call is moved
    /// ([`Rule::ShadowStack`](crate::Rule::ShadowStack)).
    pub shadow_stack: bool,
    /// True if a near jump through memory or a register may be moved: in user space. A kernel's stays where its
    /// mitigations put it.
    pub moves_indirect_jumps: bool,
}

impl Abi {
    /// Conventions of a Linux kernel on x86-64.
    pub const KERNEL: Self = Self {
        segment: WordSegment::Gs,
        red_zone: 0,
        return_push: ReturnPush::Whole,
        shadow_stack: false,
        moves_indirect_jumps: false,
    };

    /// Conventions of a Linux process on x86-64, whose thread-local words are at `fs`.
    pub const PROCESS: Self = Self {
        segment: WordSegment::Fs,
        red_zone: 128,
        return_push: ReturnPush::Halves,
        shadow_stack: false,
        moves_indirect_jumps: true,
    };
}

/// The segment whose base is that of the words of a CPU, or of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WordSegment {
    /// `gs`: per-CPU words of the kernel.
    Gs,
    /// `fs`: thread-local words of user space.
    Fs,
}

impl WordSegment {
    /// Its register, as operands name it.
    #[must_use]
    pub const fn register(self) -> Register {
        match self {
            Self::Gs => Register::GS,
            Self::Fs => Register::FS,
        }
    }
}

/// Form of the push of a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReturnPush {
    /// `push imm32`, sign-extended: for code in the top or bottom 2 GiB.
    Whole,
    /// `push imm32` of the lower half, then `mov dword ptr [rsp+4], imm32` of the upper half: for code anywhere.
    Halves,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displacements_are_sign_extended() {
        assert_eq!(SegmentOffset(0x7fff_ffff).near(), Some(0x7fff_ffff));
        assert_eq!(SegmentOffset(0x8000_0000).near(), None);
        assert_eq!(SegmentOffset(0xffff_ffff_ffff_ff00).near(), Some(-0x100));
    }
}
