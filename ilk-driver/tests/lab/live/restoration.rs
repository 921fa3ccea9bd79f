//! Restoration of the text, for every way in which a session can end.

use std::process::Stdio;
use std::time::{Duration, Instant};

use gilk_engine::Session;
use gilk_engine::cfg::Cfg;
use gilk_engine::placement::options;
use gilk_engine::session::Workload;
use gilk_samples::recording::Recording;
use ilk_driver::client::Connection;

use crate::support::{Shared, ilk, placement, pulsar, run, run_to_its_end, saved, shared};

/// Functions that execute all the time: the idle loop's timers and the agent's system calls pass
/// through some of them.
const BUSY: [&str; 5] = [
    "kernel_clone",
    "ksys_read",
    "vfs_write",
    "do_nanosleep",
    "hrtimer_start_range_ns",
];

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn text_is_restored_when_the_agent_is_killed() {
    let shared = shared();
    let turn = shared.turn();
    let workload = Workload {
        program: "/bin/killall".into(),
        arguments: vec!["-9".into(), "ilk".into()],
        start: 1.5,
    };
    let session = Session {
        name: "a lost agent".into(),
        duration: 60.0,
        workload: Some(workload),
        placements: everywhere(&shared, 60.0),
        ..Session::empty()
    };
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("lost.arrow");
    let mut connection = turn.connect();
    let (_, outcome) = run(&mut connection, &shared.image, &session, &recording);
    let error = outcome.expect_err("the agent was killed").to_string();
    // The connection must report the agent's end; its silence is detected much later.
    assert!(!error.contains("it sent nothing"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    drop(connection);
    turn.assert_untouched();
    let console = shared.lab.console().unwrap();
    assert!(
        console.contains("the agent ended with status 137"),
        "{console}"
    );
    // The samples that had arrived are readable.
    let kept = Recording::open(&recording).unwrap().merged().count();
    assert!(
        kept > 0 && error.contains(&kept.to_string()),
        "{kept} samples were kept, but the error is: {error}"
    );
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn text_is_restored_when_the_session_is_stopped() {
    let shared = shared();
    let turn = shared.turn();
    let session = Session {
        name: "a stopped session".into(),
        duration: 60.0,
        placements: everywhere(&shared, 60.0),
        ..Session::empty()
    };
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("stopped.arrow");
    let stop = ilk_driver::client::StopFlag::new();
    let mut connection = turn.connect();
    std::thread::scope(|scope| {
        let (events, heard) = crossbeam_channel::unbounded();
        let (flag, image, client) = (stop.clone(), &shared.image, &mut connection);
        scope.spawn(move || {
            let library = gilk_instruments::Library::builtin().unwrap();
            let plan =
                gilk_engine::plan::plan(image, &session, &library, &client.info().layout).unwrap();
            let verified = gilk_engine::verify::verify(image, plan).unwrap();
            let summary = client
                .run(&verified, &session, &recording, &events, &flag)
                .unwrap();
            assert!(summary.stopped && summary.missing == 0, "{summary:?}");
        });
        let switched = heard
            .iter()
            .any(|event| matches!(event, ilk_driver::client::Event::Switched(_)));
        assert!(switched, "the session never began");
        stop.stop();
    });
    drop(connection);
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn text_is_restored_when_the_client_is_killed() {
    let shared = shared();
    let turn = shared.turn();
    let session = Session {
        name: "a lost client".into(),
        duration: 60.0,
        placements: everywhere(&shared, 60.0),
        ..Session::empty()
    };
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("lost.arrow");
    let mut client = ilk();
    client
        .arg("run")
        .arg(saved(&session, directory.path()))
        .arg("--socket")
        .arg(shared.lab.socket())
        .arg("-o")
        .arg(&recording);
    let mut client = client
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let samples = || Recording::open(&recording).map_or(0, |recording| recording.merged().count());
    while samples() == 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(40),
            "no sample arrived; the client: {:?}",
            client.try_wait()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    client.kill().unwrap();
    client.wait().unwrap();
    turn.assert_untouched();
    // The samples that had arrived are readable: the file needs no footer.
    assert!(samples() > 0);
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn consecutive_sessions_work() {
    let shared = shared();
    let turn = shared.turn();
    let mut connection: Connection = turn.connect();
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let session = pulsar(
            3.0,
            50,
            vec![
                placement("__x64_sys_clone", 0, "timestamp", (0.0, 3.0)),
                placement("__x64_sys_clone", 0, "counter", (0.0, 3.0)),
            ],
        );
        let (_, outcome) = run_to_its_end(
            &mut connection,
            &shared.image,
            &session,
            &directory.path().join(format!("{round}.arrow")),
        );
        let (summary, said) = outcome.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(summary.taken, 160, "round {round}: {said:?}");
        assert_eq!(
            summary
                .instruments
                .iter()
                .find_map(|instrument| instrument.total),
            Some(160),
            "round {round}"
        );
    }
    drop(connection);
    turn.assert_untouched();
}

/// Returns a timestamp before every block of the busy functions with a pre-hook.
fn everywhere(shared: &Shared, duration: f64) -> Vec<gilk_engine::session::Placement> {
    let mut placements = Vec::new();
    for name in BUSY {
        let Ok(function) = shared.image.function_named(name) else {
            continue;
        };
        let cfg = Cfg::of(&shared.image, function.id);
        let hooked = options(&shared.image, &cfg)
            .into_iter()
            .filter(|option| option.pre.is_ok());
        placements.extend(
            hooked.map(|option| placement(name, option.block.0, "timestamp", (0.0, duration))),
        );
    }
    assert!(
        placements.len() > 30,
        "only {} blocks can be hooked",
        placements.len()
    );
    placements
}
