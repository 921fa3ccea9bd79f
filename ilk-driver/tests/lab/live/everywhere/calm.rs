//! A session counted between two calms.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gilk_engine::{Plan, Session};
use gilk_samples::record::ALL_CPUS;
use ilk_driver::client::{Connection, Event, StopFlag, Summary};

use crate::support::Turn;

/// Time before the end of a calm at which its counts are taken: until the line that ends it is
/// printed, only a `sleep` has executed for long.
const WELL_BEFORE: Duration = Duration::from_secs(1);

/// The state in a calm.
#[derive(Clone, Debug, Default)]
pub(super) struct Calm {
    /// Hits by instrument.
    pub(super) hits: BTreeMap<u64, u64>,
    /// Number of threads sleeping in each function, by name.
    pub(super) asleep: BTreeMap<String, u64>,
    /// Number of threads.
    pub(super) threads: u64,
    /// Number of processes and threads created since boot.
    pub(super) forks: u64,
}

/// Runs a session and returns the calm before the load and the one after it.
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
    let [before, after] = <[Calm; 2]>::try_from(calms).expect("the load ends");
    assert!(
        summary.stopped && summary.switches.len() == 2,
        "{summary:?}"
    );
    (before, after, summary)
}

/// Follows the load to its end, stops the session, and returns its calms.
fn listen(heard: crossbeam_channel::Receiver<Event>, stop: &StopFlag) -> Vec<Calm> {
    let mut totals_over_time: Vec<(Instant, u64, u64)> = Vec::new();
    let (mut calms, mut now) = (Vec::new(), Calm::default());
    for event in heard {
        match event {
            Event::Samples(batch) if batch.cpu == ALL_CPUS => {
                let at = Instant::now();
                totals_over_time.extend(batch.samples.iter().map(|one| (at, one.id, one.value)));
            }
            Event::Workload(line) if line == "asleep" => now = Calm::default(),
            Event::Workload(line) if line == "calm" => {
                let calm = totals_over_time
                    .iter()
                    .filter(|(at, ..)| at.elapsed() > WELL_BEFORE);
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
    /// Handles a line of output: an entry of a thread's stack, or a mark of the load.
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
