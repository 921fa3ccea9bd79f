//! A function of a process is replaced by a function of an object file.

use std::path::{Path, PathBuf};
use std::process::Command;

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_gui::args::Start;

use crate::processes::{PATIENCE, read};
use crate::starting::{Starting, begin, end, no_trouble};
use crate::support::{
    Window, click, fill, placements, press, run_command, scroll_to, settle, until, until_filtered,
    until_open, until_within, window,
};

/// Prints the price of 7 at each line.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int price(int x) { return getppid() < 0 ? -1 : x * 3 + 1; }
int main(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        printf("%d\n", price(7));
        fflush(stdout);
    }
    return 0;
}
"#;

/// Replacements that call the original.
const OBJECT: &str = r#"
#include "gilk.h"
GILK_INSTRUMENT("raised replaces: Adds 1000 to a price.");
int raised_original(int x);
int raised(int x) { return raised_original(x) + 1000; }
GILK_INSTRUMENT("free-of-charge replaces: Prices are 0.");
int free_of_charge(int x) { return 0 * x; }
"#;

fn compiled(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (text, output) = (folder.join(name).with_extension("c"), folder.join(name));
    std::fs::write(&text, source).unwrap();
    let native = concat!(env!("CARGO_MANIFEST_DIR"), "/../instruments/native");
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(["-O2", "-I", native, "-o"]).arg(&output);
    assert!(
        compiler
            .args(options)
            .arg(&text)
            .status()
            .unwrap()
            .success()
    );
    output
}

/// Opens an object file, and accepts the risk.
fn open_natives(harness: &mut Window, object: &Path) {
    run_command(harness, "open native instruments");
    fill(harness, "Path", &object.display().to_string());
    press(harness, Modifiers::NONE, Key::Enter);
    until(harness, "the file is read", |state| state.natives.is_some());
    harness.run_steps(3);
    harness.get_by_label_contains("or in the process that is the target");
    click(harness, "Use native instruments");
}

fn open_function(harness: &mut Window, function: &str) {
    fill(harness, "Filter functions", &format!("^{function}$"));
    until_filtered(harness, &format!("^{function}$"));
    press(harness, Modifiers::NONE, Key::Enter);
    until_open(harness, function);
    settle(harness);
}

fn replace_by(harness: &mut Window, choice: &str) {
    while harness.query_by_label("Dismiss message").is_some() {
        click(harness, "Dismiss message");
    }
    scroll_to(harness, "Replaced by");
    click(harness, "Replaced by");
    click(harness, &format!("replace by {choice}"));
    settle(harness);
}

fn until_planned(harness: &mut Window) {
    until_within(harness, PATIENCE, "it can be run", |state| {
        no_trouble(state);
        state.run_hindrance().is_none()
    });
}

fn instruments(harness: &Window) -> Vec<String> {
    let all = placements(harness).iter();
    all.map(|one| one.instrument.to_string()).collect()
}

fn opened(process: &Starting, session: Option<PathBuf>) -> Window {
    let start = Start {
        pid: Some(process.pid()),
        session,
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 1000.0]);
    read(&mut harness);
    harness
}

#[test]
fn a_function_of_a_process_is_replaced_until_the_run_ends() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "pricing", PROGRAM, &[]);
    let object = compiled(folder.path(), "own.o", OBJECT, &["-c", "-fPIC"]);
    let mut process = Starting::of(&program);
    let mut harness = opened(&process, None);
    open_function(&mut harness, "price");
    assert!(harness.query_by_label("Replaced by").is_none());
    open_natives(&mut harness, &object);
    settle(&mut harness);

    // A choice is a step, and another takes its place.
    replace_by(&mut harness, "free-of-charge");
    assert_eq!(instruments(&harness), ["free-of-charge"]);
    replace_by(&mut harness, "raised");
    assert_eq!(instruments(&harness), ["raised"]);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert_eq!(instruments(&harness), ["free-of-charge"]);
    press(&mut harness, Modifiers::COMMAND, Key::Z);
    assert!(instruments(&harness).is_empty());
    press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    press(&mut harness, Modifiers::COMMAND | Modifiers::SHIFT, Key::Z);
    assert_eq!(instruments(&harness), ["raised"]);
    until_planned(&mut harness);

    // The originals are called before and after each of two runs.
    fill(&mut harness, "Session duration", "600");
    until_planned(&mut harness);
    for name in ["first.arrow", "second.arrow"] {
        process.does("price", "22");
        begin(&mut harness, &folder.path().join(name));
        process.does("price", "1022");
        process.does("price", "1022");
        let (counted, ended) = end(&mut harness);
        assert!(counted.is_empty(), "{counted:?}");
        process.does("price", "22");
        let says = format!(
            "{} replaced are called again; it stays mapped, ",
            object.display()
        );
        assert!(ended.contains(&says), "{ended}");
        let notices = &harness.state().state().notices;
        assert!(
            notices.iter().any(|one| one.words.contains(&says)),
            "{notices:?}"
        );
    }

    // The saved session has it. The object file is opened again in each window.
    press(&mut harness, Modifiers::COMMAND, Key::S);
    let session = folder.path().join("pricing.ron");
    fill(&mut harness, "Path", &session.display().to_string());
    click(&mut harness, "Save");
    until(&mut harness, "it is saved", |state| {
        !state.document.unsaved()
    });
    let mut again = opened(&process, Some(session));
    until(&mut again, "it is refused", |state| {
        let why = state.run_hindrance();
        why.is_some_and(|why| why.contains("raised"))
    });
    open_natives(&mut again, &object);
    until_planned(&mut again);
    begin(&mut again, &folder.path().join("again.arrow"));
    process.does("price", "1022");
    end(&mut again);
    process.does("price", "22");
}

#[test]
fn a_function_is_not_replaced_if_its_callers_rely_on_more_than_the_convention() {
    let folder = tempfile::tempdir().unwrap();
    let source = PROGRAM.replace("getppid() < 0 ? -1 : x * 3 + 1", "x * 3 + 1");
    let program = compiled(folder.path(), "pricing", &source, &[]);
    let object = compiled(folder.path(), "own.o", OBJECT, &["-c", "-fPIC"]);
    let mut process = Starting::of(&program);
    let mut harness = opened(&process, None);
    open_function(&mut harness, "price");
    open_natives(&mut harness, &object);
    settle(&mut harness);
    replace_by(&mut harness, "raised");
    until(&mut harness, "it is refused", |state| {
        let why = state.run_hindrance();
        why.is_some_and(|why| why.contains("not-replaceable"))
    });
    process.does("price", "22");
}
