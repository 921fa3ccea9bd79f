//! The effect on a state of a branch that is or is not taken.

use iced_x86::ConditionCode;

use super::machine::AbstractMachine;
use super::state::{Compared, MachineState};
use super::value::{Expression, mask};

impl AbstractMachine<'_> {
    /// Narrows a state to where a condition holds or does not; returns whether that can be.
    pub(super) fn assume(
        &mut self,
        state: &mut MachineState,
        condition: ConditionCode,
        holds: bool,
    ) -> bool {
        use ConditionCode as C;
        let Some(compared) = state.compared else {
            return true;
        };
        let condition = if holds { condition } else { negated(condition) };
        let Compared {
            value, with, bits, ..
        } = compared;
        let value = self.all.low(value, bits);
        let (most, positive) = (mask(bits), mask(bits - 1));
        let narrowed = if compared.tests {
            match condition {
                C::e | C::be => Some((0, 0)),
                C::ne | C::a => Some((1, most)),
                C::ns | C::ge => Some((0, positive)),
                C::s | C::l => Some((positive + 1, most)),
                C::g => Some((1, positive)),
                _ => None,
            }
        } else {
            let with = self.all.low(with, bits);
            let (first, last) = state.fact(&self.all, with).numbers.bounds();
            let (first, last) = (first.min(most), last.min(most));
            let is_positive =
                state.fact(&self.all, value).numbers.bounds().1 <= positive && last <= positive;
            match condition {
                C::b if last == 0 => return false,
                C::b => Some((0, last - 1)),
                C::be => Some((0, last)),
                C::a if first == most => return false,
                C::a => Some((first + 1, most)),
                C::ae => Some((first, most)),
                C::e => Some((first, last)),
                C::l if is_positive && last == 0 => return false,
                C::l if is_positive => Some((0, last - 1)),
                C::le if is_positive => Some((0, last)),
                C::g if last <= positive => Some((first.saturating_add(1), positive)),
                C::ge if last <= positive => Some((first, positive)),
                _ => None,
            }
        };
        let Some((first, last)) = narrowed else {
            return true;
        };
        if let Expression::Low { of, .. } = self.all.form(value) {
            // Nothing is above the bits that were compared.
            let is_whole = state.fact(&self.all, of).numbers.bounds().1 <= most;
            if is_whole && !state.narrow(&self.all, of, first, last) {
                return false;
            }
        }
        // What the low bits of a sum are, the bits of its part follow from, unless the range wraps.
        if let Expression::Low { of, .. } = self.all.form(value)
            && let (part, constant) = self.all.parts(of)
            && part != of
        {
            let less = |number: u64| number.wrapping_sub(constant) & most;
            let part = self.all.low(part, bits);
            let (first, last) = (less(first), less(last));
            if first <= last && !state.narrow(&self.all, part, first, last) {
                return false;
            }
        }
        state.narrow(&self.all, value, first, last)
    }
}

fn negated(condition: ConditionCode) -> ConditionCode {
    use ConditionCode as C;
    match condition {
        C::None => C::None,
        C::o => C::no,
        C::no => C::o,
        C::b => C::ae,
        C::ae => C::b,
        C::e => C::ne,
        C::ne => C::e,
        C::be => C::a,
        C::a => C::be,
        C::s => C::ns,
        C::ns => C::s,
        C::p => C::np,
        C::np => C::p,
        C::l => C::ge,
        C::ge => C::l,
        C::le => C::g,
        C::g => C::le,
    }
}
