//! A session that is counted from one calm to the next.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gilk_engine::{Plan, Session};
use gilk_samples::record::ALL_CPUS;
use ilk_driver::client::{Connection, Event, StopFlag, Summary};

use crate::support::Turn;

/// How long before the end of a calm its counts are taken: when the line that ends it was written,
/// nothing but a `sleep` had been there for long.
const WELL_BEFORE: Duration = Duration::from_secs(1);

/// What was known in a calm.
#[derive(Clone, Debug, Default)]
pub(super) struct Calm {
    /// Hits by instrument.
    pub(super) hits: BTreeMap<u64, u64>,
    /// How many threads slept in each function, by name.
    pub(super) asleep: BTreeMap<String, u64>,
    /// Threads.
    pub(super) threads: u64,
    /// Processes and threads made since boot.
    pub(super) forks: u64,
}

/// The calm before the load and the one after it.
pub(super) fn count(
    turn: &Turn<'_>,
    connection: &mut Connection,
    plan: &Plan,
    session: &Session,
) -> (Calm, Calm, Summary) {
    let image = &turn.shared.image;
    let verified = gilk_engine::verify::verify(image, plan.clone())
        .unwrap_or_else(|violations| panic!("{:#?}", &violations[..violations.len().min(20)]));
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("everywhere.arrow");
    let (events, heard) = crossbeam_channel::unbounded();
    let stop = StopFlag::new();
    let flag = stop.clone();
    let listener = std::thread::spawn(move || listen(heard, &flag));
    let outcome = connection.run(&verified, session, &recording, &events, &stop);
    drop(events);
    let calms = listener.join().unwrap();
    let summary = outcome.unwrap_or_else(|error| {
        let console = turn.shared.lab.console().unwrap();
        panic!("{error}\nThe console ends with:\n{console}")
    });
    let [before, after] = <[Calm; 2]>::try_from(calms).expect("the load comes to its end");
    assert!(
        summary.stopped && summary.switches.len() == 2,
        "{summary:?}"
    );
    (before, after, summary)
}

/// Hears the load out, stops the session, and gives its calms.
fn listen(heard: crossbeam_channel::Receiver<Event>, stop: &StopFlag) -> Vec<Calm> {
    let mut told: Vec<(Instant, u64, u64)> = Vec::new();
    let (mut calms, mut now) = (Vec::new(), Calm::default());
    for event in heard {
        match event {
            Event::Samples(batch) if batch.cpu == ALL_CPUS => {
                let at = Instant::now();
                told.extend(batch.samples.iter().map(|one| (at, one.id, one.value)));
            }
            Event::Workload(line) if line == "asleep" => now = Calm::default(),
            Event::Workload(line) if line == "calm" => {
                let calm = told.iter().filter(|(at, ..)| at.elapsed() > WELL_BEFORE);
                now.hits = calm.map(|&(_, id, hits)| (id, hits)).collect();
                calms.push(std::mem::take(&mut now));
                if calms.len() == 2 {
                    stop.stop();
                }
            }
            Event::Workload(line) => now.note(&line, stop),
            _ => {}
        }
    }
    calms
}

impl Calm {
    /// A line of a thread's stack, or another of the load.
    fn note(&mut self, line: &str, stop: &StopFlag) {
        if let Some(frame) = line.strip_prefix("[<0>] ") {
            let name = frame.split('+').next().unwrap_or_default();
            *self.asleep.entry(name.to_owned()).or_default() += 1;
        } else if let Some(forks) = line.strip_prefix("processes ") {
            self.forks = forks.parse().unwrap();
        } else if let Some(threads) = line.strip_prefix("threads ") {
            self.threads = threads.parse().unwrap();
        } else {
            println!("{line}");
            if line.starts_with("ended") {
                stop.stop();
            }
        }
    }
}
