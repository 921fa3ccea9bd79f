//! Values by key: sums of buckets, two for each key.

use gilk_instruments::program::{Aggregate, Expr, ExprKind, Table};
use iced_x86::{Code, Instruction, Register};

use super::Compiler;
use super::action::further;
use crate::layout::CounterSlot;
use crate::patch::restartable::WordUpdate;

/// The registers of an update of a table.
#[derive(Clone, Copy)]
struct UpdateRegisters {
    hash: Register,
    place: Register,
    part: Register,
    through: Register,
}

impl Compiler<'_> {
    /// Computes a key and its value, and adds them to the sums of the key's bucket of each table, part by part.
    pub(super) fn entry(&mut self, aggregate: &Aggregate, first: CounterSlot, expr: &Expr) {
        let Some(table) = aggregate.table() else {
            return;
        };
        let all = match &expr.kind {
            ExprKind::List(all) => all,
            _ => std::slice::from_ref(expr),
        };
        for (into, one) in (0..).zip(all) {
            self.value(one, into);
        }
        let keys = table.keys as usize;
        if let (true, Some(histogram)) = (table.binned, aggregate.mapped()) {
            let further = self.bucket(&histogram, keys);
            let [bin, place] = [0, 1].map(|number| self.work(keys + number));
            self.copy(bin, place);
            self.number(Code::Add_rm64_imm32, bin, further.into());
        }
        let words = keys + usize::from(table.binned);
        let words: Vec<Register> = (0..words).map(|number| self.work(number)).collect();
        let value = table.summed.then(|| self.work(keys));
        // A single word is its own hash.
        let next = if let [word] = words.as_slice() {
            let next = all.len();
            let [place, part, through] = [0, 1, 2].map(|number| self.work(next + number));
            UpdateRegisters {
                hash: *word,
                place,
                part,
                through,
            }
        } else {
            let next = all.len();
            let [hash, place, part, through] = [0, 1, 2, 3].map(|number| self.work(next + number));
            let parts = UpdateRegisters {
                hash,
                place,
                part,
                through,
            };
            self.hash(&words, parts);
            parts
        };
        for half in [0, 1] {
            self.add_to_bucket((table, half), first, &words, value, next);
        }
    }

    fn hash(&mut self, words: &[Register], UpdateRegisters { hash, part, .. }: UpdateRegisters) {
        let Some((word, rest)) = words.split_first() else {
            return;
        };
        self.copy(hash, *word);
        for word in rest {
            self.op(Code::Mov_r64_rm64, part, hash);
            self.shift_right(part, Table::MIXED);
            self.op(Code::Xor_r64_rm64, hash, part);
            self.constant(part, Table::SPREAD);
            self.op(Code::Imul_r64_rm64, hash, part);
            self.op(Code::Add_r64_rm64, hash, *word);
        }
    }

    fn add_to_bucket(
        &mut self,
        (table, half): (Table, u32),
        first: CounterSlot,
        words: &[Register],
        value: Option<Register>,
        UpdateRegisters {
            hash,
            place,
            part,
            through,
        }: UpdateRegisters,
    ) {
        let half_log2 = table.room_log2.saturating_sub(1);
        let [first_factor, second_factor] = Table::FACTORS;
        let factor = if half == 0 {
            first_factor
        } else {
            second_factor
        };
        self.constant(place, factor);
        self.op(Code::Imul_r64_rm64, place, hash);
        if half_log2 == 0 {
            self.constant(place, 0);
        } else {
            self.shift_right(place, 64 - half_log2);
        }
        let mut sum = 0;
        let mut next = |compiler: &mut Self, from: Option<Register>| {
            let slot = further(first, (half << half_log2) + (sum << table.room_log2));
            let update = from.map_or(WordUpdate::Increment, WordUpdate::Add);
            compiler.write_cpu(slot, Some(place), update, through);
            sum += 1;
        };
        next(self, None);
        let (keys, bin) = words.split_at(words.len().min(table.keys as usize));
        for &word in keys {
            let (to, from) = (part.full_register32(), word.full_register32());
            self.op(Code::Mov_r32_rm32, to, from);
            next(self, Some(part));
            self.op(Code::Mov_r64_rm64, part, word);
            self.shift_right(part, 32);
            next(self, Some(part));
        }
        for &bin in bin {
            next(self, Some(bin));
        }
        self.op(Code::Mov_r64_rm64, part, hash);
        self.shift_right(part, Table::MIXED);
        self.op(Code::Xor_r64_rm64, part, hash);
        self.op(Code::Imul_r64_rm64, part, part);
        next(self, Some(part));
        if let Some(value) = value {
            next(self, Some(value));
        }
    }

    fn shift_right(&mut self, register: Register, by: u32) {
        self.e
            .op(Instruction::with2(Code::Shr_rm64_imm8, register, by));
    }
}
