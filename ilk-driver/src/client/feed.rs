//! What whoever looks on is told, in memory that is bounded however long they take.
//!
//! The recording has everything. Of samples, so many batches wait for whoever looks; what comes while these
//! are not taken is only counted for them ([`Event::Missed`]), and they find it in the recording. What is a
//! running total replaces the one before it.

use crossbeam_channel::Sender;

use super::event::Event;
use crate::protocol::CpuLosses;

/// Events that wait until samples are only counted: with batches as an agent drains them 24 MB.
const WAITING: usize = 64;
/// Events that wait until lines of the workload are only counted.
const LINES: usize = 4096;

/// The way to whoever looks on, who never keeps the recording waiting.
pub(super) struct Outlet<'a> {
    events: &'a Sender<Event>,
    /// Samples that were not told.
    missed: u64,
    /// The newest totals that were not.
    losses: Option<Vec<CpuLosses>>,
    /// Lines of the workload that were not.
    lines: u64,
}

impl<'a> Outlet<'a> {
    pub(super) const fn new(events: &'a Sender<Event>) -> Self {
        Self {
            events,
            missed: 0,
            losses: None,
            lines: 0,
        }
    }

    /// Tells it, or keeps what it comes to until there is room.
    pub(super) fn tell(&mut self, event: Event) {
        let waiting = self.events.len();
        match event {
            Event::Samples(batch) if waiting >= WAITING => {
                self.missed += batch.samples.len() as u64;
            }
            Event::Losses(losses) if waiting >= WAITING => self.losses = Some(losses),
            Event::Workload(_) if waiting >= LINES => self.lines += 1,
            // The recording has them, and one more comes soon.
            Event::Clock(_) if waiting >= WAITING => {}
            event => {
                if waiting < WAITING || matches!(event, Event::Finished(_)) {
                    self.catch_up();
                }
                self.send(event);
            }
        }
    }

    /// Tells what had no room.
    pub(super) fn catch_up(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        let lines = std::mem::take(&mut self.lines);
        if missed > 0 {
            self.send(Event::Missed(missed));
        }
        if let Some(losses) = self.losses.take() {
            self.send(Event::Losses(losses));
        }
        if lines > 0 {
            let words = format!("{lines} more lines came faster than they were taken");
            self.send(Event::Workload(words));
        }
    }

    fn send(&self, event: Event) {
        let _nobody_listens = self.events.send(event);
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
    fn who_does_not_take_it_costs_bounded_memory_and_is_told_how_much_they_missed() {
        let (sender, events) = unbounded();
        let mut outlet = Outlet::new(&sender);
        for number in 1..=10_000 {
            outlet.tell(batch(3));
            outlet.tell(losses(number));
        }
        assert!(events.len() <= WAITING, "{} events wait", events.len());
        let (mut told, mut missed, mut lost) = (0, 0, 0);
        let mut take = |event| match event {
            Event::Samples(batch) => told += batch.samples.len() as u64,
            Event::Missed(samples) => missed += samples,
            Event::Losses(losses) => lost = losses[0].full,
            other => panic!("{other:?}"),
        };
        events.try_iter().for_each(&mut take);
        outlet.tell(batch(3));
        events.try_iter().for_each(&mut take);
        assert!(told > 0 && missed > 0);
        assert_eq!((told + missed, lost), (3 * 10_001, 10_000));
    }

    #[test]
    fn lines_of_a_program_that_never_ends_are_counted() {
        let (sender, events) = unbounded();
        let mut outlet = Outlet::new(&sender);
        for number in 0..LINES + 7 {
            outlet.tell(Event::Workload(number.to_string()));
        }
        assert_eq!(events.try_iter().count(), LINES);
        outlet.tell(Event::Workload("last".to_owned()));
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
