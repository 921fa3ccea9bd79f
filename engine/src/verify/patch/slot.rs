//! Slots of rings, while they are filled.

use crate::layout::RuntimeLayout;
use crate::verify::symbolic::atom::{Atom, SymValue};
use crate::verify::symbolic::value::SymValues;

/// Bits of the mark of a slot of the ring that all threads share, which are the number of the CPU.
const CPU_BITS: u32 = 12;

/// The written words of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SlotWords {
    pub(super) value: bool,
    pub(super) time: bool,
    pub(super) identifier: bool,
}

impl SlotWords {
    /// All except the mark.
    pub(super) const ALL: Self = Self {
        value: true,
        time: true,
        identifier: true,
    };
}

/// Returns the address of the slot of a head in the ring that all threads share.
pub(super) fn shared_slot(
    values: &mut SymValues,
    layout: &RuntimeLayout,
    head: SymValue,
) -> SymValue {
    let rings = &layout.rings;
    let slots = (1_u64 << rings.slots_log2.min(31)) - 1;
    let slot = values.mask(head, slots);
    let slot = values.scale(slot, shared_slot_bytes(layout));
    let base = values.constant(rings.base.0);
    values.add(base, slot)
}

/// Returns the bytes of a slot of that ring: 32 for each word of a sample that it may have.
pub(super) fn shared_slot_bytes(layout: &RuntimeLayout) -> u64 {
    let rings = &layout.rings;
    let log2 = rings.stride_log2.saturating_sub(rings.slots_log2);
    1 << log2.min(63)
}

/// Returns the mark of that slot, for a sample with a time; unknown if that is not a reading of the clock.
pub(super) fn shared_mark(values: &mut SymValues, head: SymValue, tsc: SymValue) -> SymValue {
    let Some(Atom::Tsc(at)) = values.as_atom(tsc) else {
        return SymValue::UNKNOWN;
    };
    let at = *at;
    let cpu = values.atom(Atom::ClockCpu(at));
    let cpu = values.mask(cpu, (1 << CPU_BITS) - 1);
    let serial = values.shl(head, CPU_BITS);
    values.or(serial, cpu)
}
