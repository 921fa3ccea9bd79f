//! Values counted one by one: sums of buckets, two for each value.

use gilk_instruments::program::Aggregate;
use iced_x86::{Code, Instruction, Register};

use super::Compiler;
use crate::layout::CounterSlot;

impl Compiler<'_> {
    /// The value in the first register goes into its bucket of each table, part by part.
    pub(super) fn tally(&mut self, first: CounterSlot, room_log2: u32) {
        let [value, place, part, through] = [0, 1, 2, 3].map(|number| self.work(number));
        let half_log2 = room_log2.saturating_sub(1);
        for (table, factor) in (0..).zip(Aggregate::FACTORS) {
            let bucket = table << half_log2;
            self.constant(place, factor);
            self.op(Code::Imul_r64_rm64, place, value);
            if half_log2 == 0 {
                self.constant(place, 0);
            } else {
                self.shift_right(place, 64 - half_log2);
            }
            let word = self.word_at(first, bucket, place, through);
            self.e.op(Instruction::with1(Code::Inc_rm64, word));
            for sum in 1..Aggregate::SUMS {
                match sum {
                    1 => {
                        let (to, from) = (part.full_register32(), value.full_register32());
                        self.op(Code::Mov_r32_rm32, to, from);
                    }
                    2 => {
                        self.op(Code::Mov_r64_rm64, part, value);
                        self.shift_right(part, 32);
                    }
                    _ => {
                        self.op(Code::Mov_r64_rm64, part, value);
                        self.shift_right(part, Aggregate::MIXED);
                        self.op(Code::Xor_r64_rm64, part, value);
                        self.op(Code::Imul_r64_rm64, part, part);
                    }
                }
                let word = self.word_at(first, bucket + (sum << room_log2), place, through);
                self.e
                    .op(Instruction::with2(Code::Add_rm64_r64, word, part));
            }
        }
    }

    fn shift_right(&mut self, register: Register, by: u32) {
        self.e
            .op(Instruction::with2(Code::Shr_rm64_imm8, register, by));
    }
}
