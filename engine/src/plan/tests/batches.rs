//! Batches applied to a copy of the text.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::{Batch, PATCH_ALIGN, report};
use super::{ARENA, kernel, placement, planned};
use crate::session::Placement;
use crate::{Addr, Error, HookType, Image, Span};

fn placements() -> impl Strategy<Value = Vec<Placement>> {
    let one = (
        prop::sample::select(vec!["alpha", "beta", "gamma"]),
        prop::sample::select(vec![
            (0, HookType::Pre),
            (0, HookType::Post),
            (1, HookType::Pre),
            (1, HookType::Post),
            (3, HookType::Pre),
        ]),
        prop::sample::select(vec![
            "counter",
            "timestamp",
            "block-trace",
            "elapsed-start",
            "elapsed-stop",
        ]),
        0u32..10,
        1u32..10,
    );
    let one = one.prop_map(|(function, (block, hook), instrument, launch, lasts)| {
        placement(
            function,
            block,
            hook,
            instrument,
            f64::from(launch),
            f64::from(launch + lasts),
        )
    });
    prop::collection::vec(one, 0..30)
}

/// The text as the batches leave it, with every expectation checked.
struct Text<'a> {
    image: &'a Image,
    changed: BTreeMap<Addr, u8>,
}

impl Text<'_> {
    fn read(&self, at: Addr, len: usize) -> Vec<u8> {
        (0..len as u64)
            .map(|n| at.add(n))
            .map(|at| {
                self.changed
                    .get(&at)
                    .copied()
                    .unwrap_or_else(|| self.image.bytes(Span::new(at, 1)).unwrap()[0])
            })
            .collect()
    }

    fn apply(&mut self, batch: &Batch) {
        for poke in &batch.pokes {
            assert_eq!(self.read(poke.at, poke.expect.len()), poke.expect);
            assert_ne!(poke.expect, poke.write);
            assert_eq!((poke.expect.len(), poke.write.len()), (5, 5));
            for (n, &byte) in poke.write.iter().enumerate() {
                let at = poke.at.add(n as u64);
                if self.image.bytes(Span::new(at, 1)).unwrap() == [byte] {
                    self.changed.remove(&at);
                } else {
                    self.changed.insert(at, byte);
                }
            }
        }
    }

    /// Where the splice at `at` leads, or `None` if the original stands there.
    fn target(&self, at: Addr) -> Option<Addr> {
        let now = self.read(at, 5);
        (self.image.bytes(Span::new(at, 5)).unwrap() != now.as_slice()).then(|| {
            assert_eq!(now[0], 0xe9);
            at.add(5)
                .add(i64::from(i32::from_le_bytes(now[1..].try_into().unwrap())) as u64)
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever launches and splashes when: each batch finds what it expects, at every time exactly
    /// the active instruments run, and the end is the original text.
    #[test]
    fn batches_install_what_is_active_and_nothing_else(placements in placements()) {
        let image = kernel();
        let plan = match planned(&image, placements.clone()) {
            Ok(plan) => plan,
            Err(Error::Full { what: "counters", needed, available: 32 }) if needed > 32 => return Ok(()),
            Err(error) => panic!("{error}"),
        };
        prop_assert_eq!(&plan, &planned(&image, placements.clone()).unwrap(), "the same every time");
        prop_assert_eq!(plan.instruments.len(), placements.len());

        let mut end = Addr(ARENA);
        for patch in &plan.patches {
            prop_assert!(patch.address >= end && patch.address.0 % PATCH_ALIGN == 0);
            end = patch.address.add(patch.code.len() as u64);
            prop_assert!(end.0 <= ARENA + 0x1_0000);
            prop_assert!(!(patch.pre.is_empty() && patch.post.is_empty()));
        }
        let mut text = Text { image: &image, changed: BTreeMap::new() };
        let mut last = -1.0;
        for batch in &plan.batches {
            prop_assert!(batch.at > last && batch.at <= plan.duration && !batch.pokes.is_empty());
            last = batch.at;
            prop_assert!(batch.pokes.windows(2).all(|pair| pair[0].at.add(5).0 <= pair[1].at.0));
            text.apply(batch);
            prop_assert!(batch.launched.iter().all(|&id| plan.instrument(id).unwrap().launch == batch.at));
            prop_assert!(batch.splashed.iter().all(|&id| plan.instrument(id).unwrap().splash == batch.at));
            for poke in &batch.pokes {
                prop_assert_eq!(plan.patches[poke.patch].site.displaced.start, poke.at);
            }
            for one in &plan.instruments {
                let active = one.launch <= batch.at && batch.at < one.splash;
                let leads = text.target(one.site.displaced.start);
                let patch = plan.patches.iter().find(|patch| Some(patch.address) == leads);
                let runs = patch.is_some_and(|patch| patch.pre.contains(&one.id) || patch.post.contains(&one.id));
                prop_assert_eq!(runs, active, "{} at {}", one.id, batch.at);
            }
        }
        prop_assert!(text.changed.is_empty());
        let launches = plan.batches.iter().map(|batch| batch.launched.len()).sum::<usize>();
        let splashes = plan.batches.iter().map(|batch| batch.splashed.len()).sum::<usize>();
        prop_assert_eq!((launches, splashes), (placements.len(), placements.len()));

        // Counters and identifiers are nobody else's.
        let mut counters: Vec<_> = plan.instruments.iter().filter_map(|one| one.counter).collect();
        let mut ids: Vec<_> = plan.instruments.iter().map(|one| one.id).collect();
        let counts = (counters.len(), ids.len());
        counters.sort_unstable();
        counters.dedup();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!((counters.len(), ids.len()), counts);
        prop_assert!(report::report(&image, &plan).lines().count() > plan.batches.len());
    }
}
