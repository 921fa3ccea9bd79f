//! The reader's liveness and the planner's, over a whole kernel.

use super::*;
use crate::kernel::LiveParts;
use crate::liveness::{Analysis, Liveness, RegisterSet};
use crate::verify::text::callee::Callees;
use crate::verify::text::effects::Mask;
use crate::verify::text::liveness::{Changed, LiveSets, SampledAt};
use crate::verify::text::routine::Routine;

/// Registers that are dead to the planner are dead to the verifier too: no sound plan is refused.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn what_the_planner_finds_dead_the_reader_finds_dead() {
    let file = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE names no file; it should name an image read from a kernel");
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    let image = Image::from_live(&parts).unwrap();
    let analysis = Analysis::new(&image);
    let callees = Callees::new(&image);
    let (mut points, mut equal) = (0, 0);
    let mut wrong = Vec::new();
    for function in image.functions() {
        let cfg = Cfg::of(&image, function.id);
        if cfg.refusal.is_some() {
            continue;
        }
        let planner = Liveness::of(&analysis, &cfg);
        let routine = Routine::read(&callees, function).unwrap();
        let reader = LiveSets::of(&routine, &SampledAt::default());
        for instruction in cfg.blocks.iter().flat_map(|block| &block.instructions) {
            let theirs = planner.before(Addr(instruction.ip()));
            let live = reader.before(&routine, instruction.ip());
            let used = RegisterSet(u16::try_from(live.0 & 0xffff).unwrap());
            let missed = used.difference(theirs.registers);
            if missed != RegisterSet::EMPTY || live.flags() != 0 && !theirs.flags {
                wrong.push(format!(
                    "{} {:#x}: the planner {theirs:?}, the reader {used:?} and flags {:#x}",
                    function.name,
                    instruction.ip(),
                    live.flags()
                ));
            }
            points += 1;
            equal += usize::from(used == theirs.registers && (live.flags() != 0) == theirs.flags);
        }
    }
    println!("of {points} points, both say the same at {equal}");
    for line in wrong.iter().take(40) {
        println!("{line}");
    }
    assert!(
        wrong.is_empty(),
        "at {} of {points} points the reader uses more",
        wrong.len()
    );
}

/// Code that no way from the entry reaches has no argument that is known to be intact.
#[test]
fn unreachable_code_has_no_intact_arguments() {
    // ftrace nop; ret; mov eax, ecx; ret
    let fixture = Fixture::new().compiled("f", |a| {
        a.ret()?;
        a.mov(eax, ecx)?;
        a.ret()
    });
    let image = fixture.image();
    let function = image.function_named("f").unwrap();
    let routine = Routine::read(&Callees::new(&image), function).unwrap();
    let mut changed = Changed::default();
    let start = Fixture::address(0);
    assert_eq!(changed.before(&routine, start + 5), Mask::NONE);
    assert_eq!(changed.before(&routine, start + 6), Mask::ALL);
}
