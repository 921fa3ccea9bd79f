//! Tests of drags to other tabs, notes of runs, searches, cold
//! regions, and the difference of two runs.

use std::sync::Arc;

use crate::support::{
    Window, browsing, browsing_forbidden, button, click, fill, middle, placements, press, record,
    scene, settle, until, until_filtered, window,
};
use egui::{Event, Key, Modifiers, vec2};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::{HookType, InstrumentId, Session};
use gilk_gui::args::Start;
use gilk_gui::desk::Pane;
use gilk_gui::graph::heat::Heat;
use gilk_gui::timeline::Record;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::{Batch, Meaning, Sample};

#[test]
fn a_tab_opens_under_a_dragged_instrument_and_its_list_takes_the_drop() {
    let mut harness = browsing("kernel_clone");
    fill(&mut harness, "Filter functions", "mmput");
    until_filtered(&mut harness, "mmput");
    click(&mut harness, "Instruments tab");
    fill(&mut harness, "Filter instruments", "counter");
    let from = middle(&harness, "instrument counter");
    harness.event(Event::PointerMoved(from));
    harness.run_steps(2);
    button(&mut harness, from, true);
    let tab = middle(&harness, "Functions tab");
    for share in [0.3, 0.7, 1.0] {
        harness.event(Event::PointerMoved(from.lerp(tab, share)));
        harness.run_steps(1);
    }
    until(&mut harness, "the tab opens", |state| {
        state.desk.sees(Pane::Functions)
    });
    harness.run_steps(2);
    let row = middle(&harness, "mmput");
    harness.event(Event::PointerMoved(row));
    harness.run_steps(2);
    button(&mut harness, row, false);
    settle(&mut harness);
    let placed = placements(&harness);
    assert_eq!(placed.len(), 1);
    assert_eq!((&*placed[0].function, placed[0].block), ("mmput", 0));
    // A tab without a drag opens by a click only.
    harness.event(Event::PointerMoved(middle(&harness, "Instruments tab")));
    harness.run_steps(8);
    assert!(harness.state().state().desk.sees(Pane::Functions));
}

#[test]
fn a_refusal_of_the_whole_function_is_said_once() {
    let mut harness = browsing_forbidden("copy_process");
    click(&mut harness, "Instruments tab");
    fill(&mut harness, "Filter instruments", "elapsed");
    click(&mut harness, "instrument elapsed");
    press(&mut harness, Modifiers::NONE, Key::J);
    until(&mut harness, "it is refused", |state| {
        state.offer.refused().is_some()
    });
    harness.run_steps(3);
    let refused = harness.state().state().offer.refused().unwrap();
    let cards = |words: &str| harness.query_all_by_label_contains(words).count();
    let hook = scene(&harness).hook(BlockIndex(0), HookType::Pre).unwrap();
    let why = hook.clone().unwrap_err().why;
    let shown = cards("cannot be added: ");
    if refused.iter().all(|words| words.contains(&why)) {
        assert_eq!(shown, 0, "the card has said it: {why}");
    } else {
        assert_eq!(shown, refused.len());
    }
    let add = harness.get_by_label("Add instrument");
    assert!(add.accesskit_node().is_disabled());
}

#[test]
fn the_instrument_that_is_wrong_is_marked_and_in_view() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.ron");
    let mut text = String::from(r#"(version: 1, name: "x", duration: 5.0, placements: ["#);
    for block in 0..60 {
        text += &format!(
            r#"(function: "kernel_clone", block: {}, hook: Pre, instrument: "counter", launch: 0.0, splash: 5.0),"#,
            block % 30
        );
    }
    text += r#"(function: "kernel_cloen", block: 0, hook: Pre, instrument: "counter", launch: 0.0, splash: 5.0)])"#;
    Session::from_ron(&text).unwrap();
    std::fs::write(&path, text).unwrap();
    let start = Start {
        image: Some(crate::support::image_path()),
        session: Some(path),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the session is refused", |state| {
        state.plan.fault.is_some()
    });
    harness.run_steps(4);
    assert_eq!(harness.state().state().plan.fault, Some(60));
    let row = harness.get_by_label("show counter pre kernel_cloen block 0");
    let screen = harness.ctx.content_rect();
    assert!(screen.contains_rect(row.rect()), "{:?}", row.rect());
}

#[test]
fn a_note_is_shown_on_its_own_run() {
    let mut harness = browsing("kernel_clone");
    let run = |start| {
        let mut record = record();
        Arc::make_mut(&mut record.metadata).clock.start_unix_ns = start;
        record.now = None;
        record
    };
    let state = harness.state_mut().state_mut();
    state.timeline.open(run(1));
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::B);
    harness.get_by_label("Note").type_text("odd");
    harness.run_steps(2);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    harness.get_by_label("note: odd");
    harness.state_mut().state_mut().timeline.open(run(2));
    harness.run_steps(3);
    assert!(harness.query_by_label("note: odd").is_none());
    harness.state_mut().state_mut().timeline.open(run(1));
    harness.run_steps(3);
    harness.get_by_label("note: odd");
}

#[test]
fn callers_fill_the_list_after_they_were_found() {
    let mut harness = browsing("copy_process");
    press(&mut harness, Modifiers::NONE, Key::X);
    until(&mut harness, "the calls are found", |state| {
        state.calls.is_some()
    });
    harness.run_steps(4);
    let rows = harness.query_all_by_label_contains("palette: ");
    let rows: Vec<_> = rows.map(|row| row.rect()).collect();
    assert!(rows.len() > 3, "{}", rows.len());
    // As many as the list has, up to its greatest height.
    let visible = rows.last().unwrap().bottom() - rows[0].top();
    let wanted = (rows.len() as f32 * 24.0).min(360.0);
    assert!(visible >= wanted - 1.0, "{visible} of {wanted}");
}

#[test]
fn a_dialog_takes_the_focus_again_that_something_below_has_taken() {
    let mut harness = browsing("kernel_clone");
    press(&mut harness, Modifiers::COMMAND, Key::O);
    assert!(harness.get_by_label("Path").is_focused());
    harness.ctx.memory_mut(|memory| {
        let focused = memory.focused().unwrap();
        memory.surrender_focus(focused);
    });
    harness.run_steps(2);
    harness.event(Event::Text("/some/session.ron".to_owned()));
    harness.run_steps(2);
    let dialog = harness.state().state().dialog.as_ref().unwrap();
    assert_eq!(dialog.text, "/some/session.ron");
}

/// Two functions on one CPU: `outer` takes 1,000 ticks every 10,000 and calls `inner`, whose last call
/// takes longest.
fn calls() -> Record {
    let mut metadata = Metadata::clone(&record().metadata);
    metadata.clock = Clock {
        hz: 1_000_000,
        start: 0,
        start_unix_ns: 0,
    };
    for (place, info) in metadata.instruments.iter_mut().enumerate() {
        info.meaning = Meaning::Duration;
        info.instrument = "elapsed".into();
        info.label = format!("elapsed of {}", ["outer", "inner"][place]);
    }
    let [outer, inner] = [0, 1].map(|place: usize| metadata.instruments[place].id);
    let mut record = Record::live("calls.arrow".into(), metadata, 1.0);
    let mut samples = Vec::new();
    for round in 0..50u64 {
        let start = 10_000 * round;
        let length = if round == 49 { 500 } else { 100 };
        let mut call = |id, from: u64, length: u64| {
            samples.push(Sample {
                id,
                value: length,
                tsc: start + from + length,
            });
        };
        call(inner, 200, length);
        call(outer, 0, 1000);
    }
    record.append(&Batch { cpu: 0, samples });
    record.now = None;
    record
}

#[test]
fn samples_are_found_by_value_and_time_and_calls_have_arrows() {
    let mut harness = browsing("kernel_clone");
    harness.state_mut().state_mut().timeline.open(calls());
    harness.run_steps(3);
    press(&mut harness, Modifiers::COMMAND, Key::L);
    let typed = |harness: &mut Window, text: &str| {
        fill(harness, "Find samples", text);
        press(harness, Modifiers::NONE, Key::Enter);
        harness.run_steps(3);
        let find = harness.state().state().timeline.find.as_ref().unwrap();
        find.answer.clone().unwrap()
    };
    let (words, is_error) = typed(&mut harness, "> 200 us < 1 ms");
    assert!(
        !is_error && words.starts_with("elapsed of inner: at 0.490700"),
        "{words}"
    );
    harness.get_by_label("0 calls within the found one, which is within elapsed of outer");
    let (words, is_error) = typed(&mut harness, "> 2 ms");
    assert!(is_error && words == "No later sample matches.", "{words}");
    let (words, is_error) = typed(&mut harness, "slow");
    assert!(is_error && words.contains("is not understood"), "{words}");
    // Of all lanes again, from the start.
    let timeline = &mut harness.state_mut().state_mut().timeline;
    timeline.open(calls());
    let (words, _) = typed(&mut harness, "= 1000 after 100 ms");
    assert!(
        words.starts_with("elapsed of outer: at 0.101000"),
        "{words}"
    );
    harness.get_by_label("1 call within the found one");
    // By keys, and back.
    press(&mut harness, Modifiers::NONE, Key::Escape);
    press(&mut harness, Modifiers::NONE, Key::Period);
    harness.get_by_label_contains("elapsed of outer: at 0.111000");
    press(&mut harness, Modifiers::NONE, Key::Comma);
    harness.get_by_label_contains("elapsed of outer: at 0.101000");
}

/// A run in which only the first half of the open function's blocks was hit.
fn half_hit(harness: &Window) -> Record {
    let scene = scene(harness);
    let (info, mut metadata): (_, Metadata) = {
        let all = Metadata::clone(&record().metadata);
        (all.instruments[0].clone(), all)
    };
    metadata.functions[0].name.clone_from(&scene.name);
    metadata.instruments.clear();
    let mut samples = Vec::new();
    let blocks = scene.cfg.blocks.len();
    for block in 0..blocks {
        let id = InstrumentId::new(0, HookType::Pre, block as u32, 0);
        let mut info = info.clone();
        info.id = id.unwrap().pack();
        info.label = format!("timestamp pre {} block {block}", scene.name);
        if block < blocks / 2 {
            samples.push(Sample {
                id: info.id,
                value: 0,
                tsc: 1000 + block as u64,
            });
        }
        metadata.instruments.push(info);
    }
    let mut record = Record::live("half.arrow".into(), metadata, 10.0);
    record.append(&Batch { cpu: 0, samples });
    record.now = None;
    record
}

#[test]
fn cold_regions_are_boxes_with_their_number_and_open_by_click_and_key() {
    let mut harness = browsing("copy_process");
    let record = half_hit(&harness);
    harness.state_mut().state_mut().timeline.open(record);
    harness.run_steps(3);
    assert!(
        scene(&harness).regions.is_empty(),
        "a graph of this size has all blocks"
    );
    let blocks = scene(&harness).cfg.blocks.len();
    press(&mut harness, Modifiers::NONE, Key::H);
    let folded = scene(&harness).clone();
    assert!(!folded.regions.is_empty());
    let record = harness.state().state().timeline.record.as_ref().unwrap();
    let heat = Heat::of(record, "copy_process").unwrap();
    for &block in folded.regions.iter().flatten() {
        assert_eq!(heat.block(block), Some(0), "{block:?}");
    }
    let hidden: usize = folded.regions.iter().map(Vec::len).sum();
    assert!(hidden > blocks / 4, "{hidden} of {blocks}");
    // The graph is smaller, and a box has its number.
    press(&mut harness, Modifiers::NONE, Key::Num0);
    let region = folded
        .regions
        .iter()
        .max_by_key(|region| region.len())
        .unwrap();
    let name = format!(
        "{} cold blocks from block {} to block {}",
        region.len(),
        region[0].0,
        region[region.len() - 1].0
    );
    harness.get_by_label(&name).click();
    harness.run_steps(4);
    assert_eq!(scene(&harness).regions.len(), folded.regions.len() - 1);
    // Navigation to a hidden block shows it.
    if let Some(block) = scene(&harness).regions.first().map(|region| region[1]) {
        press(&mut harness, Modifiers::NONE, Key::G);
        let at = scene(&harness).cfg.block(block).unwrap().span.start;
        harness
            .get_by_label("Go to")
            .type_text(&format!("{:x}", at.0));
        harness.run_steps(3);
        press(&mut harness, Modifiers::NONE, Key::Enter);
        settle(&mut harness);
        assert_eq!(harness.state().state().graph.selected, Some(block));
        assert!(scene(&harness).region(block).is_none());
    }
    press(&mut harness, Modifiers::NONE, Key::H);
    assert!(scene(&harness).regions.is_empty());
}

#[test]
fn the_focus_is_visible_while_keys_move_it() {
    let mut harness = browsing("kernel_clone");
    let accent = gilk_gui::theme::Palette::Dark.tokens().accent;
    let has_ring = |harness: &mut Window, name: &str| {
        let rect = harness.get_by_label(name).rect();
        let picture = harness.render().unwrap();
        let at = rect.center_top() + vec2(0.0, 1.0);
        picture.get_pixel(at.x as u32, at.y as u32).0[..3] == accent.to_array()[..3]
    };
    for _ in 0..2 {
        press(&mut harness, Modifiers::NONE, Key::F6);
    }
    assert!(has_ring(&mut harness, "Graph region"));
    let place = middle(&harness, "Control-flow graph");
    button(&mut harness, place, true);
    button(&mut harness, place, false);
    assert!(!has_ring(&mut harness, "Graph region"));
}

#[test]
fn text_typed_right_after_a_shortcut_is_in_the_field_that_it_opens() {
    let mut harness = browsing("kernel_clone");
    let pressed = |key: Key, modifiers: Modifiers| Event::Key {
        key,
        physical_key: None,
        pressed: true,
        repeat: false,
        modifiers,
    };
    let typed = |harness: &mut Window, key: Key, modifiers: Modifiers, text: &str| {
        // All of it arrives before the next frame is drawn, as on a slow machine.
        let events = &mut harness.input_mut().events;
        events.push(pressed(key, modifiers));
        let letters = text.chars().map(|letter| match letter {
            '\n' => pressed(Key::Enter, Modifiers::NONE),
            letter => Event::Text(letter.to_string()),
        });
        events.extend(letters);
        harness.run_steps(6);
    };
    typed(&mut harness, Key::O, Modifiers::COMMAND, "/tmp/x.ron");
    let dialog = harness.state().state().dialog.as_ref().unwrap();
    assert_eq!(dialog.text, "/tmp/x.ron");
    press(&mut harness, Modifiers::NONE, Key::Escape);
    let palette = Modifiers::COMMAND | Modifiers::SHIFT;
    typed(&mut harness, Key::P, palette, "fit graph");
    harness.get_by_label("palette: Fit graph");
    press(&mut harness, Modifiers::NONE, Key::Escape);
    // Enter chooses among the entries of the whole text.
    harness.get_by_label("Filter functions");
    for _ in 0..2 {
        let is_shown = harness.query_by_label("Filter functions").is_some();
        typed(&mut harness, Key::P, palette, "functions pane\n");
        let after = harness.query_by_label("Filter functions").is_some();
        assert_ne!(is_shown, after);
    }
    // The letter of a shortcut is not part of the text.
    typed(&mut harness, Key::Slash, Modifiers::NONE, "/mmput");
    assert_eq!(harness.state().state().functions.filter, "mmput");
}
