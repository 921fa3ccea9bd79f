//! Calls of native functions: proven as they are, and found out when anything of them is changed.

use super::*;
use crate::native::tests::definitions;
use crate::patch::PieceKind;

const SOURCE: &str = "
    GILK_INSTRUMENT(\"hits(counter): Hits.\");
    void hits(gilk_word counter) { gilk_count(counter, 1); }
    GILK_INSTRUMENT(\"mixed(arg1, arg0, id, reg(bx)) samples things: Things.\");
    gilk_word mixed(gilk_word a, gilk_word b, gilk_word c, gilk_word d) { return a * 3 + b * 5 + c + d; }
    ";

fn natively(placements: Vec<Placement>) -> (Image, Plan) {
    let mut library = Library::builtin().unwrap();
    for definition in definitions(SOURCE) {
        library.add(definition).unwrap();
    }
    let image = kernel().image();
    let plan = plan(&image, &session(placements), &library, &layout()).unwrap();
    (image, plan)
}

fn mixed() -> (Image, Plan) {
    natively(vec![placement("helper", 0, HookType::Pre, "mixed")])
}

#[test]
fn calls_are_proven_among_other_instruments_and_at_every_hook() {
    let (image, plan) = mixed();
    passes(&image, &plan);
    let code = &plan.natives[0];
    assert_eq!(code.span().start, plan.layout.arena.start);
    assert!(
        plan.patches
            .iter()
            .all(|patch| code.span().end <= patch.address)
    );
    for (function, block, hook) in hooks(&kernel().image()) {
        let all =
            ["counter", "hits", "timestamp"].map(|one| placement(&function, block, hook, one));
        let (image, plan) = natively(all.into());
        passes(&image, &plan);
    }
}

/// Instructions of the patch that are the instrument's, its saves' or its restores', by offset.
fn made(plan: &Plan) -> Vec<(usize, Instruction)> {
    let patch = &plan.patches[0];
    let ours = |kind: &PieceKind| {
        matches!(
            kind,
            PieceKind::Instrument(_) | PieceKind::Save | PieceKind::Restore
        )
    };
    let pieces = patch.pieces().filter(|piece| ours(&piece.kind));
    let decoded = pieces.flat_map(|piece| {
        let from = piece.range.start as usize;
        decoded(
            patch.address.add(from as u64),
            &patch.code[from..piece.range.end as usize],
        )
    });
    decoded
        .map(|one| ((one.ip() - patch.address.0) as usize, one))
        .collect()
}

#[test]
fn nothing_of_a_call_can_be_left_out() {
    for instrument in ["hits", "mixed"] {
        let (image, plan) = natively(vec![placement("helper", 0, HookType::Pre, instrument)]);
        passes(&image, &plan);
        let made = made(&plan);
        assert!(made.iter().any(|(_, one)| one.is_call_near()));
        for (at, one) in made {
            let mut bad = plan.clone();
            bad.patches[0].code[at..at + one.len()].fill(0x90);
            assert!(
                verify(&image, bad).is_err(),
                "{instrument}: without `{one}`"
            );
        }
    }
}

#[test]
fn what_is_called_is_what_the_instrument_names_and_lies_apart() {
    let (image, plan) = mixed();
    let (at, call) = made(&plan)
        .into_iter()
        .find(|(_, one)| one.is_call_near())
        .unwrap();
    refused(&image, &plan, "does not call mixed", |plan| {
        plan.patches[0].code[at + call.len() - 4] ^= 0x10;
    });
    refused(&image, &plan, "is not in the plan", |plan| {
        plan.natives.clear();
    });
    refused(&image, &plan, "is written over it", |plan| {
        plan.natives[0].address = plan.patches[0].address;
    });
    refused(&image, &plan, "not inside the arena", |plan| {
        plan.natives[0].address = plan.layout.arena.end;
    });
    // cli
    refused(&image, &plan, "has no place in it", |plan| {
        let offset = plan.natives[0].entry("mixed").unwrap().0 - plan.natives[0].address.0;
        plan.natives[0].bytes[offset as usize] = 0xfa;
    });
    // A counter that is another instrument's, or nobody's.
    let (image, plan) = natively(vec![
        placement("helper", 0, HookType::Pre, "hits"),
        placement("worker", 0, HookType::Pre, "counter"),
    ]);
    refused(&image, &plan, "same counter", |plan| {
        plan.instruments[1].counter = plan.instruments[0].counter;
    });
    refused(&image, &plan, "parameter 0", |plan| {
        plan.instruments[0].counter.as_mut().unwrap().slot += 7;
    });
}
