//! Tables whose index nothing bounds, as compilers leave them where no other case can be: their entries show how long
//! they are.
//!
//! What is believed of the code: a table of distances from its own label begins there, and each of its entries is a
//! target in the function or a part of one, or, for numbers that no case has, the function's end. So it ends at or before
//! the first entry that is neither. Where that could be a target of other code, and nothing is known to begin in between,
//! the table is not believed to have ended, and the function is refused.

use super::state::MachineState;
use super::value::{Expression, ExpressionId, Expressions, MOST};
use crate::code::Memory;
use crate::{Addr, Span};

/// Bytes of an entry.
const ENTRY: u64 = 4;

/// A jump to the sum of a table's address and one of its entries.
pub(super) struct LabelledTable {
    label: Addr,
    /// The greatest index that is possible.
    last: u64,
}

/// Known data of an object.
pub(in crate::elf) struct DataLabels {
    /// Data that nothing writes, by address.
    pub(in crate::elf) read_only: Vec<Span>,
    /// Sections of code, by address.
    pub(in crate::elf) code: Vec<Span>,
    /// Addresses of data that instructions name, sorted.
    pub(in crate::elf) named: Vec<Addr>,
}

impl LabelledTable {
    /// Returns the table of a jump to a value, if it is such a sum.
    pub(super) fn of(all: &Expressions, state: &MachineState, value: ExpressionId) -> Option<Self> {
        let Expression::Plus { of, constant } = all.form(value) else {
            return None;
        };
        let Expression::Signed { of, bits: 32 } = all.form(of) else {
            return None;
        };
        let Expression::Loaded { address, bytes, .. } = all.form(of) else {
            return None;
        };
        let (scaled, label) = all.parts(address);
        let Expression::Times { of, factor } = all.form(scaled) else {
            return None;
        };
        let is_its = label == constant && [factor, u64::from(bytes)] == [ENTRY; 2];
        is_its.then(|| Self {
            label: Addr(label),
            last: state.fact(all, of).numbers.bounds().1,
        })
    }

    /// Returns all targets that its entries may be, given those of the function; `None` if it may have others.
    pub(super) fn targets(
        &self,
        labels: &DataLabels,
        memory: &Memory,
        end_of_function: Addr,
        is_target: impl Fn(Addr) -> bool,
    ) -> Option<Vec<Addr>> {
        let section = Span::holding(&labels.read_only, self.label)?;
        let after = labels.named.partition_point(|named| *named <= self.label);
        let next = labels.named.get(after);
        let mut targets = Vec::new();
        for index in 0..=self.last.min(MOST as u64) {
            let at = self.label.add(index * ENTRY);
            let entry = Span::new(at, ENTRY);
            if entry.end > section.end {
                break;
            }
            let entry = memory.bytes(entry)?.first_chunk()?;
            let distance = i64::from(i32::from_le_bytes(*entry));
            let to = Addr(self.label.0.wrapping_add_signed(distance));
            if is_target(to) {
                targets.push(to);
            } else if to != end_of_function {
                let has_ended = next.is_some_and(|next| *next <= at);
                if !has_ended && Span::holding(&labels.code, to).is_some() {
                    return None;
                }
                break;
            }
        }
        (!targets.is_empty()).then_some(targets)
    }
}
