//! Whatever the engine can place, the window can place; the ways to each hook are in `placing`.

use crate::support::{
    Window, browsing, click, fill, placements, press, run_command, scene, settle,
};
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_engine::cfg::{BlockEnd, BlockIndex};
use gilk_engine::collection::{Collection, Strategy};
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::session::Placement;
use gilk_engine::{Addr, HookType, Session};
use gilk_instruments::{Library, Stand};

const FUNCTION: &str = "kernel_clone";

/// The hooks of the engine.
const HOOKS: [HookType; 4] = [
    HookType::Pre,
    HookType::Post,
    HookType::Taken,
    HookType::Untaken,
];

/// Returns a block with a branch at which every hook is possible.
fn branch(harness: &Window) -> BlockIndex {
    let scene = scene(harness);
    let mut blocks = scene.cfg.blocks.iter();
    let is_free = |hook: HookType| {
        move |block: BlockIndex| scene.hook(block, hook).is_some_and(Result::is_ok)
    };
    let block = blocks.find(|block| {
        let all_free = HOOKS.iter().all(|hook| is_free(*hook)(block.index));
        block.end == BlockEnd::Conditional && all_free
    });
    block.unwrap().index
}

fn session(block: BlockIndex, hook: HookType, instrument: &str) -> Session {
    let mut session = Session::empty();
    session.placements = vec![Placement {
        function: FUNCTION.into(),
        block: block.0,
        hook,
        instrument: instrument.into(),
        launch: 0.0,
        splash: session.duration,
    }];
    session
}

fn undo(harness: &mut Window) {
    press(harness, Modifiers::COMMAND, Key::Z);
    assert!(placements(harness).is_empty());
}

#[test]
fn the_window_offers_an_instrument_where_the_engine_plans_it() {
    let mut harness = browsing(FUNCTION);
    let catalogue = crate::support::catalogue();
    let library = Library::builtin().unwrap();
    let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c100_0000));
    let block = branch(&harness);
    click(&mut harness, &format!("block {} of {FUNCTION}", block.0));
    let mut stands = Vec::new();
    let (mut taken, mut refused) = (0, 0);
    for definition in library.iter() {
        let hook = match definition.stand() {
            Stand::Hook => HookType::Post,
            Stand::Block | Stand::Branch | Stand::Function => HookType::Pre,
        };
        stands.push(definition.stand());
        let session = session(block, hook, &definition.name);
        let planned =
            gilk_engine::plan::plan(catalogue.image(), &session, &library, &layout).is_ok();
        let draft = &mut harness.state_mut().state_mut().draft;
        (draft.instrument, draft.hook) = (definition.name.clone(), hook);
        settle(&mut harness);
        press(&mut harness, Modifiers::COMMAND, Key::Enter);
        settle(&mut harness);
        let placed = !placements(&harness).is_empty();
        assert_eq!(placed, planned, "{} at {hook}", definition.name);
        if placed {
            taken += 1;
            undo(&mut harness);
        } else {
            refused += 1;
        }
    }
    assert!(taken > 20, "{taken} placed, {refused} refused");
    for stand in [Stand::Hook, Stand::Branch, Stand::Function] {
        assert!(stands.contains(&stand), "{stand}");
    }
}

/// Types into a field of seconds.
fn seconds(harness: &mut Window, name: &str, value: &str) {
    fill(harness, name, value);
    press(harness, Modifiers::NONE, Key::Enter);
    settle(harness);
}

#[test]
fn every_field_of_a_session_can_be_changed_in_the_window() {
    let mut harness = browsing(FUNCTION);
    harness.set_size(egui::vec2(1700.0, 1400.0));
    harness.run_steps(3);
    let before = Session::empty();
    click(&mut harness, &format!("block 0 of {FUNCTION}"));
    click(&mut harness, "Add instrument");
    fill(&mut harness, "Session name", "forks");
    seconds(&mut harness, "Session duration", "20");
    run_command(&mut harness, "run a program");
    run_command(&mut harness, "instrument whole function");
    run_command(&mut harness, "new instrument");
    settle(&mut harness);
    click(&mut harness, "Use instrument in session");
    click(&mut harness, "Session options");
    click(&mut harness, "Switch tracepoints on");
    click(&mut harness, "Save all registers");
    click(&mut harness, "Samples are sent");
    click(&mut harness, "taken in windows");
    seconds(&mut harness, "Interval of samples", "2");
    seconds(&mut harness, "Jitter of samples", "100 ms");
    seconds(&mut harness, "Length of windows", "0.5");
    seconds(&mut harness, "Interval of totals", "0.2");
    seconds(&mut harness, "Jitter of totals", "10 ms");
    seconds(&mut harness, "Grace", "30");
    // Named one by one, so that a new field is missed by the compiler until the window has it.
    let Session {
        version: _,
        name,
        duration,
        workload,
        placements,
        styles,
        sources,
        save_all,
        tracepoints,
        collection,
        kernel,
    } = harness.state().state().document.session().to_session();
    // That of a session of a process and its kernel: `pair` has it.
    assert_eq!(kernel, None);
    assert_eq!((name.as_str(), duration), ("forks", 20.0));
    assert!(workload.is_some() && before.workload.is_none());
    assert_eq!((placements.len(), styles.len(), sources.len()), (1, 1, 1));
    assert!(save_all && tracepoints && !before.save_all && !before.tracepoints);
    let Collection {
        samples,
        totals,
        grace,
    } = collection;
    let windows = Strategy::Windows {
        every: 2.0,
        jitter: 0.1,
        length: 0.5,
    };
    assert_eq!((samples, grace), (windows, 30.0));
    assert_eq!((totals.every, totals.jitter), (0.2, 0.01));
    // A window that is longer than its interval is refused, and says why.
    seconds(&mut harness, "Length of windows", "3");
    let collected = harness.state().state().document.session().collection;
    assert_eq!(collected.samples, windows);
    harness.get_by_label_contains("refused: The session cannot be collected so");
}
