//! Whatever the engine can place, the window can place; the ways to each hook are in `placing`.

use crate::support::{Window, browsing, click, placements, press, scene, settle};
use egui::{Key, Modifiers};
use gilk_engine::cfg::{BlockEnd, BlockIndex};
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
