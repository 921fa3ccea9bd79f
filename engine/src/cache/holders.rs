//! The register that holds the recorder's value while a block executes: one that it does not name.

use iced_x86::Register;

use crate::isa::RegisterSet;

/// Returns whether a block that names some registers leaves one to the recorder.
pub(super) fn leaves_one(named: RegisterSet) -> bool {
    holders(named).next().is_some()
}

/// Registers that a block does not name: `rcx` first, which tests of the area need.
pub(super) fn holders(named: RegisterSet) -> impl Iterator<Item = Register> {
    let mut all = RegisterSet::ALL.difference(named);
    all.remove(Register::RSP);
    let rcx = all.contains(Register::RCX).then_some(Register::RCX);
    all.remove(Register::RCX);
    let all: Vec<Register> = rcx.into_iter().chain(all.iter()).collect();
    all.into_iter()
}
