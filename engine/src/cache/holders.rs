//! The registers that hold the recorder's values while a block executes: two that it does not name.

use iced_x86::Register;

use crate::isa::RegisterSet;

/// Returns whether a block that names some registers leaves two to the recorder.
pub(super) fn are_enough(named: RegisterSet) -> bool {
    holders(named).count() >= 2
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
