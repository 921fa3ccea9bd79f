//! Values: each into a register of its own, from left to right.

use gilk_instruments::program::{
    BinaryOp, Event, Expr, ExprKind, Gpr, Half, Input, UnaryOp, UserRead, VariableId, Width,
};
use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::demand::is_truth;
use super::{Compiler, Home, Leaf, leaf, ops};
use crate::Addr;
use crate::isa::abi::{input_register, low_byte, low_word};
use crate::isa::encode::at;
use crate::layout::{CounterSlot, Guard, InputLocation, SegmentOffset, Sequences};
use crate::patch::instrument::{Failing, Lost, count_failed, read_tsc, whole};
use crate::stacks::StackReader;

/// The second operand of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Register(Register),
    /// A saved register: bytes from the stack pointer.
    Saved(i64),
    Number(i32),
}

impl Compiler<'_> {
    pub(super) fn op(&mut self, code: Code, to: Register, from: Register) {
        self.e.op(Instruction::with2(code, to, from));
    }

    pub(super) fn number(&mut self, code: Code, to: Register, number: i32) {
        self.e.op(Instruction::with2(code, to, number));
    }

    pub(super) fn copy(&mut self, to: Register, from: Register) {
        if to != from {
            self.op(Code::Mov_r64_rm64, to, from);
        }
    }

    /// Changes no flag.
    pub(super) fn constant(&mut self, to: Register, bits: u64) {
        self.e.op(if let Ok(small) = u32::try_from(bits) {
            Instruction::with2(Code::Mov_r32_imm32, to.full_register32(), small)
        } else if let Ok(small) = i32::try_from(bits.cast_signed()) {
            Instruction::with2(Code::Mov_rm64_imm32, to, small)
        } else {
            Instruction::with2(Code::Mov_r64_imm64, to, bits)
        });
    }

    /// Reads a leaf into a register; uses it and the following ones.
    pub(super) fn read(&mut self, leaf: Leaf<'_>, into: usize) {
        let to = self.work(into);
        if let Some(&(_, from)) = self.pinned.iter().find(|(known, _)| *known == leaf) {
            self.copy(to, from);
            return;
        }
        match leaf {
            Leaf::Of(input) => self.of_target(input, to),
            Leaf::Clock => {
                read_tsc(self.e);
                self.copy(to, Register::RDX);
            }
            Leaf::ClockOffset => {
                let Some(clock) = self.layout.clock else {
                    return self.e.lacks("clock of the target");
                };
                self.constant(to, clock.offset.0);
                self.e
                    .op(Instruction::with2(Code::Mov_r64_rm64, to, at(to, 0)));
            }
            Leaf::Variable(id) => self.read_variable(id, into),
            Leaf::Memory(address, width) => self.load(address.0, width, into),
            Leaf::Stacked(number) => {
                // Above the return address, the sixth first (System V ABI, 3.2.3).
                self.stack_pointer(to, 8 * (i64::from(number) - 5));
                self.guarded(Width::B8, into, true);
            }
            Leaf::Event(event) => self.event(event, to),
            Leaf::Stack(depth) => self.stack(depth, to),
            Leaf::User(read, address) => {
                self.value(address.0, into);
                match read {
                    UserRead::Name if self.layout.sequences().is_some() => {
                        self.stack_number((StackReader::NAME, 1, 0), to);
                    }
                    _ => self.user(Some(read), 0, to),
                }
            }
            Leaf::UserStack(depth) if self.layout.sequences().is_some() => {
                let (original, pushed) = self.e.frame();
                self.constant(to, original.0);
                self.stack_number((StackReader::STACK, depth, pushed), to);
            }
            Leaf::UserStack(depth) => {
                self.constant(to, 0);
                self.user(None, depth, to);
            }
        }
    }

    /// The stack pointer of the code at the hook, and so many bytes.
    fn stack_pointer(&mut self, to: Register, bytes: i64) {
        let place = at(Register::RSP, self.registers.pushed() + bytes);
        self.e.op(Instruction::with2(Code::Lea_r64_m, to, place));
    }

    /// A word of the target, where its layout says that it is.
    fn of_target(&mut self, input: Input, to: Register) {
        let (code, part) = match input {
            Input::Cpu | Input::Tid | Input::Pid => (Code::Mov_r32_rm32, to.full_register32()),
            _ => (Code::Mov_r64_rm64, to),
        };
        let place = match self.layout.inputs.get(input) {
            Some(InputLocation::Segment(word)) => self.e.word(word),
            Some(InputLocation::Owner(offset)) => {
                let owner = self.e.word(self.layout.owner.word);
                self.e.op(Instruction::with2(Code::Mov_r64_rm64, to, owner));
                at(to, i64::from(offset))
            }
            None => return self.e.lacks("location of an input"),
        };
        self.e.op(Instruction::with2(code, part, place));
    }

    /// A word of a CPU that the thread has executed on, where CPUs have rows of words.
    fn row_word(
        &mut self,
        slot: CounterSlot,
        sequences: Sequences,
        through: Register,
    ) -> MemoryOperand {
        let word = self.planned(self.layout.counter(slot), "word of that number");
        let cpu = self.planned(sequences.cpu_id_start(), "rseq area");
        let cpu = self.e.word(cpu);
        let short = through.full_register32();
        self.e
            .op(Instruction::with2(Code::Mov_r32_rm32, short, cpu));
        let by = sequences.stride_log2;
        self.e
            .op(Instruction::with2(Code::Shl_rm64_imm8, through, by));
        at(through, word.0.cast_signed())
    }

    fn read_variable(&mut self, id: VariableId, into: usize) {
        let to = self.work(into);
        match self.probed.home(id) {
            Some(Home::Cpu(slot)) => {
                let word = match self.layout.sequences() {
                    Some(sequences) => self.row_word(slot, sequences, to),
                    None => self.cpu_word(slot, 0, to),
                };
                self.e.op(Instruction::with2(Code::Mov_r64_rm64, to, word));
            }
            Some(Home::Shared(slot)) => {
                let word = self.shared_word(slot, to);
                self.e.op(Instruction::with2(Code::Mov_r64_rm64, to, word));
            }
            Some(home @ (Home::Thread(_) | Home::Call(_))) => {
                // With its entry at hand, one register is enough to read the value into.
                let known = self.entries.iter().any(|known| known.home == home);
                let value = self.work(into + if known { 1 } else { 2 });
                let [key, entry] = self.find(home, [to, self.work(into + 1), value]);
                let kept = at(entry, 8);
                self.e
                    .op(Instruction::with2(Code::Mov_r64_rm64, value, kept));
                let owner = at(entry, 0);
                self.e
                    .op(Instruction::with2(Code::Cmp_r64_rm64, key, owner));
                self.constant(to, 0);
                self.op(Code::Cmove_r64_rm64, to, value);
            }
            None => self.e.lacks("storage for a variable"),
        }
    }

    /// Computes an expression into a register; uses it and the following ones.
    pub(super) fn value(&mut self, expr: &Expr, into: usize) {
        let to = self.work(into);
        match &expr.kind {
            ExprKind::Constant(bits) => self.constant(to, *bits),
            ExprKind::Input(input) => self.input(*input, expr, into),
            ExprKind::Variable(id) => self.read(Leaf::Variable(*id), into),
            ExprKind::Extend {
                value,
                width,
                signed,
            } => {
                self.value(value, into);
                self.extend(to, *width, *signed);
            }
            ExprKind::Unary(op, operand) => {
                self.value(operand, into);
                match op {
                    UnaryOp::Negate => self.e.op(Instruction::with1(Code::Neg_rm64, to)),
                    UnaryOp::Invert => self.e.op(Instruction::with1(Code::Not_rm64, to)),
                    UnaryOp::Not => {
                        self.op(Code::Test_rm64_r64, to, to);
                        self.set(Code::Sete_rm8, to);
                    }
                }
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right, into),
            ExprKind::And(left, right) | ExprKind::Or(left, right) => {
                self.truth(left, into);
                self.truth(right, into + 1);
                let code = if matches!(expr.kind, ExprKind::And(..)) {
                    Code::And_r64_rm64
                } else {
                    Code::Or_r64_rm64
                };
                let right = self.work(into + 1);
                self.op(code, to, right);
            }
            ExprKind::Select { condition, yes, no } => {
                self.value(yes, into);
                self.value(no, into + 1);
                self.value(condition, into + 2);
                let (no, condition) = (self.work(into + 1), self.work(into + 2));
                self.op(Code::Test_rm64_r64, condition, condition);
                self.op(Code::Cmove_r64_rm64, to, no);
            }
            // The update of a map computes its parts.
            ExprKind::List(_) => debug_assert!(false, "internal error: a list has no value"),
            ExprKind::User { .. } => {
                if let Some(leaf) = leaf(expr) {
                    self.read(leaf, into);
                }
            }
            ExprKind::Load { width, signed, .. } => {
                if let Some(leaf) = leaf(expr) {
                    self.read(leaf, into);
                }
                if *signed {
                    self.extend(to, *width, true);
                }
            }
        }
    }

    /// Reads memory, unless the [`Guard`] forbids it. What cannot be read is 0, and counted.
    fn load(&mut self, address: &Expr, width: Width, into: usize) {
        let is_readable = match (self.layout.guard, &address.kind) {
            (Guard::Missing, _) => Some(false),
            (Guard::Everywhere, _) => Some(true),
            (Guard::Below(bound), ExprKind::Constant(bits)) => {
                Some(bits.cast_signed() < bound.0.cast_signed())
            }
            (Guard::Below(_), _) => None,
        };
        if is_readable == Some(false) {
            let (to, counter) = (self.work(into), self.failures());
            count_failed(self.e, counter, to);
            return;
        }
        self.value(address, into);
        self.guarded(width, into, is_readable.is_none());
    }

    /// The word that reads are counted in that fail.
    fn failures(&mut self) -> SegmentOffset {
        let word = self.probed.homes.failed;
        let word = word.and_then(|slot| self.layout.counter(slot));
        self.planned(word, "counter of failed reads")
    }

    /// Loads from the address in a register into the register, after a test of the address if it must be `tested`.
    fn guarded(&mut self, width: Width, into: usize, tested: bool) {
        let (to, counter) = (self.work(into), self.failures());
        let from = match self.layout.guard {
            Guard::Below(bound) if tested => {
                let bound = i32::try_from(bound.0.cast_signed());
                debug_assert!(
                    bound.is_ok(),
                    "the layout is checked: its bound is sign-extended"
                );
                // No address is below this one.
                let bound = bound.unwrap_or(i32::MIN);
                self.number(Code::Cmp_rm64_imm32, to, bound);
                Some(self.e.branch_forward(Code::Jge_rel32_64))
            }
            _ => None,
        };
        let (code, part) = match width {
            Width::B1 => (Code::Movzx_r32_rm8, to.full_register32()),
            Width::B2 => (Code::Movzx_r32_rm16, to.full_register32()),
            Width::B4 => (Code::Mov_r32_rm32, to.full_register32()),
            Width::B8 => (Code::Mov_r64_rm64, to),
        };
        let load = self.e.faulting(Instruction::with2(code, part, at(to, 0)));
        let end = self.e.here();
        let ways = from.map(Failing::Address).into_iter();
        let lost = ways.chain([Failing::Fault(load)]).map(|by| {
            let into = to;
            (Lost::Read { by, counter, into }, end)
        });
        self.lost.extend(lost);
    }

    /// Reads an event counter of the processor. Without a counter the instruction faults (Intel SDM, vol. 2B,
    /// RDPMC): the value is 0, and a failed read is counted.
    fn event(&mut self, event: Event, to: Register) {
        let Ok(event_counter) = self.layout.events.counter(event) else {
            return self.e.lacks("counter of an event");
        };
        self.constant(Register::RCX, event_counter.index.into());
        let read = self.e.faulting(Ok(Instruction::with(Code::Rdpmc)));
        whole(self.e);
        self.copy(to, Register::RDX);
        let end = self.e.here();
        let (by, counter, into) = (Failing::Fault(read), self.failures(), to);
        self.lost.push((Lost::Read { by, counter, into }, end));
        let spare = 64 - i32::from(event_counter.width.clamp(1, 64));
        if spare > 0 {
            self.number(Code::Shl_rm64_imm8, to, spare);
            self.number(Code::Shr_rm64_imm8, to, spare);
        }
    }

    /// Has the target's code read the stack (`stacks` of `struct ilk_info`): it changes a pushed word, and nothing else.
    fn stack(&mut self, depth: u8, to: Register) {
        let reader = self.planned(self.layout.stacks, "code that reads stacks");
        let (original, pushed) = self.e.frame();
        let extent = pushed | u32::from(depth) << 16;
        let words = [u64::from(extent), original.0];
        for word in words {
            // Addresses of the kernel are sign-extended; another one refuses the patch.
            let word = i32::try_from(word.cast_signed());
            let word = self.planned(word.ok(), "text within reach of a sign-extended address");
            self.e.push(Instruction::with1(Code::Pushq_imm32, word));
        }
        let call = Instruction::with_branch(Code::Call_rel32_64, reader.0);
        self.e.op(call);
        for _ in words {
            self.e.pop(Instruction::with1(Code::Pop_r64, to));
        }
    }

    /// Has the target's code read the running process (`users` of `struct ilk_info`) at the address in a register, or
    /// its stack: it changes a pushed word, and adds 1 to the counter of failed reads.
    fn user(&mut self, read: Option<UserRead>, depth: u8, to: Register) {
        let reader = self.layout.reader_near(self.e.here());
        let reader = self.planned(reader, "code that reads processes");
        let (kind, part) = match read {
            Some(UserRead::Bytes(width)) => (0, width.bytes()),
            Some(UserRead::Text(half)) => (1, u32::from(half == Half::Second)),
            Some(UserRead::Name) => (2, 0),
            Some(UserRead::Process) => (4, 0),
            Some(UserRead::Comm(half)) => (5, u32::from(half == Half::Second)),
            None => (3, depth.into()),
        };
        self.call_reader(reader, part << 8 | kind, to);
    }

    /// Has the code of a process number the stack whose first frame is at the address in a register ([`crate::stacks`]):
    /// a kind, the most frames, and the bytes pushed above the frame of the original instruction.
    fn stack_number(&mut self, (kind, depth, pushed): (u32, u8, u32), to: Register) {
        let reader = self.layout.stack_reader_near(self.e.here());
        let reader = self.planned(reader, "code that numbers stacks");
        debug_assert!(pushed < 1 << 16, "a patch pushes {pushed} bytes");
        self.call_reader(reader, kind << 24 | u32::from(depth) << 16 | pushed, to);
    }

    /// Calls code that reads the running process, with the address in a register, which has the value afterwards.
    fn call_reader(&mut self, reader: Addr, request: u32, to: Register) {
        let counter = self.failures();
        self.e.push(Instruction::with1(Code::Push_r64, to));
        self.constant(to, counter.0);
        self.e.push(Instruction::with1(Code::Push_r64, to));
        self.e
            .push(Instruction::with1(Code::Pushq_imm32, request.cast_signed()));
        self.e
            .op(Instruction::with_branch(Code::Call_rel32_64, reader.0));
        for _ in 0..3 {
            self.e.pop(Instruction::with1(Code::Pop_r64, to));
        }
    }

    fn input(&mut self, input: Input, expr: &Expr, into: usize) {
        let to = self.work(into);
        match (input, leaf(expr), input_register(input)) {
            (Input::Nsecs, Some(leaf), _) => {
                self.read(leaf, into);
                let Some(clock) = self.layout.clock else {
                    return self.e.lacks("clock of the target");
                };
                self.copy(Register::RAX, to);
                self.constant(to, clock.factor);
                self.e.op(Instruction::with1(Code::Mul_rm64, to));
                let by = 32;
                self.e.op(Instruction::with3(
                    Code::Shrd_rm64_r64_imm8,
                    Register::RAX,
                    Register::RDX,
                    by,
                ));
                self.read(Leaf::ClockOffset, into);
                self.op(Code::Add_r64_rm64, to, Register::RAX);
            }
            (_, Some(leaf), _) => self.read(leaf, into),
            (_, _, Some(register)) => match self.registers.slot(register) {
                Some(offset) => {
                    let saved = at(Register::RSP, offset);
                    self.e.op(Instruction::with2(Code::Mov_r64_rm64, to, saved));
                }
                None => self.copy(to, register),
            },
            (Input::Task, ..) => self.of_target(input, to),
            (Input::Register(Gpr::Rsp), ..) => self.stack_pointer(to, 0),
            (Input::Block, ..) => self.constant(to, self.hooked.id.block.into()),
            (Input::Identifier, ..) => self.constant(to, self.hooked.id.pack()),
            _ => self.e.lacks("location of an input"),
        }
    }

    fn extend(&mut self, to: Register, width: Width, signed: bool) {
        let Some(code) = ops::extension(width, signed) else {
            return;
        };
        let from = match width {
            Width::B1 => low_byte(to),
            Width::B2 => low_word(to),
            Width::B4 | Width::B8 => to.full_register32(),
        };
        let to = if signed { to } else { to.full_register32() };
        self.op(code, to, from);
    }

    /// 1 or 0.
    fn truth(&mut self, expr: &Expr, into: usize) {
        self.value(expr, into);
        if !is_truth(expr) {
            let to = self.work(into);
            self.op(Code::Test_rm64_r64, to, to);
            self.set(Code::Setne_rm8, to);
        }
    }

    /// The register is 1 if the flags say so, else 0.
    fn set(&mut self, code: Code, to: Register) {
        self.constant(to, 0);
        self.e.op(Instruction::with1(code, low_byte(to)));
    }

    /// Returns the second operand; computes it into `into` unless it is at hand.
    pub(super) fn operand(&mut self, expr: &Expr, into: usize) -> Operand {
        match expr.kind {
            ExprKind::Constant(bits) => {
                if let Ok(small) = i32::try_from(bits.cast_signed()) {
                    return Operand::Number(small);
                }
            }
            ExprKind::Input(input) => {
                if let Some(register) = input_register(input) {
                    return match self.registers.slot(register) {
                        Some(offset) => Operand::Saved(offset),
                        None => Operand::Register(register),
                    };
                }
            }
            _ => {}
        }
        if let Some(leaf) = leaf(expr)
            && !matches!(expr.kind, ExprKind::Input(Input::Nsecs))
            && !matches!(expr.kind, ExprKind::Load { signed: true, .. })
            && let Some(&(_, register)) = self.pinned.iter().find(|(known, _)| *known == leaf)
        {
            return Operand::Register(register);
        }
        self.value(expr, into);
        Operand::Register(self.work(into))
    }

    fn with_operand(&mut self, (code, with_number): (Code, Code), to: Register, operand: Operand) {
        match operand {
            Operand::Register(from) => self.op(code, to, from),
            Operand::Saved(offset) => {
                let saved = at(Register::RSP, offset);
                self.e.op(Instruction::with2(code, to, saved));
            }
            Operand::Number(number) => self.number(with_number, to, number),
        }
    }

    /// Compares, or whatever else an operator of one instruction does.
    pub(super) fn plain(&mut self, op: BinaryOp, left: &Expr, right: &Expr, into: usize) {
        self.value(left, into);
        let operand = self.operand(right, into + 1);
        if let Some(codes) = ops::plain(op) {
            let to = self.work(into);
            self.with_operand(codes, to, operand);
        }
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr, into: usize) {
        let to = self.work(into);
        if ops::plain(op).is_some() {
            self.plain(op, left, right, into);
            if let Some((set, _)) = ops::condition(op) {
                self.set(set, to);
            }
            return;
        }
        if let Some((by_number, by_cl)) = ops::shift(op) {
            self.value(left, into);
            match right.kind {
                ExprKind::Constant(bits) => {
                    let by = u32::try_from(bits & 63).unwrap_or(0);
                    self.e.op(Instruction::with2(by_number, to, by));
                }
                _ => {
                    self.value(right, into + 1);
                    let by = self.work(into + 1);
                    self.copy(Register::RCX, by);
                    self.op(by_cl, to, Register::CL);
                }
            }
            return;
        }
        match (op, &right.kind) {
            (BinaryOp::Multiply, _) => {
                self.value(left, into);
                match self.operand(right, into + 1) {
                    Operand::Number(number) => {
                        let code = Code::Imul_r64_rm64_imm32;
                        self.e.op(Instruction::with3(code, to, to, number));
                    }
                    operand => {
                        let code = Code::Imul_r64_rm64;
                        self.with_operand((code, code), to, operand);
                    }
                }
            }
            (BinaryOp::DivideUnsigned, ExprKind::Constant(by)) if by.is_power_of_two() => {
                self.value(left, into);
                let by = by.trailing_zeros();
                self.e.op(Instruction::with2(Code::Shr_rm64_imm8, to, by));
            }
            (
                BinaryOp::DivideSigned
                | BinaryOp::DivideUnsigned
                | BinaryOp::RemainderSigned
                | BinaryOp::RemainderUnsigned,
                _,
            ) => self.divide(op, left, right, into),
            // `plain`, `shift` and the arms above have all operations.
            _ => {
                debug_assert!(false, "internal error: no code for {op:?}");
                self.value(left, into);
            }
        }
    }

    /// By zero is zero, and so is what is left: then it is 0 divided by 1. By -1, where the least number has no
    /// quotient, it is the opposite divided by 1.
    fn divide(&mut self, op: BinaryOp, left: &Expr, right: &Expr, into: usize) {
        self.value(left, into);
        self.value(right, into + 1);
        let (to, by, spare) = (self.work(into), self.work(into + 1), self.work(into + 2));
        let fixed = matches!(right.kind, ExprKind::Constant(bits) if bits != 0 && bits != u64::MAX);
        self.copy(Register::RAX, to);
        if !fixed {
            self.op(Code::Test_rm64_r64, by, by);
            self.constant(spare, 1);
            self.op(Code::Cmove_r64_rm64, by, spare);
            self.constant(spare, 0);
            self.op(Code::Cmove_r64_rm64, Register::RAX, spare);
        }
        if matches!(op, BinaryOp::DivideSigned | BinaryOp::RemainderSigned) {
            if !fixed {
                self.copy(spare, Register::RAX);
                self.e.op(Instruction::with1(Code::Neg_rm64, spare));
                self.number(Code::Cmp_rm64_imm8, by, -1);
                self.op(Code::Cmove_r64_rm64, Register::RAX, spare);
                self.constant(spare, 1);
                self.op(Code::Cmove_r64_rm64, by, spare);
            }
            self.e.op(Ok(Instruction::with(Code::Cqo)));
            self.e.op(Instruction::with1(Code::Idiv_rm64, by));
        } else {
            self.constant(Register::RDX, 0);
            self.e.op(Instruction::with1(Code::Div_rm64, by));
        }
        let divides = matches!(op, BinaryOp::DivideSigned | BinaryOp::DivideUnsigned);
        self.copy(
            to,
            if divides {
                Register::RAX
            } else {
                Register::RDX
            },
        );
    }
}
