//! An agent on a forwarded socket: connected, lost during a session, and reconnected.

mod live {
    use std::net::Shutdown;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use egui_kittest::kittest::Queryable;
    use gilk_gui::state::{State, TargetState};
    use gilk_samples::recording::Recording;
    use ilk_driver::lab::{Lab, Options, prepare};

    use crate::support::{
        Window, click, fill, run_command, settle, until, until_within, window_of_session,
    };

    const MINUTES: Duration = Duration::from_secs(900);

    /// A socket forwarded to another, as by `ssh -L`, so that a client does not share memory with
    /// the agent.
    struct Forward {
        path: PathBuf,
        ends: Arc<Mutex<Vec<UnixStream>>>,
    }

    impl Forward {
        fn open(path: &Path, to: &Path) -> Self {
            let listener = UnixListener::bind(path).unwrap();
            let ends = Arc::new(Mutex::new(Vec::new()));
            let (kept, to) = (Arc::clone(&ends), to.to_owned());
            std::thread::spawn(move || {
                for here in listener.incoming().flatten() {
                    let Ok(there) = UnixStream::connect(&to) else {
                        break;
                    };
                    for (from, into) in [(&here, &there), (&there, &here)] {
                        let (mut from, mut into) =
                            (from.try_clone().unwrap(), into.try_clone().unwrap());
                        std::thread::spawn(move || {
                            let _until_it_ends = std::io::copy(&mut from, &mut into);
                            let _closed_or_not = into.shutdown(Shutdown::Both);
                        });
                    }
                    kept.lock().unwrap().extend([here, there]);
                }
            });
            Self {
                path: path.to_owned(),
                ends,
            }
        }

        /// Closes the connection, like a pulled cable.
        fn cut(self) {
            std::fs::remove_file(&self.path).unwrap();
            for end in self.ends.lock().unwrap().drain(..) {
                let _closed_or_not = end.shutdown(Shutdown::Both);
            }
        }
    }

    fn ready(harness: &mut Window) {
        until_within(harness, MINUTES, "the agent answers", |state| {
            matches!(state.target, TargetState::Ready(_))
        });
        settle(harness);
        until(harness, "the session can be run", |state| {
            state.run_hindrance().is_none()
        });
        harness.run_steps(3);
    }

    fn samples(state: &State) -> u64 {
        let record = state.timeline.record.as_ref();
        record.map_or(0, |record| record.index.look().samples())
    }

    /// Starts the session, and waits for samples.
    fn begin(harness: &mut Window) {
        harness.get_by_label("Run session").click();
        harness.run_steps(2);
        until_within(harness, MINUTES, "samples come", |state| {
            let record = state.timeline.record.as_ref();
            record.is_some_and(|record| record.now.is_some()) && samples(state) > 40
        });
    }

    #[test]
    #[ignore = "boots the lab; cargo xtask test runs it"]
    fn a_lost_agent_on_a_forwarded_socket_can_be_reconnected() {
        let prepared = prepare(&Options::default(), &mut |_| ()).unwrap();
        let lab = Lab::boot(&prepared, &mut |_| ()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("forwarded.sock");
        let way = Forward::open(&socket, lab.socket());
        let session = folder.path().join("forks.ron");
        std::fs::write(
            &session,
            r#"(version: 1, name: "forks", duration: 20.0, workload: Some((program: "/bin/pulsar", arguments: ["500"], start: 0.5)), placements: [
                (function: "__x64_sys_clone", block: 0, hook: Pre, instrument: "timestamp", launch: 0.0, splash: 20.0)])"#,
        )
        .unwrap();
        let mut harness = window_of_session(session);
        let session_before = harness.state().state().document.session().clone();

        // Through the menu's command and the path of the socket.
        run_command(&mut harness, "connect to a socket");
        fill(&mut harness, "Path", &socket.display().to_string());
        harness.get_by_label("Connect").click();
        ready(&mut harness);
        harness.get_by_label_contains("· Linux ");
        let first = folder.path().join("first.arrow");
        fill(&mut harness, "Recording path", &first.display().to_string());

        // Lost during a run: it is reported at once, and the samples so far are kept.
        begin(&mut harness);
        way.cut();
        let cut = Instant::now();
        until_within(&mut harness, MINUTES, "the loss is seen", |state| {
            matches!(state.target, TargetState::Lost(_)) && state.run.active.is_none()
        });
        println!("seen after {:.1} s", cut.elapsed().as_secs_f64());
        assert!(cut.elapsed() < Duration::from_secs(10));
        harness.run_steps(3);
        harness.get_by_label("target lost");
        let state = harness.state().state();
        assert_eq!(state.document.session(), &session_before);
        assert!(samples(state) > 40);
        let kept = Recording::open(&first).unwrap();
        println!(
            "{} samples on the screen, {} on disk",
            samples(state),
            kept.samples()
        );
        assert!(kept.samples() > 40);

        // The agent is still unreachable, which is reported.
        click(&mut harness, "Reconnect");
        until(&mut harness, "no agent answers", |state| {
            matches!(state.target, TargetState::Lost(_))
        });
        harness.run_steps(3);
        let message = format!("No agent listens at {}", socket.display());
        assert!(
            harness
                .query_all_by_label_contains(&message)
                .next()
                .is_some()
        );

        // The agent is reachable again: the same session runs to its end.
        let _way = Forward::open(&socket, lab.socket());
        click(&mut harness, "Reconnect");
        ready(&mut harness);
        assert_eq!(harness.state().state().document.session(), &session_before);
        begin(&mut harness);
        until_within(&mut harness, MINUTES, "all of it has come", |state| {
            samples(state) == 160
        });
        harness.get_by_label("Stop run").click();
        until_within(&mut harness, MINUTES, "it is over", |state| {
            state.run.active.is_none()
        });
        let state = harness.state().state();
        let summary = state.run.last.as_ref().expect("the run ended well");
        assert_eq!((summary.missing, summary.lost()), (0, 0));
        let path = &summary.recording.path;
        assert_eq!(*path, folder.path().join("first-2.arrow"));
        assert_eq!(Recording::open(path).unwrap().samples(), 160);
        harness.state_mut().end();
        drop(lab);
    }
}
