//! A process and the kernel beside it, by mouse and keys: the way of a system call from `libc.so.6:write` to `vfs_write`
//! and back. A run of both is tested in the lab (`live::both`), since the lab's kernel is not that of the tests' processes.

use std::path::Path;

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable;
use gilk_engine::{HookType, InstrumentId, Session};
use gilk_gui::args::Start;
use gilk_gui::questions::Question;
use gilk_gui::state::TargetState;
use gilk_samples::beside::Beside;
use gilk_samples::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata};
use gilk_samples::recording::{Recording, Writer};
use gilk_samples::{Batch, Meaning, Sample};
use ilk_driver::lab::{Lab, Options, prepare};

use crate::processes::{Cat, PATIENCE};
use crate::starting::{begin, end};
use crate::support::{
    Window, click, fill, press, run_command, scroll_to, settle, until, until_filtered, until_open,
    until_within, window,
};

const SESSION: &str = r#"(version: 1, name: "writes", duration: 600.0, placements: [
    (function: "libc.so.6:write", block: 0, hook: Pre, instrument: "timestamp", launch: 0.0, splash: 600.0)],
    kernel: Some((placements: [
    (function: "vfs_write", block: 0, hook: Pre, instrument: "sizes", launch: 0.0, splash: 600.0)],
    sources: {"sizes": "instrument sizes \"Sizes.\";\nhit { sample(arg2) }"})))"#;

/// Opens a process, and adds the kernel of a socket.
fn with_kernel(start: Start, socket: &Path) -> Window {
    let mut harness = window(start, [1500.0, 950.0]);
    until_within(&mut harness, PATIENCE, "the process is read", |state| {
        matches!(state.target, TargetState::Ready(_))
    });
    settle(&mut harness);
    run_command(&mut harness, "add machines");
    fill(&mut harness, "Path", &socket.display().to_string());
    harness.get_by_label("Connect").click();
    harness.run_steps(3);
    assert!(harness.state().state().is_pair());
    harness
}

/// Saves the session, and reads its file.
fn saved(harness: &mut Window, path: &Path) -> Session {
    press(harness, Modifiers::COMMAND, Key::S);
    until(harness, "the session is saved", |state| {
        !state.document.unsaved()
    });
    Session::from_ron(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_session_of_a_process_and_its_kernel_loses_neither_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("writes.ron");
    std::fs::write(&path, SESSION).unwrap();
    let opened = Session::from_ron(SESSION).unwrap();
    let cat = Cat::start();
    let start = Start {
        pid: Some(cat.pid()),
        session: Some(path.clone()),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until_within(&mut harness, PATIENCE, "the process is read", |state| {
        matches!(state.target, TargetState::Ready(_)) && state.document.path().is_some()
    });
    settle(&mut harness);
    let hindrance = |harness: &Window| harness.state().state().run_hindrance().unwrap();
    let alone = hindrance(&harness);
    assert!(
        alone.contains("1 instrument in the kernel beside a process, too"),
        "{alone}"
    );
    fill(&mut harness, "Session name", "renamed");
    let alone = saved(&mut harness, &path);
    assert_eq!(
        alone,
        Session {
            name: "renamed".to_owned(),
            ..opened.clone()
        }
    );

    // An agent that does not answer: the kernel's part is kept, and the run waits for it.
    run_command(&mut harness, "add machines");
    fill(&mut harness, "Path", "/nowhere/ilk.sock");
    harness.get_by_label("Connect").click();
    until(&mut harness, "the kernel is lost", |state| {
        let mut others = state.machines.others.iter();
        others.any(|one| matches!(one.target, TargetState::Lost(_)))
    });
    harness.run_steps(3);
    harness.get_by_label(&format!("target process {}: 1 instrument", cat.pid()));
    harness.get_by_label("target kernel: lost");
    assert!(hindrance(&harness).contains("is lost"));
    fill(&mut harness, "Session name", "writes");
    assert_eq!(saved(&mut harness, &path), opened);
}

/// Without an agent each step says what is missing, and the process is measured without its kernel.
#[test]
fn without_an_agent_each_step_names_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut cat = Cat::start();
    let start = Start {
        pid: Some(cat.pid()),
        ..Start::default()
    };
    let socket = folder.path().join("ilk.sock");
    let mut harness = with_kernel(start, &socket);
    until(&mut harness, "the kernel is lost", |state| {
        let mut others = state.machines.others.iter();
        others.any(|one| matches!(one.target, TargetState::Lost(_)))
    });
    harness.run_steps(3);
    let last = |harness: &Window| {
        let notices = &harness.state().state().notices;
        notices.last().unwrap().words.clone()
    };
    let lost = last(&harness);
    assert!(
        lost.contains("No agent listens") && lost.contains("sudo ilk agent"),
        "{lost}"
    );
    click(&mut harness, "show kernel");
    assert!(!harness.state().state().shows_kernel_beside());
    let shown = last(&harness);
    assert!(
        shown.starts_with("The kernel is lost: No agent listens"),
        "{shown}"
    );

    run_command(
        &mut harness,
        Question::FrequentFunctions.text().trim_end_matches('?'),
    );
    until(&mut harness, "the session is made", |state| {
        state.document.session().name == "frequent-functions"
    });
    settle(&mut harness);
    let why = harness.state().state().run_hindrance().unwrap();
    assert!(
        why.contains("The kernel is lost; reconnect, or remove"),
        "{why}"
    );
    assert!(
        why.contains(&format!("measure the process {} alone", cat.pid())),
        "{why}"
    );
    let name = harness.state().state().machines.others[0].name();
    click(&mut harness, &format!("remove {name}"));
    until_within(
        &mut harness,
        PATIENCE,
        "the process is measured alone",
        |state| state.run_hindrance().is_none(),
    );
    begin(&mut harness, &folder.path().join("alone.arrow"));
    cat.copy("counted");
    let (counts, _) = end(&mut harness);
    assert!(!counts.is_empty());
}

/// A recording of one side of a run: samples of one instrument, by time.
fn side(path: &Path, label: &str, function: &str, times: [u64; 2]) -> Recording {
    let id = InstrumentId::new(0, HookType::Pre, 0, 0).unwrap().pack();
    let metadata = Metadata {
        session: Session::empty().to_ron().unwrap(),
        cpus: 1,
        clock: Clock {
            hz: 1_000_000,
            start: 0,
            start_unix_ns: 0,
        },
        functions: vec![FunctionInfo {
            major: 0,
            name: function.to_owned(),
            address: 0,
            blocks: Vec::new(),
            edges: Vec::new(),
        }],
        instruments: vec![InstrumentInfo {
            id,
            label: label.to_owned(),
            instrument: "timestamp".into(),
            meaning: Meaning::Event,
            unit: String::new(),
            launch: 0.0,
            splash: 10.0,
            placed: None,
            delivers: Delivers::Samples,
        }],
        ..Metadata::default()
    };
    let mut writer = Writer::create(path, &metadata).unwrap();
    let samples = times.map(|tsc| Sample { id, value: 0, tsc }).to_vec();
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    writer.finish().unwrap();
    Recording::open(path).unwrap()
}

#[test]
fn a_recording_of_both_has_lanes_named_by_their_target() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let kernel = "timestamp pre vfs_write block 0";
    let process = "timestamp pre libc.so.6:write block 0";
    let both = [
        (
            "kernel".to_owned(),
            side(&at("kernel.arrow"), kernel, "vfs_write", [200, 500]),
        ),
        (
            "process 123".to_owned(),
            side(&at("process.arrow"), process, "libc.so.6:write", [100, 400]),
        ),
    ];
    let session = Session::from_ron(SESSION).unwrap();
    let both = Beside::new(both).unwrap();
    let both = both.of_session(session.to_ron().unwrap());
    both.write(&at("both.arrow")).unwrap();

    let start = Start {
        recording: Some(at("both.arrow")),
        ..Start::default()
    };
    let mut harness = window(start, [1500.0, 950.0]);
    until(&mut harness, "the recording is open", |state| {
        let record = state.timeline.record.as_ref();
        record.is_some_and(|record| record.index.look().samples() == 4)
    });
    harness.run_steps(3);
    harness.get_by_label_contains(&format!("lane kernel: {kernel}: 2"));
    harness.get_by_label_contains(&format!("lane process 123: {process}: 2"));
}

mod live {
    use super::*;

    /// Opens a function from the list, and adds the inspector's instrument where it is entered and where it returns.
    fn place(harness: &mut Window, function: &str) {
        fill(harness, "Filter functions", &format!("^{function}$"));
        until_filtered(harness, &format!("^{function}$"));
        press(harness, Modifiers::NONE, Key::Enter);
        until_open(harness, function);
        settle(harness);
        run_command(harness, "add to function entry");
        run_command(harness, "add to every return");
        settle(harness);
    }

    #[test]
    #[ignore = "boots the lab; cargo xtask test runs it"]
    fn a_system_call_is_followed_from_the_c_library_into_the_kernel_and_back() {
        let prepared = prepare(&Options::default(), &mut |_| ()).unwrap();
        let lab = Lab::boot(&prepared, &mut |_| ()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut cat = Cat::start();
        let start = Start {
            pid: Some(cat.pid()),
            ..Start::default()
        };
        let process = format!("process {}", cat.pid());
        let mut harness = with_kernel(start, lab.socket());
        until_within(&mut harness, PATIENCE, "the kernel is read", |state| {
            let others = &state.machines.others;
            matches!(others[0].target, TargetState::Ready(_)) && others[0].catalogue.is_some()
        });
        harness.run_steps(3);

        place(&mut harness, "libc.so.6:write");
        let of_process = harness.state().state().document.session().placements.len();
        assert!(of_process >= 2);
        click(&mut harness, "show kernel");
        assert!(harness.state().state().shows_kernel_beside());
        place(&mut harness, "vfs_write");
        let of_kernel = harness.state().state().document.session().placements.len();
        harness.get_by_label(&format!("target kernel: {of_kernel} instruments"));
        harness.get_by_label(&format!("target {process}: {of_process} instruments"));
        click(&mut harness, &format!("show {process}"));
        until_open(&mut harness, "libc.so.6:write");
        settle(&mut harness);
        until_within(&mut harness, PATIENCE, "both are planned", |state| {
            state.run_hindrance().is_none()
        });

        // Both parts are in one file, of any process.
        press(&mut harness, Modifiers::COMMAND, Key::S);
        let path = folder.path().join("writes.ron");
        fill(&mut harness, "Path", &path.display().to_string());
        click(&mut harness, "Save");
        let session = saved(&mut harness, &path);
        let kernel = session.of_kernel().unwrap();
        assert_eq!(
            (session.placements.len(), kernel.placements.len()),
            (of_process, of_kernel)
        );
        assert!(
            session
                .placements
                .iter()
                .all(|one| &*one.function == "libc.so.6:write")
        );
        assert!(
            kernel
                .placements
                .iter()
                .all(|one| &*one.function == "vfs_write")
        );
        assert!(kernel.sources.is_empty());

        // The lab's kernel is another machine's, so that its times would be of another clock.
        let recording = folder.path().join("writes.arrow");
        scroll_to(&mut harness, "Recording path");
        fill(
            &mut harness,
            "Recording path",
            &recording.display().to_string(),
        );
        let typed = harness.state().state().run.recording_path("");
        assert_eq!(typed, recording);
        harness.get_by_label("Run session").click();
        harness.run_steps(2);
        until_within(&mut harness, PATIENCE, "the run has ended", |state| {
            state.run.active.is_none()
        });
        let notices = &harness.state().state().notices;
        let mut words = notices.iter().map(|notice| &notice.words);
        assert!(
            words.any(|words| words.starts_with(&process) && words.contains("of another machine")),
            "{notices:?}"
        );
        // What the kernel's side recorded is not lost.
        assert!(!recording.exists());
        let parts = recording.with_extension("parts");
        let shown = parts.display().to_string();
        assert!(notices.iter().any(|notice| notice.words.contains(&shown)));
        let kernel = Recording::open(parts.join("kernel.arrow")).unwrap();
        assert_eq!(kernel.metadata().instruments.len(), of_kernel);
        cat.copy("still the same program");
        harness.state_mut().end();
    }
}
