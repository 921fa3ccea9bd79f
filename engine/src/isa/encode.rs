//! Encodings that the planner writes without an encoder, and operands in memory.

use iced_x86::{MemoryOperand, Register};

use crate::Addr;

/// `int3`: stops a processor that speculates past the end of a path.
pub(crate) const INT3: u8 = 0xcc;

/// Opcode of `call rel32`.
pub(crate) const CALL: u8 = 0xe8;

/// The recommended nops of one to nine bytes (Intel SDM 2B, NOP).
pub(crate) const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0],
    &[0x0f, 0x1f, 0x44, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
];

/// The displacement of a `rel32` that ends at `end`, to `target`.
pub(crate) fn rel32(end: Addr, target: Addr) -> Option<[u8; 4]> {
    i32::try_from(end.to(target)).ok().map(i32::to_le_bytes)
}

/// Returns `jmp rel32` at `at`, the form of splices and of terminating branches; `None` if the target is out of its reach.
#[must_use]
pub fn jump(at: Addr, target: Addr) -> Option<[u8; 5]> {
    let [a, b, c, d] = rel32(at.add(5), target)?;
    Some([0xe9, a, b, c, d])
}

/// `call rel32` at `at`.
pub(crate) fn call(at: Addr, target: Addr) -> Option<[u8; 5]> {
    let [a, b, c, d] = rel32(at.add(5), target)?;
    Some([CALL, a, b, c, d])
}

/// `[base + displacement]`.
pub(crate) fn at(base: Register, displacement: i64) -> MemoryOperand {
    indexed(base, Register::None, 1, displacement)
}

/// `[base + index * scale + displacement]`.
pub(crate) fn indexed(
    base: Register,
    index: Register,
    scale: u32,
    displacement: i64,
) -> MemoryOperand {
    MemoryOperand::new(
        base,
        index,
        scale,
        displacement,
        u32::from(displacement != 0),
        false,
        Register::None,
    )
}
