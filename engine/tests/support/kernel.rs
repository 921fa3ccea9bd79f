//! The kernel that `GILK_IMAGE` names, and a layout as the module gives it.

#![allow(clippy::unwrap_used, reason = "what cannot run says so and ends")]

use gilk_engine::cfg::Cfg;
use gilk_engine::kernel::LiveParts;
use gilk_engine::layout::{CounterBank, Events, Gs, RuntimeLayout, Surroundings};
use gilk_engine::{Addr, Image, Span};

/// The kernel that `GILK_IMAGE` names, or `None` with a message.
pub(crate) fn image() -> Option<Image> {
    let Ok(path) = std::env::var("GILK_IMAGE") else {
        eprintln!("skipped: GILK_IMAGE names no kernel image");
        return None;
    };
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    Some(Image::from_live(&parts).unwrap())
}

/// With room for every hook of a kernel.
pub(crate) fn layout() -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(0xffff_ffff_c010_0000), 0x2000_0000),
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
                slots: 512,
            },
            CounterBank {
                base: Gs(0xff11_0000_5678_0000),
                slots: 1 << 21,
            },
        ],
        timers: Addr(0xff11_0000_9abc_0000),
        timers_log2: 12,
        surroundings: Surroundings::supposed(2),
        events: Events::default(),
    }
}

/// How a session names a function: where its name is another's too, the address says which.
pub(crate) fn name(image: &Image, cfg: &Cfg) -> String {
    let by_name = image.function_named(&cfg.name);
    if by_name.is_ok_and(|function| function.id == cfg.function) {
        cfg.name.clone()
    } else {
        format!("{}@{:#x}", cfg.name, cfg.span.start.0)
    }
}
