//! A session on the agent's clock, and its termination from outside.
//!
//! A session has two threads. The clock's thread applies batches in order of time and waits for
//! nothing but the module. The drain's thread empties rings and reads counters, and waits for a
//! slow client.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::board::View;
use super::clock::Clock;
use super::device::Device;
use super::drain::Drain;
use super::image::KernelCache;
use super::kernel;
use super::outbox::Outbox;
use super::planning::{Replanner, StacksRead};
use super::retire::Retiring;
use super::rings::Rings;
use super::scheduler::{Scheduler, ended_by_a_bug};
use super::signal::{End, Signal};
use super::watch::SessionWatch;
use crate::note;
use crate::processor;
use crate::protocol::{Finished, MAX_WAIT, Message, Refusal, RefusalKind, Schedule};
use crate::writes::Writes;

/// A planned and verified session, whose code is in the arena.
pub(super) struct Loaded {
    pub(super) writes: Writes,
    /// Seconds from the start to the end.
    pub(super) duration: f64,
    /// Tracepoints that instruments stand on.
    pub(super) tracepoints: Vec<String>,
    /// The stacks that programs read, if they read any or read processes.
    pub(super) stacks: Option<StacksRead>,
    /// Shows the splices in place.
    pub(super) view: Arc<View>,
    /// Plans the rest of the session after a live patch.
    pub(super) replanner: Replanner,
    pub(super) kernel: Arc<KernelCache>,
}

/// Tracepoints that are on until this is dropped.
struct SwitchedOn(Option<Arc<Device>>);

impl SwitchedOn {
    fn new(device: &Arc<Device>, names: &[String]) -> Result<Self, Refusal> {
        if names.is_empty() {
            return Ok(Self(None));
        }
        // Those before one that is refused are switched off, too.
        let on = Self(Some(Arc::clone(device)));
        device.tracepoints_on(names)?;
        Ok(on)
    }
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        // The request has no cause to fail, and the module switches them off when its file closes.
        if let Some(device) = &self.0
            && let Err(error) = device.tracepoints_off()
        {
            note!("Tracepoints stay on until the session's device is closed: {error}.");
        }
    }
}

/// A started session.
pub(super) struct RunningSession {
    signal: Arc<Signal>,
    thread: JoinHandle<()>,
}

impl RunningSession {
    /// Starts the clock.
    pub(super) fn start(
        device: Arc<Device>,
        loaded: Loaded,
        schedule: Schedule,
        outbox: Arc<Outbox>,
        hz: u64,
    ) -> Result<Self, Refusal> {
        let broken = |what: &str| Refusal::new(RefusalKind::Module, what);
        let rings = Rings::new(Arc::clone(&device)).ok_or_else(|| {
            broken("The module's description of its rings is invalid; build it from this source.")
        })?;
        let watch = SessionWatch::begin(&device, hz)?;
        let tracepoints = SwitchedOn::new(&device, &loaded.tracepoints)?;
        if loaded.stacks.is_some() {
            device.begin_stacks().map_err(|e| {
                broken(&format!(
                    "The module has no memory for stacks ({e}); free some on {}.",
                    kernel::host()
                ))
            })?;
        }
        let clock = Clock::start(hz, schedule.start).map_err(|seconds| {
            let text = format!(
                "Second 0 of the session is {seconds:.0} s away, and the limit is {MAX_WAIT} s; the \
                 clocks were compared too long ago, so start it again."
            );
            Refusal::new(RefusalKind::Request, text)
        })?;
        let Loaded {
            writes,
            duration,
            view,
            tracepoints: _,
            stacks,
            replanner,
            kernel,
        } = loaded;
        let Writes {
            batches,
            counters,
            retire,
            ..
        } = writes;
        let signal = Arc::new(Signal::default());
        let session_signal = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name(String::from("clock"))
            .spawn(move || {
                let _until_the_end = tracepoints;
                let collection = schedule.collection;
                let drain = Arc::new(Drain::new(
                    Arc::clone(&device),
                    Arc::clone(&outbox),
                    (counters, stacks),
                    collection,
                ));
                let after_panic = (
                    Arc::clone(&device),
                    Arc::clone(&outbox),
                    Arc::clone(&drain),
                    Arc::clone(&session_signal),
                );
                let ran = catch_unwind(AssertUnwindSafe(move || {
                    let retiring = Retiring::new(retire);
                    let scheduler = Scheduler::new(
                        device,
                        outbox,
                        drain,
                        session_signal,
                        clock,
                        (retiring, view),
                        (watch, replanner, kernel),
                    );
                    scheduler.run(rings, batches, schedule.workload, duration);
                }));
                if ran.is_err() {
                    let (device, outbox, drain, signal) = after_panic;
                    let removed = device.reset();
                    drain.set_over();
                    report_panic(&removed, &outbox, &signal);
                }
            })
            .map_err(|e| {
                broken(&format!(
                    "The agent could not start a thread for the session: {e}."
                ))
            })?;
        Ok(Self { signal, thread })
    }

    /// Returns whether the session's end was reported to the client.
    pub(super) fn is_over(&self) -> bool {
        self.signal.is_over() || self.thread.is_finished()
    }

    /// Returns whether the session's threads have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Requests the removal of every splice and the end of the session.
    pub(super) fn stop(&self) {
        self.signal.set(End::Stop);
    }

    /// Ends the session without removing its splices; returns after its threads have ended.
    pub(super) fn abandon(self) {
        self.signal.set(End::Abandon);
        let _panicked = self.thread.join();
    }
}

/// Reports to the client that the clock's thread panicked, and whether every splice is removed.
fn report_panic(removed: &std::io::Result<()>, outbox: &Outbox, signal: &Signal) {
    let mut text = ended_by_a_bug("clock");
    match removed {
        Ok(()) => text.push_str(" Every splice was removed."),
        Err(e) => text.push_str(&format!(
            " Splices could not be removed ({e}); look at the target's dmesg and restart it."
        )),
    }
    signal.set_over();
    outbox.post(&Message::Finished(Finished {
        tsc: processor::tsc(),
        stopped: true,
        failed: Some(Refusal::new(RefusalKind::Module, text)),
        losses: Vec::new(),
        sent: 0,
    }));
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::agent::stream::Stream;
    use crate::protocol::Decoder;

    #[test]
    fn a_panic_is_reported_with_the_state_of_the_text() {
        let failed = std::io::Error::other("no device");
        for (removed, said) in [
            (Ok(()), "Every splice was removed."),
            (Err(failed), "could not be removed (no device)"),
        ] {
            let (own, mut client) = UnixStream::pair().unwrap();
            let stream = Arc::new(Stream::socket(own).unwrap());
            let (outbox, writer) = Outbox::start(stream).unwrap();
            let signal = Signal::default();
            report_panic(&removed, &outbox, &signal);
            assert!(signal.is_over());
            let mut decoder = Decoder::frames_only();
            let finished = loop {
                match decoder.take::<Message>().unwrap() {
                    Some(Message::Finished(finished)) => break finished,
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
                let mut bytes = [0; 1024];
                let count = client.read(&mut bytes).unwrap();
                decoder.push(&bytes[..count]);
            };
            let text = finished.failed.unwrap().text;
            assert!(
                text.contains("clock thread") && text.contains(said),
                "{text}"
            );
            outbox.close();
            writer.join().unwrap();
        }
    }

    #[test]
    fn a_stop_never_replaces_the_loss_of_a_client() {
        let signal = Signal::default();
        signal.set(End::Abandon);
        signal.stop();
        assert_eq!(signal.get(), End::Abandon);
        let signal = Signal::default();
        signal.stop();
        assert_eq!(signal.get(), End::Stop);
    }
}
