//! What a session does and when: batches and the workload at their times, in order; everything out
//! at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::clock::Clock;
use super::device::{Device, Done};
use super::drain::Drain;
use super::outbox::Outbox;
use super::rings::Rings;
use super::session::{End, Signal};
use super::{sys, workload};
use crate::protocol::{Batch, Finished, Message, Poke, Refusal, RefusalKind, Switched, Workload};

/// The clock's thread.
pub(super) struct Clockwork {
    device: Arc<Device>,
    outbox: Arc<Outbox>,
    drain: Arc<Drain>,
    signal: Arc<Signal>,
    clock: Clock,
    in_place: InPlace,
}

impl Clockwork {
    pub(super) fn new(
        device: Arc<Device>,
        outbox: Arc<Outbox>,
        drain: Arc<Drain>,
        signal: Arc<Signal>,
        clock: Clock,
    ) -> Self {
        Self {
            device,
            outbox,
            drain,
            signal,
            clock,
            in_place: InPlace::default(),
        }
    }

    pub(super) fn run(
        mut self,
        rings: Rings,
        batches: &[Batch],
        program: Option<Workload>,
        duration: f64,
    ) {
        self.outbox.tell(&Message::Started(self.clock.started));
        let prepared = self.drain.prepare();
        let drain = Arc::clone(&self.drain);
        let thread = std::thread::Builder::new().name(String::from("drain"));
        let drained = thread.spawn(move || drain.run(rings));

        let (running, mut failed) = match (&drained, prepared) {
            (Ok(_), Ok(())) => self.play(batches, program, duration),
            (Ok(_), Err(e)) => (None, Some(unreadable("rings", &e))),
            (Err(e), _) => {
                let what = format!("The agent could not start a thread for the rings: {e}.");
                (None, Some(Refusal::new(RefusalKind::Module, what)))
            }
        };
        if self.signal.get() == End::Abandon {
            // The device is closed next, which takes everything out faster than a batch would.
            self.outbox.close();
        } else if let Err(refusal) = self.take_out(batches.len() as u32) {
            failed.get_or_insert(refusal);
        }
        let stopped = self.signal.get() != End::Never;
        let tsc = sys::tsc();
        if let Some(running) = running {
            running.end();
        }
        self.drain.set_over();
        if let Some(Ok(Err(e))) = drained.ok().map(JoinHandle::join) {
            failed.get_or_insert(unreadable("rings", &e));
        }
        let losses = self.drain.losses().unwrap_or_default();
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
        outbox.tell(&Message::Finished(finished));
    }

    /// Does what is due until all is done, something fails, or somebody ends it. Returns the program
    /// if it was started, and what failed.
    fn play(
        &mut self,
        batches: &[Batch],
        mut program: Option<Workload>,
        duration: f64,
    ) -> (Option<workload::Running>, Option<Refusal>) {
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
            if self.signal.wait(&self.clock, at) != End::Never {
                return (running, None);
            }
            if let Some(workload) = due {
                running = workload::Running::start(&workload, &self.outbox);
            } else if let Some((index, batch)) = batches.next() {
                if let Err(refusal) = self.switch(index, batch.at, &batch.pokes) {
                    return (running, Some(refusal));
                }
            } else {
                return (running, None);
            }
        }
    }

    /// Does a batch and tells of it.
    fn switch(&mut self, batch: u32, asked: f64, pokes: &[Poke]) -> Result<(), Refusal> {
        let drain = Arc::clone(&self.drain);
        let mut counters = drain.counters();
        let now = sys::tsc();
        let done = match pokes {
            [] => Ok(Done {
                begin: now,
                end: now,
            }),
            pokes => self.device.batch(pokes),
        };
        let (tsc_begin, tsc_end) = match &done {
            Ok(done) => {
                self.in_place.remember(pokes);
                (done.begin, done.end)
            }
            Err(_) => (now, sys::tsc()),
        };
        // What was splashed counts no more, so this is its last and exact total.
        let told = drain.tell_totals(&mut counters, Some(tsc_end));
        let refused = done.err();
        let switched = Switched {
            batch,
            asked,
            tsc_begin,
            tsc_end,
            refused: refused.clone(),
        };
        self.outbox.tell(&Message::Switched(switched));
        match refused {
            Some(refusal) => Err(refusal),
            None => told.map_err(|e| unreadable("counters", &e)),
        }
    }

    /// Takes out whatever is in, by a batch of its own, else by force.
    fn take_out(&mut self, batch: u32) -> Result<(), Refusal> {
        let pokes = self.in_place.pokes();
        if pokes.is_empty() {
            return Ok(());
        }
        let result = self.switch(batch, self.clock.now(), &pokes);
        if self.in_place.pokes().is_empty() {
            return result;
        }
        let why = result
            .err()
            .map_or_else(String::new, |refusal| format!(" ({refusal})"));
        let what = match self.device.reset() {
            Ok(()) => format!(
                "The splices in place had to be taken out by force{why}; the last totals of \
                 counters are missing."
            ),
            Err(e) => format!(
                "Splices could not be taken out ({e}){why}; look at the target's dmesg and \
                 restart it."
            ),
        };
        Err(Refusal::new(RefusalKind::Batch, what))
    }
}

fn unreadable(what: &str, error: &std::io::Error) -> Refusal {
    let text =
        format!("The module's {what} could not be read ({error}); look at the target's dmesg.");
    Refusal::new(RefusalKind::Module, text)
}

/// The pokes that would take out what is in, by address.
#[derive(Debug, Default)]
struct InPlace(BTreeMap<u64, Poke>);

impl InPlace {
    /// Takes note of pokes that were done.
    fn remember(&mut self, pokes: &[Poke]) {
        for poke in pokes {
            if poke.remove {
                self.0.remove(&poke.address);
                continue;
            }
            // An install says what was there before; a retarget only what it replaced.
            let first = Poke {
                remove: true,
                write: poke.expect,
                ..*poke
            };
            let undo = self.0.entry(poke.address).or_insert(first);
            undo.expect = poke.write;
        }
    }

    fn pokes(&self) -> Vec<Poke> {
        self.0.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Way;

    #[test]
    fn what_is_in_place_is_undone_to_the_original() {
        let poke = |remove, expect, write, multi| Poke {
            address: 0x500,
            detour: 0x10,
            target: 0x10,
            host: 0x4f0,
            way: Way::Bounce,
            rank: 1,
            length: 5,
            multi,
            remove,
            expect: [expect; 8],
            write: [write; 8],
        };
        let mut in_place = InPlace::default();
        in_place.remember(&[poke(false, 1, 2, true)]);
        assert_eq!(in_place.pokes(), [poke(true, 2, 1, true)]);
        in_place.remember(&[poke(false, 2, 3, false)]);
        assert_eq!(in_place.pokes(), [poke(true, 3, 1, true)]);
        in_place.remember(&[poke(true, 3, 1, true)]);
        assert!(in_place.pokes().is_empty());
    }
}
