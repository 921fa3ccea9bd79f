//! Sets of registers and flags, and the effect of each instruction on them.

use iced_x86::{ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};

/// A set of general registers (bit = number, rax 0 … r15 15) and status flags (bits 16 and up, in
/// the order of the decoder).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Mask(pub(crate) u32);

/// First bit of the flags in a [`Mask`].
const FLAGS_FROM: u32 = 16;
/// OF, SF, ZF, AF, CF, PF in the numbering of `iced_x86::RflagsBits`: the flags of arithmetic.
pub(crate) const STATUS: u32 = 0x3f;

const RAX: u32 = 1;
const RCX: u32 = 1 << 1;
const RDX: u32 = 1 << 2;
const RBX: u32 = 1 << 3;
const RSP: u32 = 1 << 4;
const RBP: u32 = 1 << 5;
const RSI: u32 = 1 << 6;
const RDI: u32 = 1 << 7;
const R8: u32 = 1 << 8;
const R9: u32 = 1 << 9;
const R10: u32 = 1 << 10;
const R11: u32 = 1 << 11;
const R12_TO_R15: u32 = 0xf << 12;

impl Mask {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(0xffff | STATUS << FLAGS_FROM);
    pub(crate) const FLAGS: Self = Self(STATUS << FLAGS_FROM);
    /// Registers that compiled C may read at its entry: the integer arguments, al for variadic
    /// calls, the stack pointer (System V ABI, 3.2.3).
    pub(crate) const CALL: Self = Self(RDI | RSI | RDX | RCX | R8 | R9 | RAX | RSP);
    /// Registers that compiled C may overwrite (System V ABI, 3.2.1).
    pub(crate) const CLOBBERED: Self =
        Self(RAX | RCX | RDX | RSI | RDI | R8 | R9 | R10 | R11 | STATUS << FLAGS_FROM);
    /// Registers that the caller of compiled C may read after the return.
    pub(crate) const RETURN: Self = Self(RAX | RDX | RBX | RSP | RBP | R12_TO_R15);

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the flags, in the numbering of the decoder.
    pub(crate) fn flags(self) -> u32 {
        self.0 >> FLAGS_FROM
    }

    pub(crate) fn of_flags(flags: u32) -> Self {
        Self((flags & STATUS) << FLAGS_FROM)
    }

    pub(crate) fn of_register(number: u8) -> Self {
        debug_assert!(number < 16, "general register {number}");
        Self(1u32.checked_shl(number.into()).unwrap_or(0) & 0xffff)
    }

    pub(crate) fn has_register(self, number: u8) -> bool {
        !Self(self.0 & Self::of_register(number).0).is_empty()
    }
}

/// Returns the number of a general register or of a part of one.
pub(crate) fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    if full.is_gpr64() {
        u8::try_from(full.number()).ok()
    } else {
        None
    }
}

/// Returns the number of the register of an integer argument (System V ABI, 3.2.3).
pub(crate) fn argument_number(argument: u8) -> Option<u8> {
    let registers = [
        Register::RDI,
        Register::RSI,
        Register::RDX,
        Register::RCX,
        Register::R8,
        Register::R9,
    ];
    registers
        .get(usize::from(argument))
        .copied()
        .and_then(number)
}

/// Returns the name of a general register.
pub(crate) fn name(number: u8) -> &'static str {
    const NAMES: [&str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];
    NAMES.get(usize::from(number)).copied().unwrap_or("?")
}

/// Describes a set in messages.
pub(crate) fn names(mask: Mask) -> String {
    let mut names: Vec<&str> = (0..16)
        .filter(|&register| mask.has_register(register))
        .map(name)
        .collect();
    if mask.flags() != 0 {
        names.push("the flags");
    }
    names.join(", ")
}

/// Returns the registers and flags that an instruction may read, those that it overwrites
/// completely, and those that it may change.
pub(crate) fn of(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> (Mask, Mask, Mask) {
    if is_answered(instruction) {
        return (Mask::ALL, Mask::NONE, Mask::ALL);
    }
    let (mut reads, mut kills, mut changes) = (Mask::NONE, Mask::NONE, Mask::NONE);
    let certain = !is_partial(instruction);
    for used in factory.info(instruction).used_registers() {
        let Some(register) = number(used.register()).map(Mask::of_register) else {
            continue;
        };
        // A write of 32 bits clears the upper half; one of 8 or 16 keeps the rest.
        let whole = certain && used.register().size() >= 4;
        match used.access() {
            OpAccess::None | OpAccess::NoMemAccess => {}
            OpAccess::Read | OpAccess::CondRead => reads = reads.union(register),
            OpAccess::Write | OpAccess::ReadWrite => {
                changes = changes.union(register);
                kills = if whole { kills.union(register) } else { kills };
                reads = if used.access() == OpAccess::ReadWrite {
                    reads.union(register)
                } else {
                    reads
                };
            }
            OpAccess::CondWrite | OpAccess::ReadCondWrite => {
                changes = changes.union(register);
                reads = if used.access() == OpAccess::ReadCondWrite {
                    reads.union(register)
                } else {
                    reads
                };
            }
        }
    }
    reads = reads.union(Mask::of_flags(instruction.rflags_read()));
    // `modified` includes flags that are undefined afterwards: no code reads what they were before.
    kills = kills.union(Mask::of_flags(
        instruction.rflags_modified() & !conditional_flags(instruction),
    ));
    changes = changes.union(Mask::of_flags(instruction.rflags_modified()));
    (reads, kills, changes)
}

/// Returns whether the instruction is handled outside of this kernel, by rules of its own for all
/// registers: by hypervisors (some of which intercept ports), firmware, enclaves, other modes of
/// the processor.
pub(crate) fn is_answered(instruction: &Instruction) -> bool {
    let io = matches!(
        instruction.mnemonic(),
        Mnemonic::In
            | Mnemonic::Out
            | Mnemonic::Insb
            | Mnemonic::Insw
            | Mnemonic::Insd
            | Mnemonic::Outsb
            | Mnemonic::Outsw
            | Mnemonic::Outsd
    );
    io || is_transfer(instruction)
}

fn is_transfer(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Vmcall
            | Mnemonic::Vmmcall
            | Mnemonic::Vmfunc
            | Mnemonic::Vmlaunch
            | Mnemonic::Vmresume
            | Mnemonic::Enclu
            | Mnemonic::Vmrun
            | Mnemonic::Vmgexit
            | Mnemonic::Tdcall
            | Mnemonic::Seamcall
            | Mnemonic::Encls
            | Mnemonic::Enclv
            | Mnemonic::Getsec
            | Mnemonic::Pconfig
            | Mnemonic::Syscall
            | Mnemonic::Sysenter
            | Mnemonic::Sysexit
            | Mnemonic::Sysexitq
            | Mnemonic::Sysret
            | Mnemonic::Sysretq
            | Mnemonic::Iret
            | Mnemonic::Iretd
            | Mnemonic::Iretq
            | Mnemonic::Rsm
    )
}

/// Returns whether it may keep its destination: a source of zero, a failed condition, no
/// repetition.
fn is_partial(instruction: &Instruction) -> bool {
    let names = [
        Mnemonic::Bsf,
        Mnemonic::Bsr,
        Mnemonic::Lar,
        Mnemonic::Lsl,
        Mnemonic::Cmpxchg,
        Mnemonic::Cmpxchg8b,
        Mnemonic::Cmpxchg16b,
    ];
    names.contains(&instruction.mnemonic())
        || instruction.has_rep_prefix()
        || instruction.has_repne_prefix()
        || instruction.condition_code() != ConditionCode::None
}

/// Returns the flags that an instruction writes conditionally: shifts and rotates by cl keep all
/// flags when the count is 0, and repeated string comparisons when rcx is 0.
fn conditional_flags(instruction: &Instruction) -> u32 {
    let by_cl = (0..instruction.op_count())
        .skip(1)
        .any(|operand| instruction.op_register(operand) == Register::CL);
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if by_cl || repeated { STATUS } else { 0 }
}
