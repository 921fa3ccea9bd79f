//! The graph, navigation and the list of functions, by accessibility names.

use std::process::Command;

use crate::support::{
    Window, browsing, browsing_forbidden, browsing_in, button, click, fill, press, record, scene,
    settle, typed, until, until_open,
};
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::Image;
use gilk_engine::cfg::{BlockIndex, EdgeKind};
use gilk_engine::elf::ElfParts;
use gilk_gui::catalogue::Catalogue;
use gilk_gui::graph::{Metrics, Scene};
use gilk_gui::theme::Palette;

#[test]
fn blocks_show_their_hit_counts() {
    let mut harness = browsing("kernel_clone");
    assert!(harness.query_by_label_contains("was hit").is_none());
    harness.state_mut().state_mut().timeline.open(record());
    harness.run_steps(3);
    harness.get_by_label("block 0 was hit 300 times");
    let heat = {
        let record = harness.state().state().timeline.record.as_ref().unwrap();
        gilk_gui::graph::heat::Heat::of(record, "kernel_clone").unwrap()
    };
    assert_eq!(heat.block(BlockIndex(2)), Some(5));
    assert_eq!(heat.block(BlockIndex(1)), None, "no instrument there");
    assert!(heat.share(300) > 0.99 && heat.share(5) < 0.5);
}

#[test]
fn find_selects_the_blocks_that_contain_a_text() {
    let mut harness = browsing("kernel_clone");
    press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::F);
    harness
        .get_by_label("Find in graph")
        .type_text("copy_process");
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    settle(&mut harness);
    let graph = &harness.state().state().graph;
    let found = graph.find.as_ref().unwrap().found.clone();
    assert_eq!(graph.selected, Some(found[0]));
    let shown = &graph.scene.as_ref().unwrap().shown[found[0].0 as usize];
    let text: String = shown
        .lines
        .iter()
        .flat_map(|line| &line.parts)
        .map(|(_, piece)| piece.as_str())
        .collect();
    assert!(text.contains("copy_process"));
    harness.get_by_label(&format!("1 of {}", found.len()));
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert!(harness.query_by_label("Find in graph").is_none());
}

#[test]
fn instructions_have_remarks_about_fields_and_strings() {
    let mut harness = browsing_in(typed(), "kernel_clone");
    let found = |harness: &mut Window, words: &str| {
        press(harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::F);
        harness.get_by_label("Find in graph").type_text(words);
        harness.run_steps(3);
        let found = harness.state().state().graph.find.as_ref().unwrap();
        let count = found.found.len();
        press(harness, Modifiers::NONE, Key::Escape);
        count
    };
    assert!(found(&mut harness, "; kernel_clone_args->flags") > 0);
    assert!(found(&mut harness, "; kernel_clone_args->exit_signal") > 0);
    assert!(found(&mut harness, "; \"&x->wait\"") > 0);
    assert_eq!(found(&mut harness, "kernel_clone_args->tls"), 0);
}

#[test]
fn counted_paths_are_listed_and_highlighted() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "Count paths");
    let state = harness.state().state();
    let placed = state.document.session().placements.len();
    let plan = state.plan.outcome.as_ref().unwrap();
    assert!(
        placed > 2 && plan.is_ok(),
        "{placed}: {:?}",
        plan.as_ref().err()
    );
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(crate::support::placements(&harness).len(), 0);

    // Totals as from such a run.
    let mut recorded = record();
    recorded.totals = vec![ilk_driver::client::AggregateSummary {
        placement: 0,
        instrument: "path-kernel-clone-0".into(),
        name: "paths".into(),
        unit: "paths".into(),
        may_be_zero: false,
        value: gilk_instruments::program::Summary::Values(vec![(0, 5), (3, 345)], 2),
    }];
    harness.state_mut().state_mut().timeline.open(recorded);
    harness.run_steps(3);
    let row = harness.get_by_label_contains("path 3: 345 times");
    row.click();
    harness.run_steps(3);
    let state = harness.state().state();
    let path = state.graph.path.as_ref().unwrap();
    let edges = &scene(&harness).cfg.edges;
    for pair in path.blocks.windows(2) {
        let edge = edges.iter().find(|edge| [edge.from, edge.to] == *pair);
        assert!(edge.is_some(), "{pair:?} is no edge");
    }
    assert!(path.blocks.len() > 2);
    harness.get_by_label_contains("path 3: 345 times").click();
    harness.run_steps(3);
    assert!(harness.state().state().graph.path.is_none());
    harness.get_by_label_contains("path 0: 5 times");
    harness.get_by_label("others: 2 times");
}

#[test]
fn callers_and_callees_are_listed_and_opened() {
    let mut harness = browsing("kernel_clone");
    press(&mut harness, Modifiers::NONE, Key::X);
    until(&mut harness, "the calls are known", |state| {
        state.calls.is_some()
    });
    harness.run_steps(3);
    harness.get_by_label_contains("palette: called by __do_sys_clone+");
    harness
        .get_by_label("Find reference")
        .type_text("calls copy_process");
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    until_open(&mut harness, "copy_process");
    settle(&mut harness);
    press(&mut harness, Modifiers::NONE, Key::Escape);
    until_open(&mut harness, "kernel_clone");
    press(&mut harness, Modifiers::ALT, Key::ArrowRight);
    settle(&mut harness);
    assert_eq!(scene(&harness).name, "copy_process");
}

#[test]
fn branches_can_be_followed_and_blocks_folded() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "block 0 of kernel_clone");
    let scene = harness.state().state().graph.scene.clone().unwrap();
    let not_taken = scene.follow(BlockIndex(0), false).unwrap();
    press(&mut harness, Modifiers::NONE, Key::F);
    assert_eq!(harness.state().state().graph.selected, Some(not_taken));
    let tall = scene.layout.boxes[not_taken.0 as usize].height();
    press(&mut harness, Modifiers::NONE, Key::C);
    let folded = harness.state().state().graph.scene.clone().unwrap();
    assert!(folded.layout.boxes[not_taken.0 as usize].height() < tall);
    press(&mut harness, Modifiers::SHIFT, Key::C);
    let all = harness.state().state().graph.scene.clone().unwrap();
    assert!(all.layout.size.y < folded.layout.size.y);
    press(&mut harness, Modifiers::SHIFT, Key::C);
    let none = harness.state().state().graph.scene.clone().unwrap();
    assert_eq!(none.layout.size, scene.layout.size);
}

#[test]
fn the_minimap_moves_the_view() {
    let mut harness = browsing("copy_process");
    let map = harness.get_by_label("Minimap").rect();
    let before = harness.state().state().graph.camera;
    harness.drag_at(map.left_bottom() + egui::vec2(12.0, -12.0));
    harness.run_steps(2);
    harness.drop_at(map.left_bottom() + egui::vec2(12.0, -12.0));
    harness.run_steps(3);
    let after = harness.state().state().graph.camera;
    assert!(
        after.origin.y < before.origin.y - 100.0,
        "{before:?} {after:?}"
    );
    assert_eq!(after.zoom, before.zoom);
    press(&mut harness, Modifiers::NONE, Key::Num0);
    assert!(
        harness.query_by_label("Minimap").is_none(),
        "all of the graph is visible"
    );
}

#[test]
fn the_graph_is_exported_as_svg_and_dot() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = browsing("kernel_clone");
    let blocks = scene(&harness).cfg.blocks.len();
    for (name, blocks_of) in [("g.svg", "<text x="), ("g.dot", "label=")] {
        let path = folder.path().join(name);
        press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::P);
        harness
            .get_by_label("Find command")
            .type_text("export graph");
        harness.run_steps(3);
        press(&mut harness, Modifiers::NONE, Key::Enter);
        fill(&mut harness, "Path", &path.display().to_string());
        click(&mut harness, "Save");
        until(&mut harness, "it is written", |state| {
            state
                .notices
                .iter()
                .any(|notice| notice.words.contains(name))
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.matches(blocks_of).count() >= blocks, "{name}");
        assert!(text.contains("copy_process"), "{name}");
        // The colours of paper, in a dark window too.
        let [r, g, b, _] = Palette::Light.tokens().canvas.to_array();
        let ground = format!("#{r:02x}{g:02x}{b:02x}");
        assert!(name.ends_with("dot") || text.contains(&ground), "{ground}");
    }
}

#[test]
fn the_list_can_be_limited_to_touched_or_hot_functions() {
    let mut harness = browsing("kernel_clone");
    let found = |harness: &Window| harness.state().state().functions.found.len();
    let all = found(&harness);
    click(
        &mut harness,
        "list functions with instruments of the session",
    );
    until(&mut harness, "nothing is touched yet", |state| {
        state.functions.found.is_empty()
    });
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    until(&mut harness, "it is touched", |state| {
        state.functions.found.len() == 1
    });
    click(
        &mut harness,
        "list functions hit in the run on the timeline",
    );
    until(&mut harness, "nothing is hot yet", |state| {
        state.functions.found.is_empty()
    });
    harness.state_mut().state_mut().timeline.open(record());
    until(&mut harness, "it is hot", |state| {
        state.functions.found.len() == 1
    });
    click(&mut harness, "list every function");
    until(&mut harness, "all are back", |state| {
        state.functions.found.len() == all
    });
}

#[test]
fn the_list_can_be_limited_to_hookable_functions() {
    let mut harness = browsing_forbidden("copy_process");
    let functions = |harness: &Window| harness.state().state().functions.found.clone();
    let all = functions(&harness);
    let forbidden = scene(&harness).function();
    assert!(all.contains(&forbidden));
    click(&mut harness, "list functions whose entry can be hooked");
    until(&mut harness, "the hookable functions are listed", |state| {
        let found = &state.functions.found;
        !found.is_empty() && found.len() < all.len()
    });
    let found = functions(&harness);
    assert_eq!(found.len(), all.len() - 1, "the others can be");
    assert!(!found.contains(&forbidden));
}

#[test]
fn dragging_reorders_the_instruments_of_a_hook() {
    let mut harness = browsing("kernel_clone");
    // Shows the whole inspector.
    harness.set_size(egui::vec2(1500.0, 1300.0));
    harness.run_steps(3);
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    click(&mut harness, "Instrument");
    click(&mut harness, "counter");
    click(&mut harness, "Add instrument");
    let names = |harness: &Window| {
        let session = harness.state().state().document.session();
        session
            .placements
            .iter()
            .map(|one| one.instrument.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&harness), ["timestamp", "counter"]);
    let from = harness.get_by_label("order of counter 1").rect().center();
    let to = harness.get_by_label("order of timestamp 0").rect().center();
    harness.drag_at(from);
    harness.run_steps(2);
    harness.hover_at(from.lerp(to, 0.5));
    harness.run_steps(2);
    harness.hover_at(to);
    harness.run_steps(2);
    button(&mut harness, to, false);
    settle(&mut harness);
    assert_eq!(names(&harness), ["counter", "timestamp"]);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(names(&harness), ["timestamp", "counter"]);
}

/// Counts the dots of a colour on the lower edge of `rect`.
fn dots(picture: &[[u8; 3]], width: usize, rect: egui::Rect, colour: egui::Color32) -> usize {
    let y = rect.bottom().round() as usize;
    let colour = [colour.r(), colour.g(), colour.b()];
    let row: Vec<bool> = (rect.left() as usize..rect.right() as usize)
        .map(|x| picture[y * width + x] == colour)
        .collect();
    usize::from(row[0]) + row.windows(2).filter(|pair| !pair[0] && pair[1]).count()
}

#[test]
fn dots_on_a_pill_show_the_cost_of_its_tactic() {
    // The function with the most tactics.
    let catalogue = crate::support::catalogue();
    let image = catalogue.image();
    let ways = |function| {
        let cfg = gilk_engine::cfg::Cfg::of(image, function);
        let hooks = gilk_engine::placement::options(image, &cfg);
        let both = hooks.iter().flat_map(|one| [&one.pre, &one.post]);
        let tactics = both.filter_map(|hook| Some(hook.as_ref().ok()?.tactic));
        tactics.collect::<std::collections::BTreeSet<_>>()
    };
    let function = image
        .functions()
        .iter()
        .max_by_key(|one| ways(one.id).len());
    let name = catalogue.name(function.unwrap().id).unwrap().to_owned();
    let mut harness = browsing(&name);
    let width = 1500;
    let warning = gilk_gui::theme::Palette::Dark.tokens().warning;
    let mut seen = std::collections::BTreeMap::new();
    let hooks = [gilk_engine::HookType::Pre, gilk_engine::HookType::Post];
    for block in scene(&harness).cfg.blocks.clone() {
        // Each tactic is checked once.
        let is_known = |hook: &gilk_engine::HookType| match scene(&harness).hook(block.index, *hook)
        {
            Some(Ok(choice)) => seen.contains_key(&choice.tactic),
            _ => true,
        };
        if hooks.iter().all(is_known) {
            continue;
        }
        let graph = &mut harness.state_mut().state_mut().graph;
        graph.select(block.index);
        graph.wanted = Some(gilk_gui::graph::view::Look::Natural);
        harness.run_steps(6);
        harness.hover_at(egui::pos2(5.0, 945.0));
        harness.run_steps(3);
        let picture: Vec<[u8; 3]> = {
            let picture = harness.render().unwrap();
            picture
                .pixels()
                .map(|pixel| [pixel[0], pixel[1], pixel[2]])
                .collect()
        };
        for hook in hooks {
            let Some(Ok(choice)) = scene(&harness).hook(block.index, hook) else {
                continue;
            };
            let start = format!("{hook}-hook of block {}: can be hooked", block.index.0);
            let Some(pill) = harness.query_all_by_label_contains(&start).find(|pill| {
                // The drop targets in a block's halves have these names too.
                pill.rect().height() < 30.0
            }) else {
                continue;
            };
            let said = pill.accesskit_node().label().unwrap();
            let way = said
                .split_once(", costs more: ")
                .map(|(_, way)| way.to_owned());
            let count = dots(&picture, width, pill.rect(), warning);
            assert_eq!(way.is_some(), count > 0, "{said}: {count} dots");
            assert!(way.is_none_or(|way| way == choice.tactic.name()), "{said}");
            let known = *seen.entry(choice.tactic).or_insert(count);
            assert_eq!(known, count, "{said}");
        }
    }
    // Tactics are ordered by cost.
    let counts: Vec<usize> = seen.values().copied().collect();
    assert!(counts.is_sorted(), "{seen:?}");
    assert!(
        counts.first() == Some(&0) && counts.last() > Some(&0),
        "{seen:?}"
    );
}

const SWITCH: &str = "
int f0(int), f1(int), f2(int), f3(int), f4(int), f5(int), f6(int);
int chosen(unsigned which, int value) {
    switch (which) {
    case 1: return f0(value) + 1; case 2: return f1(value) - 2; case 3: return f2(value) * 3;
    case 4: return f3(value) ^ 4; case 5: return f4(value) | 5; case 6: return f5(value) & 6;
    case 7: return f6(value) + 7;
    }
    return 0;
}
";

#[test]
fn the_cases_of_a_jump_table_are_connected_with_their_jump() {
    let folder = tempfile::tempdir().unwrap();
    let [source, library] = ["switch.c", "switch.so"].map(|name| folder.path().join(name));
    std::fs::write(&source, SWITCH).unwrap();
    let compiler = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(compiler.unwrap().success());
    let file = std::fs::read(&library).unwrap();
    let image = Image::from_elf(&ElfParts::of_file("switch.so", &file)).unwrap();
    let function = image.function_named("chosen").unwrap().id;
    let metrics = Metrics {
        letter: 7.0,
        line: 14.0,
    };
    let scene = Scene::new(&Catalogue::new(image), function, metrics).unwrap();
    assert!(!scene.has_hidden_tables());
    let routes = scene.edges().zip(&scene.layout.routes);
    let cases: Vec<_> = routes
        .filter(|(edge, _)| edge.kind == EdgeKind::Table)
        .inspect(|(_, route)| assert!(route.points.len() > 1))
        .map(|(edge, _)| edge.to)
        .collect();
    assert!((7..=8).contains(&cases.len()), "{cases:?}");
    assert_eq!(scene.layout.routes.len(), scene.looks.len());
}
