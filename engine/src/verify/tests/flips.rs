//! Every single bit of a patch matters, or does not, and this is shown by running it.

use std::collections::{BTreeMap, HashMap};

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::caught::CODE;
use super::interpreter::{Outcome, PatchWorld, run};
use super::*;
use crate::extent::number;
use crate::liveness::{Analysis, Liveness, RegisterSet};
use crate::patch::{Home, TIMER_FACTOR};
use crate::verify::text::callee::Callees;
use crate::verify::text::liveness::{LiveSets, SampledAt};
use crate::verify::text::routine::Routine;

/// A world that a patch of the plan may meet: number decides.
fn world(plan: &Plan, number: u64) -> PatchWorld {
    let mut seed = number.wrapping_mul(0x1234_5678_9abc_def1) ^ 0x5555;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let layout = &plan.layout;
    let mut words_of: [HashMap<u64, u64>; 2] = Default::default();
    for (cpu, words) in words_of.iter_mut().enumerate() {
        let cpu = random() % 900 * 2 + cpu as u64;
        let serial = random() % (1 << 47) + 70_000;
        // A ring is full, nearly, or not.
        let room = [0, 1, 2, 60_000][(random() % 4) as usize];
        let word = |serial: u64| serial << (32 - layout.rings.slots_log2) | cpu;
        words.insert(layout.rings.head.0, word(serial));
        words.insert(layout.rings.limit.0, word(serial + room));
    }
    let task = 0xffff_8880_0000_0000 | (random() % (1 << 36)) & !63;
    for words in &mut words_of {
        words.insert(layout.owner.word.0, task);
    }
    let mut memory = HashMap::new();
    let probed = plan.instruments.iter().filter_map(|one| one.probe.as_ref());
    for home in probed.flat_map(|probed| probed.homes.variables.values()) {
        let Home::Thread(number) = *home else {
            continue;
        };
        let key = task | u64::from(number);
        let entry =
            layout.timers.0 + 16 * (key.wrapping_mul(TIMER_FACTOR) >> (64 - layout.timers_log2));
        let started = random() >> 9;
        // Started; by another thread; another number of the thread; none.
        let owner = [key, key ^ 64, key ^ 2, 0][(random() % 4) as usize];
        memory.insert(entry, owner);
        memory.insert(entry + 8, if owner == 0 { 0 } else { started });
    }
    let interrupts = (0..random() % 4)
        .map(|_| (random() % 10) as usize)
        .collect();
    let migrates = (random() % 3 == 0).then(|| (random() % 10) as usize);
    let registers = [(); 16].map(|()| {
        if random() % 8 == 0 {
            random() % 3
        } else {
            random()
        }
    });
    PatchWorld {
        seed: random(),
        registers,
        flags: random() as u32 & 0x3f,
        gs: words_of,
        memory,
        interrupts,
        migrates,
    }
}

/// Registers and flags that may be used at a point.
type Used = (RegisterSet, u32);

/// Registers and flags that are live after a patch, by the address that control leaves to.
pub(super) struct LiveAfter {
    at: HashMap<u64, Used>,
    /// By a return, a call, or out of the function.
    elsewhere: Used,
}

/// The same, of the patch of the first instrument: registers by the planner's analysis, not the
/// reader's; of the flags the planner knows only whether any counts, and the reader which.
pub(super) fn live(image: &Image, plan: &Plan) -> LiveAfter {
    let site = &plan.sites[plan.patches[first(plan)].site.0 as usize];
    let outline = &plan.functions[plan.instruments[0].id.major as usize].outline;
    let cfg = &Cfg::of(image, outline.function);
    let liveness = Liveness::of(&Analysis::new(image), cfg);
    let function = image.function(cfg.function).unwrap();
    let routine = Routine::read(&Callees::new(image), function).unwrap();
    let flags = LiveSets::of(&routine, &SampledAt::default());
    let used = |at: u64| {
        let live = liveness.before(Addr(at));
        let flags = flags.before(&routine, at).flags();
        (live.registers, if live.flags { flags } else { 0 })
    };
    let blocks = cfg.blocks.iter();
    let instructions: Vec<_> = blocks.flat_map(|block| &block.instructions).collect();
    let all: HashMap<u64, Used> = instructions
        .iter()
        .map(|one| (one.ip(), used(one.ip())))
        .collect();
    let mut displaced = instructions.iter();
    let last = displaced.rfind(|one| site.displaced.contains(Addr(one.ip())));
    let last = last.unwrap();
    LiveAfter {
        elsewhere: all[&last.ip()],
        at: all,
    }
}

/// The patch of the first instrument.
pub(super) fn first(plan: &Plan) -> usize {
    let (site, _) = plan.instruments[0].points[0];
    plan.patches
        .iter()
        .position(|patch| patch.site == site)
        .unwrap()
}

/// Removes the dead parts of an outcome.
fn visible(mut outcome: Outcome, live: &LiveAfter) -> Outcome {
    let (registers, flags) = outcome
        .left_for
        .and_then(|at| live.at.get(&at))
        .unwrap_or(&live.elsewhere);
    for (number, register) in outcome.registers.iter_mut().enumerate() {
        if registers.0 & 1 << number == 0 && number != 4 {
            *register = 0;
        }
    }
    outcome.flags &= flags;
    outcome
}

/// Returns a world in which the two codes have different outcomes, if there is one among many.
pub(super) fn differs(
    plan: &Plan,
    live: &LiveAfter,
    code: &[u8],
) -> Option<(PatchWorld, Outcome, Outcome)> {
    let patch = &plan.patches[first(plan)];
    (0..150).find_map(|number| {
        let world = world(plan, number);
        let (good, bad) = (
            run(&plan.layout, patch.address, &patch.code, &world),
            run(&plan.layout, patch.address, code, &world),
        );
        let (good, bad) = (visible(good, live), visible(bad, live));
        (good != bad).then_some((world, good, bad))
    })
}

const NOP: &str = "a nop does nothing with its operand";

/// The reason why an accepted flip is harmless, by its effect on the instruction. The list is
/// complete.
fn harmless(before: &Instruction, after: &Instruction) -> Option<&'static str> {
    let operands = |i: &Instruction| {
        (0..i.op_count())
            .map(|operand| {
                (
                    i.op_kind(operand),
                    i.op_register(operand),
                    i.try_immediate(operand).ok(),
                )
            })
            .collect::<Vec<_>>()
    };
    let memory = |i: &Instruction| {
        let index = (
            i.memory_index(),
            if i.memory_index() == iced_x86::Register::None {
                1
            } else {
                i.memory_index_scale()
            },
        );
        (
            i.memory_base(),
            index,
            i.memory_displacement64(),
            i.memory_segment(),
        )
    };
    let shifts = |i: &Instruction| {
        (
            i.op0_register(),
            i.try_immediate(i.op_count() - 1).map_or(0, |count| {
                count & if i.op0_register().is_gpr64() { 63 } else { 31 }
            }),
        )
    };
    let same_operands = operands(before) == operands(after) && memory(before) == memory(after);
    let whole = |i: &Instruction| format!("{i}");
    match (before.mnemonic(), after.mnemonic()) {
        _ if before.len() == after.len()
            && (whole(before) == whole(after)
                || before.code() == after.code() && same_operands) =>
        {
            Some(
                "the processor ignores the bit: REX.X with no index, a scale without an index, REX.W where 64 bits are the default",
            )
        }
        (Mnemonic::Nop, Mnemonic::Nop) => Some(NOP),
        (Mnemonic::Cmp, Mnemonic::Cmp)
            if before.op0_kind() == after.op1_kind() && before.op1_kind() == after.op0_kind() =>
        {
            Some("a comparison for equality, the other way round")
        }
        (Mnemonic::Mov, Mnemonic::Mov)
            if before.immediate64() == TIMER_FACTOR
                && before.op0_register() == after.op0_register()
                && (before.immediate64() ^ after.immediate64()) << 6 == 0 =>
        {
            Some(
                "the key of variable 0 has zeroes in its low six bits, which the factor moves to the top",
            )
        }
        (Mnemonic::Mov, Mnemonic::Mov)
            if before.code() == iced_x86::Code::Mov_r32_imm32
                && before.code() == after.code()
                && before.op0_register() == after.op0_register()
                && before.immediate32() == 0
                && after.immediate32() <= 0xff =>
        {
            Some("the low byte is set by the comparison that follows")
        }
        (a, b)
            if a == b
                && matches!(a, Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Rol)
                && shifts(before) == shifts(after) =>
        {
            Some("only five or six bits of a shift's count are used")
        }
        (Mnemonic::Shl, Mnemonic::Rol) if shifts(before) == shifts(after) => {
            Some("what is moved out at the top is zero")
        }
        (Mnemonic::Cmp, Mnemonic::Xor | Mnemonic::Sub) if same_operands => {
            Some("compared by a difference, into a register that is done with")
        }
        (Mnemonic::Or, Mnemonic::Add) | (Mnemonic::Add, Mnemonic::Or) if same_operands => {
            Some("no bit is set in both")
        }
        (a, b)
            if a == b
                && before.op0_register().full_register()
                    == after.op0_register().full_register()
                && before.op0_register() != after.op0_register() =>
        {
            Some("the upper half is zero anyway, or is not used")
        }
        _ => None,
    }
}

/// Flips every bit of the patch of the first instrument.
fn flip_all(
    image: &Image,
    plan: &Plan,
    caught: &mut Caught,
) -> (usize, BTreeMap<&'static str, usize>) {
    let bits = plan.patches[first(plan)].code.len() * 8;
    (bits, flip(image, plan, 0..bits, caught))
}

/// Flips some bits of the patch of the first instrument, one at a time. Gives how many pass, by the
/// reason why. One that passes and is not harmless fails the test.
fn flip(
    image: &Image,
    plan: &Plan,
    bits: impl Iterator<Item = usize>,
    caught: &mut Caught,
) -> BTreeMap<&'static str, usize> {
    passes(image, plan);
    let live = live(image, plan);
    let patch = &plan.patches[first(plan)];
    assert!(differs(plan, &live, &patch.code).is_none());
    let mut passing = BTreeMap::new();
    for bit in bits {
        let mut bad = plan.clone();
        let code = &mut bad.patches[first(plan)].code;
        code[bit / 8] ^= 1 << (bit % 8);
        let code = code.clone();
        if caught.refuses(image, bad, format_args!("bit {bit} flipped")) {
            continue;
        }
        let changed = |code: &[u8]| {
            decoded(patch.address, code)
                .into_iter()
                .find(|one| one.next_ip() > patch.address.0 + bit as u64 / 8)
                .unwrap()
        };
        let (before, after) = (changed(&patch.code), changed(&code));
        if let Some((world, good, bad)) = differs(plan, &live, &code) {
            panic!(
                "`{before}` becomes `{after}`: it passes, and it matters\n{world:x?}\n{good:x?}\n{bad:x?}"
            );
        }
        let round = || {
            let there = decoded(patch.address, &code);
            let next = there
                .iter()
                .find(|one| one.ip() == after.near_branch_target())?;
            let same = next.near_branch_target() == before.near_branch_target();
            let jumps = [&before, &after, next].map(Instruction::mnemonic) == [Mnemonic::Jmp; 3];
            (jumps && same).then_some("a jump to a jump with the same target")
        };
        let Some(why) = harmless(&before, &after).or_else(round) else {
            panic!(
                "`{before}` at {:#x} becomes `{after}`, bit {bit}: it passes, and the list does not say why",
                before.ip()
            );
        };
        *passing.entry(why).or_default() += 1;
    }
    passing
}

/// At every fifth hook; in long runs, by `GILK_PART`, at each.
#[test]
fn single_bits() {
    let image = kernel().image();
    let step = number("GILK_PART", 5);
    let library = Library::builtin().unwrap();
    let kinds = [
        "counter",
        "timestamp",
        "block-trace",
        "argument-0",
        "elapsed-start",
        "elapsed-stop",
    ];
    let (mut bits, mut patches, mut passing) = (0, 0, BTreeMap::new());
    let mut caught = Caught::new("flipped bits", &[CODE]);
    for (number, (function, block, hook)) in hooks(&image).into_iter().enumerate().step_by(step) {
        // Each kind at some hooks, the counter at all.
        for kind in [kinds[0], kinds[number % kinds.len()]] {
            // The other end of a timer, or its place in the table could be anywhere.
            let there = if function == "worker" {
                "tail"
            } else {
                "worker"
            };
            let other = match kind {
                "elapsed-start" => Some(placement(there, 0, HookType::Post, "elapsed-stop")),
                "elapsed-stop" => Some(placement(there, 0, HookType::Post, "elapsed-start")),
                _ => None,
            };
            let session = session(
                [placement(&function, block, hook, kind)]
                    .into_iter()
                    .chain(other)
                    .collect(),
            );
            let Ok(plan) = plan(&image, &session, &library, &layout()) else {
                continue;
            };
            let (more, reasons) = flip_all(&image, &plan, &mut caught);
            (bits, patches) = (bits + more, patches + 1);
            for (why, count) in reasons {
                *passing.entry(why).or_insert(0) += count;
            }
        }
    }
    println!("{bits} bits of {patches} patches; those that pass:");
    for (why, count) in &passing {
        println!("{count:6} {why}");
    }
    passing.remove(NOP);
    assert!(
        patches >= 15 && passing.values().sum::<usize>() * 20 < bits,
        "{passing:?} of {bits}"
    );
}

/// A second instrument in the patch has the first around it: whatever jumps astray meets it.
#[test]
fn single_bits_of_several_instruments() {
    let image = kernel().image();
    let all = ["timestamp", "counter", "elapsed-stop", "elapsed-start"]
        .map(|kind| placement("worker", 1, HookType::Pre, kind));
    let mut caught = Caught::new("flipped bits of several instruments", &[CODE]);
    let (bits, passing) = flip_all(&image, &planned(&image, all.to_vec()), &mut caught);
    println!("{bits} bits; {passing:?}");
}

/// The interpreter sees what a flip does, or the test above would prove nothing. Of every third bit; in long runs, by
/// `GILK_PART`, of all.
#[test]
fn the_interpreter_distinguishes_patches() {
    let image = kernel().image();
    let step = number("GILK_PART", 5);
    for kind in ["counter", "timestamp", "elapsed-start", "elapsed-stop"] {
        let plan = planned(&image, vec![placement("worker", 1, HookType::Pre, kind)]);
        let live = live(&image, &plan);
        let patch = &plan.patches[first(&plan)];
        let (mut seen, mut all) = (0, 0);
        for bit in (0..patch.code.len() * 8).step_by(step) {
            let mut code = patch.code.clone();
            code[bit / 8] ^= 1 << (bit % 8);
            all += 1;
            seen += usize::from(differs(&plan, &live, &code).is_some());
        }
        assert!(seen * 10 > all * 8, "{kind}: {seen} of {all}");
    }
}

/// `gs:` words stand in the code where the layout has them, whichever form of operand is used.
#[test]
fn operands_are_what_they_seem() {
    let image = kernel().image();
    let plan = planned(
        &image,
        vec![placement("worker", 1, HookType::Pre, "timestamp")],
    );
    let patch = &plan.patches[first(&plan)];
    let head = decoded(patch.address, &patch.code)
        .into_iter()
        .filter(|one| (0..one.op_count()).any(|operand| one.op_kind(operand) == OpKind::Memory))
        .filter(|one| one.memory_displacement64() == plan.layout.rings.head.0)
        .count();
    assert!(head >= 2, "the head is read and moved");
}
