//! Whatever a plan says, the reader answers.

use proptest::prelude::*;

use super::*;
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
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_for_patches(codes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 3)) {
        let image = kernel().image();
        let mut plan = example(&image);
        for (patch, code) in plan.patches.iter_mut().zip(codes) {
            patch.code = code.into();
        }
        prop_assert!(verify(&image, plan).is_err());
    }

    /// Code that begins as it should and goes on as it likes.
    #[test]
    fn good_beginnings(patch in 0_usize..3, keep in 0_usize..300, rest in proptest::collection::vec(any::<u8>(), 1..60)) {
        let image = kernel().image();
        let mut plan = example(&image);
        let before = plan.patches[patch].code.to_vec();
        let mut code = before.clone();
        code.truncate(keep);
        code.extend(rest);
        code.truncate(before.len().max(keep));
        prop_assume!(code != before && !code.starts_with(&before));
        plan.patches[patch].code = code.into();
        let _ = verify(&image, plan);
    }

    #[test]
    fn random_pokes(pokes in proptest::collection::vec(
        (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..9), proptest::collection::vec(any::<u8>(), 0..9), 0_usize..5, any::<u32>(), 0_u8..3, any::<bool>(), any::<u8>()), 0..6)
    ) {
        let image = kernel().image();
        let mut plan = example(&image);
        let text = image.text();
        for (number, (at, expect, write, patch, overwritten, kind, near, rank)) in pokes.into_iter().enumerate() {
            let at = if near { Addr(text.start.0 + at % text.len()) } else { Addr(at) };
            let kind = [PokeKind::Install, PokeKind::Retarget, PokeKind::Remove][usize::from(kind)];
            let part = if near { Part::Site(SiteIndex(u32::from(rank) % 8)) } else { Part::Bounce(BounceIndex(u32::from(rank) % 3)) };
            let patch = PatchIndex(patch as u32);
            let [expect, write] = [expect, write].map(|bytes| PokeBytes::new(&bytes).unwrap());
            plan.batches[number % 2].pokes.push(Poke { part, at, expect, write, kind, rank, patch, detour: patch, overwritten });
        }
        let _ = verify(&image, plan);
    }

    #[test]
    fn random_places(numbers in proptest::collection::vec(any::<u64>(), 12), small in proptest::collection::vec(any::<u8>(), 8)) {
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
        plan.layout.ring_base = Addr(numbers[11]);
        plan.layout.slots_log2 = small[0].into();
        plan.layout.stride_log2 = small[1].into();
        plan.layout.timers_log2 = small[2].into();
        plan.layout.head = Gs(numbers[0]);
        plan.instruments[2].timer = small[3];
        plan.duration = f64::from_bits(numbers[1]);
        plan.batches[0].at = f64::from_bits(numbers[2]);
        plan.instruments[0].launch = f64::from_bits(numbers[3]);
        prop_assert!(verify(&image, plan).is_err());
    }
}
