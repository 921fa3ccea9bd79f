//! Exhausted storage of thread and call variables: affected calls are counted, and no measured time
//! is wrong.

use gilk_engine::session::{Session, Workload};

use crate::support::{placement, shared};

/// A function that every sleep of a process passes through.
const SLEEP: &str = "hrtimer_nanosleep";
const DURATION: f64 = 10.0;
/// Twelve concurrent sleeps, long enough to overlap on a slow machine, followed by sequential ones.
const SLEEPERS: &str =
    "for one in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 4 & done; wait; sleep 1; sleep 1";

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn each_call_is_timed_correctly_or_counted_as_lost_for_storage() {
    let shared = shared();
    let turn = shared.turn();
    let mut connection = turn.connect();
    let hz = connection.info().tsc_hz as f64;
    // Two entries for all threads.
    connection.limit_storage(1);
    let at = |name| placement(SLEEP, 0, name, (0.0, DURATION));
    let session = Session {
        name: "crowded".into(),
        duration: DURATION,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), SLEEPERS.into()],
            start: 0.5,
        }),
        placements: vec![at("counter"), at("elapsed")],
        ..Session::empty()
    };
    let outcome = turn.run_over(connection, &session);
    // A machine may be slow, but no sleep outlasts the session.
    let whole = outcome.summary.switches.last().unwrap().done;
    let calls = outcome.total(0);
    let own = outcome.plan.instruments.iter();
    let own = own.filter(|one| one.placement == 1);
    let own: Vec<u64> = own.map(|one| one.id.pack()).collect();
    let times = outcome.samples.iter().map(|(_, sample)| sample);
    let times = times.filter(|sample| own.contains(&sample.id));
    let times: Vec<f64> = times.map(|sample| sample.value as f64 / hz).collect();
    let [lost] = outcome.summary.no_room.as_slice() else {
        panic!("{:?}", outcome.summary.no_room)
    };
    println!(
        "{calls} calls = {} timed + {} without room",
        times.len(),
        lost.count
    );
    assert!(calls >= 14, "{calls} calls");
    assert_eq!(calls, times.len() as u64 + lost.count);
    // At most two sleeps at a time get storage, and each sequential one does.
    assert!(lost.count > 0 && times.len() >= 4, "{lost:?} {times:?}");
    assert!(
        times.iter().all(|time| (0.999..whole).contains(time)),
        "{times:?}"
    );
    turn.assert_untouched();
}
