//! The feed of events to a listener, in bounded memory.
//!
//! The recording holds everything. A limited number of batches of samples waits for the listener;
//! further samples are only counted ([`Event::Missed`]) until it catches up, and can be read from
//! the recording. A newer running total replaces an undelivered one.

use crossbeam_channel::Sender;
use gilk_samples::chart::scale;

use super::event::Event;
use crate::protocol::CpuLosses;

/// Number of waiting events above which samples are only counted: 24 MB with batches of the agent's
/// size.
const SAMPLES_LIMIT: usize = 64;
/// Number of waiting events above which lines of the workload are only counted.
const LINES_LIMIT: usize = 4096;

/// The sender of events, which never blocks the recording.
pub(super) struct EventFeed<'a> {
    events: &'a Sender<Event>,
    /// Number of undelivered samples.
    missed: u64,
    /// The newest undelivered losses.
    losses: Option<Vec<CpuLosses>>,
    /// Number of undelivered lines of the workload.
    lines: u64,
}

impl<'a> EventFeed<'a> {
    pub(super) const fn new(events: &'a Sender<Event>) -> Self {
        Self {
            events,
            missed: 0,
            losses: None,
            lines: 0,
        }
    }

    /// Delivers an event, or keeps its summary until the listener catches up.
    pub(super) fn send(&mut self, event: Event) {
        let waiting = self.events.len();
        match event {
            Event::Samples(batch) if waiting >= SAMPLES_LIMIT => {
                self.missed += batch.len() as u64;
            }
            Event::Losses(losses) if waiting >= SAMPLES_LIMIT => self.losses = Some(losses),
            Event::Workload(_) if waiting >= LINES_LIMIT => self.lines += 1,
            // The next ones follow soon.
            Event::Aggregates(_) if waiting >= SAMPLES_LIMIT => {}
            // The recording has the reading, and the next one follows soon.
            Event::Clock(_) if waiting >= SAMPLES_LIMIT => {}
            event => {
                if waiting < SAMPLES_LIMIT || matches!(event, Event::Finished(_)) {
                    self.catch_up();
                }
                self.deliver(event);
            }
        }
    }

    /// Delivers the summaries of undelivered events.
    pub(super) fn catch_up(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        let lines = std::mem::take(&mut self.lines);
        if missed > 0 {
            self.deliver(Event::Missed(missed));
        }
        if let Some(losses) = self.losses.take() {
            self.deliver(Event::Losses(losses));
        }
        if lines > 0 {
            let lines = scale::counted(lines, "more line");
            let text = format!("{lines} printed too fast to be shown");
            self.deliver(Event::Workload(text));
        }
    }

    fn deliver(&self, event: Event) {
        let _no_listener = self.events.send(event);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_channel::unbounded;
    use gilk_samples::{Batch, Sample};

    use super::*;

    fn batch(samples: usize) -> Event {
        let sample = Sample {
            id: 1,
            value: 0,
            tsc: 0,
        };
        Event::Samples(Arc::new(Batch {
            cpu: 0,
            samples: vec![sample; samples],
        }))
    }

    fn losses(full: u64) -> Event {
        let all = CpuLosses {
            full,
            ..CpuLosses::default()
        };
        Event::Losses(vec![all])
    }

    #[test]
    fn a_slow_listener_costs_bounded_memory_and_learns_the_number_of_missed_samples() {
        let (sender, events) = unbounded();
        let mut feed = EventFeed::new(&sender);
        for number in 1..=10_000 {
            feed.send(batch(3));
            feed.send(losses(number));
        }
        assert!(
            events.len() <= SAMPLES_LIMIT,
            "{} events wait",
            events.len()
        );
        let (mut delivered, mut missed, mut lost) = (0, 0, 0);
        let mut take = |event| match event {
            Event::Samples(batch) => delivered += batch.samples.len() as u64,
            Event::Missed(samples) => missed += samples,
            Event::Losses(losses) => lost = losses[0].full,
            other => panic!("{other:?}"),
        };
        events.try_iter().for_each(&mut take);
        feed.send(batch(3));
        events.try_iter().for_each(&mut take);
        assert!(delivered > 0 && missed > 0);
        assert_eq!((delivered + missed, lost), (3 * 10_001, 10_000));
    }

    #[test]
    fn lines_over_the_limit_are_counted() {
        let (sender, events) = unbounded();
        let mut feed = EventFeed::new(&sender);
        for number in 0..LINES_LIMIT + 7 {
            feed.send(Event::Workload(number.to_string()));
        }
        assert_eq!(events.try_iter().count(), LINES_LIMIT);
        feed.send(Event::Workload("last".to_owned()));
        let lines: Vec<String> = events
            .try_iter()
            .map(|event| match event {
                Event::Workload(line) => line,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(
            lines[0].starts_with("7 more lines") && lines[1] == "last",
            "{lines:?}"
        );
    }
}
