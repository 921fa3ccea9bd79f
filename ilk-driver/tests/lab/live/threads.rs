//! Samples by running thread, compared with the thread that the samples' own hooks read.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use gilk_engine::session::Session;
use gilk_samples::index::Index;
use gilk_samples::index::threads::Thread;
use gilk_samples::recording::Recording;

use crate::support::{placement, pulsar, shared};

/// The scheduler's function after a thread switch, possibly with a compiler's suffix.
const SWITCH: &str = "finish_task_switch";
/// The function that serves glibc's `fork`, and the one that every thread's exit calls.
const PLACES: [&str; 2] = ["__x64_sys_clone", "do_exit"];
/// Samples the number of the running thread.
const RUNNER: &str = "instrument runner \"Samples the running thread.\"; hit { sample(tid) }";
const DURATION: f64 = 8.0;

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn every_fork_and_exit_is_attributed_to_its_thread() {
    let shared = shared();
    let turn = shared.turn();
    let mut functions = shared.image.functions().iter();
    let switch = functions
        .find(|one| one.name.starts_with(SWITCH) && !one.name.contains(".cold"))
        .expect("the scheduler has it");
    let all = (0.0, DURATION);
    let mut placements = vec![
        placement(&switch.name, 0, "running-thread", all),
        placement(&switch.name, 0, "thread-name", all),
    ];
    placements.extend(PLACES.map(|place| placement(place, 0, "runner", all)));
    let session = Session {
        sources: [("runner".to_owned(), RUNNER.to_owned())].into(),
        ..pulsar(DURATION, 500, placements)
    };
    let outcome = turn.run(&session);
    assert_eq!(outcome.summary.lost(), 0);

    let recording = Recording::open(&outcome.recording).unwrap();
    let (index, damaged) = Index::of(&recording, |_| ControlFlow::Continue(()));
    assert_eq!(damaged.len(), 0);
    let threads = index.threads().expect("running-thread records them");
    let mut had = [BTreeSet::new(), BTreeSet::new()];
    let mut samples = [0; 2];
    for (thread, place) in threads.places() {
        let part = index
            .by_thread()
            .expect("running-thread reports them")
            .part(Some(place));
        for (at, had) in had.iter_mut().enumerate() {
            let id = outcome.id(at + 2).pack();
            for point in part.samples_in(id, 0, u64::MAX, usize::MAX) {
                samples[at] += 1;
                // Pulsar is started after the first switch.
                assert_eq!(thread, Thread::Known(0, point.value), "at {}", PLACES[at]);
                had.insert(point.value);
            }
        }
    }
    let [forks, exits] = had;
    assert_eq!(samples[0], 160, "5 rounds of 32 forks");
    assert_eq!(forks.len(), 1, "all of them are Pulsar's: {forks:?}");
    // Pulsar's threads are processes of their own. Others may end meanwhile too.
    let names = |number: &u64| {
        let thread = Thread::Known(0, *number);
        (threads.name(thread), threads.process(thread))
    };
    let is_named = |number: &u64| {
        let expected = ["thread", "process"].map(|what| format!("pulsar ({what} {number})"));
        let (thread, process) = names(number);
        [thread, process] == expected
    };
    assert!(forks.iter().all(is_named), "{:?}", forks.first().map(names));
    let named = exits.iter().filter(|number| is_named(number)).count();
    assert!(
        named >= 160,
        "{named}; the first is {:?}",
        exits.first().map(names)
    );
    // The children, each once, and Pulsar itself if it exited in time.
    assert!(exits.len() >= 160, "{} exits", exits.len());
    assert_eq!(samples[1], exits.len(), "no thread exits twice");
    turn.assert_untouched();
}
