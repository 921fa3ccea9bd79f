//! Continuation of a session whose client process has ended, from its sidecar.

use std::path::Path;

use crossbeam_channel::Sender;
use gilk_samples::collector::Collector;
use gilk_samples::recording::{Recording, Writer};

use super::event::{Event, StopFlag, Summary};
use super::feed::EventFeed;
use super::lease::Lease;
use super::run::{Labels, LineAddresses, SessionRun};
use super::sidecar::{self, SidecarWriter};
use crate::Result;

/// Continues a session whose client process ended early, for instance killed: connects to its
/// agent, and completes `recording`. Everything else is as with
/// [`Connection::run`](super::Connection::run), which began it.
///
/// `socket` is the agent's socket if it has changed.
///
/// # Errors
/// [`Error::NothingToResume`](crate::Error::NothingToResume) if the session had no grace or was
/// over; [`Error::Refused`](crate::Error::Refused) if its grace is over; otherwise as for `run`.
pub fn resume(
    recording: &Path,
    socket: Option<&Path>,
    events: &Sender<Event>,
    stop: &StopFlag,
) -> Result<Summary> {
    let (bytes, header, state) = sidecar::read(recording)?;
    let socket = socket.unwrap_or(&header.socket);
    let mut lease = Lease::from(header.token, header.grace, state.received);
    let mut wire = lease.find(socket)?;
    let metadata = Recording::open(recording)?.metadata().clone();
    let collector = Collector::start(Writer::resume(recording, bytes)?)?;
    let sidecar = SidecarWriter::new(recording, socket, &lease, &header.outline)?;
    let _no_listener = events.send(Event::Started(state.tally.clock));
    let lines = LineAddresses::new(metadata.texts);
    let instruments = metadata.instruments.into_iter();
    let labels = instruments.map(|instrument| (instrument.id, instrument.label));
    let run = SessionRun {
        tally: state.tally,
        outline: header.outline,
        labels: Labels::Recorded(labels.collect()),
        collector: Some(collector),
        failure: None,
        feed: EventFeed::new(events),
        lease,
        reports_aggregates: false,
        prediction: None,
        own_workload: None,
        image: None,
        lines,
        sidecar,
    };
    run.execute(&mut wire, stop)
}
