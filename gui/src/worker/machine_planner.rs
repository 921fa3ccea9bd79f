//! Worker that plans the session for an additional machine, on that machine's kernel.

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::mail::{Mail, Message};
use super::planner::{Planning, starting};

/// Planner of a machine. Its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Planner(Sender<Planning>);

impl Planner {
    /// Starts the planner; it replies with messages that have `number`.
    pub(crate) fn start(number: u64, mail: &Mail) -> Self {
        let (sender, requests) = unbounded();
        mail.spawn("machine planner", move |mail| {
            work(number, &requests, mail);
        });
        Self(sender)
    }

    pub(crate) fn plan(&self, planning: Planning) {
        let _ended = self.0.send(planning);
    }
}

fn work(number: u64, requests: &Receiver<Planning>, mail: &Mail) {
    while let Ok(first) = requests.recv() {
        let newest = requests.try_iter().last().unwrap_or(first);
        if let Some(outcome) = starting(&newest, requests) {
            mail.send(Message::PlannedForMachine(number, newest.revision, outcome));
        }
    }
}
