//! Native instruments and the plan's notes, by accessibility names.

use crate::support::{browsing, click, placements, press, run_command, scene, settle, until};
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_engine::cfg::BlockEnd;
use gilk_instruments::Native;

/// Compiles the repository's example.
fn object() -> std::path::PathBuf {
    let native = concat!(env!("CARGO_MANIFEST_DIR"), "/../instruments/native");
    let object = tempfile::tempdir().unwrap().keep().join("example.o");
    let done = std::process::Command::new("gcc")
        .args(Native::C_FLAGS)
        .arg(format!("-I{native}"))
        .arg(format!("{native}/example.c"))
        .arg("-o")
        .arg(&object)
        .status()
        .unwrap();
    assert!(done.success());
    object
}

#[test]
fn native_instruments_are_used_after_confirmation() {
    let object = object();
    let mut harness = browsing("kernel_clone");
    let open = |harness: &mut crate::support::Window| {
        run_command(harness, "open native instruments");
        harness
            .get_by_label("Path")
            .type_text(&object.display().to_string());
        harness.run_steps(3);
        press(harness, Modifiers::NONE, Key::Enter);
        until(harness, "the file is read", |state| state.natives.is_some());
        harness.run_steps(3);
        harness.get_by_label_contains("can crash the machine");
    };
    open(&mut harness);
    click(&mut harness, "Cancel");
    assert!(harness.state().state().definition("pages").is_none());
    // Twice: a newer build replaces the older.
    for _ in 0..2 {
        open(&mut harness);
        click(&mut harness, "Use native instruments");
    }
    click(&mut harness, "Instruments tab");
    crate::support::fill(&mut harness, "Filter instruments", "pages");
    click(&mut harness, "instrument pages");
    click(&mut harness, "block 1 of kernel_clone");
    click(&mut harness, "Add instrument");
    settle(&mut harness);
    assert_eq!(&*placements(&harness)[0].instrument, "pages");
    let state = harness.state().state();
    let plan = state.plan.outcome.as_ref().unwrap();
    assert!(plan.is_ok(), "{:?}", plan.as_ref().err());
}

#[test]
fn files_that_are_not_object_files_are_rejected_with_a_reason() {
    let mut harness = browsing("kernel_clone");
    run_command(&mut harness, "open native instruments");
    let path = crate::support::image_path();
    harness
        .get_by_label("Path")
        .type_text(&path.display().to_string());
    harness.run_steps(3);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    until(&mut harness, "it is refused", |state| {
        state
            .notices
            .iter()
            .any(|one| one.words.contains("fork.image"))
    });
    assert!(harness.state().state().natives.is_none());
}

#[test]
fn notes_of_the_plan_are_shown_at_their_block() {
    // A function that ends in a jump to another.
    let catalogue = crate::support::catalogue();
    let image = catalogue.image();
    let (name, jump) = image
        .functions()
        .iter()
        .filter(|one| image.keeps_convention(one.span.start))
        .find_map(|one| {
            let cfg = gilk_engine::cfg::Cfg::of(image, one.id);
            let hookable = gilk_engine::placement::options(image, &cfg);
            let jump =
                cfg.blocks.iter().zip(hookable).find(|(block, options)| {
                    block.end == BlockEnd::TailCall && options.post.is_ok()
                })?;
            Some((catalogue.name(one.id)?.to_owned(), jump.0.index))
        })
        .unwrap();
    let mut harness = browsing(&name);
    click(&mut harness, "Instruments tab");
    let name = scene(&harness).name.clone();
    click(&mut harness, &format!("block {} of {name}", jump.0));
    assert!(harness.query_by_label_contains("note:").is_none());
    crate::support::fill(&mut harness, "Filter instruments", "elapsed");
    click(&mut harness, "instrument elapsed");
    settle(&mut harness);
    // A preview has the note, too.
    harness.get_by_label_contains("note: elapsed ends where");
    run_command(&mut harness, "add to function entry");
    settle(&mut harness);
    click(&mut harness, &format!("block {} of {name}", jump.0));
    let state = harness.state().state();
    assert!(
        !state.plan.notes().is_empty(),
        "{:?}",
        state.plan.outcome.as_ref().map(|plan| plan.as_ref().err())
    );
    assert!(
        harness
            .query_all_by_label_contains("note: elapsed ends where")
            .count()
            > 0
    );
}
