//! Splices of a process at which threads wait for this program: in its dynamic linker, and in its forked children.

use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gilk_engine::rendezvous::RendezvousWords;
use gilk_engine::{Addr, Span};

use super::mapped::{map, number_of};
use super::pages::TextPages;
use super::record::Record;
use super::removal::{Cleaned, Patched};
use super::shared::{SharedWords, wait_while, wake};
use super::stopped::{Stopped, quiet};
use super::{clock, maps, refused, write_memory};
use crate::Result;

/// Seconds for which threads wait for an answer, at most; after that, none waits any more.
const PATIENCE_S: u64 = 60;
/// The longest time of one wait, after which a thread sees that it need not wait: this program may have been killed.
const INTERVAL_NS: u64 = 20_000_000;

/// Splices, the code that they branch to, and the words in which threads request an answer. The words have a page.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) pid: u32,
    pub(super) memory: File,
    file: File,
    words: SharedWords,
    record: Record,
}

impl Waits {
    /// The longest time of all waits for an answer, in ticks of the time-stamp counter.
    pub(super) fn patience() -> u64 {
        PATIENCE_S.saturating_mul(clock().tsc_hz)
    }

    /// Maps the words and the code, pieces by address: nothing of the process refers to them yet. Executed by the tracer.
    pub(super) fn prepare(
        pid: u32,
        memory: File,
        record: Record,
        code: &[(Addr, &[u8])],
    ) -> Result<Self> {
        let stopped = Stopped::stop(pid)?;
        Self::mapped(stopped, memory, record, |waits| waits.written(code))
    }

    /// The same, with the splices, in a moment when no thread is within the displaced instructions, or in `avoided`: no
    /// child is forked between. Executed by the tracer.
    pub(super) fn spliced(
        pid: u32,
        memory: File,
        record: Record,
        (code, avoided): (&[(Addr, &[u8])], &[Span]),
    ) -> Result<Self> {
        let stopped = quiet(pid, &memory, &displaced(&record, avoided))?;
        let write = |waits: &Self| waits.written(code).and_then(|()| waits.write_splices());
        Self::mapped(stopped, memory, record, write)
    }

    /// Maps the words and the arenas into a stopped process, writes into it, and lets it continue; all is removed if that
    /// fails.
    fn mapped(
        stopped: Stopped,
        memory: File,
        record: Record,
        write: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<Self> {
        let pid = stopped.pid();
        let file = map(pid, &stopped, &memory, &record)?;
        let words = match SharedWords::new(&file, usize::try_from(maps::PAGE).unwrap_or(0)) {
            Ok(words) => words,
            Err(error) => {
                drop(stopped);
                let patched = Patched {
                    pid,
                    memory: &memory,
                    record: &record,
                };
                patched.remove(&mut Cleaned::default())?;
                return Err(refused(
                    pid,
                    format!("its words cannot be mapped ({error})"),
                ));
            }
        };
        let waits = Self {
            pid,
            memory,
            file,
            words,
            record,
        };
        let written = write(&waits);
        drop(stopped);
        if let Err(error) = written {
            waits.patched().remove(&mut Cleaned::default())?;
            return Err(error);
        }
        Ok(waits)
    }

    /// Writes the record, the code, and the first words.
    fn written(&self, code: &[(Addr, &[u8])]) -> Result<()> {
        let (record, end) = (self.record.encode()?, self.record.holder().end.0);
        let interval = self.words.word(RendezvousWords::INTERVAL as usize / 8 + 1);
        debug_assert!(interval.is_some(), "the words have a page");
        if let Some(interval) = interval {
            interval.store(INTERVAL_NS, Ordering::Release);
        }
        self.write(&record, Addr(end - record.len() as u64))?;
        for (at, code) in code {
            self.write(code, *at)?;
        }
        if let Some(open) = self.word(RendezvousWords::OPEN) {
            open.store(1, Ordering::Release);
        }
        Ok(())
    }

    /// Writes the splices in a moment when no thread is within the displaced instructions; the process is stopped still.
    pub(super) fn splice(&self) -> Result<Stopped> {
        let stopped = quiet(self.pid, &self.memory, &displaced(&self.record, &[]))?;
        self.write_splices()?;
        Ok(stopped)
    }

    /// Writes the splices into the stopped process.
    fn write_splices(&self) -> Result<()> {
        let text = &self.record.text;
        let originals: Vec<(Addr, &[u8])> = text
            .iter()
            .map(|write| (write.at, write.original.as_slice()))
            .collect();
        let splices: Vec<(Addr, &[u8])> = text
            .iter()
            .map(|write| (write.at, write.splice.as_slice()))
            .collect();
        let mut pages = TextPages::read(self.pid, &self.memory, &originals)?;
        pages.expect(&originals)?;
        pages.replace(&splices);
        pages.write(&self.memory)
    }

    fn write(&self, bytes: &[u8], at: Addr) -> Result<()> {
        write_memory(self.pid, &self.memory, bytes, at)
    }

    /// A word of four bytes, by its offset.
    pub(super) fn word(&self, offset: u64) -> Option<&AtomicU32> {
        let word = usize::try_from(offset / 4)
            .ok()
            .and_then(|index| self.words.short_word(index));
        debug_assert!(word.is_some(), "the words have a page");
        word
    }

    /// The number of requests that were answered.
    pub(super) fn answered(&self) -> Option<u32> {
        let answered = self.word(RendezvousWords::ANSWERED)?;
        Some(answered.load(Ordering::Acquire))
    }

    /// Waits for a request, for some time at most; returns its number.
    pub(super) fn request(&self, longest: Duration) -> Option<u32> {
        let requested = self.word(RendezvousWords::REQUESTED)?;
        let answered = self.answered()?;
        let pending = || Some(requested.load(Ordering::Acquire)).filter(|last| *last != answered);
        pending().or_else(|| {
            wait_while(requested, answered, longest);
            pending()
        })
    }

    /// Answers a request, and all before it: their threads continue. Returns whether they had waited until now.
    pub(super) fn answer(&self, request: u32) -> bool {
        let Some((answered, open)) = self
            .word(RendezvousWords::ANSWERED)
            .zip(self.word(RendezvousWords::OPEN))
        else {
            return false;
        };
        let has_waited = open.swap(1, Ordering::AcqRel) != 0;
        answered.store(request, Ordering::Release);
        wake(answered);
        has_waited
    }

    /// Has no thread wait any more: those that do continue.
    pub(super) fn close(&self) {
        let words = self.word(RendezvousWords::OPEN);
        if let Some((open, answered)) = words.zip(self.word(RendezvousWords::ANSWERED)) {
            open.store(0, Ordering::Release);
            wake(answered);
        }
    }

    pub(super) fn patched(&self) -> Patched<'_> {
        Patched {
            pid: self.pid,
            memory: &self.memory,
            record: &self.record,
        }
    }

    /// The number of its file, in forked children too.
    pub(super) fn number(&self) -> Result<u64> {
        number_of(self.pid, &self.file)
    }
}

/// The addresses within displaced instructions, and others.
fn displaced(record: &Record, others: &[Span]) -> Vec<Span> {
    let displaced = record.text.iter().map(|write| Span {
        start: write.at.add(1),
        end: write.at.add(write.splice.len() as u64),
    });
    displaced.chain(others.iter().copied()).collect()
}
