//! Whole bytes and whole instructions of patches changed. What passes must do the same when it runs;
//! and of what is changed so, little may pass.

use super::caught::CODE;
use super::flips::{differs, first, live};
use super::*;
use crate::extent::number;
use iced_x86::{Mnemonic, Register};

/// Plans whose first patch has each kind of instrument around each kind of displaced instruction.
fn plans(image: &Image) -> Vec<Plan> {
    let kinds = [
        "timestamp",
        "elapsed-stop",
        "counter",
        "elapsed-start",
        "block-trace",
    ];
    let hooks = hooks(image);
    let others = [("worker", "tail"), ("tail", "worker")];
    hooks
        .iter()
        .zip(kinds.iter().cycle())
        .map(|((function, block, hook), kind)| {
            let there = others
                .iter()
                .find(|(known, _)| known == function)
                .map_or("tail", |pair| pair.1);
            let other = if *kind == "elapsed-start" {
                "elapsed-stop"
            } else {
                "elapsed-start"
            };
            planned(
                image,
                vec![
                    placement(function, *block, *hook, kind),
                    placement(there, 0, HookType::Post, other),
                ],
            )
        })
        .collect()
}

/// Returns whether a plan with this code passes. If it does, its effect must be that of the good
/// one.
fn passes_and_is_good(image: &Image, plan: &Plan, code: &[u8], caught: &mut Caught) -> bool {
    let patch = first(plan);
    if *code == *plan.patches[patch].code {
        return false;
    }
    let mut bad = plan.clone();
    bad.patches[patch].code = code.into();
    if caught.refuses(image, bad, format_args!("{code:02x?}")) {
        return false;
    }
    if let Some((world, good, bad)) = differs(plan, &live(image, plan), code) {
        let text = |code: &[u8]| {
            decoded(plan.patches[patch].address, code)
                .iter()
                .map(|one| format!("{:#x} {one}\n", one.ip()))
                .collect::<String>()
        };
        panic!(
            "it passes, and it matters\n{}\n{}\n{world:x?}\n{good:x?}\n{bad:x?}",
            text(&plan.patches[patch].code),
            text(code)
        );
    }
    true
}

/// One of five changes of each byte; in long runs, by `GILK_PART`, all.
#[test]
fn single_bytes() {
    let image = kernel().image();
    let part = number("GILK_PART", 5);
    let (mut all, mut passing) = (0, 0);
    let mut caught = Caught::new("changed bytes", &[CODE]);
    for plan in plans(&image) {
        let code = &plan.patches[first(&plan)].code;
        for byte in 0..code.len() {
            for number in
                (0..5_u8).filter(|&number| (byte + usize::from(number)).is_multiple_of(part))
            {
                let mut bad = code.clone();
                let before = bad[byte];
                bad[byte] = [
                    0x90,
                    0xcc,
                    before.wrapping_add(8),
                    before.wrapping_sub(1),
                    before.rotate_left(3) ^ 0x1c,
                ][usize::from(number)];
                all += 1;
                passing += usize::from(passes_and_is_good(&image, &plan, &bad, &mut caught));
            }
        }
    }
    println!("{passing} of {all} changed bytes pass and are harmless");
    assert!(passing * 20 < all);
}

/// Nops of a length.
fn nops(len: usize) -> Vec<u8> {
    vec![0x90; len]
}

#[test]
fn instructions_dropped_doubled_and_swapped() {
    let image = kernel().image();
    let (mut all, mut passing) = ([0; 3], [0; 3]);
    let mut caught = ["dropped", "doubled", "swapped"].map(|kind| Caught::new(kind, &[CODE]));
    for plan in plans(&image) {
        let patch = &plan.patches[first(&plan)];
        let instructions: Vec<(usize, usize)> = decoded(patch.address, &patch.code)
            .iter()
            .map(|one| ((one.ip() - patch.address.0) as usize, one.len()))
            .collect();
        for pair in instructions.windows(2) {
            let [(a, a_len), (b, b_len)] = *pair else {
                unreachable!()
            };
            let (before, after) = (&patch.code[..a], &patch.code[b + b_len..]);
            let (one, two) = (&patch.code[a..b], &patch.code[b..b + b_len]);
            let dropped = [before, &nops(a_len), two, after].concat();
            let swapped = [before, two, one, after].concat();
            // Twice, in the room of the next, where that is long enough.
            let doubled =
                (b_len >= a_len).then(|| [before, one, one, &nops(b_len - a_len), after].concat());
            for (kind, code) in [Some(dropped), doubled, Some(swapped)]
                .into_iter()
                .enumerate()
            {
                if let Some(code) = code {
                    all[kind] += 1;
                    let good = passes_and_is_good(&image, &plan, &code, &mut caught[kind]);
                    passing[kind] += usize::from(good);
                }
            }
        }
    }
    println!("dropped, doubled, swapped: {passing:?} of {all:?} pass and are harmless");
    // A `mov` whose value is there anyway, an int3 for a nop; swaps of what does not depend on each other.
    assert!(
        passing[0] * 10 < all[0] && passing[1] * 10 < all[1] && passing[2] * 2 < all[2],
        "{passing:?} of {all:?}"
    );
}

/// A timer is the thread's if its owner is the thread's key: with any other register instead of that, nothing
/// is known.
#[test]
fn a_timer_is_compared_with_its_key() {
    let image = kernel().image();
    let plan = planned(
        &image,
        vec![
            placement("worker", 1, HookType::Pre, "elapsed-stop"),
            placement("tail", 0, HookType::Post, "elapsed-start"),
        ],
    );
    passes(&image, &plan);
    let mut tried = 0;
    let mut caught = Caught::new("another register for a key", &[CODE]);
    for (number, patch) in plan.patches.iter().enumerate() {
        let all = decoded(patch.address, &patch.code);
        let of_timer = all
            .iter()
            .filter(|one| one.mnemonic() == Mnemonic::Mov && one.op0_register() == Register::RAX);
        for one in of_timer.filter(|one| one.op1_register().is_gpr64()) {
            let own = one.op1_register().number() as u8;
            for register in (0..16).filter(|&register| register != own) {
                let mut bad = plan.clone();
                let at = (one.ip() - patch.address.0) as usize;
                let [rex, _, modrm, ..] = &mut bad.patches[number].code[at..] else {
                    panic!("{one}")
                };
                *rex = *rex & !1 | register >> 3;
                *modrm = *modrm & !7 | register & 7;
                let what = format_args!("`{one}` with register {register}");
                caught.must_refuse(&image, bad, what);
                tried += 1;
            }
        }
    }
    assert!(tried >= 15);
}
