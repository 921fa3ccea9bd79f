//! Replacements of functions: proven to leave with all that a function is called with, and to call the original function.

use std::sync::Arc;

use gilk_instruments::{Definition, Native, Program};
use gilk_samples::Meaning;

use super::sequences::process;
use super::*;
use crate::layout::Replacement;
use crate::verify::VerifiedPlan;

/// Address of the function that replaces others.
const ENTRY: Addr = Addr(ARENA - 0x10_0000);

fn definition() -> Definition {
    Definition {
        name: "other".to_owned(),
        summary: String::new(),
        meaning: Meaning::Count,
        unit: String::new(),
        program: Program::Native(Arc::new(Native {
            file: "own.o".into(),
            object: [].into(),
            function: "other".to_owned(),
            parameters: Vec::new(),
            samples: false,
            replaces: true,
        })),
    }
}

fn loaded() -> RuntimeLayout {
    let native = Arc::clone(definition().native().unwrap());
    RuntimeLayout {
        replacements: vec![Replacement {
            native,
            entry: ENTRY,
        }],
        ..process()
    }
}

fn replacing(
    image: &Image,
    placements: Vec<Placement>,
    layout: &RuntimeLayout,
) -> crate::Result<Plan> {
    let mut library = Library::builtin().unwrap();
    library.add(definition()).unwrap();
    plan(image, &session(placements), &library, layout)
}

/// Replaces a function whose calls are counted before, and the calls of the original after.
fn between_counters(image: &Image, function: &str) -> crate::Result<Plan> {
    let placements = ["counter", "other", "counter"];
    let placements = placements.map(|one| placement(function, 0, HookType::Pre, one));
    replacing(image, placements.into(), &loaded())
}

fn verified(image: &Image, plan: &Plan) -> VerifiedPlan {
    verify(image, plan.clone()).unwrap_or_else(|violations| panic!("{}", list(&violations)))
}

#[test]
fn a_function_is_left_for_its_replacement_which_may_call_it() {
    let image = kernel().image();
    for function in ["worker", "helper", "tail", "counted"] {
        let alone = vec![placement(function, 0, HookType::Pre, "other")];
        for plan in [
            replacing(&image, alone, &loaded()).unwrap(),
            between_counters(&image, function).unwrap(),
        ] {
            let verified = verified(&image, &plan);
            let [(id, original)] = verified.replaced() else {
                panic!("{:?}", verified.replaced())
            };
            let replaced = plan.instruments.iter();
            let mut replaced = replaced.filter(|one| one.definition.name == "other");
            assert_eq!(replaced.next().map(|one| one.id), Some(*id));
            let patches = plan.patches.iter();
            let mut patches = patches.filter(|patch| {
                Span::new(patch.address, patch.code.len() as u64).contains(*original)
            });
            let patch = patches.next().unwrap();
            let before = decoded(patch.address, &patch.code);
            let branch = before.iter().find(|one| one.next_ip() == original.0);
            assert_eq!(branch.unwrap().near_branch_target(), ENTRY.0);
        }
    }
}

#[test]
fn nothing_of_a_replacement_can_be_left_out_or_changed() {
    let image = kernel().image();
    for function in ["worker", "helper", "tail", "counted"] {
        let plan = between_counters(&image, function).unwrap();
        passes(&image, &plan);
        let patch = &plan.patches[0];
        let code = patch.code.len() - 32 * patch.sequences as usize;
        for one in decoded(patch.address, &patch.code[..code]) {
            if one.mnemonic() == Mnemonic::Int3 {
                continue;
            }
            let at = (one.ip() - patch.address.0) as usize;
            let mut bad = plan.clone();
            bad.patches[0].code[at..at + one.len()].fill(0x90);
            assert!(verify(&image, bad).is_err(), "{function}: without `{one}`");
        }
    }
    let plan = between_counters(&image, "helper").unwrap();
    let branch = |plan: &Plan| {
        let patch = &plan.patches[0];
        let all = decoded(patch.address, &patch.code);
        let found = all.iter().find(|one| one.near_branch_target() == ENTRY.0);
        (found.unwrap().next_ip() - patch.address.0) as usize
    };
    refused(&image, &plan, "Leaves", |plan| {
        let end = branch(plan);
        plan.patches[0].code[end - 4] ^= 1;
    });
    refused(&image, &plan, "Leaves", |plan| {
        plan.layout.replacements[0].entry = ENTRY.add(16);
    });
    refused(&image, &plan, "NoNativeCode", |plan| {
        plan.layout.replacements.clear();
    });
    // The argument of `helper` is in rdi.
    refused(&image, &plan, "NotRestored", |plan| {
        let patch = &mut plan.patches[0];
        let all = decoded(patch.address, &patch.code);
        let pop = all.iter().find(|one| one.code() == Code::Pop_r64).unwrap();
        let at = (pop.ip() - patch.address.0) as usize;
        // Into another register.
        patch.code[at + pop.len() - 1] ^= 1;
    });
}

#[test]
fn a_function_is_replaced_at_its_entry_if_its_callers_rely_on_the_convention() {
    let image = kernel().image();
    let why = |function: &str, block, hook, layout: &RuntimeLayout| {
        let placed = vec![placement(function, block, hook, "other")];
        replacing(&image, placed, layout).unwrap_err().to_string()
    };
    for said in [
        why("worker", 1, HookType::Pre, &loaded()),
        why("worker", 0, HookType::Post, &loaded()),
        why("helper", 0, HookType::Pre, &process()),
        why("helper", 0, HookType::Pre, &layout()),
        why("assembly", 0, HookType::Pre, &loaded()),
    ] {
        assert!(said.contains("not-replaceable"), "{said}");
    }
    // The verifier refuses it for itself.
    let counted = |function: &str, block| {
        let placed = vec![placement(function, block, HookType::Pre, "counter")];
        replacing(&image, placed, &loaded()).unwrap()
    };
    let replace = |plan: &mut Plan| {
        plan.instruments[0].definition = Arc::new(definition());
        plan.instruments[0].probe = None;
        plan.instruments[0].counter = None;
    };
    refused(&image, &counted("worker", 1), "ReplacedInside", replace);
    refused(&image, &counted("assembly", 0), "ReplacedReliedOn", replace);
}
