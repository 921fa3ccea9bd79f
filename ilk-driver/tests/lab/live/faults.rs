//! Messages for bad input and failures: one clear sentence each.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use gilk_instruments::Library;
use gilk_samples::recording::Recording;
use ilk_driver::client::Connection;
use ilk_driver::lab::Lab;

use crate::support::{ilk, placement, prepared, pulsar, saved, shared};

/// Fails unless a message is one line with the form of a sentence that contains these names.
fn assert_clear(message: &str, names: &[&str]) {
    assert_eq!(message.lines().count(), 1, "{message}");
    for name in names {
        assert!(
            message.contains(name),
            "\"{name}\" is not named in: {message}"
        );
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_second_client_is_refused_and_the_first_is_not_disturbed() {
    let shared = shared();
    let turn = shared.turn();
    let mut first = turn.connect();
    let second = Connection::connect_within(shared.lab.socket(), Duration::from_secs(3))
        .expect_err("the first is connected");
    assert_clear(&second.to_string(), &["Another program"]);
    assert!(first.live_parts(&mut |_, _| ()).is_ok());
    drop(first);
    assert!(Connection::connect(shared.lab.socket()).is_ok());
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_missing_module_is_reported() {
    let prepared = prepared().with(|options| options.load_module = false);
    let lab = Lab::boot(&prepared, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let error = Connection::connect(lab.socket()).expect_err("there is no module");
    assert_clear(&error.to_string(), &["ilk.ko"]);
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_session_with_a_missing_function_is_refused_with_its_name() {
    let shared = shared();
    let turn = shared.turn();
    let layout = turn.connect().info().layout.clone();
    let session = pulsar(
        4.0,
        100,
        vec![placement("kernel_clome", 0, "counter", (0.0, 4.0))],
    );
    let error = gilk_engine::plan::plan(
        &shared.image,
        &session,
        &Library::builtin().unwrap(),
        &layout,
    )
    .expect_err("there is no such function");
    assert_clear(&error.to_string(), &["kernel_clome", "kernel_clone"]);
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_damaged_recording_is_recovered_or_refused_with_its_name() {
    let shared = shared();
    let turn = shared.turn();
    let outcome = turn.run(&pulsar(
        3.0,
        100,
        vec![placement("__x64_sys_clone", 0, "timestamp", (0.0, 3.0))],
    ));
    let whole = std::fs::read(&outcome.recording).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let torn = directory.path().join("torn.arrow");
    // Without its footer the recording is still readable; without its header it is refused.
    std::fs::write(&torn, &whole[..whole.len() - 20]).unwrap();
    let recording = Recording::open(&torn).unwrap_or_else(|error| panic!("{error}"));
    assert!(recording.recovered().is_some());
    let samples = |recording: &Recording| recording.merged().filter(Result::is_ok).count();
    let undamaged = Recording::open(&outcome.recording).unwrap_or_else(|error| panic!("{error}"));
    assert!(undamaged.recovered().is_none() && samples(&undamaged) > 0);
    assert_eq!(samples(&recording), samples(&undamaged));
    let headless = directory.path().join("headless.arrow");
    std::fs::write(&headless, &whole[200..]).unwrap();
    let error = Recording::open(&headless).expect_err("its header is missing");
    assert_clear(&error.to_string(), &["headless.arrow"]);
}

/// Fails unless the last line of `ilk` is one sentence with these names.
fn assert_ilk_refuses(arguments: &[&OsStr], names: &[&str]) {
    let output = ilk().args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(1),
        "ilk {arguments:?} said: {said}"
    );
    let errors: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("ilk: "))
        .collect();
    assert_eq!(errors.len(), 1, "ilk {arguments:?} said: {said}");
    assert_eq!(
        said.lines().last(),
        errors.first().copied(),
        "the error is not the last line"
    );
    assert_clear(errors[0], names);
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn the_terminal_program_prints_the_same_messages() {
    let shared = shared();
    let turn = shared.turn();
    let directory = tempfile::tempdir().unwrap();
    let socket = shared.lab.socket().as_os_str();
    let output = directory.path().join("out.arrow");
    let run = |session: &Path, names: &[&str]| {
        let arguments = [
            "run".as_ref(),
            session.as_os_str(),
            "--socket".as_ref(),
            socket,
            "-o".as_ref(),
            output.as_os_str(),
        ];
        assert_ilk_refuses(&arguments, names);
        assert!(
            !output.exists(),
            "a session that was refused left a recording"
        );
    };
    let missing = saved(
        &pulsar(
            4.0,
            100,
            vec![placement("kernel_clome", 0, "counter", (0.0, 4.0))],
        ),
        directory.path(),
    );
    run(&missing, &["kernel_clome"]);
    let no_block = saved(
        &pulsar(
            4.0,
            100,
            vec![placement("kernel_clone", 9999, "counter", (0.0, 4.0))],
        ),
        directory.path(),
    );
    run(&no_block, &["9999", "kernel_clone"]);
    let nonsense = directory.path().join("nonsense.ron");
    std::fs::write(&nonsense, "Session(version: 1, nmae: \"x\")").unwrap();
    run(&nonsense, &["nonsense.ron"]);
    let damaged = directory.path().join("damaged.arrow");
    std::fs::write(&damaged, b"ARROW1 and then nothing").unwrap();
    let csv = directory.path().join("out.csv");
    assert_ilk_refuses(
        &[
            "export".as_ref(),
            damaged.as_os_str(),
            "--to".as_ref(),
            "csv".as_ref(),
            "-o".as_ref(),
            csv.as_os_str(),
        ],
        &["damaged.arrow"],
    );
    let first = turn.connect();
    run(
        &saved(
            &pulsar(
                4.0,
                100,
                vec![placement("kernel_clone", 0, "counter", (0.0, 4.0))],
            ),
            directory.path(),
        ),
        &["Another program"],
    );
    drop(first);
}
