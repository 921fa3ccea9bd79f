//! Expressions: what is read, and what is made of it.

use super::{BinaryOp, Event, Span, UnaryOp, VariableId};

/// The type of a value: 64 bits, with a sign or without. Narrower integers of C are extended when they are read; where a `u64` meets an `i64`, both are `u64`, as in C.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub enum Type {
    /// With a sign.
    I64,
    /// Without.
    #[default]
    U64,
}

impl Type {
    /// The type of what both together make.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        if self == Self::I64 && other == Self::I64 {
            Self::I64
        } else {
            Self::U64
        }
    }

    /// Returns whether it has a sign.
    #[must_use]
    pub fn signed(self) -> bool {
        self == Self::I64
    }
}

/// Bytes read or kept.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Width {
    /// One byte.
    B1,
    /// Two.
    B2,
    /// Four.
    B4,
    /// Eight.
    B8,
}

impl Width {
    /// The width of so many bytes.
    #[must_use]
    pub fn of(bytes: u64) -> Option<Self> {
        match bytes {
            1 => Some(Self::B1),
            2 => Some(Self::B2),
            4 => Some(Self::B4),
            8 => Some(Self::B8),
            _ => None,
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::B1 => 1,
            Self::B2 => 2,
            Self::B4 => 4,
            Self::B8 => 8,
        }
    }

    /// The low bytes of `value`, extended to 64 bits with their sign or with zeroes.
    #[must_use]
    pub fn extend(self, value: u64, signed: bool) -> u64 {
        let spare = 64 - 8 * self.bytes();
        if signed {
            ((value << spare).cast_signed() >> spare).cast_unsigned()
        } else {
            (value << spare) >> spare
        }
    }
}

/// A general register.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[expect(missing_docs, reason = "they are the processor's names")]
pub enum Gpr {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

impl Gpr {
    /// All of them, in the order in which instructions number them.
    pub const ALL: [Self; 16] = [
        Self::Rax,
        Self::Rcx,
        Self::Rdx,
        Self::Rbx,
        Self::Rsp,
        Self::Rbp,
        Self::Rsi,
        Self::Rdi,
        Self::R8,
        Self::R9,
        Self::R10,
        Self::R11,
        Self::R12,
        Self::R13,
        Self::R14,
        Self::R15,
    ];

    /// Their names without the `r` of `rax`, in the same order.
    pub const NAMES: [&str; 16] = [
        "ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15",
    ];

    /// The register that is called `ax` or `rax`, `r8`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let long = name
            .strip_prefix('r')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        let mut known = Self::NAMES.iter().zip(Self::ALL);
        let found = known.find(|(known, _)| **known == name || Some(**known) == long);
        found.map(|(_, register)| register)
    }
}

/// The first or the second eight bytes of the name of a thread.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[expect(missing_docs, reason = "the type says it")]
pub enum Half {
    First,
    Second,
}

/// A value of the machine at the hook. All are `u64`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Input {
    /// An integer argument as the function was called with it. 0 to 5 are rdi, rsi, rdx, rcx, r8, r9;
    /// from 6 on they are on the stack, eight bytes each, above the return address.
    Argument(u8),
    /// The returned value: rax at a return.
    Returned,
    /// A register as the code at the hook has it.
    Register(Gpr),
    /// The address of the running thread's `task_struct`.
    Task,
    /// The process number as users know it (`tgid`).
    Pid,
    /// The thread's number (`pid` of its `task_struct`).
    Tid,
    /// Eight of the sixteen bytes of the thread's name, as a little-endian number. They are zero
    /// after the name's end.
    Comm(Half),
    /// The number of the processor.
    Cpu,
    /// The time-stamp counter.
    Tsc,
    /// Nanoseconds of the target's monotonic clock: the time-stamp counter times a factor, and a word that the
    /// target keeps.
    Nsecs,
    /// The index of the block at whose hook this runs.
    Block,
    /// The identifier of the instrument at this hook, as it stands in samples.
    Identifier,
    /// The count of an event on this processor. Without a counter it yields 0, and counts as a fault.
    Event(Event),
    /// A number of the kernel's stack at the hook: a hash of the addresses of at most so many frames, the hook's
    /// first. The target keeps the addresses of each number.
    KernelStack(u8),
    /// The same of the running process's stack, by its frame pointers: a hash of the process and the addresses of at
    /// most so many frames, that of the next instruction of the process first.
    UserStack(u8),
}

/// A read of the running process by the target's code.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum UserRead {
    /// So many bytes, extended with zeroes.
    Bytes(Width),
    /// Eight of the first sixteen bytes of a text, with zeroes after its end; the last of the sixteen is
    /// [`Key::CUT`](super::Key::CUT) if none of them ends it.
    Text(Half),
    /// A number of the address, like that of a stack of one frame: the target keeps the address and the process.
    /// Nothing is read there.
    Name,
    /// The number of the process that executes, 32 bits, in a program of a process. Nothing is read at the address.
    Process,
    /// Eight bytes of the name of the thread that executes, with zeroes after its end, in a program of a process. Nothing
    /// is read at the address.
    Comm(Half),
}

impl Input {
    /// Most frames of a stack (`ILK_STACK_DEPTH` of `ilk_abi.h`).
    pub const STACK_DEPTH: u8 = 126;
}

/// An expression: 64 bits when it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// The operation.
    pub kind: ExprKind,
    /// Type of the result.
    pub ty: Type,
    /// Span in the source.
    pub span: Span,
}

/// The operation of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprKind {
    /// These bits.
    Constant(u64),
    /// Something of the machine.
    Input(Input),
    /// The value of a variable.
    Variable(VariableId),
    /// Kernel memory, extended to 64 bits. An address that cannot be read reads as 0 and counts as a
    /// fault.
    Load {
        /// Where.
        address: Box<Expr>,
        /// Size of the access.
        width: Width,
        /// True if the value is extended with its sign.
        signed: bool,
    },
    /// Memory of the running process, or the number of its address. What cannot be read reads as 0 and counts as a
    /// fault, as for a load.
    User {
        /// The part that is read.
        read: UserRead,
        /// Where.
        address: Box<Expr>,
    },
    /// The low bytes, extended: a cast to a narrower type.
    Extend {
        /// The operand.
        value: Box<Expr>,
        /// Bytes that are kept.
        width: Width,
        /// True if they are extended with their sign.
        signed: bool,
    },
    /// An operator of one operand.
    Unary(UnaryOp, Box<Expr>),
    /// An operator of two, the left one computed first.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `&&`: 1 or 0; the right one is not computed if the left one is 0.
    And(Box<Expr>, Box<Expr>),
    /// `||`: 1 or 0; the right one is not computed if the left one is not 0.
    Or(Box<Expr>, Box<Expr>),
    /// `condition ? yes : no`; only one of the two is computed.
    Select {
        /// Which.
        condition: Box<Expr>,
        /// If it is not 0.
        yes: Box<Expr>,
        /// If it is 0.
        no: Box<Expr>,
    },
    /// The words of a key and, after them, the value if there is one. Only the argument of an update of an
    /// aggregate with keys is such a list; it has no value of its own.
    List(Box<[Expr]>),
}

impl Expr {
    /// The operands, in the order in which they are computed.
    #[must_use]
    pub fn operands(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Constant(_) | ExprKind::Input(_) | ExprKind::Variable(_) => Vec::new(),
            ExprKind::Load { address: one, .. }
            | ExprKind::User { address: one, .. }
            | ExprKind::Extend { value: one, .. }
            | ExprKind::Unary(_, one) => vec![one],
            ExprKind::Binary(_, left, right)
            | ExprKind::And(left, right)
            | ExprKind::Or(left, right) => vec![left, right],
            ExprKind::Select { condition, yes, no } => vec![condition, yes, no],
            ExprKind::List(all) => all.iter().collect(),
        }
    }

    /// Returns whether it is a number of a stack, or of an address of a process.
    #[must_use]
    pub fn is_stack(&self) -> bool {
        matches!(
            self.kind,
            ExprKind::Input(Input::KernelStack(_) | Input::UserStack(_))
                | ExprKind::User {
                    read: UserRead::Name,
                    ..
                }
        )
    }

    /// Returns whether the target's code that reads processes is called for the expression itself.
    #[must_use]
    pub fn is_of_process(&self) -> bool {
        matches!(
            self.kind,
            ExprKind::Input(Input::UserStack(_)) | ExprKind::User { .. }
        )
    }

    /// Returns whether `is` holds for the expression or a part of it.
    pub fn any(&self, is: &mut impl FnMut(&Self) -> bool) -> bool {
        is(self) || self.operands().iter().any(|operand| operand.any(is))
    }

    /// The inputs that it reads.
    #[must_use]
    pub fn inputs(&self) -> Vec<Input> {
        let mut inputs = Vec::new();
        self.any(&mut |node| {
            if let ExprKind::Input(input) = node.kind
                && !inputs.contains(&input)
            {
                inputs.push(input);
            }
            false
        });
        inputs
    }

    /// Values that are waited with at most at a time: what a straightforward translation, which
    /// computes from left to right and keeps each value in a register, needs.
    #[must_use]
    pub fn registers(&self) -> u32 {
        match &self.kind {
            ExprKind::Constant(_) | ExprKind::Input(_) | ExprKind::Variable(_) => 1,
            ExprKind::Binary(_, left, right) => left.registers().max(right.registers() + 1),
            ExprKind::List(all) => (0..)
                .zip(all)
                .map(|(before, one)| before + one.registers())
                .max()
                .unwrap_or(1),
            _ => self
                .operands()
                .iter()
                .map(|operand| operand.registers())
                .max()
                .unwrap_or(1),
        }
    }
}
