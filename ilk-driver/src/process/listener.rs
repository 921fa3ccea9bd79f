//! The receiver of the events of a measurement, which may be one of several of a run.

use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_channel::Sender;
use gilk_samples::metadata::Metadata;

use super::process_label;
use crate::client::{Event, ProcessEvent};

/// The receiver of the events of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    events: Sender<Event>,
    /// Number and name of the measurement, if it is one of several.
    process: Option<(u32, String)>,
}

/// The receiver of the events of a run with several measurements, which it numbers.
#[derive(Debug)]
pub(super) struct Listeners<'e> {
    events: &'e Sender<Event>,
    is_several: bool,
    next: AtomicU32,
}

impl<'e> Listeners<'e> {
    /// Those of a run with one measurement, or with several.
    pub(super) fn new(events: &'e Sender<Event>, is_several: bool) -> Self {
        Self {
            events,
            is_several,
            next: AtomicU32::new(0),
        }
    }

    /// Returns that of the next measurement, which is of a process.
    pub(super) fn next(&self, pid: u32) -> Listener {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.named(number, process_label(pid))
    }

    /// Returns that of a measurement with a number and a name, if it is one of several.
    pub(super) fn named(&self, number: u32, name: String) -> Listener {
        Listener {
            events: self.events.clone(),
            process: self.is_several.then_some((number, name)),
        }
    }
}

impl From<Sender<Event>> for Listener {
    fn from(events: Sender<Event>) -> Self {
        Self {
            events,
            process: None,
        }
    }
}

impl Listener {
    /// Returns whether its measurement is one of several.
    pub(super) const fn is_of_several(&self) -> bool {
        self.process.is_some()
    }

    /// Sends the description of the measurement, if it is one of several; otherwise the listener describes the plan itself.
    pub(super) fn describe(&self, described: &Metadata) {
        if self.is_of_several() {
            self.send(Event::Described(Box::new(described.clone())));
        }
    }

    pub(super) fn send(&self, event: Event) {
        let event = match &self.process {
            Some((number, name)) => Event::OfProcess(Box::new(ProcessEvent {
                number: *number,
                name: name.clone(),
                event,
            })),
            None => event,
        };
        // A listener that has ended needs no events.
        let _no_listener = self.events.send(event);
    }
}
