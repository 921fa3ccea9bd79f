//! Clients that look at the kernel while another one runs a session.

use gilk_engine::verify::verify;
use gilk_engine::{Session, plan};
use gilk_instruments::Library;
use ilk_driver::client::{Connection, Event, StopFlag};
use ilk_driver::{Error, saved};

use crate::support::{ilk, placement, shared};

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn others_look_at_the_kernel_without_splices_while_a_session_runs() {
    let shared = shared();
    let turn = shared.turn();
    let socket = shared.lab.socket();
    let mut first = turn.connect();
    let blocks = (0..20).map(|block| placement("kernel_clone", block, "counter", (0.0, 600.0)));
    let session = Session {
        name: "beside".into(),
        duration: 600.0,
        placements: blocks.collect(),
        ..Session::empty()
    };
    let library = Library::builtin().unwrap();
    let layout = &first.info().layout;
    let plan = plan::plan(&shared.image, &session, &library, layout).unwrap();
    let verified = verify(&shared.image, plan).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("run.arrow");
    let (stop, (events, heard)) = (StopFlag::new(), crossbeam_channel::unbounded());
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let outcome = first.run(&verified, &session, &recording, &events, &stop);
            drop(events);
            outcome
        });
        let mut switched = heard.iter();
        assert!(
            switched.any(|event| matches!(event, Event::Switched(_))),
            "the session did not begin"
        );
        let dump = folder.path().join("kernel");
        let output = ilk()
            .args(["dump", "--socket"])
            .arg(socket)
            .arg("-o")
            .arg(&dump)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let seen = saved::open(&dump).unwrap();
        let clone = shared.image.function_named("kernel_clone").unwrap();
        assert_eq!(seen.bytes(clone.span), shared.image.bytes(clone.span));
        assert_eq!(
            seen.bytes(seen.text()),
            shared.image.bytes(shared.image.text())
        );

        let mut second = Connection::look(socket).unwrap();
        let refused = second.run(
            &verified,
            &session,
            &dump,
            &crossbeam_channel::unbounded().0,
            &stop,
        );
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        stop.stop();
        let summary = run.join().unwrap().unwrap();
        assert!(summary.switches.iter().all(|switch| switch.gone == 0));
    });
    drop(first);
    turn.assert_untouched();
}
