//! A session's schedule: applies batches and starts the workload at their times, in order, and
//! removes all splices at the end. While a live patch changes the kernel no splice is in place; after that the rest of
//! the session is planned again.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::board::View;
use super::clock::Clock;
use super::device::{BatchTimes, Device};
use super::drain::Drain;
use super::image::KernelCache;
use super::outbox::Outbox;
use super::planning::{Replanned, Replanner};
use super::retire::Retiring;
use super::rings::Rings;
use super::signal::{End, Signal};
use super::watch::{self, SessionStop, SessionWatch};
use crate::processor;
use crate::protocol::{
    Finished, Message, Outage, Refusal, RefusalKind, Return, Switched, Workload,
};
use crate::workload::RunningWorkload;
use crate::writes::{Batch, Poke, Wait};

/// Usual upper bound on the time that a batch of removals takes.
const BATCH_TIME: Duration = Duration::from_millis(500);
/// Interval at which the end of a live patch's transition is looked for, in seconds.
const TRANSITION_POLL: f64 = 0.1;
/// Limit on plans of one return that the kernel's text no longer fits when they are written.
const MOST_PLANS: u32 = 5;

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
    replanner: Replanner,
    kernel: Arc<KernelCache>,
    /// No splice is in place because of a live patch.
    is_out: bool,
    /// Plans that could not be written since then.
    vain_plans: u32,
}

/// A batch of the session after its number.
type Numbered = (u32, Batch);

/// An interruption of the schedule.
enum Interruption {
    /// The session ends.
    End(Refusal),
    /// Every splice was removed at this time because of a live patch.
    Out { tsc: u64 },
}

impl From<Refusal> for Interruption {
    fn from(refusal: Refusal) -> Self {
        Self::End(refusal)
    }
}

/// The next event of a schedule.
enum Next {
    Workload,
    Batch,
    Return,
    End,
}

impl Scheduler {
    pub(super) fn new(
        device: Arc<Device>,
        outbox: Arc<Outbox>,
        drain: Arc<Drain>,
        signal: Arc<Signal>,
        clock: Clock,
        (retiring, view): (Retiring, Arc<View>),
        (watch, replanner, kernel): (SessionWatch, Replanner, Arc<KernelCache>),
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
            replanner,
            kernel,
            is_out: false,
            vain_plans: 0,
        }
    }

    pub(super) fn run(
        mut self,
        rings: Rings,
        batches: Vec<Batch>,
        program: Option<Workload>,
        duration: f64,
    ) {
        let count = batches.len() as u32;
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
            if let Err(refusal) = self.remove_all(count) {
                failed.get_or_insert(refusal);
            }
            if let Err(e) = self.drain.report_last_totals() {
                failed.get_or_insert(unreadable("counters", &e));
            }
        }
        let stopped = self.signal.get() != End::Never;
        let tsc = processor::tsc();
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
        batches: Vec<Batch>,
        mut program: Option<Workload>,
        duration: f64,
    ) -> (Option<RunningWorkload>, Option<Refusal>) {
        let mut running = None;
        let mut batches: VecDeque<Numbered> = (0..).zip(batches).collect();
        loop {
            let (next, at) = self.next(&batches, program.as_ref(), duration);
            let step = match self.wait(at) {
                Ok(End::Never) => self.check(),
                Ok(_) => return (running, None),
                Err(interruption) => Err(interruption),
            };
            let step = step.and_then(|()| match next {
                Next::End => Ok(true),
                Next::Workload => {
                    let workload = program.take();
                    running = workload.and_then(|one| {
                        RunningWorkload::start(&one, Arc::clone(&self.outbox) as _)
                    });
                    if let Some(workload) = &running {
                        self.drain.watch(workload.pid());
                    }
                    Ok(false)
                }
                Next::Batch => {
                    if let Some((number, batch)) = batches.front() {
                        self.switch(*number, batch.at, &batch.pokes)?;
                        batches.pop_front();
                    }
                    Ok(false)
                }
                Next::Return => {
                    if let Some(rest) = self.come_back()? {
                        batches = rest;
                    }
                    Ok(false)
                }
            });
            match step {
                Ok(false) => {}
                Ok(true) => return (running, None),
                Err(Interruption::End(refusal)) => return (running, Some(refusal)),
                Err(Interruption::Out { tsc }) => {
                    // They were planned for other text.
                    batches.clear();
                    if let Err(refusal) = self.go_out(tsc) {
                        return (running, Some(refusal));
                    }
                }
            }
        }
    }

    /// Returns the next event, and its second.
    fn next(
        &self,
        batches: &VecDeque<Numbered>,
        program: Option<&Workload>,
        duration: f64,
    ) -> (Next, f64) {
        let (next, at) = match batches.front() {
            Some((_, batch)) => (Next::Batch, batch.at),
            None => (Next::End, duration),
        };
        // At the same second the batch goes first: a launch at 0 sees a workload at 0.
        let (next, at) = match program {
            Some(workload) if workload.at < at => (Next::Workload, workload.at),
            Some(workload) if batches.is_empty() => (Next::Workload, workload.at),
            _ => (next, at),
        };
        let look = self.clock.now() + TRANSITION_POLL;
        match self.is_out && look < at {
            true => (Next::Return, look),
            false => (next, at),
        }
    }

    /// Records that a live patch has removed every splice.
    fn go_out(&mut self, tsc: u64) -> Result<(), Refusal> {
        self.installed = InstalledSplices::default();
        self.retiring = Retiring::new(Vec::new());
        self.view.set_out();
        if std::mem::replace(&mut self.is_out, true) {
            return Ok(());
        }
        self.vain_plans = 0;
        let drain = Arc::clone(&self.drain);
        let reported = drain.report_totals(&mut drain.counters(), Some(tsc));
        self.outbox.post(&Message::Out(Outage {
            tsc,
            why: String::from("a live patch changed the kernel"),
        }));
        reported.map_err(|e| unreadable("counters", &e))
    }

    /// Plans the rest of the session on the kernel as it is now, and installs what is in place at this time of the
    /// session, if the transition of the live patch is complete. Returns the batches after that.
    fn come_back(&mut self) -> Result<Option<VecDeque<Numbered>>, Refusal> {
        if self.watch.begin_again(&self.device)?.is_none() {
            return Ok(None);
        }
        self.device
            .note_modules()
            .map_err(|e| unreadable("description", &e))?;
        let signal = Arc::clone(&self.signal);
        let is_over = move || signal.get() != End::Never;
        let at = self.clock.now().max(0.0);
        let replanned = match self.replanner.replan(&self.kernel, at, &is_over) {
            Ok(replanned) => replanned,
            Err(_) if is_over() => return Ok(None),
            Err(why) => return Err(not_again(&why)),
        };
        let Replanned {
            mut writes,
            image,
            past,
            first,
            later,
            left_out,
            replaced,
        } = replanned;
        for write in std::mem::take(&mut writes.arena) {
            self.device.write_arena(&write)?;
        }
        let drain = Arc::clone(&self.drain);
        let mut counters = drain.counters();
        let now = processor::tsc();
        let done = match &*first {
            [] => BatchTimes {
                begin: now,
                end: now,
                gone: 0,
            },
            pokes => match self.device.batch(pokes) {
                Ok(done) => done,
                Err(refusal) => {
                    drop(counters);
                    return self.refused_again(&refusal);
                }
            },
        };
        self.installed.record(&first);
        self.retiring = Retiring::new(writes.retire);
        self.view.set_back(image);
        self.show();
        self.is_out = false;
        let reported = drain.report_totals(&mut counters, Some(done.end));
        self.outbox.post(&Message::Back(Return {
            tsc_begin: done.begin,
            tsc_end: done.end,
            batches: past,
            left_out,
            replaced,
        }));
        reported.map_err(|e| unreadable("counters", &e))?;
        Ok(Some(later))
    }

    /// Decides after the refusal of a return: another live patch, or another change of the text while it was planned,
    /// means another plan.
    fn refused_again(&mut self, refusal: &Refusal) -> Result<Option<VecDeque<Numbered>>, Refusal> {
        match self.watch.check(&self.device) {
            Err(SessionStop::Ended { why, .. }) => Err(why),
            Err(SessionStop::Out { .. }) => Ok(None),
            Ok(()) => {
                self.vain_plans += 1;
                match self.vain_plans < MOST_PLANS {
                    true => Ok(None),
                    false => Err(not_again(refusal)),
                }
            }
        }
    }

    /// Waits for second `at`, or for an end; retires splices and watches the session while waiting.
    fn wait(&mut self, at: f64) -> Result<End, Interruption> {
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
    fn check(&mut self) -> Result<(), Interruption> {
        match self.watch.check(&self.device) {
            Ok(()) => Ok(()),
            Err(SessionStop::Out { .. }) if self.is_out => Ok(()),
            Err(SessionStop::Out { tsc }) => Err(Interruption::Out { tsc }),
            Err(SessionStop::Ended { why, removed }) => {
                if removed {
                    self.installed = InstalledSplices::default();
                }
                Err(Interruption::End(why))
            }
        }
    }

    /// Returns the cause of a refused batch: the end of the session that the module decided, or the refusal.
    fn cause(&mut self, refusal: Refusal) -> Interruption {
        self.check().err().unwrap_or(Interruption::End(refusal))
    }

    /// Removes the splices whose instruments have all been hit.
    fn retire(&mut self) -> Result<(), Interruption> {
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
        let done = match device.batch(&pokes) {
            Ok(done) => done,
            Err(refusal) => return Err(self.cause(refusal)),
        };
        installed.record(&pokes);
        self.show();
        self.outbox.post(&Message::Retired {
            tsc: done.end,
            splices: pokes.len() as u32,
        });
        Ok(())
    }

    /// Applies a batch and reports its outcome.
    fn switch(&mut self, batch: u32, scheduled: f64, pokes: &[Poke]) -> Result<(), Interruption> {
        let pokes = &*self.installed.remaining(pokes);
        let drain = Arc::clone(&self.drain);
        let mut counters = drain.counters();
        let now = processor::tsc();
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
            Err(_) => (now, processor::tsc(), 0),
        };
        // Splashed instruments count no further, so these are their last and exact totals.
        let reported = drain.report_totals(&mut counters, Some(tsc_end));
        let refused = match done.err().map(|refusal| self.cause(refusal)) {
            None => None,
            Some(Interruption::End(refusal)) => Some(refusal),
            Some(out) => return Err(out),
        };
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
            Some(refusal) => Err(refusal.into()),
            None => reported.map_err(|e| unreadable("counters", &e).into()),
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
        let result = match self.switch(batch, self.clock.now(), &pokes) {
            Err(Interruption::Out { tsc }) => self.go_out(tsc),
            Err(Interruption::End(refusal)) => Err(refusal),
            Ok(()) => Ok(()),
        };
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

/// Returns the end of a session that cannot continue after a live patch.
fn not_again(why: &Refusal) -> Refusal {
    let text = format!(
        "The session was ended: a live patch has changed the kernel, and what is left of it cannot be planned for that: \
         {why}"
    );
    Refusal::new(why.kind, text)
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
