//! Targets with other conventions than the kernel's: the planner and the proof read the same description, each for
//! itself, and what no code is generated for is refused by name.

use gilk_instruments::program::Input;
use iced_x86::{Code, Register};

use super::handmade::{judged, restore, save};
use super::*;
use crate::layout::{Abi, Guard, InputLocation, MonotonicClock, ReturnPush, WordSegment};

fn user() -> RuntimeLayout {
    RuntimeLayout {
        abi: Abi::PROCESS,
        guard: Guard::Everywhere,
        unwinds: true,
        ..layout()
    }
}

fn decoded(plan: &Plan) -> impl Iterator<Item = Instruction> {
    let patches = plan.patches.iter();
    patches.flat_map(|patch| {
        Decoder::with_ip(64, &patch.code, patch.address.0, DecoderOptions::NONE)
            .into_iter()
            .collect::<Vec<_>>()
    })
}

const KEEPS: &str = "thread @t; cpu @n; \
    hit / @t == 0 / { @t = tsc; @n += tid; sample(*(u64 *)arg0 + cpu) }";

/// A hook that moves a call.
fn calling(image: &Image) -> (String, u32, HookType) {
    let pushes = |(function, block, hook): &(String, u32, HookType)| {
        let plan = planned(image, vec![placement(function, *block, *hook, "counter")]);
        decoded(&plan).any(|one| one.code() == Code::Pushq_imm32)
    };
    hooks(image).into_iter().find(pushes).unwrap()
}

/// Every hook is planned and proven by other conventions, and no proof holds under those of another target.
#[test]
fn patches_follow_the_conventions_of_their_target_and_no_other() {
    let image = kernel().image();
    let library = Library::builtin().unwrap();
    let (mut zones, mut halves) = (0, 0);
    for (function, block, hook) in hooks(&image) {
        for instrument in ["counter", "timestamp", "elapsed-start", "elapsed-stop"] {
            let session = session(vec![placement(&function, block, hook, instrument)]);
            let good = plan(&image, &session, &library, &user()).unwrap();
            passes(&image, &good);
            let own = decoded(&good).filter(|one| one.memory_segment() == Register::FS);
            assert!(own.count() > 0);
            zones += decoded(&good)
                .filter(|one| one.op0_register() == Register::RSP && one.code() == Code::Lea_r64_m)
                .count();
            let upper = decoded(&good).filter(|one| one.code() == Code::Mov_rm32_imm32);
            halves += upper.count();
            refused(&image, &good, "OtherSegment", |plan| {
                plan.layout.abi.segment = WordSegment::Gs;
            });
        }
    }
    assert!(zones > 50 && halves > 0, "{zones} {halves}");
}

#[test]
fn each_part_of_the_description_matters_to_the_proof() {
    let image = kernel().image();
    for layout in [layout(), user()] {
        // Everything may be live where the assembly begins: registers and flags are pushed.
        let good = of_source(&image, ("assembly", 0, HookType::Pre), KEEPS, &layout).unwrap();
        let rule = match layout.abi.red_zone {
            0 => "RedZone",
            _ => "MovesStack",
        };
        refused(&image, &good, rule, |plan| {
            plan.layout.abi.red_zone ^= 128;
        });
        refused(&image, &good, "RedZoneSize", |plan| {
            plan.layout.abi.red_zone = 12;
        });
        refused(&image, &good, "RingOwner", |plan| {
            plan.layout.rings.per = RingOwner::Thread;
        });
        refused(&image, &good, "Unguarded", |plan| {
            plan.layout.guard = Guard::Missing;
        });
        refused(&image, &good, "KeyBits", |plan| {
            plan.layout.owner.free_bits = 8;
        });
        refused(&image, &good, "KeyBits", |plan| {
            plan.layout.owner.busy_bit = 47;
        });
        refused(&image, &good, "OtherKey", |plan| {
            plan.layout.owner.busy_bit = 61;
        });
        let elsewhere = InputLocation::Owner(0x998);
        refused(&image, &good, "NarrowMemory", |plan| {
            plan.layout.inputs.set(Input::Tid, Some(elsewhere));
        });
        refused(&image, &good, "NarrowMemory", |plan| {
            plan.layout.inputs.set(Input::Tid, None);
        });
    }
    // An address is tested, or every address may be read.
    let good = of_source(&image, ("assembly", 0, HookType::Pre), KEEPS, &user()).unwrap();
    refused(&image, &good, "UserMemory", |plan| {
        plan.layout.guard = Guard::KERNEL;
    });
    // The time is that of the target's clock.
    let nanoseconds = "hit { sample(nsecs - arg0 + nsecs) }";
    let good = of_source(
        &image,
        ("assembly", 0, HookType::Pre),
        nanoseconds,
        &layout(),
    );
    let good = good.unwrap();
    let clock = good.layout.clock.unwrap();
    let factor = MonotonicClock {
        factor: clock.factor + 1,
        ..clock
    };
    let elsewhere = MonotonicClock {
        offset: clock.offset.add(8),
        ..clock
    };
    for (other, rule) in [
        (None, "ForeignMemory"),
        (Some(elsewhere), "ForeignMemory"),
        (Some(factor), "OtherValue"),
    ] {
        refused(&image, &good, rule, |plan| {
            plan.layout.clock = other;
        });
    }
    // A moved call pushes its return address in the stated form, or is not moved.
    let called = |layout: &RuntimeLayout| {
        let (function, block, hook) = calling(&image);
        let session = session(vec![placement(&function, block, hook, "counter")]);
        plan(&image, &session, &Library::builtin().unwrap(), layout).unwrap()
    };
    for (good, form) in [
        (called(&layout()), ReturnPush::Halves),
        (called(&user()), ReturnPush::Whole),
    ] {
        refused(
            &image,
            &good,
            "ReturnHalves|Awaited|NotOriginal|Instruction|OtherCallee",
            |plan| {
                plan.layout.abi.return_push = form;
            },
        );
        refused(&image, &good, "ShadowStack", |plan| {
            plan.layout.abi.shadow_stack = true;
        });
    }
}

#[test]
fn a_description_that_no_code_serves_is_refused_by_its_rule() {
    let image = kernel().image();
    let refused = |(function, block, hook): (&str, u32, HookType),
                   source: &str,
                   change: &dyn Fn(&mut RuntimeLayout)| {
        let mut layout = layout();
        change(&mut layout);
        let said = of_source(&image, (function, block, hook), source, &layout).unwrap_err();
        match said {
            crate::Error::Refused { refusal, .. } => refusal.rule.name(),
            other => panic!("{other}"),
        }
    };
    let helper = ("helper", 0, HookType::Pre);
    let count = "hit { @n = count() }";
    let rule = refused(helper, count, &|layout| {
        layout.rings.per = RingOwner::Thread;
    });
    assert_eq!(rule, "ring-owner");
    let load = "hit { sample(*(u64 *)arg0) }";
    let unguarded = |layout: &mut RuntimeLayout| layout.guard = Guard::Missing;
    assert_eq!(refused(helper, load, &unguarded), "unguarded");
    let stacked = "entry { sample(arg7) }";
    assert_eq!(refused(helper, stacked, &unguarded), "unguarded");
    let nowhere = |layout: &mut RuntimeLayout| {
        layout.inputs.set(Input::Pid, None);
    };
    let of_process = "hit { sample(pid) }";
    assert_eq!(refused(helper, of_process, &nowhere), "program-unsupported");
    let shadow = |layout: &mut RuntimeLayout| layout.abi.shadow_stack = true;
    let (function, block, hook) = calling(&image);
    assert_eq!(
        refused((&function, block, hook), count, &shadow),
        "shadow-stack"
    );
    // What does not need it is planned.
    let mut layout = layout();
    layout.guard = Guard::Missing;
    layout.abi.shadow_stack = true;
    layout.inputs.set(Input::Pid, None);
    passes(&image, &of_source(&image, helper, count, &layout).unwrap());
}

#[test]
fn the_red_zone_is_stepped_over_before_all_pushes_and_back_after_all_pops() {
    let image = super::handmade::image();
    let session = session(vec![placement("kept", 0, HookType::Pre, "counter")]);
    let layout = RuntimeLayout {
        unwinds: false,
        ..user()
    };
    let plan = plan(&image, &session, &Library::builtin().unwrap(), &layout).unwrap();
    let counter = plan.layout.counters[0].base.0;
    let moved = &plan.sites[0];
    let from = moved.displaced.start;
    let copy = |a: &mut CodeAssembler| {
        let original = image.bytes(moved.displaced).unwrap();
        for one in Decoder::with_ip(64, original, from.0, DecoderOptions::NONE).into_iter() {
            a.add_instruction(one)?;
        }
        a.int3()
    };
    let judged = |rule: Option<&str>, down: i32, push_first: bool, up: i32| {
        judged(&image, &plan, rule, &|a| {
            if push_first {
                save(a)?;
            }
            if down != 0 {
                a.lea(rsp, qword_ptr(rsp + down))?;
            }
            if !push_first {
                save(a)?;
            }
            a.inc(qword_ptr(counter).fs())?;
            restore(a)?;
            if up != 0 {
                a.lea(rsp, qword_ptr(rsp + up))?;
            }
            copy(a)
        });
    };
    judged(None, -128, false, 128);
    judged(Some("RedZone"), 0, false, 0);
    judged(Some("RedZone"), -128, true, 128);
    judged(Some("SteppedOver"), -120, false, 120);
    judged(Some("SteppedOver"), 128, false, -128);
    judged(
        Some("BytesPushed|NotOriginal|Awaited|SteppedOver|Instruction"),
        -128,
        false,
        0,
    );
    judged(Some("SteppedOver"), -128, false, -128);
}
