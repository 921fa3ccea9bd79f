//! Random plans: the verifier never panics, accepts no harmful plan, and never finds itself defective.

use proptest::prelude::*;

use super::caught::{CODE, HITS, INSTRUMENTS, LISTS, PLAN, POKES, SITES};
use super::flips::{differs, first, live};
use super::*;
use crate::extent::few_cases;
use crate::placement::{BounceIndex, SiteIndex};
use crate::plan::{Part, PatchIndex, Poke, PokeBytes, PokeKind};

fn example(image: &Image) -> Plan {
    let kinds = [
        "counter",
        "timestamp",
        "elapsed-start",
        "elapsed-stop",
        "argument-0",
    ];
    let hooks = [
        ("worker", 1, HookType::Pre),
        ("tail", 0, HookType::Post),
        ("counted", 0, HookType::Pre),
    ];
    let library = Library::builtin().unwrap();
    let mut placements = Vec::new();
    for (function, block, hook) in hooks {
        for kind in kinds {
            placements.push(placement(function, block, hook, kind));
            if plan(image, &session(placements.clone()), &library, &layout()).is_err() {
                placements.pop();
            }
        }
    }
    planned(image, placements)
}

proptest! {
    #![proptest_config(few_cases(100))]

    #[test]
    fn plans_with_random_patches_are_refused(codes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 3)) {
        let image = kernel().image();
        let mut plan = example(&image);
        for (patch, code) in plan.patches.iter_mut().zip(codes) {
            patch.code = code.into();
        }
        Caught::new("random patches", &[CODE, &["OutsideArena", "PatchesOverlap"]]).must_refuse(&image, plan, "random code");
    }

    /// A patch with a correct beginning and a random end. What passes has the effect of the original.
    #[test]
    fn an_accepted_patch_with_a_random_end_is_harmless(
        instrument in any::<prop::sample::Index>(),
        keep in 0_usize..300,
        rest in proptest::collection::vec(any::<u8>(), 0..60),
        nops: bool,
    ) {
        let image = kernel().image();
        let mut plan = example(&image);
        // The plan with the patch of another instrument as the first.
        let mut rotated = plan.clone();
        rotated.instruments.rotate_left(instrument.index(plan.instruments.len()));
        let patch = first(&rotated);
        let before = plan.patches[patch].code.to_vec();
        let mut code = before[..keep.min(before.len())].to_vec();
        if nops {
            // The bytes after the last exit have no effect.
            code.extend(rest.iter().map(|_| 0xcc));
        } else {
            code.extend(rest);
        }
        code.truncate(before.len().max(keep));
        prop_assume!(code != before);
        plan.patches[patch].code = code.clone().into();
        // A patch without any bytes is nowhere.
        let mut caught = Caught::new("patches with a random end", &[CODE, &["OutsideArena", "PatchesOverlap"]]);
        if !caught.refuses(&image, plan, format_args!("{code:02x?}")) {
            let different = differs(&rotated, &live(&image, &rotated), &code);
            prop_assert!(different.is_none(), "{code:02x?} passes: {different:x?}");
        }
    }

    #[test]
    fn plans_with_random_pokes_are_refused(pokes in proptest::collection::vec(
        (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..9), proptest::collection::vec(any::<u8>(), 0..9), 0_usize..5, any::<u32>(), 0_u8..3, any::<bool>(), any::<u8>()), 0..6)
    ) {
        let image = kernel().image();
        let good = example(&image);
        let mut plan = good.clone();
        let text = image.text();
        for (number, (at, expect, write, patch, overwritten, kind, near, rank)) in pokes.into_iter().enumerate() {
            let at = if near { Addr(text.start.0 + at % text.len()) } else { Addr(at) };
            let kind = [PokeKind::Install, PokeKind::Retarget, PokeKind::Remove][usize::from(kind)];
            let part = if near { Part::Site(SiteIndex(u32::from(rank) % 8)) } else { Part::Bounce(BounceIndex(u32::from(rank) % 3)) };
            let patch = PatchIndex(patch as u32);
            let [expect, write] = [expect, write].map(|bytes| PokeBytes::new(&bytes).unwrap());
            plan.batches[number % 2].pokes.push(Poke { part, at, expect, write, kind, rank, patch, detour: patch, overwritten });
        }
        let same = plan == good;
        let refused = Caught::new("random pokes", &[HITS, POKES]).refuses(&image, plan, "random pokes");
        prop_assert_eq!(refused, !same);
    }

    #[test]
    fn plans_with_a_changed_poke_are_refused(
        batch in any::<prop::sample::Index>(),
        poke in any::<prop::sample::Index>(),
        field in 0_u8..8,
        bit in 0_usize..64,
        number in any::<u32>(),
    ) {
        let image = kernel().image();
        let good = example(&image);
        let mut plan = good.clone();
        let batch = batch.get_mut(&mut plan.batches);
        let poke = poke.get_mut(&mut batch.pokes);
        let flip = |bytes: &mut [u8]| {
            let bit = bit % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        };
        match field {
            0 => poke.part = Part::Site(SiteIndex(number % 5)),
            1 => poke.at.0 ^= 1 << bit,
            2 => flip(&mut poke.expect),
            3 => flip(&mut poke.write),
            4 => poke.kind = [PokeKind::Install, PokeKind::Retarget, PokeKind::Remove][bit % 3],
            5 => poke.rank ^= 1 << (bit % 8),
            6 => poke.patch = PatchIndex(number % 5),
            _ => poke.overwritten = number % 8,
        }
        let same = plan == good;
        let refused = Caught::new("a changed poke", &[HITS, POKES]).refuses(&image, plan, field);
        prop_assert_eq!(refused, !same);
    }

    #[test]
    fn plans_with_random_places_are_refused(numbers in proptest::collection::vec(any::<u64>(), 12), small in proptest::collection::vec(any::<u8>(), 8)) {
        let image = kernel().image();
        let mut plan = example(&image);
        let displaced = |a: u64, b: u64| Span { start: Addr(a), end: Addr(b) };
        plan.sites[0].displaced = displaced(numbers[0], numbers[1]);
        plan.patches[1].address = Addr(numbers[2]);
        plan.sites[1].displaced = displaced(image.text().start.0, numbers[3]);
        plan.instruments[1].id.block = numbers[4] as u32;
        plan.functions[0].outline.span = displaced(numbers[5], numbers[6]);
        if let Some(block) = plan.functions[1].outline.blocks.first_mut() {
            *block = displaced(numbers[7], numbers[8]);
        }
        plan.layout.arena = displaced(numbers[9], numbers[10]);
        plan.layout.rings.base = Addr(numbers[11]);
        plan.layout.rings.slots_log2 = small[0].into();
        plan.layout.rings.stride_log2 = small[1].into();
        plan.layout.timers_log2 = small[2].into();
        plan.layout.rings.head = SegmentOffset(numbers[0]);
        plan.duration = f64::from_bits(numbers[1]);
        plan.batches[0].at = f64::from_bits(numbers[2]);
        plan.instruments[0].launch = f64::from_bits(numbers[3]);
        Caught::new("random places", &[PLAN, SITES, LISTS, CODE, INSTRUMENTS, HITS, POKES]).must_refuse(&image, plan, "random places");
    }
}
