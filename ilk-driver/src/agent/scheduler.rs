//! A session's schedule: applies batches and starts the workload at their times, in order, and
//! removes all splices at the end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::board::View;
use super::clock::Clock;
use super::device::{BatchTimes, Device};
use super::drain::Drain;
use super::outbox::Outbox;
use super::retire::Retiring;
use super::rings::Rings;
use super::signal::{End, Signal};
use super::sys;
use super::watch::{self, SessionWatch};
use super::workload::RunningWorkload;
use crate::protocol::{Finished, Message, Refusal, RefusalKind, Switched, Workload};
use crate::writes::{Batch, Poke, Wait};

/// Usual upper bound on the time that a batch of removals takes.
const BATCH_TIME: Duration = Duration::from_millis(500);

/// The state of the clock's thread.
pub(super) struct Scheduler {
    device: Arc<Device>,
    outbox: Arc<Outbox>,
    drain: Arc<Drain>,
    signal: Arc<Signal>,
    clock: Clock,
    installed: InstalledSplices,
    retiring: Retiring,
    view: Arc<View>,
    watch: SessionWatch,
}

impl Scheduler {
    pub(super) fn new(
        device: Arc<Device>,
        outbox: Arc<Outbox>,
        drain: Arc<Drain>,
        signal: Arc<Signal>,
        clock: Clock,
        (retiring, view): (Retiring, Arc<View>),
        watch: SessionWatch,
    ) -> Self {
        Self {
            device,
            outbox,
            drain,
            signal,
            clock,
            installed: InstalledSplices::default(),
            retiring,
            view,
            watch,
        }
    }

    pub(super) fn run(
        mut self,
        rings: Rings,
        batches: &[Batch],
        program: Option<Workload>,
        duration: f64,
    ) {
        self.outbox.post(&Message::Started(self.clock.started));
        let prepared = self.drain.prepare();
        let (drain, signal) = (Arc::clone(&self.drain), Arc::clone(&self.signal));
        let thread = std::thread::Builder::new().name(String::from("drain"));
        let drained = thread.spawn(move || {
            let ran = catch_unwind(AssertUnwindSafe(|| drain.run(rings)));
            if ran.is_err() {
                // Nothing else empties the rings.
                signal.stop();
            }
            ran
        });

        let (running, mut failed) = match (&drained, prepared) {
            (Ok(_), Ok(())) => self.play(batches, program, duration),
            (Ok(_), Err(e)) => (None, Some(unreadable("rings", &e))),
            (Err(e), _) => {
                let what = format!("The agent could not start a thread for the rings: {e}.");
                (None, Some(Refusal::new(RefusalKind::Module, what)))
            }
        };
        if self.signal.get() == End::Abandon {
            // The device is closed next, which removes everything faster than a batch would.
            self.outbox.close();
        } else {
            if let Err(refusal) = self.remove_all(batches.len() as u32) {
                failed.get_or_insert(refusal);
            }
            if let Err(e) = self.drain.report_last_totals() {
                failed.get_or_insert(unreadable("counters", &e));
            }
        }
        let stopped = self.signal.get() != End::Never;
        let tsc = sys::tsc();
        if let Some(running) = running {
            running.end();
        }
        self.drain.set_over();
        match drained.ok().map(JoinHandle::join) {
            Some(Ok(Ok(Ok(())))) | None => {}
            Some(Ok(Ok(Err(e)))) => {
                failed.get_or_insert(unreadable("rings", &e));
            }
            Some(Ok(Err(_)) | Err(_)) => {
                failed.get_or_insert(Refusal::new(RefusalKind::Module, ended_by_a_bug("drain")));
            }
        }
        let losses = match self.drain.losses() {
            Ok(losses) => losses,
            Err(e) => {
                failed.get_or_insert(unreadable("losses", &e));
                Vec::new()
            }
        };
        let sent = self.drain.sent();
        let finished = Finished {
            tsc,
            stopped,
            failed,
            losses,
            sent,
        };
        let Self { outbox, signal, .. } = self;
        signal.set_over();
        outbox.post(&Message::Finished(finished));
    }

    /// Applies batches until the schedule is complete, a step fails, or an end is requested.
    /// Returns the program if it was started, and the failure.
    fn play(
        &mut self,
        batches: &[Batch],
        mut program: Option<Workload>,
        duration: f64,
    ) -> (Option<RunningWorkload>, Option<Refusal>) {
        let mut running = None;
        let mut batches = (0..).zip(batches).peekable();
        loop {
            let batch_at = batches.peek().map(|(_, batch)| batch.at);
            // At the same second the batch goes first: a launch at 0 sees a workload at 0.
            let due = program.take_if(|workload| match batch_at {
                Some(at) => workload.at < at,
                None => workload.at <= duration,
            });
            let at = due
                .as_ref()
                .map(|workload| workload.at)
                .or(batch_at)
                .unwrap_or(duration);
            let waited = self.wait(at).and_then(|end| match end {
                End::Never => self.check().map(|()| end),
                end => Ok(end),
            });
            match waited {
                Ok(End::Never) => {}
                Ok(_) => return (running, None),
                Err(refusal) => return (running, Some(refusal)),
            }
            if let Some(workload) = due {
                running = RunningWorkload::start(&workload, &self.outbox);
                if let Some(workload) = &running {
                    self.drain.watch(workload.pid());
                }
            } else if let Some((index, batch)) = batches.next() {
                if let Err(refusal) = self.switch(index, batch.at, &batch.pokes) {
                    return (running, Some(refusal));
                }
            } else {
                return (running, None);
            }
        }
    }

    /// Waits for second `at`, or for an end; retires splices and watches the session while waiting.
    fn wait(&mut self, at: f64) -> Result<End, Refusal> {
        let mut due = Instant::now() + watch::INTERVAL;
        loop {
            let remaining = self.clock.until(at);
            let poll = self.retiring.until_poll();
            // Retiring must not delay the next batch.
            let poll = poll.filter(|poll| remaining.is_some_and(|left| *poll + BATCH_TIME < left));
            let check = due.saturating_duration_since(Instant::now());
            let pause = poll.map_or(check, |poll| poll.min(check));
            let until = match remaining {
                Some(remaining) if pause < remaining => self.clock.now() + pause.as_secs_f64(),
                _ => at,
            };
            match self.signal.wait(&self.clock, until) {
                End::Never if remaining.is_some_and(|left| pause < left) => {}
                end => return Ok(end),
            }
            if poll.is_some_and(|poll| poll <= check) {
                self.retire()?;
            }
            if due <= Instant::now() {
                self.check()?;
                due = Instant::now() + watch::INTERVAL;
            }
        }
    }

    /// Checks that the session may continue.
    fn check(&mut self) -> Result<(), Refusal> {
        self.watch.check(&self.device).map_err(|ended| {
            if ended.removed {
                self.installed = InstalledSplices::default();
            }
            ended.why
        })
    }

    /// Removes the splices whose instruments have all been hit.
    fn retire(&mut self) -> Result<(), Refusal> {
        let Self {
            retiring,
            installed,
            device,
            ..
        } = self;
        let splices = retiring.poll(device, |splice| installed.0.contains_key(&splice));
        let splices = splices.map_err(|e| unreadable("counters", &e))?;
        let pokes: Vec<Poke> = splices
            .iter()
            .filter_map(|splice| installed.0.get(splice).copied())
            .collect();
        if pokes.is_empty() {
            return Ok(());
        }
        let done = device.batch(&pokes)?;
        installed.record(&pokes);
        self.show();
        self.outbox.post(&Message::Retired {
            tsc: done.end,
            splices: pokes.len() as u32,
        });
        Ok(())
    }

    /// Applies a batch and reports its outcome.
    fn switch(&mut self, batch: u32, scheduled: f64, pokes: &[Poke]) -> Result<(), Refusal> {
        let pokes = &*self.installed.remaining(pokes);
        let drain = Arc::clone(&self.drain);
        let mut counters = drain.counters();
        let now = sys::tsc();
        let done = match pokes {
            [] => Ok(BatchTimes {
                begin: now,
                end: now,
                gone: 0,
            }),
            pokes => self.device.batch(pokes),
        };
        let (tsc_begin, tsc_end, gone) = match &done {
            Ok(done) => {
                self.installed.record(pokes);
                self.show();
                (done.begin, done.end, done.gone)
            }
            Err(_) => (now, sys::tsc(), 0),
        };
        // Splashed instruments count no further, so these are their last and exact totals.
        let reported = drain.report_totals(&mut counters, Some(tsc_end));
        let refused = done.err();
        let switched = Switched {
            batch,
            scheduled,
            tsc_begin,
            tsc_end,
            gone,
            refused: refused.clone(),
        };
        self.outbox.post(&Message::Switched(switched));
        match refused {
            Some(refusal) => Err(refusal),
            None => reported.map_err(|e| unreadable("counters", &e)),
        }
    }

    /// Shows the splices in place to clients that look.
    fn show(&self) {
        self.view.set(self.installed.0.keys().copied().collect());
    }

    /// Removes all installed splices by a batch, or by a reset if the batch fails.
    fn remove_all(&mut self, batch: u32) -> Result<(), Refusal> {
        let pokes = self.installed.pokes();
        if pokes.is_empty() {
            return Ok(());
        }
        let result = self.switch(batch, self.clock.now(), &pokes);
        if self.installed.pokes().is_empty() {
            return result;
        }
        let why = result
            .err()
            .map_or_else(String::new, |refusal| format!(" ({refusal})"));
        let what = match self.device.reset() {
            Ok(()) => {
                self.view.set(Vec::new());
                format!(
                    "The splices in place were removed by a reset of the module{why}; the last \
                     totals of counters are lost."
                )
            }
            Err(e) => format!(
                "Splices could not be removed ({e}){why}; look at the target's dmesg and \
                 restart it."
            ),
        };
        Err(Refusal::new(RefusalKind::Batch, what))
    }
}

/// Returns the report of a thread that panicked.
pub(super) fn ended_by_a_bug(thread: &str) -> String {
    format!(
        "The agent's {thread} thread ended by a bug in gilk, so the session was ended; the agent's \
         output says where."
    )
}

fn unreadable(what: &str, error: &std::io::Error) -> Refusal {
    let text =
        format!("The module's {what} could not be read ({error}); look at the target's dmesg.");
    Refusal::new(RefusalKind::Module, text)
}

/// The pokes that would remove the installed splices, by address.
#[derive(Debug, Default)]
struct InstalledSplices(BTreeMap<u64, Poke>);

impl InstalledSplices {
    /// Records pokes that were applied.
    fn record(&mut self, pokes: &[Poke]) {
        for poke in pokes {
            if poke.removes() {
                self.0.remove(&poke.address);
                continue;
            }
            // An install states the original bytes; a retarget only those it replaces.
            let first = Poke {
                wait: Wait::AfterRemoval,
                write: poke.expect,
                ..*poke
            };
            let undo = self.0.entry(poke.address).or_insert(first);
            undo.expect = poke.write;
        }
    }

    /// Returns the pokes except removals of splices that are retired already.
    fn remaining<'p>(&self, pokes: &'p [Poke]) -> Cow<'p, [Poke]> {
        let gone = |poke: &Poke| poke.removes() && !self.0.contains_key(&poke.address);
        if pokes.iter().any(gone) {
            pokes.iter().filter(|poke| !gone(poke)).copied().collect()
        } else {
            Cow::Borrowed(pokes)
        }
    }

    fn pokes(&self) -> Vec<Poke> {
        self.0.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::SpliceKind;

    #[test]
    fn removal_restores_the_original_bytes() {
        let poke = |wait, expect, write| Poke {
            address: 0x500,
            detour: 0x10,
            target: 0x10,
            host: 0x4f0,
            filled: 0,
            kind: SpliceKind::Bounce,
            rank: 1,
            length: 5,
            wait,
            expect: [expect; 8],
            write: [write; 8],
        };
        let mut installed = InstalledSplices::default();
        installed.record(&[poke(Wait::BeforeInstall, 1, 2)]);
        assert_eq!(installed.pokes(), [poke(Wait::AfterRemoval, 2, 1)]);
        installed.record(&[poke(Wait::None, 2, 3)]);
        assert_eq!(installed.pokes(), [poke(Wait::AfterRemoval, 3, 1)]);
        let removal = [poke(Wait::AfterRemoval, 3, 1)];
        assert_eq!(*installed.remaining(&removal), removal);
        installed.record(&removal);
        assert!(installed.pokes().is_empty());
        assert!(
            installed.remaining(&removal).is_empty(),
            "it is retired already"
        );
    }
}
