//! Values that are not available at a hook: refused before the instrument is added, and while it is
//! typed.

use crate::support::{
    Window, browsing, click, fill, placements, press, run_command, settle, until,
};
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::session::Placement;
use gilk_engine::{Addr, Error, HookType, Rule, Session};
use gilk_instruments::Library;

const FUNCTION: &str = "kernel_clone";

/// Returns a hookable block at whose start argument 0 is overwritten.
fn gone() -> u32 {
    let catalogue = crate::support::catalogue();
    let image = catalogue.image();
    let cfg = gilk_engine::cfg::Cfg::of(image, image.function_named(FUNCTION).unwrap().id);
    let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c100_0000));
    let library = Library::builtin().unwrap();
    let refused = |block: &u32| {
        let session = Session {
            placements: vec![Placement {
                function: FUNCTION.into(),
                block: *block,
                hook: HookType::Pre,
                instrument: "argument-0".into(),
                launch: 0.0,
                splash: 1.0,
            }],
            ..Session::empty()
        };
        match gilk_engine::plan::plan(image, &session, &library, &layout) {
            Err(Error::Refused { refusal, .. }) => refusal.rule == Rule::ArgumentGone,
            _ => false,
        }
    };
    { cfg.blocks.iter().map(|block| block.index.0) }
        .find(refused)
        .unwrap()
}

/// Opens the function with all blocks visible.
fn fitted() -> Window {
    let mut harness = browsing(FUNCTION);
    run_command(&mut harness, "fit graph");
    settle(&mut harness);
    harness
}

fn add_is_possible(harness: &Window) -> bool {
    let add = harness.get_by_label("Add instrument");
    !add.accesskit_node().is_disabled()
}

#[test]
fn an_overwritten_argument_is_refused_before_the_click() {
    let block = gone();
    let mut harness = fitted();
    click(&mut harness, "Instruments tab");
    fill(&mut harness, "Filter instruments", "argument-0");
    click(&mut harness, "instrument argument-0");
    click(&mut harness, &format!("block {block} of {FUNCTION}"));
    until(&mut harness, "it is refused", |state| {
        state.offer.refused().is_some()
    });
    harness.run_steps(3);
    harness.get_by_label_contains("cannot be added: ");
    harness.get_by_label_contains("argument-gone");
    assert!(!add_is_possible(&harness));
    // The shortcut is refused as well.
    press(&mut harness, Modifiers::COMMAND, Key::Enter);
    settle(&mut harness);
    assert!(placements(&harness).is_empty());
    // At the function's entry the argument is available.
    click(&mut harness, &format!("block 0 of {FUNCTION}"));
    until(&mut harness, "it is offered", |state| {
        matches!(state.offer.outcome, Some(Ok(_)))
    });
    harness.run_steps(3);
    assert!(
        harness
            .query_by_label_contains("cannot be added: ")
            .is_none()
    );
    assert!(add_is_possible(&harness));
    press(&mut harness, Modifiers::COMMAND, Key::Enter);
    settle(&mut harness);
    assert_eq!(placements(&harness).len(), 1);
}

#[test]
fn an_overwritten_argument_is_refused_while_typing() {
    let block = gone();
    let mut harness = fitted();
    click(&mut harness, &format!("block {block} of {FUNCTION}"));
    run_command(&mut harness, "new instrument");
    settle(&mut harness);
    for (value, had) in [("arg0", false), ("cpu", true)] {
        let text = format!("instrument mine \"Mine.\";\n\nhit {{ sample({value}) }}\n");
        fill(&mut harness, "Source", &text);
        settle(&mut harness);
        until(&mut harness, "it is compiled or refused", |state| {
            state
                .editor
                .outcome
                .as_ref()
                .is_some_and(|outcome| outcome.is_ok() == had)
        });
        harness.run_steps(3);
        let said = harness.query_by_label_contains("argument-gone").is_some();
        assert_eq!(said, !had, "{value}");
    }
}
