//! Good plans pass.

use std::ops::ControlFlow;
use std::time::Instant;

use gilk_instruments::Stand;
use proptest::prelude::*;

use super::*;
use crate::verify::verify_watched;

#[test]
fn every_instrument_at_every_hook_alone() {
    let image = kernel().image();
    let library = Library::builtin().unwrap();
    let mut passed = 0;
    for (function, block, hook) in hooks(&image) {
        let alone = library.iter().filter(|one| one.stand() == Stand::Hook);
        for instrument in alone {
            let session = session(vec![placement(&function, block, hook, &instrument.name)]);
            match plan(&image, &session, &library, &layout()) {
                Ok(plan) => {
                    passes(&image, &plan);
                    passed += 1;
                }
                Err(crate::Error::Refused { refusal, .. }) => {
                    let expected = [crate::Rule::ArgumentGone, crate::Rule::ProgramUnsupported];
                    assert!(expected.contains(&refusal.rule), "{refusal:?}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(passed > 100, "only {passed} plans were made");
}

/// All the kernel's hooks at once, with instruments of every kind in a row at each.
#[test]
fn everything_everywhere() {
    let image = kernel().image();
    let kinds = [
        "counter",
        "timestamp",
        "elapsed-start",
        "block-trace",
        "elapsed-stop",
        "counter",
        "timestamp",
    ];
    let placements = hooks(&image)
        .iter()
        .flat_map(|(function, block, hook)| {
            kinds.map(|kind| placement(function, *block, *hook, kind))
        })
        .collect();
    passes(&image, &planned(&image, placements));
}

/// Checks that a proof can be cancelled wherever it reports, and that what is not cancelled has its verdict.
#[test]
fn a_proof_is_cancelled_at_each_of_its_reports() {
    let image = kernel().image();
    let hooks = hooks(&image);
    let placements = hooks
        .iter()
        .map(|(function, block, hook)| placement(function, *block, *hook, "counter"));
    let plan = planned(&image, placements.collect());
    let proven = |most: usize| {
        let mut reports = 0;
        let watch = &mut |stage| {
            assert_eq!(stage, crate::plan::Stage::Proofs);
            reports += 1;
            match reports > most {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let verdict = verify_watched(&image, plan.clone(), watch);
        (verdict.map(|proven| proven.is_ok()), reports)
    };
    let (verdict, all) = proven(usize::MAX);
    assert!(verdict.unwrap());
    assert!(all >= 5, "{all} reports");
    for most in 0..all {
        let (verdict, reports) = proven(most);
        assert!(matches!(verdict, Err(crate::Error::GivenUp)));
        assert_eq!(reports, most + 1);
    }
}

/// Without liveness the code is longer, and passes as well.
#[test]
fn dead_registers_are_saved_without_liveness() {
    let image = kernel().image();
    let placements: Vec<Placement> = hooks(&image)
        .iter()
        .map(|(function, block, hook)| placement(function, *block, *hook, "timestamp"))
        .collect();
    let library = Library::builtin().unwrap();
    let bytes = |save_all| {
        let session = Session {
            save_all,
            ..session(placements.clone())
        };
        let plan = plan(&image, &session, &library, &layout()).unwrap();
        passes(&image, &plan);
        plan.patches
            .iter()
            .map(|patch| patch.code.len())
            .sum::<usize>()
    };
    assert!(bytes(true) > bytes(false));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Instruments come and go: many versions of each patch.
    #[test]
    fn any_times(choices in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..5, 0_u8..8, 1_u8..8), 1..25)) {
        let image = kernel().image();
        let hooks = hooks(&image);
        let kinds = ["counter", "timestamp", "block-trace", "elapsed-start", "elapsed-stop"];
        let placements = choices.iter().map(|(hook, kind, launch, length)| {
            let (function, block, hook) = hook.get(&hooks);
            let launch = f64::from(*launch) * 0.5;
            Placement { launch, splash: launch + f64::from(*length) * 0.5, ..placement(function, *block, *hook, kinds[*kind]) }
        });
        let plan = planned(&image, placements.collect());
        passes(&image, &plan);
    }
}

/// 256 instruments at one hook: what is known is joined where ways meet, or this would take for ever.
#[test]
fn ways_do_not_multiply() {
    let image = kernel().image();
    let placements = vec![placement("worker", 1, HookType::Pre, "timestamp"); 200];
    let plan = planned(&image, placements);
    let begin = Instant::now();
    passes(&image, &plan);
    assert!(
        begin.elapsed().as_secs() < 5,
        "it took {:?}",
        begin.elapsed()
    );
}

/// One hook may spoil a register that is dead to the function, but not what another hook samples.
#[test]
fn what_is_sampled_further_on_is_live() {
    // rsi is never used by the function.
    let kernel = Fixture::new().compiled("f", |a| {
        let mut next = a.create_label();
        a.mov(rax, rdi)?;
        a.lea(rax, ptr(rax + 9))?;
        a.test(rax, rax)?;
        a.je(next)?;
        a.mov(rax, rdi)?;
        a.mov(rdx, rdi)?;
        a.set_label(&mut next)?;
        a.lea(rax, ptr(rax + 1))?;
        a.ret()
    });
    let image = kernel.image();
    let alone = planned(&image, vec![placement("f", 0, HookType::Pre, "timestamp")]);
    passes(&image, &alone);
    let together = planned(
        &image,
        vec![
            placement("f", 0, HookType::Pre, "timestamp"),
            placement("f", 1, HookType::Pre, "argument-1"),
        ],
    );
    // The patch made without knowing of the argument instrument uses rsi as it likes.
    refused(&image, &together, "Leaves: rsi may be used later", |plan| {
        plan.patches[0].code.clone_from(&alone.patches[0].code);
    });
}
