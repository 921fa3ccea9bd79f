//! Source lines, by the names of things.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where something is not as it should be"
)]

mod support;

use egui::{Key, Modifiers, OutputCommand};
use egui_kittest::kittest::Queryable;
use support::{
    Window, browsing_in, click, fill, press, say, scene, until, until_filtered,
    with_debug_information,
};

/// Chooses a file in the dialog for debug information.
fn open(harness: &mut Window, path: &std::path::Path) {
    say(harness, "open debug information");
    harness
        .get_by_label("Path")
        .type_text(&path.display().to_string());
    harness.run_steps(3);
    press(harness, Modifiers::NONE, Key::Enter);
}

#[test]
fn lines_of_source_are_shown_and_functions_found_by_folder() {
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

    // The file is gone, so what the link has is copied.
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
    assert!(once, "the place was copied");
    harness.get_by_label_contains("is not on this machine");
}

#[test]
fn debug_information_of_another_build_is_refused_with_its_name() {
    let (_, vmlinux) = with_debug_information();
    // The small image as it is tells no identifier.
    let mut harness = browsing_in(support::image_path(), "kernel_clone");
    open(&mut harness, &vmlinux);
    until(&mut harness, "it is refused", |state| {
        let said = state.notices.iter();
        said.clone().any(|one| {
            one.words
                .contains("does not tell this kernel's source lines")
        })
    });
    assert!(harness.state().state().lines.sources.is_none());
}

#[test]
fn how_far_reading_is_can_be_seen_and_it_can_be_stopped() {
    let mut harness = browsing_in(support::image_path(), "kernel_clone");
    until(&mut harness, "the usual places are looked at", |state| {
        state.lines.reading.is_none()
    });
    // A file that gives nothing yet: nobody has begun to write into it.
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
    harness.get_by_label_contains("Reading debug information was stopped;");
    // What comes of it now is nobody's: whoever reads it finds that it is no file, perhaps before this
    // is written.
    let _written_or_not = std::fs::write(&slow, b"no kernel");
    harness.run_steps(20);
    assert!(harness.state().state().lines.sources.is_none());
    assert!(
        harness
            .query_by_label_contains("It is no vmlinux")
            .is_none()
    );
}
