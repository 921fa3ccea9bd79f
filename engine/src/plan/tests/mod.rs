mod choices;
mod copies;
mod jumps;
mod mutants;
mod places;
mod random;
mod reached;
mod sessions;
mod walk;

use crate::layout::{CounterBank, Inputs, Owner, RingOwner, Rings, RuntimeLayout, SegmentOffset};
use crate::{Addr, Span};

const ARENA: u64 = 0xffff_ffff_c010_0000;

pub(crate) fn layout(arena: u64) -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(ARENA), arena),
        unwinds: true,
        faults: 1 << 16,
        rings: Rings {
            per: RingOwner::Cpu,
            base: Addr(0xff11_0000_1234_0000),
            stride_log2: 21,
            slots_log2: 16,
            head: SegmentOffset(0x3_1000),
            limit: SegmentOffset(0x3_1008),
            lost_full: SegmentOffset(0x3_1010),
        },
        owner: Owner::kernel(SegmentOffset(0x1_fb80)),
        inputs: Inputs::supposed(SegmentOffset(0x1_fb80)),
        counters: vec![
            CounterBank {
                base: SegmentOffset(0x3_2000),
                slots: 8,
            },
            CounterBank {
                base: SegmentOffset(0xff11_0000_5678_0000),
                slots: 24,
            },
        ],
        timers: Addr(0xff11_0000_9abc_0000),
        timers_log2: 12,
        shared: RuntimeLayout::supposed_shared(2),
        ..RuntimeLayout::supposed(Addr(ARENA))
    }
}
