//! Source lines, by accessibility names.

use crate::support::{
    Window, browsing_in, click, fill, press, run_command, scene, until, until_filtered,
    with_debug_information,
};
use egui::{Key, Modifiers, OutputCommand};
use egui_kittest::kittest::Queryable;

/// Chooses a file in the dialog for debug information.
fn open(harness: &mut Window, path: &std::path::Path) {
    run_command(harness, "open debug information");
    harness
        .get_by_label("Path")
        .type_text(&path.display().to_string());
    harness.run_steps(3);
    press(harness, Modifiers::NONE, Key::Enter);
}

#[test]
fn source_lines_are_shown_and_functions_filtered_by_folder() {
    let (kernel, vmlinux) = with_debug_information();
    let mut harness = browsing_in(kernel, "kernel_clone");
    assert!(harness.query_by_label_contains("source kernel/").is_none());
    fill(&mut harness, "Filter functions", "kernel/");
    until_filtered(&mut harness, "kernel/");
    harness.get_by_label_contains("No source files are known");
    open(&mut harness, &vmlinux);
    until(&mut harness, "every function has its file", |state| {
        state.lines.files.is_some()
    });
    harness.run_steps(6);
    let found = |harness: &Window| harness.state().state().functions.found.to_vec();
    until(&mut harness, "the list is narrowed", |state| {
        state.functions.found.len() == 1
    });
    assert_eq!(found(&harness), [scene(&harness).function()]);
    fill(&mut harness, "Filter functions", "drivers/");
    until_filtered(&mut harness, "drivers/");
    assert_eq!(found(&harness), []);
    fill(&mut harness, "Filter functions", "kernel/ clone");
    until_filtered(&mut harness, "kernel/ clone");
    assert_eq!(found(&harness).len(), 1);

    // The source file does not exist, so the link copies the location.
    click(&mut harness, "block 0 of kernel_clone");
    harness.get_by_label("source kernel/fork.c:2").click();
    harness.step();
    let copied = |harness: &Window| {
        let said = &harness.output().platform_output.commands;
        said.iter()
            .any(|one| matches!(one, OutputCommand::CopyText(text) if text == "kernel/fork.c:2"))
    };
    let mut once = copied(&harness);
    for _ in 0..3 {
        harness.step();
        once |= copied(&harness);
    }
    assert!(once, "the location was copied");
    harness.get_by_label_contains("is not on this machine");
}

#[test]
fn debug_information_of_another_build_is_rejected() {
    let (_, vmlinux) = with_debug_information();
    // The small image has no build identifier.
    let mut harness = browsing_in(crate::support::image_path(), "kernel_clone");
    open(&mut harness, &vmlinux);
    until(&mut harness, "it is refused", |state| {
        let said = state.notices.iter();
        said.clone()
            .any(|one| one.words.contains("has no source lines of this build"))
    });
    assert!(harness.state().state().lines.sources.is_none());
}

#[test]
fn reading_debug_information_shows_progress_and_can_be_stopped() {
    let mut harness = browsing_in(crate::support::image_path(), "kernel_clone");
    until(
        &mut harness,
        "the default locations are searched",
        |state| state.lines.reading.is_none(),
    );
    // A pipe without a writer, so that the read blocks.
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("vmlinux");
    let made = std::process::Command::new("mkfifo").arg(&slow).status();
    assert!(made.unwrap().success());
    open(&mut harness, &slow);
    harness.get_by_label("reading debug information: 0 %");
    click(&mut harness, "Stop reading debug information");
    assert!(
        harness
            .query_by_label_contains("reading debug information:")
            .is_none()
    );
    harness.get_by_label_contains("Stopped reading debug information;");
    // The stopped reader finds that the contents are not a vmlinux, possibly before this is written,
    // and must not report it.
    let _written_or_not = std::fs::write(&slow, b"no kernel");
    harness.run_steps(20);
    assert!(harness.state().state().lines.sources.is_none());
    assert!(
        harness
            .query_by_label_contains("It is not a vmlinux")
            .is_none()
    );
}

#[test]
fn the_listing_links_source_lines_and_instructions() {
    let (kernel, vmlinux) = with_debug_information();
    let source = "int kernel_clone(int n)\n{\n\treturn n + 1;\n}\n";
    let folder = vmlinux.parent().unwrap().join("kernel");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("fork.c"), source).unwrap();
    let mut harness = browsing_in(kernel, "kernel_clone");
    press(&mut harness, Modifiers::NONE, Key::V);
    harness.run_steps(4);
    harness.get_by_label("heading of block 0");
    harness.get_by_label("No source lines");
    open(&mut harness, &vmlinux);
    until(&mut harness, "the lines are known", |state| {
        state.lines.sources.is_some()
    });
    for _ in 0..500 {
        if harness.query_by_label("source line 2: {").is_some() {
            break;
        }
        harness.run_steps(1);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    harness.get_by_label("source line 2: {").click();
    harness.run_steps(3);
    let selected = harness.state().state().graph.selected.unwrap();
    let block = scene(&harness).cfg.block(selected).unwrap().span;
    assert!(block.contains(scene(&harness).cfg.span.start));
    harness.get_by_label("heading of block 1").click();
    harness.run_steps(3);
    assert_eq!(
        harness.state().state().graph.selected.map(|one| one.0),
        Some(1)
    );
    press(&mut harness, Modifiers::NONE, Key::V);
    harness.get_by_label("block 1 of kernel_clone");
}
