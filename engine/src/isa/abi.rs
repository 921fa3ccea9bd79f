//! The System V calling convention of x86-64, as the planner uses it; [`verify`](mod@crate::verify) has
//! its own reading.

use gilk_instruments::program::{Gpr, Input};
use iced_x86::Register;

use super::RegisterSet;

/// The registers of integer arguments, by number (System V ABI, AMD64 supplement, 3.2.3).
pub const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];

/// The registers that a called function may change (System V ABI, 3.2.1).
pub(crate) const CALLER_SAVED: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// The registers that a system call changes (System V ABI, A.2.1): the result, and what `syscall` stores the place and the
/// flags in.
pub(crate) const CHANGED_BY_SYSTEM_CALL: [Register; 3] =
    [Register::RAX, Register::RCX, Register::R11];

/// The registers that a called function returns with the values they had.
pub(crate) const CALLEE_SAVED: [Register; 7] = [
    Register::RBX,
    Register::RBP,
    Register::RSP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Returns the register that carries an integer argument; `None` for those on the stack.
pub(crate) fn argument(number: u8) -> Option<Register> {
    ARGUMENTS.get(usize::from(number)).copied()
}

/// Returns the register that holds an input of a program before its hook's instruction. Not of
/// `rsp`: instruments run with another stack pointer than the code at their hook.
pub(crate) fn input_register(input: Input) -> Option<Register> {
    match input {
        Input::Argument(number) => argument(number),
        Input::Returned => Some(Register::RAX),
        Input::Register(Gpr::Rsp) => None,
        Input::Register(gpr) => {
            let number = Gpr::ALL.iter().position(|other| *other == gpr)?;
            RegisterSet::numbered(number)
        }
        _ => None,
    }
}

/// Returns the low byte of a general-purpose register.
pub(crate) fn low_byte(register: Register) -> Register {
    let all = [
        Register::AL,
        Register::CL,
        Register::DL,
        Register::BL,
        Register::SPL,
        Register::BPL,
        Register::SIL,
        Register::DIL,
        Register::R8L,
        Register::R9L,
        Register::R10L,
        Register::R11L,
        Register::R12L,
        Register::R13L,
        Register::R14L,
        Register::R15L,
    ];
    debug_assert!(register.is_gpr(), "{register:?} has no low byte");
    all.get(register.number())
        .copied()
        .unwrap_or(Register::None)
}

/// Returns the low two bytes of a general-purpose register.
pub(crate) fn low_word(register: Register) -> Register {
    let all = [
        Register::AX,
        Register::CX,
        Register::DX,
        Register::BX,
        Register::SP,
        Register::BP,
        Register::SI,
        Register::DI,
        Register::R8W,
        Register::R9W,
        Register::R10W,
        Register::R11W,
        Register::R12W,
        Register::R13W,
        Register::R14W,
        Register::R15W,
    ];
    debug_assert!(register.is_gpr(), "{register:?} has no low word");
    all.get(register.number())
        .copied()
        .unwrap_or(Register::None)
}
