//! Samples by the thread that ran, beside what the samples' own hooks find to be the thread.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use gilk_engine::session::Session;
use gilk_samples::index::Index;
use gilk_samples::index::threads::Thread;
use gilk_samples::recording::Recording;

use crate::support::{placement, pulsar, shared};

/// Where the scheduler has changed threads, but for what the compiler has put behind it.
const SWITCH: &str = "finish_task_switch";
/// What serves glibc's `fork`, and what every thread comes to.
const PLACES: [&str; 2] = ["__x64_sys_clone", "do_exit"];
/// The number of the running thread, which tells nobody anything.
const WHO: &str = "instrument who \"Samples who runs.\"; hit { sample(tid) }";
const DURATION: f64 = 8.0;

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn every_fork_and_every_exit_is_of_the_thread_that_it_says() {
    let shared = shared();
    let turn = shared.turn();
    let mut functions = shared.image.functions().iter();
    let switch = functions
        .find(|one| one.name.starts_with(SWITCH) && !one.name.contains(".cold"))
        .expect("the scheduler has it");
    let all = (0.0, DURATION);
    let mut placements = vec![placement(&switch.name, 0, "running-thread", all)];
    placements.extend(PLACES.map(|place| placement(place, 0, "who", all)));
    let session = Session {
        sources: [("who".to_owned(), WHO.to_owned())].into(),
        ..pulsar(DURATION, 500, placements)
    };
    let outcome = turn.run(&session);
    assert_eq!(outcome.summary.lost(), (0, 0));

    let recording = Recording::open(&outcome.recording).unwrap();
    let (index, damaged) = Index::of(&recording, |_| ControlFlow::Continue(()));
    assert_eq!(damaged.len(), 0);
    let threads = index.threads().expect("running-thread tells them");
    let mut had = [BTreeSet::new(), BTreeSet::new()];
    let mut samples = [0; 2];
    for (thread, place) in threads.places() {
        let part = index
            .by_thread()
            .expect("running-thread reports them")
            .part(Some(place));
        for (at, had) in had.iter_mut().enumerate() {
            let id = outcome.id(at + 1).pack();
            for point in part.samples_in(id, 0, u64::MAX, usize::MAX) {
                samples[at] += 1;
                // Nothing of Pulsar is before the first switch: it is started later.
                assert_eq!(thread, Thread::Known(0, point.value), "at {}", PLACES[at]);
                had.insert(point.value);
            }
        }
    }
    let [forks, exits] = had;
    assert_eq!(samples[0], 160, "5 rounds of 32 forks");
    assert_eq!(forks.len(), 1, "all of them are Pulsar's: {forks:?}");
    // The children, each once, and Pulsar itself if it was done in time.
    assert!(exits.len() >= 160, "{} exits", exits.len());
    assert_eq!(samples[1], exits.len(), "nobody exits twice");
    turn.assert_untouched();
}
