//! The code of a probe's actions.

use gilk_instruments::program::{
    Action, ActionKind, Aggregate, AggregateId, AggregateKind, BinaryOp, Expr, ExprKind, Input,
    VariableId,
};
use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::demand::{is_sampled_as_it_is, is_small};
use super::expression::Operand;
use super::{Compiler, Home, leaf};
use crate::isa::encode::{at, indexed};
use crate::layout::CounterSlot;
use crate::patch::entry::{Kept, empty, find_entry, keep_entry, own_entry, place_of};
use crate::patch::instrument::{
    Lost, RoomCounter, SamplePart, SampleValue, advance, fill, reserve, sample,
};
use crate::patch::restartable::{
    RowWord, WordUpdate, line_restartably, sample_restartably, shared_row, update_restartably,
};
use crate::patch::shared_ring::sample_shared;

impl<'c> Compiler<'c> {
    pub(super) fn action(&mut self, action: &'c Action) {
        if let Some(value) = action.kind.value() {
            self.pin(value);
        }
        match &action.kind {
            ActionKind::Sample(Expr {
                kind: ExprKind::List(words),
                ..
            }) => self.line(words),
            ActionKind::Sample(value) => self.sample(value),
            ActionKind::Store(id, value) => self.store(*id, value),
            ActionKind::Add(id, value) => self.add(*id, value),
            ActionKind::Update(id, value) => self.update(*id, value.as_ref()),
        }
        self.pinned.clear();
    }

    /// A word of each CPU. One that no displacement reaches is reached through `through`.
    pub(super) fn cpu_word(
        &mut self,
        slot: CounterSlot,
        words: u32,
        through: Register,
    ) -> MemoryOperand {
        let slot = further(slot, words);
        let word = self.planned(self.layout.counter(slot), "word of that number");
        if word.near().is_some() {
            return self.e.word(word);
        }
        self.constant(through, word.0);
        self.e.word_by(through)
    }

    /// A word that all CPUs share.
    pub(super) fn shared_word(&mut self, slot: CounterSlot, through: Register) -> MemoryOperand {
        let address = self.planned(self.layout.shared(slot), "shared word of that number");
        self.constant(through, address.0);
        at(through, 0)
    }

    fn sample(&mut self, expr: &Expr) {
        let value = self.sampled(expr);
        // A computed value is in the first register.
        let first = usize::from(!is_sampled_as_it_is(expr));
        let registers = [self.work(first), self.work(first + 1)];
        if let Some(sequences) = self.layout.sequences() {
            let target = (self.layout, sequences);
            let lost = match sequences.area {
                Some(_) => sample_restartably(self.e, self.hooked, target, &value, registers)
                    .map_or_else(Vec::new, Vec::from),
                None => vec![sample_shared(
                    self.e,
                    self.hooked,
                    target,
                    std::slice::from_ref(&value),
                    self.work(first),
                )],
            };
            let end = self.e.here();
            self.lost.extend(lost.into_iter().map(|lost| (lost, end)));
            return;
        }
        let reserved = self.groups.next();
        let reserved = self.planned(reserved, "slot of a sample");
        let grouped = reserved != 1;
        let lost = if grouped {
            let [a, b, spare] = [0, 1, 2].map(|number| self.work(number));
            if reserved == 0 {
                advance(self.e, self.layout, a);
            } else {
                let lost = reserve(self.e, self.layout, [a, b], (reserved, reserved));
                self.groups.may_lose(lost);
            }
            fill(
                self.e,
                self.hooked,
                (&value, SamplePart::Head),
                [a, b, spare],
            );
            self.groups.complete()
        } else {
            let lost = sample(self.e, self.hooked, self.layout, &value, registers);
            lost.into_iter().collect()
        };
        let end = self.e.here();
        self.lost.extend(lost.into_iter().map(|lost| (lost, end)));
    }

    /// Computes the words of a line, reserves a slot for each at once, and fills them: all of a line is delivered, or it
    /// is one lost sample.
    fn line(&mut self, words: &[Expr]) {
        let mut kept = 0;
        let mut values = Vec::new();
        for word in words {
            values.push(match word.kind {
                ExprKind::Constant(bits) if is_small(word) => SampleValue::Number(low_word(bits)),
                _ => {
                    self.value(word, kept);
                    let register = self.work(kept);
                    kept += 1;
                    SampleValue::Register(register)
                }
            });
        }
        if let Some(sequences) = self.layout.sequences()
            && sequences.area.is_none()
        {
            let target = (self.layout, sequences);
            let lost = sample_shared(self.e, self.hooked, target, &values, self.work(kept));
            self.lost.push((lost, self.e.here()));
            return;
        }
        let [a, b, spare] = [0, 1, 2].map(|number| self.work(kept + number));
        let lost = match self.layout.sequences() {
            Some(sequences) => {
                let target = (self.layout, sequences);
                let registers = [a, b, spare, self.work(kept + 3)];
                line_restartably(self.e, self.hooked, target, &values, registers)
                    .map_or_else(Vec::new, Vec::from)
            }
            None => {
                let slots = self.groups.next();
                let slots = self.planned(slots, "slots of a line");
                let lost = reserve(self.e, self.layout, [a, b], (slots, 1));
                for (number, value) in (0_u32..).zip(&values) {
                    if number > 0 {
                        advance(self.e, self.layout, a);
                    }
                    let part = (value, SamplePart::of(number));
                    fill(self.e, self.hooked, part, [a, b, spare]);
                }
                lost
            }
        };
        let end = self.e.here();
        self.lost.extend(lost.into_iter().map(|lost| (lost, end)));
    }

    fn sampled(&mut self, expr: &Expr) -> SampleValue {
        if let Some(start) = elapsed_since(expr) {
            self.value(start, 0);
            return SampleValue::Since(self.work(0));
        }
        match &expr.kind {
            // The time of the sample is read for it anyway.
            ExprKind::Input(Input::Tsc) => SampleValue::Tsc,
            ExprKind::Input(Input::Block) => SampleValue::Number(self.hooked.id.block),
            _ => match self.operand(expr, 0) {
                Operand::Register(register) => SampleValue::Register(register),
                Operand::Saved(offset) => SampleValue::Saved(offset),
                Operand::Number(number) => match u32::try_from(number) {
                    Ok(number) => SampleValue::Number(number),
                    Err(_) => {
                        self.value(expr, 0);
                        SampleValue::Register(self.work(0))
                    }
                },
            },
        }
    }

    fn store(&mut self, id: VariableId, expr: &Expr) {
        match self.probed.home(id) {
            Some(home @ (Home::Thread(_) | Home::Call(_))) if is_zero(expr) => self.forget(home),
            Some(home @ (Home::Thread(_) | Home::Call(_))) => {
                self.value(expr, 0);
                self.keep(home, Kept::Stored);
            }
            home => self.put_in_word(home, expr, false),
        }
    }

    fn add(&mut self, id: VariableId, expr: &Expr) {
        match self.probed.home(id) {
            Some(home @ (Home::Thread(_) | Home::Call(_))) => {
                self.value(expr, 0);
                self.keep(home, Kept::Added);
            }
            home => self.put_in_word(home, expr, true),
        }
    }

    /// Returns the key of a variable in the table of storage, and the address of its entry: as they were found
    /// earlier in the probe, or computed into the first two registers, through the third.
    pub(super) fn find(&mut self, home: Home, [key, entry, spare]: [Register; 3]) -> [Register; 2] {
        let Some(known) = self.entries.iter_mut().find(|known| known.home == home) else {
            self.locate(home, [key, entry, spare]);
            return [key, entry];
        };
        let [key, entry] = known.registers;
        if !std::mem::replace(&mut known.located, true) {
            self.locate(home, [key, entry, spare]);
        }
        [key, entry]
    }

    fn locate(&mut self, home: Home, registers: [Register; 3]) {
        match home {
            Home::Thread(number) => find_entry(self.e, number, self.layout, registers),
            Home::Call(number) => {
                let [key, entry, _] = registers;
                let stack = at(Register::RSP, self.registers.pushed());
                self.e.op(Instruction::with2(Code::Lea_r64_m, key, stack));
                // The upper bits of an address say nothing.
                self.constant(entry, u64::from(number) << 48);
                self.op(Code::Xor_r64_rm64, key, entry);
                place_of(self.e, self.layout, registers);
            }
            Home::Cpu(_) | Home::Shared(_) => self.e.lacks("entry of storage for a word"),
        }
    }

    /// The first register goes into an entry of the running task, or of this call, or is added to what that has.
    /// Where it is another's the loss is counted.
    fn keep(&mut self, home: Home, kept: Kept) {
        let [value, key, entry] = [0, 1, 2].map(|number| self.work(number));
        let [key, entry] = self.find(home, [key, entry, Register::RDX]);
        let from = keep_entry(self.e, self.layout, kept, [value, key, entry]);
        let (end, counter) = (self.e.here(), self.no_room());
        // It had the busy key.
        let through = Register::RDX;
        let full = Lost::Room {
            from,
            counter,
            value,
            through,
        };
        self.lost.push((full, end));
    }

    /// Frees the entry of the running task, or of this call, if there is one. A busy entry is being written by the
    /// interrupted code, which continues afterwards.
    fn forget(&mut self, home: Home) {
        let [key, entry] = [1, 2].map(|number| self.work(number));
        let [key, entry] = self.find(home, [key, entry, Register::RDX]);
        let others = own_entry(self.e, self.layout, [key, entry]);
        empty(self.e, entry);
        self.e.land(others);
    }

    /// Returns the counter of values that were not stored because their entry was taken.
    fn no_room(&mut self) -> RoomCounter {
        let word = self.probed.homes.no_room;
        let word = word.and_then(|slot| self.layout.counter(slot));
        let word = self.planned(word, "counter of values that are not stored");
        match self.layout.sequences() {
            Some(sequences) => RoomCounter::Shared(shared_row(word, sequences)),
            None => RoomCounter::Own(word),
        }
    }

    /// Computes a value into the first register, unless it is at hand, and returns the instruction that stores it in a word,
    /// or adds it.
    fn word_update(&mut self, expr: &Expr, adds: bool) -> WordUpdate {
        let register = match self.operand(expr, 0) {
            Operand::Register(from) => from,
            Operand::Saved(_) => {
                self.value(expr, 0);
                self.work(0)
            }
            Operand::Number(1) if adds => return WordUpdate::Increment,
            Operand::Number(number) if adds => return WordUpdate::AddNumber(number),
            Operand::Number(number) => return WordUpdate::StoreNumber(number),
        };
        match adds {
            true => WordUpdate::Add(register),
            false => WordUpdate::Store(register),
        }
    }

    /// Stores a value in a word, or adds it.
    fn put_in_word(&mut self, home: Option<Home>, expr: &Expr, adds: bool) {
        let update = self.word_update(expr, adds);
        let through = self.work(1);
        match home {
            Some(Home::Cpu(slot)) => self.write_cpu(slot, None, update, through),
            Some(Home::Shared(slot)) => {
                let word = self.shared_word(slot, through);
                self.e.op(update.of_shared(word));
            }
            _ => self.e.lacks("word for a variable"),
        }
    }

    /// Updates a word of the CPU: a slot's, or the one that is so many words after it as the register `place` says.
    pub(super) fn write_cpu(
        &mut self,
        slot: CounterSlot,
        place: Option<Register>,
        update: WordUpdate,
        through: Register,
    ) {
        if let Some(sequences) = self.layout.sequences() {
            let address = self
                .planned(self.layout.counter(slot), "word of that number")
                .0;
            let word = RowWord { address, place };
            let way = update_restartably(self.e, word, update, sequences, through);
            let end = self.e.here();
            self.lost.extend(way.map(|way| (way, end)));
            return;
        }
        let word = match place {
            Some(place) => self.word_at(slot, place, through),
            None => self.cpu_word(slot, 0, through),
        };
        self.e.op(update.of(word));
    }

    fn update(&mut self, id: AggregateId, expr: Option<&Expr>) {
        let Some((aggregate, first)) = self.probed.aggregate(id, self.hooked.counter) else {
            return self.e.lacks("words for an aggregate");
        };
        match (aggregate.kind, expr) {
            (AggregateKind::Count, _) => self.count(first, 0),
            (AggregateKind::Sum, Some(expr)) => {
                let update = self.word_update(expr, true);
                self.count(first, 1);
                let through = self.work(1);
                self.write_cpu(further(first, 1), None, update, through);
            }
            (AggregateKind::Average, Some(expr)) => {
                self.value(expr, 0);
                self.count(first, 1);
                let (value, through) = (self.work(0), self.work(1));
                self.write_cpu(further(first, 1), None, WordUpdate::Add(value), through);
            }
            (AggregateKind::Min | AggregateKind::Max, Some(expr)) => {
                self.value(expr, 0);
                self.keep_larger(aggregate, first);
            }
            (AggregateKind::Log2 | AggregateKind::Linear { .. }, Some(expr)) => {
                self.value(expr, 0);
                let words = self.bucket(aggregate, 0);
                let [place, through] = [1, 2].map(|number| self.work(number));
                let first = further(first, words.into());
                self.write_cpu(first, Some(place), WordUpdate::Increment, through);
            }
            (AggregateKind::Values { .. } | AggregateKind::Map { .. }, Some(expr)) => {
                self.entry(aggregate, first, expr);
            }
            (_, None) => self.e.lacks("value for an aggregate that takes one"),
        }
    }

    fn count(&mut self, word: CounterSlot, spare: usize) {
        let through = self.work(spare);
        self.write_cpu(word, None, WordUpdate::Increment, through);
    }

    /// The first register, as it is compared, goes into the second word if it is larger. With restartable sequences
    /// that is a word which all CPUs share: it is read at each hit, and seldom written.
    fn keep_larger(&mut self, aggregate: &Aggregate, first: CounterSlot) {
        let (key, through) = (self.work(0), self.work(1));
        if aggregate.ty.signed() {
            self.constant(through, 1 << 63);
            self.op(Code::Xor_r64_rm64, key, through);
        }
        if aggregate.kind == AggregateKind::Min {
            self.e.op(Instruction::with1(Code::Not_rm64, key));
        }
        self.count(first, 1);
        let shares = self.layout.sequences().is_some();
        let word = match shares {
            true => self.shared_word(further(first, 1), through),
            false => self.cpu_word(first, 1, through),
        };
        let rax = Register::RAX;
        self.e.op(Instruction::with2(Code::Mov_r64_rm64, rax, word));
        let retry = self.e.here();
        self.op(Code::Cmp_r64_rm64, rax, key);
        let done = self.e.branch_forward(Code::Jae_rel32_64);
        // Fails if an interrupt, or the thread's next CPU, or any CPU of those that share it, has stored another
        // meanwhile.
        let exchange = Instruction::with2(Code::Cmpxchg_rm64_r64, word, key);
        self.e.op(exchange.map(|mut exchange| {
            exchange.set_has_lock_prefix(shares);
            exchange
        }));
        self.e.branch_back(Code::Jne_rel8_64, retry);
        self.e.land(done);
    }

    /// Computes the bucket of a histogram for the value in register `from` into the next one, and uses the one after
    /// that. Returns the words to add to it.
    pub(super) fn bucket(&mut self, histogram: &Aggregate, from: usize) -> u8 {
        match histogram.kind {
            AggregateKind::Linear {
                from: low,
                to,
                step,
            } => {
                self.linear(histogram, from, (low, to, step));
                1
            }
            _ => {
                self.log2(histogram, from);
                2
            }
        }
    }

    /// The number of the highest bit, two words on; zero in word 1, less in word 0.
    fn log2(&mut self, aggregate: &Aggregate, from: usize) {
        let [value, place, other] = [0, 1, 2].map(|number| self.work(from + number));
        self.constant(other, u64::MAX);
        self.op(Code::Bsr_r64_rm64, place, value);
        self.op(Code::Cmove_r64_rm64, place, other);
        if aggregate.ty.signed() {
            self.constant(other, (-2i64).cast_unsigned());
            self.op(Code::Test_rm64_r64, value, value);
            self.op(Code::Cmovs_r64_rm64, place, other);
        }
    }

    fn linear(&mut self, aggregate: &Aggregate, work: usize, (from, to, step): (i64, i64, u64)) {
        let [value, place, other] = [0, 1, 2].map(|number| self.work(work + number));
        let signed = aggregate.ty.signed();
        let last = aggregate.words().saturating_sub(1);
        let step = step.max(1);
        self.copy(place, value);
        if from != 0 || signed {
            self.constant(other, from.cast_unsigned());
        }
        if from != 0 {
            self.op(Code::Sub_r64_rm64, place, other);
        }
        if step.is_power_of_two() {
            let by = step.trailing_zeros();
            self.e
                .op(Instruction::with2(Code::Shr_rm64_imm8, place, by));
        } else {
            self.copy(Register::RAX, place);
            self.constant(Register::RDX, 0);
            self.constant(place, step);
            self.e.op(Instruction::with1(Code::Div_rm64, place));
            self.copy(place, Register::RAX);
        }
        // Below the first step is word 0, one before it.
        if signed || from > 0 {
            self.op(Code::Cmp_r64_rm64, value, other);
            self.constant(other, u64::MAX);
            let below = if signed {
                Code::Cmovl_r64_rm64
            } else {
                Code::Cmovb_r64_rm64
            };
            self.op(below, place, other);
        }
        let bound = if signed { to } else { to.max(0) };
        self.constant(other, bound.cast_unsigned());
        self.op(Code::Cmp_r64_rm64, value, other);
        self.constant(other, u64::from(last.saturating_sub(1)));
        let above = if signed {
            Code::Cmovge_r64_rm64
        } else {
            Code::Cmovae_r64_rm64
        };
        self.op(above, place, other);
    }

    /// Returns the word of the CPU that is so many words after a slot as `place` says. One outside the range of
    /// displacements is addressed by `through`.
    fn word_at(&mut self, slot: CounterSlot, place: Register, through: Register) -> MemoryOperand {
        let base = self
            .planned(self.layout.counter(slot), "word of that number")
            .0;
        match i32::try_from(base.cast_signed()) {
            Ok(base) => MemoryOperand::new(
                Register::None,
                place,
                8,
                base.into(),
                4,
                false,
                self.e.segment(),
            ),
            Err(_) => {
                self.constant(through, base);
                MemoryOperand {
                    segment_prefix: self.e.segment(),
                    ..indexed(through, place, 8, 0)
                }
            }
        }
    }
}

/// Returns the start of a time that ends with the sample: `start` of `tsc - start`, if it does not read the
/// clock itself. The sample's own reading of the clock is the end.
pub(super) fn elapsed_since(expr: &Expr) -> Option<&Expr> {
    let clock = |expr: &Expr| expr.any(&mut |node| leaf(node) == Some(super::Leaf::Clock));
    match &expr.kind {
        ExprKind::Binary(BinaryOp::Subtract, end, start)
            if end.kind == ExprKind::Input(Input::Tsc) && !clock(start) =>
        {
            Some(start)
        }
        _ => None,
    }
}

/// Returns the lower half of a small constant, which a store extends with zeroes.
fn low_word(bits: u64) -> u32 {
    u32::try_from(bits).unwrap_or_else(|_| {
        debug_assert!(false, "a small constant has 31 bits");
        0
    })
}

/// Returns the slot so many words after another.
pub(super) fn further(slot: CounterSlot, words: u32) -> CounterSlot {
    CounterSlot {
        slot: slot.slot.saturating_add(words),
        ..slot
    }
}

pub(super) fn is_zero(expr: &Expr) -> bool {
    expr.kind == ExprKind::Constant(0)
}
