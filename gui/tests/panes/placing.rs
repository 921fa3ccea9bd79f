//! Placing instruments by drag and drop, and writing instruments.

use crate::support::{
    Window, browsing, browsing_forbidden, button, click, fill, middle, press, refused, run_command,
    scene, settle, until, until_filtered,
};
use egui::{Event, Modifiers, Pos2};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::HookType;
use gilk_engine::cfg::BlockEnd;
use gilk_gui::desk::Pane;
use gilk_gui::state::State;

/// Drags an instrument from the list and drops it at `to`, which is evaluated during the drag.
fn carry(harness: &mut Window, instrument: &str, to: impl Fn(&Window) -> Pos2) {
    fill(harness, "Filter instruments", instrument);
    let from = middle(harness, &format!("instrument {instrument}"));
    harness.event(Event::PointerMoved(from));
    harness.run_steps(2);
    button(harness, from, true);
    harness.event(Event::PointerMoved(from + egui::vec2(30.0, 10.0)));
    harness.run_steps(2);
    let to = to(harness);
    harness.event(Event::PointerMoved(to));
    harness.run_steps(2);
    button(harness, to, false);
    settle(harness);
}

fn placed(state: &State) -> Vec<(String, u32, HookType, String)> {
    let placements = state.document.session().placements.iter();
    placements
        .map(|one| {
            (
                one.function.to_string(),
                one.block,
                one.hook,
                one.instrument.to_string(),
            )
        })
        .collect()
}

fn with_instruments(function: &str) -> Window {
    let mut harness = browsing(function);
    click(&mut harness, "Instruments tab");
    harness
}

/// Returns a point in the upper or lower half of a block that no other widget covers.
fn half(harness: &Window, block: u32, upper: bool) -> Pos2 {
    let name = scene(harness).name.clone();
    let rect = harness
        .get_by_label(&format!("block {block} of {name}"))
        .rect();
    let share = if upper { 0.3 } else { 0.7 };
    egui::pos2(rect.center().x, rect.top() + share * rect.height())
}

#[test]
fn dropping_an_instrument_on_a_hook_is_one_undo_step() {
    let mut harness = with_instruments("kernel_clone");
    carry(&mut harness, "counter", |harness| half(harness, 0, true));
    carry(&mut harness, "timestamp", |harness| half(harness, 0, false));
    let expected = |hook, name: &str| ("kernel_clone".to_owned(), 0, hook, name.to_owned());
    assert_eq!(
        placed(harness.state().state()),
        [
            expected(HookType::Pre, "counter"),
            expected(HookType::Post, "timestamp")
        ]
    );
    press(&mut harness, Modifiers::COMMAND, egui::Key::Z);
    assert_eq!(placed(harness.state().state()).len(), 1);
    press(&mut harness, Modifiers::COMMAND, egui::Key::Z);
    assert_eq!(placed(harness.state().state()), []);
    // Dropped outside of all targets, it is not placed.
    carry(&mut harness, "counter", |_| egui::pos2(700.0, 940.0));
    assert_eq!(placed(harness.state().state()), []);
}

#[test]
fn a_drop_on_a_refused_hook_names_the_rule() {
    let mut harness = browsing_forbidden("kernel_clone");
    click(&mut harness, "Instruments tab");
    let block = refused(harness.state().state(), HookType::Pre).0;
    carry(&mut harness, "counter", |harness| {
        half(harness, block, true)
    });
    let state = harness.state().state();
    assert_eq!(placed(state), []);
    let said = &state.notices.last().unwrap().words;
    assert!(said.contains("is refused by rule"), "{said}");
}

#[test]
fn one_drop_can_place_at_the_entry_every_return_or_every_block() {
    let mut harness = with_instruments("kernel_clone");
    carry(&mut harness, "counter", |harness| {
        middle(harness, "drop at entry")
    });
    assert_eq!(placed(harness.state().state())[0].1, 0);
    carry(&mut harness, "timestamp", |harness| {
        middle(harness, "drop at every return")
    });
    let state = harness.state().state();
    let cfg = &state.graph.scene.as_ref().unwrap().cfg;
    let returns = placed(state);
    assert!(returns.len() > 1, "{returns:?}");
    assert!(returns[1..].iter().all(|(_, block, hook, name)| {
        let end = cfg.blocks[*block as usize].end;
        matches!(end, BlockEnd::Return | BlockEnd::TailCall)
            && (*hook, name.as_str()) == (HookType::Post, "timestamp")
    }));
    press(&mut harness, Modifiers::COMMAND, egui::Key::Z);
    press(&mut harness, Modifiers::COMMAND, egui::Key::Z);
    carry(&mut harness, "counter", |harness| {
        middle(harness, "drop at before every block")
    });
    let state = harness.state().state();
    let scene = state.graph.scene.as_ref().unwrap();
    let hookable = scene.hookable(HookType::Pre).count();
    assert_eq!(placed(state).len(), hookable);
    press(&mut harness, Modifiers::COMMAND, egui::Key::Z);
    assert_eq!(placed(harness.state().state()), []);

    // The list of functions shares its tabs with the instruments, so the command places at every
    // match.
    click(&mut harness, "Functions tab");
    fill(&mut harness, "Filter functions", "mm");
    until_filtered(&mut harness, "mm");
    let matching = harness.state().state().functions.found.len();
    assert!(matching > 1);
    run_command(&mut harness, "entry of every match");
    settle(&mut harness);
    let state = harness.state().state();
    assert_eq!(placed(state).len(), matching);
    assert!(placed(state).iter().all(|(_, block, ..)| *block == 0));
    press(&mut harness, Modifiers::COMMAND, egui::Key::Z);
    assert_eq!(placed(harness.state().state()), []);
}

#[test]
fn instruments_of_functions_and_branches_choose_their_own_place() {
    let mut harness = with_instruments("kernel_clone");
    carry(&mut harness, "elapsed", |harness| half(harness, 0, false));
    let whole = (
        "kernel_clone".to_owned(),
        0,
        HookType::Pre,
        "elapsed".to_owned(),
    );
    assert_eq!(placed(harness.state().state()), [whole]);
    let state = harness.state().state();
    let blocks = &state.graph.scene.as_ref().unwrap().cfg.blocks;
    let shown = |index: u32| {
        let name = format!("block {index} of kernel_clone");
        harness.query_by_label(&name).is_some()
    };
    let plain = blocks
        .iter()
        .find(|block| block.end != BlockEnd::Conditional && shown(block.index.0))
        .unwrap()
        .index
        .0;
    carry(&mut harness, "branch", |harness| half(harness, plain, true));
    let state = harness.state().state();
    assert_eq!(placed(state).len(), 1);
    let said = &state.notices.last().unwrap().words;
    assert!(said.contains("does not end with one"), "{said}");
}

#[test]
fn an_instrument_can_be_dropped_on_an_edge() {
    let mut harness = with_instruments("kernel_clone");
    // The longest visible segment of a branch's edge that no block covers.
    let place = |harness: &Window| {
        let graph = &harness.state().state().graph;
        let scene = graph.scene.as_ref().unwrap();
        let canvas = harness.get_by_label("Control-flow graph").rect();
        let screen = |at: &Pos2| graph.camera.to_screen(canvas.min, *at);
        let seen = canvas.shrink(60.0);
        let routes = scene.cfg.edges.iter().zip(&scene.layout.routes);
        let pieces = routes.flat_map(|(edge, route)| {
            let pairs = route.points.windows(2);
            pairs.map(move |pair| (edge, screen(&pair[0]), screen(&pair[1])))
        });
        let of_branches = pieces.filter(|(edge, ..)| {
            let end = scene.cfg.blocks[edge.from.0 as usize].end;
            end == BlockEnd::Conditional
        });
        let inside = of_branches.filter(|(_, a, b)| {
            let middle = a.lerp(*b, 0.5);
            let free = |block: &egui::Rect| {
                !graph
                    .camera
                    .rect_to_screen(canvas.min, *block)
                    .expand(4.0)
                    .contains(middle)
            };
            seen.contains(middle) && scene.layout.boxes.iter().all(free)
        });
        let longest = inside.max_by(|one, other| {
            let long = |(_, a, b): &(_, Pos2, Pos2)| a.distance(*b);
            long(one).total_cmp(&long(other))
        });
        let (edge, a, b) = longest.unwrap();
        (edge.from.0, a.lerp(b, 0.5))
    };
    let (from, _) = place(&harness);
    carry(&mut harness, "branch", |harness| place(harness).1);
    let placed = placed(harness.state().state());
    assert_eq!(placed.len(), 1, "{placed:?}");
    let (function, block, _, instrument) = &placed[0];
    assert_eq!(
        (function.as_str(), *block, instrument.as_str()),
        ("kernel_clone", from, "branch")
    );
    press(&mut harness, Modifiers::COMMAND, egui::Key::Z);
    assert!(
        harness
            .state()
            .state()
            .document
            .session()
            .placements
            .is_empty()
    );
    // An instrument of a hook counts the way that the edge is.
    carry(&mut harness, "counter", |harness| place(harness).1);
    let (_, block, hook, _) = self::placed(harness.state().state()).pop().unwrap();
    assert_eq!(block, from);
    assert!(
        matches!(hook, HookType::Taken | HookType::Untaken),
        "{hook}"
    );
}

#[test]
fn errors_in_a_source_are_shown_with_their_column_while_typing() {
    let mut harness = with_instruments("kernel_clone");
    run_command(&mut harness, "new instrument");
    settle(&mut harness);
    assert!(harness.state().state().desk.sees(Pane::Editor));
    assert!(
        harness
            .query_all_by_label_contains("hit: at most ")
            .next()
            .is_some()
    );
    // The generated code is shown next to it.
    until(&mut harness, "it is compiled", |state| {
        matches!(state.editor.outcome, Some(Ok(_)))
    });
    harness.run_steps(3);
    assert!(
        harness
            .query_all_by_label_contains("rdtsc")
            .next()
            .is_some()
    );

    let text = "instrument mine \"Mine.\";\n\nhit { sample(czu) }\n";
    fill(&mut harness, "Source", text);
    settle(&mut harness);
    assert!(
        harness
            .query_all_by_label_contains("line 3, column 14: ")
            .next()
            .is_some()
    );
    assert!(
        harness
            .get_by_label("Use instrument in session")
            .accesskit_node()
            .is_disabled()
    );
    fill(&mut harness, "Source", &text.replace("czu", "cpu"));
    settle(&mut harness);
    click(&mut harness, "Use instrument in session");
    let session = harness.state().state().document.session().clone();
    assert_eq!(session.sources["mine"], text.replace("czu", "cpu"));
    carry(&mut harness, "mine", |harness| half(harness, 0, true));
    until(&mut harness, "it is planned", |state| {
        !state.plan.pending() && matches!(state.plan.outcome, Some(Ok(_)))
    });
    assert_eq!(placed(harness.state().state())[0].3, "mine");

    // It is saved to a file, and read from it.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.gilk");
    run_command(&mut harness, "save instrument");
    fill(&mut harness, "Path", &path.display().to_string());
    click(&mut harness, "Save");
    until(&mut harness, "the source is written", |state| {
        state.editor.path.is_some()
    });
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        text.replace("czu", "cpu")
    );
    std::fs::write(&path, text.replace("czu", "tid")).unwrap();
    run_command(&mut harness, "open instrument");
    fill(&mut harness, "Path", &path.display().to_string());
    click(&mut harness, "Open");
    until(&mut harness, "the source is read", |state| {
        state
            .editor
            .text
            .as_ref()
            .is_some_and(|text| text.contains("tid"))
    });
}

/// Returns every hook of the engine. The match is exhaustive, so a new hook must be added here, and
/// to the window.
fn hooks() -> [HookType; 4] {
    let next = |hook| match hook {
        HookType::Pre => HookType::Post,
        HookType::Post => HookType::Taken,
        HookType::Taken => HookType::Untaken,
        HookType::Untaken => HookType::Pre,
    };
    let second = next(HookType::Pre);
    [HookType::Pre, second, next(second), next(next(second))]
}

#[test]
fn every_hook_of_the_engine_can_be_placed_by_key_menu_and_drop() {
    let mut harness = with_instruments("kernel_clone");
    // The first branch whose ways out both differ and can be hooked, and whose pills are in view.
    let canvas = harness.get_by_label("Control-flow graph").rect();
    let open = scene(&harness).clone();
    let camera = harness.state().state().graph.camera;
    let block = open
        .cfg
        .blocks
        .iter()
        .map(|block| block.index)
        .find(|&block| {
            let rect = open.layout.boxes[block.0 as usize];
            let seen = canvas
                .shrink(20.0)
                .contains_rect(camera.rect_to_screen(canvas.min, rect));
            let free = |hook| matches!(open.hook(block, hook), Some(Ok(_)));
            seen && hooks().into_iter().all(free)
        });
    let block = block.expect("a branch is in view");
    let placed_at = |harness: &Window| {
        let last = placed(harness.state().state()).pop().unwrap();
        (last.1, last.2)
    };
    let keys = [
        egui::Key::Num1,
        egui::Key::Num2,
        egui::Key::Num3,
        egui::Key::Num4,
    ];
    let names = [
        "hook before block",
        "hook after block",
        "hook where branch is taken",
        "hook where branch is not taken",
    ];
    click(&mut harness, &format!("block {} of kernel_clone", block.0));
    for (place, hook) in hooks().into_iter().enumerate() {
        press(&mut harness, Modifiers::ALT, keys[place]);
        settle(&mut harness);
        press(&mut harness, Modifiers::COMMAND, egui::Key::Enter);
        settle(&mut harness);
        assert_eq!(placed_at(&harness), (block.0, hook), "by key");
        let state = harness.state().state();
        assert!(
            matches!(state.plan.outcome, Some(Ok(_))),
            "{hook}: {:?}",
            state.plan.outcome
        );
        press(&mut harness, Modifiers::COMMAND, egui::Key::Z);

        press(&mut harness, Modifiers::ALT, keys[(place + 1) % 4]);
        run_command(&mut harness, names[place]);
        settle(&mut harness);
        run_command(&mut harness, "add instrument");
        settle(&mut harness);
        assert_eq!(placed_at(&harness), (block.0, hook), "by menu");
        press(&mut harness, Modifiers::COMMAND, egui::Key::Z);

        let pill = format!("{hook}-hook of block {}: ", block.0);
        carry(&mut harness, "counter", |harness| {
            let named = |node: &egui_kittest::Node<'_>| {
                let label = node.accesskit_node().label();
                label.is_some_and(|label| label.starts_with(&pill))
            };
            let mut found = harness.query_all_by_label_contains(&pill);
            found.find(named).unwrap().rect().center()
        });
        assert_eq!(placed_at(&harness), (block.0, hook), "by drop");
        press(&mut harness, Modifiers::COMMAND, egui::Key::Z);
        assert_eq!(placed(harness.state().state()), []);
    }
}
