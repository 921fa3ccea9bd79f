//! The kernel that `GILK_IMAGE` names or the trimmed one, and a layout as the module reports it.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test's helpers fail the test by panicking, and no test uses all of them"
)]

use gilk_engine::cfg::Cfg;
use gilk_engine::kernel::LiveParts;
use gilk_engine::layout::{
    CounterBank, Inputs, Owner, RingOwner, Rings, RuntimeLayout, SegmentOffset,
};
use gilk_engine::{Addr, Image, Span};

/// The functions of kernel/fork.c of a stock kernel (`examples/trim_image.rs`).
const TRIMMED: &[u8] = include_bytes!("../data/fork.image");

/// Returns the kernel that `GILK_IMAGE` names, or the trimmed one of the tree.
pub(crate) fn image() -> Image {
    let parts: LiveParts = match std::env::var_os("GILK_IMAGE") {
        Some(path) => postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap(),
        None => postcard::from_bytes(TRIMMED).unwrap(),
    };
    Image::from_live(&parts).unwrap()
}

/// Returns the step between the functions that a test looks at: `GILK_EVERY`, or `of_whole` in a
/// whole kernel, and 1 in the trimmed one.
pub(crate) fn step(of_whole: usize) -> usize {
    match std::env::var("GILK_EVERY") {
        Ok(step) => step.parse().unwrap(),
        Err(_) if std::env::var_os("GILK_IMAGE").is_some() => of_whole,
        Err(_) => 1,
    }
}

/// Returns a layout with counters for every hook of a kernel.
pub(crate) fn layout() -> RuntimeLayout {
    let arena = Addr(0xffff_ffff_c010_0000);
    RuntimeLayout {
        arena: Span::new(arena, 0x2000_0000),
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
                slots: 512,
            },
            CounterBank {
                base: SegmentOffset(0xff11_0000_5678_0000),
                slots: 1 << 21,
            },
        ],
        timers: Addr(0xff11_0000_9abc_0000),
        timers_log2: 12,
        shared: RuntimeLayout::supposed_shared(2),
        ..RuntimeLayout::supposed(arena)
    }
}

/// Returns the name of a function in a session, with its address where the name is ambiguous.
pub(crate) fn name(image: &Image, cfg: &Cfg) -> String {
    let by_name = image.function_named(&cfg.name);
    if by_name.is_ok_and(|function| function.id == cfg.function) {
        cfg.name.clone()
    } else {
        format!("{}@{:#x}", cfg.name, cfg.span.start.0)
    }
}
