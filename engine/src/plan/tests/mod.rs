mod choices;
mod copies;
mod jumps;
mod mutants;
mod places;
mod random;
mod reached;
mod sessions;
mod walk;

use crate::layout::{CounterBank, Events, Gs, RuntimeLayout, Surroundings};
use crate::{Addr, Span};

const ARENA: u64 = 0xffff_ffff_c010_0000;

pub(crate) fn layout(arena: u64) -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(ARENA), arena),
        unwinds: true,
        faults: 1 << 16,
        ring_base: Addr(0xff11_0000_1234_0000),
        stride_log2: 21,
        slots_log2: 16,
        head: Gs(0x3_1000),
        limit: Gs(0x3_1008),
        lost_full: Gs(0x3_1010),
        current: Gs(0x1_fb80),
        counters: vec![
            CounterBank {
                base: Gs(0x3_2000),
                slots: 8,
            },
            CounterBank {
                base: Gs(0xff11_0000_5678_0000),
                slots: 24,
            },
        ],
        timers: Addr(0xff11_0000_9abc_0000),
        timers_log2: 12,
        surroundings: Surroundings::supposed(2),
        events: Events::default(),
    }
}
