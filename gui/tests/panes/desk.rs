//! Panes, colours, the palette, screenshots, the patch and persistence, by accessibility names.

use std::collections::BTreeMap;

use crate::support::{
    Window, browsing, click, placements, press, run_command, settle, until, window,
};
use egui::{Key, Modifiers, vec2};
use egui_kittest::kittest::{NodeT, Queryable};
use gilk_engine::HookType;
use gilk_gui::args::Start;
use gilk_gui::command::Command;
use gilk_gui::desk::Pane;
use gilk_gui::theme::{Colours, Palette};

/// Executes a command from the palette and waits for its effects.
fn command(harness: &mut Window, letters: &str) {
    run_command(harness, letters);
    settle(harness);
}

#[test]
fn panes_are_hidden_and_shown_by_the_palette_and_their_tabs() {
    let mut harness = browsing("kernel_clone");
    harness.get_by_label("Filter functions");
    command(&mut harness, "functions pane");
    assert!(harness.query_by_label("Filter functions").is_none());
    command(&mut harness, "functions pane");
    harness.get_by_label("Filter functions");
    click(&mut harness, "Schedule tab");
    assert!(harness.state().state().desk.sees(Pane::Schedule));
    assert!(!harness.state().state().desk.sees(Pane::Timeline));
    harness.get_by_label("Nothing to schedule");
    command(&mut harness, "default layout");
    assert!(harness.state().state().desk.sees(Pane::Timeline));
}

#[test]
fn the_palette_finds_every_command_and_the_list_shows_every_shortcut() {
    let mut harness = browsing("kernel_clone");
    let listed: Vec<&Command> = Command::listed().collect();
    assert!(listed.len() > 60);
    for command in &listed {
        if **command == Command::ShowPalette {
            continue;
        }
        press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::P);
        harness
            .get_by_label("Find command")
            .type_text(command.name());
        harness.run_steps(2);
        harness.get_by_label(&format!("palette: {}", command.name()));
        press(&mut harness, Modifiers::NONE, Key::Escape);
    }
    press(&mut harness, Modifiers::NONE, Key::Questionmark);
    let screen = harness.ctx.content_rect();
    for command in listed.iter().filter(|one| !one.shortcuts().is_empty()) {
        let mut shown = harness.query_all_by_label(command.name());
        let whole = shown.any(|line| screen.contains_rect(line.rect()));
        assert!(whole, "{} is not in the list", command.name());
        let keys = command.shortcut_text(&harness.ctx);
        assert!(!keys.is_empty());
    }
}

#[test]
fn a_pane_can_be_dragged_next_to_another() {
    let mut harness = browsing("kernel_clone");
    let before = harness.get_by_label("Session tab").rect();
    let tab = harness.get_by_label("Schedule tab").rect().center();
    let graph = harness.get_by_label("Control-flow graph").rect();
    let target = graph.right_center() - vec2(12.0, 0.0);
    harness.drag_at(tab);
    harness.run_steps(2);
    for share in 1..=8 {
        harness.hover_at(tab.lerp(target, share as f32 / 8.0));
        harness.run_steps(2);
    }
    harness.drop_at(target);
    harness.run_steps(6);
    let after = harness.get_by_label("Schedule tab").rect();
    assert!(after.center().y < tab.y - 100.0, "{tab:?} {after:?}");
    assert!(harness.state().state().desk.sees(Pane::Timeline));
    assert!(harness.state().state().desk.sees(Pane::Schedule));
    assert!(
        (harness.get_by_label("Session tab").rect().center() - before.center()).length() < 60.0
    );
}

#[test]
fn commands_select_the_colours() {
    let mut harness = browsing("kernel_clone");
    for (letters, wanted) in [
        ("high contrast", Palette::Contrast),
        ("light colours", Palette::Light),
        ("dark colours", Palette::Dark),
    ] {
        command(&mut harness, letters);
        let visuals = harness.ctx.global_style().visuals.clone();
        assert_eq!(Palette::of(&visuals), wanted);
    }
}

/// Returns the size of a picture and its most frequent colour.
fn ground(path: &std::path::Path) -> ((u32, u32), egui::Color32) {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let mut times = BTreeMap::<&[u8], usize>::new();
    for pixel in bytes.chunks_exact(3) {
        *times.entry(pixel).or_default() += 1;
    }
    let (most, _) = times.iter().max_by_key(|(_, times)| **times).unwrap();
    let colour = egui::Color32::from_rgb(most[0], most[1], most[2]);
    ((info.width, info.height), colour)
}

#[test]
fn a_picture_shows_the_window_at_its_request_despite_later_input() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut harness = browsing("kernel_clone");
    command(&mut harness, "light colours");
    // All input arrives before the first picture can be taken.
    let words = |harness: &mut Window, text: &str| {
        harness.event(egui::Event::Text(text.to_owned()));
        harness.key_press(Key::Enter);
    };
    let palette = |harness: &mut Window| {
        harness.key_press_modifiers(Modifiers::COMMAND | Modifiers::SHIFT, Key::P);
    };
    run_command(&mut harness, "save picture");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::A);
    words(&mut harness, &at("light.png").to_string_lossy());
    palette(&mut harness);
    words(&mut harness, "high contrast");
    palette(&mut harness);
    words(&mut harness, "save picture");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::A);
    words(&mut harness, &at("contrast.png").to_string_lossy());
    for (name, palette) in [
        ("light.png", Palette::Light),
        ("contrast.png", Palette::Contrast),
    ] {
        let path = at(name);
        let written = format!("{} is written.", path.display());
        until(&mut harness, name, |state| {
            state.notices.iter().any(|notice| notice.words == written)
        });
        let tokens = palette.tokens();
        let (size, ground) = ground(&path);
        assert_eq!(size, (1500, 950));
        assert!(
            [tokens.canvas, tokens.panel].contains(&ground),
            "{name}: {ground:?}"
        );
    }
    // The held input was replayed, and mouse and keys work as before.
    assert_eq!(harness.state().state().look, Colours::Contrast);
    click(&mut harness, "block 0 of kernel_clone");
    harness.get_by_label("Block 0");
}

#[test]
fn go_to_accepts_addresses_and_names_with_offsets() {
    let mut harness = browsing("mmput");
    let catalogue = harness.state().state().catalogue.clone().unwrap();
    let clone = catalogue
        .image()
        .function_named("kernel_clone")
        .unwrap()
        .span
        .start
        .0;
    for typed in [
        "kernel_clone+0x61".to_owned(),
        format!("{:x}", clone + 0x63),
    ] {
        press(&mut harness, Modifiers::NONE, Key::G);
        harness.get_by_label("Go to").type_text(&typed);
        harness.run_steps(3);
        press(&mut harness, Modifiers::NONE, Key::Enter);
        settle(&mut harness);
        let graph = &harness.state().state().graph;
        assert_eq!(graph.scene.as_ref().unwrap().name, "kernel_clone");
        let chosen = graph.selected.unwrap();
        let block = graph
            .scene
            .as_ref()
            .unwrap()
            .cfg
            .block(chosen)
            .unwrap()
            .span;
        assert!(
            block.contains(gilk_engine::Addr(clone + 0x63)),
            "{typed}: {block:?}"
        );
        press(&mut harness, Modifiers::NONE, Key::Escape);
        settle(&mut harness);
    }
}

#[test]
fn the_patch_pane_previews_the_patch_that_is_written() {
    let mut harness = browsing("kernel_clone");
    click(&mut harness, "Patch tab");
    harness.get_by_label("No block selected");
    click(&mut harness, "block 0 of kernel_clone");
    until(&mut harness, "the preview is there", |state| {
        matches!(state.preview.outcome, Some(Ok(_)))
    });
    harness.run_steps(3);
    harness.get_by_label("preview");
    assert!(
        placements(&harness).is_empty(),
        "a preview does not change the session"
    );
    let patch = |harness: &Window| {
        let label = harness
            .query_all_by_label_contains("instructions per hit and the splice, about ")
            .next();
        label.unwrap().accesskit_node().label().unwrap()
    };
    let before = patch(&harness);
    assert!(
        harness.query_all_by_label("rdtsc").next().is_some(),
        "a timestamp reads the clock"
    );
    click(&mut harness, "Add instrument");
    harness.get_by_label("as planned");
    assert_eq!(patch(&harness), before, "the preview equals the plan");
}

#[test]
fn adding_to_every_match_is_one_undo_step() {
    let mut harness = browsing("kernel_clone");
    press(&mut harness, Modifiers::NONE, Key::Slash);
    harness.get_by_label("Filter functions").type_text("^mm");
    until(&mut harness, "the list is filtered", |state| {
        state.functions.answered.as_deref() == Some("^mm")
    });
    let found = harness.state().state().functions.found.len();
    assert!(found > 2);
    command(&mut harness, "entry of every match");
    let placed = placements(&harness);
    assert_eq!(placed.len(), found);
    assert!(
        placed
            .iter()
            .all(|one| one.block == 0 && one.hook == HookType::Pre)
    );
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert!(placements(&harness).is_empty());
}

#[test]
fn a_crashed_window_loses_no_session_and_no_layout() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Start {
        image: Some(crate::support::image_path()),
        function: Some("kernel_clone".into()),
        state: Some(folder.path().to_owned()),
        ..Start::default()
    };
    let mut harness = window(start(), [1500.0, 950.0]);
    until(&mut harness, "the function is open", |state| {
        state.graph.scene.is_some()
    });
    settle(&mut harness);
    click(&mut harness, "block 0 of kernel_clone");
    click(&mut harness, "Add instrument");
    let note = gilk_gui::document::Note {
        at: 1.5,
        run: None,
        text: "here".into(),
    };
    let document = &mut harness.state_mut().state_mut().document;
    document.annotate("write note", |notes| notes.push(note.clone()));
    command(&mut harness, "schedule pane");
    command(&mut harness, "high contrast");
    let own = folder
        .path()
        .join(format!("session-{}.ron", std::process::id()));
    until(&mut harness, "both are saved", |state| {
        let desk = std::fs::read_to_string(folder.path().join("desk.ron"));
        let session = std::fs::read_to_string(&own);
        let named = format!("{:?}", state.look);
        desk.is_ok_and(|desk| desk.contains(&named) && desk.contains("Tabs(1"))
            && session
                .is_ok_and(|session| session.contains("timestamp") && session.contains("here"))
    });
    let session = harness.state().state().document.session().clone();
    std::mem::forget(harness);
    // As if another process had written it and exited.
    std::fs::rename(&own, folder.path().join("session-4294967294.ron")).unwrap();

    let mut harness = window(start(), [1500.0, 950.0]);
    harness.run_steps(3);
    let state = harness.state().state();
    assert_eq!(state.document.session(), &session);
    assert_eq!(state.document.notes(), [note]);
    assert!(state.document.unsaved());
    assert!(state.desk.sees(Pane::Schedule));
    assert_eq!(state.look, Colours::Contrast);
    harness.get_by_label_contains("was restored after a crash");
    harness.state_mut().end();
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "only desk.ron remains"
    );
}
