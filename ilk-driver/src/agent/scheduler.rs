//! What a session does and when: batches and the workload at their times, in order; everything out
//! at the end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::clock::Clock;
use super::device::{Device, Done};
use super::drain::Drain;
use super::outbox::Outbox;
use super::retire::Retiring;
use super::rings::Rings;
use super::session::{End, Signal};
use super::{sys, workload};
use crate::protocol::{Batch, Finished, Message, Poke, Refusal, RefusalKind, Switched, Workload};

/// What a batch of removals takes at most, as a rule.
const LONGEST: Duration = Duration::from_millis(500);

/// The clock's thread.
pub(super) struct Clockwork {
    device: Arc<Device>,
    outbox: Arc<Outbox>,
    drain: Arc<Drain>,
    signal: Arc<Signal>,
    clock: Clock,
    in_place: InPlace,
    retiring: Retiring,
}

impl Clockwork {
    pub(super) fn new(
        device: Arc<Device>,
        outbox: Arc<Outbox>,
        drain: Arc<Drain>,
        signal: Arc<Signal>,
        clock: Clock,
        retiring: Retiring,
    ) -> Self {
        Self {
            device,
            outbox,
            drain,
            signal,
            clock,
            in_place: InPlace::default(),
            retiring,
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
            match self.wait(at) {
                Ok(End::Never) => {}
                Ok(_) => return (running, None),
                Err(refusal) => return (running, Some(refusal)),
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

    /// Waits for second `at`, or for an end; meanwhile takes out what has been hit and need not stay.
    fn wait(&mut self, at: f64) -> Result<End, Refusal> {
        loop {
            let until = match (self.clock.until(at), self.retiring.left()) {
                // What is due next would have to wait for the module.
                (Some(left), Some(look)) if look + LONGEST < left => {
                    self.clock.now() + look.as_secs_f64()
                }
                _ => return Ok(self.signal.wait(&self.clock, at)),
            };
            match self.signal.wait(&self.clock, until) {
                End::Never => self.retire()?,
                end => return Ok(end),
            }
        }
    }

    /// Takes out the splices whose instruments have been hit, all that they are there for.
    fn retire(&mut self) -> Result<(), Refusal> {
        let Self {
            retiring,
            in_place,
            device,
            ..
        } = self;
        let splices = retiring.look(device, |splice| in_place.0.contains_key(&splice));
        let splices = splices.map_err(|e| unreadable("counters", &e))?;
        let pokes: Vec<Poke> = { splices.iter() }
            .filter_map(|splice| in_place.0.get(splice).copied())
            .collect();
        if pokes.is_empty() {
            return Ok(());
        }
        let done = device.batch(&pokes)?;
        in_place.remember(&pokes);
        self.outbox.tell(&Message::Retired {
            tsc: done.end,
            splices: pokes.len() as u32,
        });
        Ok(())
    }

    /// Does a batch and tells of it.
    fn switch(&mut self, batch: u32, asked: f64, pokes: &[Poke]) -> Result<(), Refusal> {
        let pokes = &*self.in_place.left_of(pokes);
        let drain = Arc::clone(&self.drain);
        let mut counters = drain.counters();
        let now = sys::tsc();
        let done = match pokes {
            [] => Ok(Done {
                begin: now,
                end: now,
                gone: 0,
            }),
            pokes => self.device.batch(pokes),
        };
        let (tsc_begin, tsc_end, gone) = match &done {
            Ok(done) => {
                self.in_place.remember(pokes);
                (done.begin, done.end, done.gone)
            }
            Err(_) => (now, sys::tsc(), 0),
        };
        // What was splashed counts no more, so this is its last and exact total.
        let told = drain.tell_totals(&mut counters, Some(tsc_end));
        let refused = done.err();
        let switched = Switched {
            batch,
            asked,
            tsc_begin,
            tsc_end,
            gone,
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

    /// The pokes, without removals of what has been taken out before its time.
    fn left_of<'p>(&self, pokes: &'p [Poke]) -> Cow<'p, [Poke]> {
        let gone = |poke: &Poke| poke.remove && !self.0.contains_key(&poke.address);
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
        let removal = [poke(true, 3, 1, true)];
        assert_eq!(*in_place.left_of(&removal), removal);
        in_place.remember(&removal);
        assert!(in_place.pokes().is_empty());
        assert!(
            in_place.left_of(&removal).is_empty(),
            "it is gone before its time"
        );
    }
}
