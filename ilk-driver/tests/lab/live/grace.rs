//! A lost client that resumes its session in time or too late.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gilk_engine::collection::Strategy;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::recording::{MarkKind, Recording};
use ilk_driver::Error;
use ilk_driver::client::{self, Connection};

use super::losses::{assert_balanced, counted_and_sampled, only, session};
use crate::support::{ilk, run, saved, shared};

/// A proxy in front of an agent whose connections can be cut.
struct Way {
    socket: PathBuf,
    through: Mutex<Vec<UnixStream>>,
    open: AtomicBool,
    /// Bytes from the agent.
    heard: AtomicU64,
    _directory: tempfile::TempDir,
}

impl Way {
    fn to(agent: &Path) -> Arc<Self> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("way");
        let listener = UnixListener::bind(&socket).unwrap();
        let way = Arc::new(Self {
            socket,
            through: Mutex::default(),
            open: AtomicBool::new(true),
            heard: AtomicU64::new(0),
            _directory: directory,
        });
        let (own, agent) = (Arc::downgrade(&way), agent.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, Some(way)) = (client.unwrap(), own.upgrade()) else {
                    return;
                };
                if way.open.load(Ordering::SeqCst) {
                    let server = UnixStream::connect(&agent).unwrap();
                    way.carry(&client, &server, |_| ());
                    let heard = Arc::downgrade(&way);
                    way.carry(&server, &client, move |count| {
                        if let Some(way) = heard.upgrade() {
                            way.heard.fetch_add(count as u64, Ordering::SeqCst);
                        }
                    });
                }
            }
        });
        way
    }

    fn carry(&self, from: &UnixStream, to: &UnixStream, carried: impl Fn(usize) + Send + 'static) {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        self.through.lock().unwrap().push(from.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while let Ok(count @ 1..) = from.read(&mut bytes)
                && to.write_all(&bytes[..count]).is_ok()
            {
                carried(count);
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }

    /// Waits until samples come: the agent first plans the session, which takes its time.
    fn wait_for_samples(&self) {
        /// More than all answers before.
        const SAMPLES: u64 = 16 << 10;
        let begun = Instant::now();
        while self.heard.load(Ordering::SeqCst) < SAMPLES {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "no samples come"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn cut(&self) {
        self.open.store(false, Ordering::SeqCst);
        for stream in self.through.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_client_that_reconnects_in_time_completes_its_recording() {
    let shared = shared();
    let turn = shared.turn();
    let way = Way::to(shared.lab.socket());
    let mut session = session(Strategy::Stream, counted_and_sampled());
    session.collection.grace = 20.0;
    // The first cut lasts less than it takes to fill a ring, so no sample may be lost.
    let workload = session.workload.as_mut().unwrap();
    (workload.arguments, workload.start) = (vec!["60".into(), "1000".into()], 1.0);
    let connection = Connection::connect(&way.socket).unwrap();
    let cutter = {
        let way = Arc::clone(&way);
        std::thread::spawn(move || {
            way.wait_for_samples();
            for _ in 0..3 {
                way.cut();
                std::thread::sleep(Duration::from_millis(900));
                way.mend();
                std::thread::sleep(Duration::from_millis(1100));
            }
        })
    };
    let outcome = turn.run_whole(connection, &session);
    cutter.join().unwrap();
    assert!(outcome.total(0) >= 60_000, "{:?}", outcome.said);
    only(assert_balanced(&outcome), |_| ());
    turn.assert_untouched();
}

/// Number of strobe's calls in the next test: some seconds' worth in the lab.
const BURSTS: u64 = 2000;
const CALLS: u64 = 300;

/// Waits until the recording has `more` samples than before, and kills the client.
fn killed(mut client: std::process::Command, recording: &Path, more: u64) {
    let quiet = || std::process::Stdio::null();
    let client = client.stdin(quiet()).stdout(quiet());
    let client = client.stderr(std::process::Stdio::piped());
    let samples = || Recording::open(recording).map_or(0, |recording| recording.samples());
    let before = samples();
    let mut client = client.spawn().unwrap();
    let begin = Instant::now();
    while samples() < before + more {
        if let Some(status) = client.try_wait().unwrap() {
            let said = client.wait_with_output().unwrap().stderr;
            panic!("{status}: {}", String::from_utf8_lossy(&said));
        }
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "no samples arrive"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_killed_clients_session_can_be_resumed_and_completed() {
    let shared = shared();
    let turn = shared.turn();
    let mut session = session(Strategy::Stream, counted_and_sampled());
    session.collection.grace = 60.0;
    session.duration = 12.0;
    for placement in &mut session.placements {
        placement.splash = session.duration;
    }
    let workload = session.workload.as_mut().unwrap();
    workload.arguments = vec![BURSTS.to_string(), CALLS.to_string()];
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("recording.arrow");

    let mut first = ilk();
    first.arg("run").arg(saved(&session, directory.path()));
    first.arg("--socket").arg(shared.lab.socket());
    first.arg("-o").arg(&recording);
    killed(first, &recording, 1);
    let mut second = ilk();
    second.arg("resume").arg(&recording);
    killed(second, &recording, CALLS);

    let (events, heard) = crossbeam_channel::unbounded();
    let stop = ilk_driver::client::StopFlag::new();
    let summary = ilk_driver::client::resume(&recording, None, &events, &stop)
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(heard.try_iter().count() > 2);
    let hits = summary.instruments.iter().find_map(|one| one.total);
    let whole = Recording::open(&recording).unwrap();
    let sampled = whole
        .merged()
        .filter(|one| one.as_ref().unwrap().0 != ALL_CPUS);
    let (sampled, lost) = (sampled.count() as u64, summary.lost_by_cause());
    println!(
        "{hits:?} hits, {sampled} samples, {lost:?}; {:?}",
        summary.workload
    );
    assert!(hits.unwrap() >= BURSTS * CALLS);
    assert_eq!((hits.unwrap(), summary.missing), (sampled + lost.lost(), 0));
    only(lost, |lost| lost.full = 0);
    assert_eq!((whole.recovered(), summary.switches.len()), (None, 2));
    // Each instrument is launched and splashed once, and every loss is recorded once.
    let marks = whole.marks().unwrap();
    let kinds = [MarkKind::Launch, MarkKind::Splash];
    let [launched, splashed] =
        kinds.map(|kind| marks.iter().filter(|mark| mark.kind == kind).count());
    assert_eq!((launched, splashed), (2, 2));
    let losses = whole.losses().unwrap();
    assert_eq!(
        losses.iter().map(|loss| loss.count).sum::<u64>(),
        lost.lost()
    );
    let again = ilk_driver::client::resume(&recording, None, &events, &stop);
    assert!(
        matches!(again, Err(Error::NothingToResume { .. })),
        "{again:?}"
    );
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_client_that_reconnects_too_late_leaves_no_splice() {
    let shared = shared();
    let turn = shared.turn();
    let way = Way::to(shared.lab.socket());
    let mut session = session(Strategy::Stream, counted_and_sampled());
    session.collection.grace = 3.0;
    session.duration = 600.0;
    let mut connection = Connection::connect(&way.socket).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("recording.arrow");
    let cutter = {
        let (way, recording) = (Arc::clone(&way), recording.clone());
        std::thread::spawn(move || {
            let begun = Instant::now();
            while Recording::open(&recording).map_or(0, |recording| recording.samples()) == 0 {
                let waited = begun.elapsed();
                assert!(waited < Duration::from_secs(120), "no samples come");
                std::thread::sleep(Duration::from_millis(10));
            }
            let lost = Instant::now();
            way.cut();
            lost
        })
    };
    let (_, outcome) = run(&mut connection, &shared.image, &session, &recording);
    let lost = cutter.join().unwrap();
    assert!(
        matches!(outcome, Err(Error::LostRecording { .. })),
        "{outcome:?}"
    );
    assert!(Recording::open(&recording).unwrap().samples() > 0);
    // Other clients are refused with the remaining time until then.
    let mut remaining = 4;
    loop {
        match Connection::connect(shared.lab.socket()) {
            Ok(_) => break,
            Err(Error::Busy { by, .. }) => {
                let (_, rest) = by
                    .split_once("client was lost continues for ")
                    .unwrap_or_else(|| panic!("{by}"));
                let seconds = rest.split(' ').next().unwrap().parse().unwrap();
                assert!((1..=remaining).contains(&seconds), "{by}");
                remaining = seconds;
            }
            Err(other) => panic!("{other}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(lost.elapsed() > Duration::from_secs(3));
    turn.assert_untouched();
}

/// Shows a session during its run and after the loss of its client, and ends it.
#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_session_without_a_client_is_shown_and_ended() {
    let shared = shared();
    let turn = shared.turn();
    let mut session = session(Strategy::Stream, counted_and_sampled());
    session.collection.grace = 120.0;
    session.duration = 120.0;
    for placement in &mut session.placements {
        placement.splash = 120.0;
    }
    let way = Way::to(shared.lab.socket());
    let mut connection = Connection::connect(&way.socket).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let recording = recording_of(&directory);
    let runner = std::thread::spawn({
        let image = shared.image.clone();
        move || run(&mut connection, &image, &session, &recording).1
    });
    // A port has a single client, so the state is looked at when that is lost.
    let samples = || Recording::open(recording_of(&directory)).map_or(0, |it| it.merged().count());
    let begun = Instant::now();
    while samples() == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no sample arrived"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    way.cut();
    let status = loop {
        let status = client::status(shared.lab.socket()).unwrap();
        if status.parked.is_some() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{status:?}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(status.splices > 0, "{status:?}");
    let shown: u32 = status.functions.iter().map(|one| one.splices).sum();
    assert_eq!(shown, status.splices);
    let refused = Connection::connect(shared.lab.socket())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("ilk stop"), "{refused}");
    let mut stop = ilk();
    stop.args(["stop", "--socket"]).arg(shared.lab.socket());
    let output = stop.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let status = client::status(shared.lab.socket()).unwrap();
    assert_eq!((status.parked, status.splices), (None, 0));
    let nothing = client::end(shared.lab.socket()).unwrap_err().to_string();
    assert!(nothing.contains("nothing to end"), "{nothing}");
    way.mend();
    assert!(runner.join().unwrap().is_err());
    turn.assert_untouched();
}

fn recording_of(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("parked.arrow")
}
