//! The watch of a process's dynamic linker: its threads wait, after each change of the objects, until this program has
//! seen it (`gilk_engine::rendezvous`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gilk_engine::rendezvous::{RENDEZVOUS, Rendezvous, RendezvousWords};
use gilk_engine::verify::rendezvous::{VerifiedRendezvous, verify};
use gilk_engine::{Addr, Span};

use super::attached::{map, number_of};
use super::linker::Linker;
use super::objects::{ObjectChoice, linker};
use super::pages::TextPages;
use super::record::{Kept, Record, Written};
use super::removal::{self, Cleaned, Patched, memory};
use super::shared::{SharedWords, wait_while, wake};
use super::stopped::{Stopped, quiet, traced};
use super::{clock, maps, refused, write_memory};
use crate::{Error, Result};

/// Seconds for which threads wait for an answer, at most; after that, none waits any more.
const PATIENCE_S: u64 = 60;
/// The longest time of one wait, after which a thread sees that it need not wait: this program may have been killed.
const INTERVAL_NS: u64 = 20_000_000;
/// `RT_CONSISTENT` of glibc's elf/link.h: no object is being mapped or unmapped.
const CONSISTENT: u32 = 0;
/// The longest wait for the end of a change of the objects that had begun.
const SETTLED: Duration = Duration::from_secs(5);

/// A watch that is attached before the objects of a process are read, so that they stay as they are read.
#[derive(Debug)]
pub struct EarlyWatch(Option<Result<LinkerWatch>>);

impl EarlyWatch {
    /// Has the threads of a process that change its objects wait until these are instrumented. A dynamic linker that is
    /// itself chosen is watched later, since its own bytes are to be read.
    #[must_use]
    pub fn attach(pid: u32, choice: &ObjectChoice) -> Self {
        let is_early = choice.has_libraries()
            && linker(pid).is_ok_and(|linker| !choice.takes_library(linker.name()));
        Self(is_early.then(|| LinkerWatch::attach(pid)))
    }

    /// Lets threads continue that wait, among instructions that are to be displaced, say; returns whether any did.
    pub fn release(&self) -> bool {
        let Some(Ok(watch)) = &self.0 else {
            return false;
        };
        let request = watch.request(Duration::ZERO);
        request.is_some_and(|request| watch.answer(request))
    }

    /// Returns the watch of the process.
    pub(super) fn watch(self, pid: u32) -> Result<LinkerWatch> {
        self.0.unwrap_or_else(|| LinkerWatch::attach(pid))
    }
}

/// The splice in the dynamic linker of a process. It is removed when this is dropped, if it was not before.
#[derive(Debug)]
pub(super) struct LinkerWatch {
    pid: u32,
    memory: File,
    file: File,
    words: SharedWords,
    record: Record,
    removed: bool,
}

impl LinkerWatch {
    /// Has the threads of a process wait after each change of its objects, until it is answered.
    ///
    /// # Errors
    /// [`Error::Process`] if the process has no dynamic linker, one that is not known, or one that
    /// another tool watches.
    pub(super) fn attach(pid: u32) -> Result<Self> {
        let memory = memory(pid)?;
        let Linker {
            object: linker,
            image,
            state,
        } = Linker::read(pid, &memory)?;
        let mut maps = maps::read(pid)?;
        let full = || {
            refused(
                pid,
                "no memory is free near its dynamic linker, or in its lower 2 GiB",
            )
        };
        let words = maps::free_below(&maps, maps::PAGE, 1 << 31).ok_or_else(full)?;
        maps::insert(&mut maps, words);
        let arena = maps::free_near(&maps, maps::PAGE, linker.span).ok_or_else(full)?;
        let patience = PATIENCE_S.saturating_mul(clock().tsc_hz);
        let shared = RendezvousWords { start: words.start };
        let rendezvous = Rendezvous::new(&image, RENDEZVOUS, arena.start, shared, patience)?;
        let rendezvous = verify(&image, rendezvous).map_err(|violation| Error::Plan {
            reason: format!("the watch of the dynamic linker is wrong: {violation}"),
        })?;
        let watch = traced(pid, || {
            Self::prepare(pid, memory, &rendezvous, (words, arena))
        })?;
        // The drop undoes what fails.
        let changes = traced(pid, || watch.splice(rendezvous.rendezvous(), state))?;
        if changes && let Some(request) = watch.request(SETTLED) {
            watch.answer(request);
        }
        Ok(watch)
    }

    /// Maps the words and the code: nothing of the process refers to them yet.
    fn prepare(
        pid: u32,
        memory: File,
        rendezvous: &VerifiedRendezvous,
        (words, arena): (Span, Span),
    ) -> Result<Self> {
        let Rendezvous {
            at,
            original,
            splice,
            start,
            code,
            words: shared,
            ..
        } = rendezvous.rendezvous();
        let record = Record {
            words,
            arenas: vec![arena],
            text: vec![Written {
                at: *at,
                original: original.clone(),
                splice: splice.clone(),
            }],
            bounces: Vec::new(),
            semaphores: Vec::new(),
            open: Some(shared.at(RendezvousWords::OPEN)),
        };
        let encoded = record.encode()?;
        let stopped = Stopped::stop(pid)?;
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
        let watch = Self {
            pid,
            memory,
            file,
            words,
            record,
            removed: false,
        };
        watch.set(RendezvousWords::INTERVAL / 8 + 1, INTERVAL_NS);
        watch.write(&encoded, Addr(arena.end.0 - encoded.len() as u64))?;
        watch.write(code, *start)?;
        if let Some(open) = watch.word(RendezvousWords::OPEN) {
            open.store(1, Ordering::Release);
        }
        Ok(watch)
    }

    /// Writes the splice in a moment when no thread is within the displaced instructions; returns whether a thread was
    /// changing the objects then.
    fn splice(&self, rendezvous: &Rendezvous, state: Addr) -> Result<bool> {
        let Rendezvous {
            at,
            original,
            splice,
            ..
        } = rendezvous;
        let inside = Span::new(at.add(1), splice.len() as u64 - 1);
        let stopped = quiet(self.pid, &self.memory, &[inside])?;
        let expected = [(*at, original.as_slice())];
        let mut text = TextPages::read(self.pid, &self.memory, &expected)?;
        text.expect(&expected)?;
        text.replace(&[(*at, splice.as_slice())]);
        text.write(&self.memory)?;
        let mut state_now = [0; 4];
        let read = self.memory.read_exact_at(&mut state_now, state.0);
        read.map_err(|error| refused(self.pid, format!("its memory cannot be read ({error})")))?;
        drop(stopped);
        Ok(u32::from_le_bytes(state_now) != CONSISTENT)
    }

    fn write(&self, bytes: &[u8], at: Addr) -> Result<()> {
        write_memory(self.pid, &self.memory, bytes, at)
    }

    /// Sets a word of eight bytes.
    fn set(&self, index: u64, value: u64) {
        let word = usize::try_from(index)
            .ok()
            .and_then(|index| self.words.word(index));
        debug_assert!(word.is_some(), "the words have a page");
        if let Some(word) = word {
            word.store(value, Ordering::Release);
        }
    }

    /// A word of four bytes.
    fn word(&self, offset: u64) -> Option<&AtomicU32> {
        let word = usize::try_from(offset / 4)
            .ok()
            .and_then(|index| self.words.short_word(index));
        debug_assert!(word.is_some(), "the words have a page");
        word
    }

    /// Waits for a request, for some time at most; returns its number.
    pub(super) fn request(&self, longest: Duration) -> Option<u32> {
        let requested = self.word(RendezvousWords::REQUESTED)?;
        let answered = self
            .word(RendezvousWords::ANSWERED)?
            .load(Ordering::Acquire);
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

    /// Removes everything from the process, and not from its forked children. Returns the number of its file there.
    pub(super) fn leave(&mut self, cleaned: &mut Cleaned) -> Result<u64> {
        let patched = Patched {
            pid: self.pid,
            memory: &self.memory,
            record: &self.record,
        };
        let done = patched.remove(cleaned);
        self.removed = done.is_ok();
        done?;
        number_of(self.pid, &self.file)
    }
}

impl Drop for LinkerWatch {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        let mut cleaned = Cleaned::default();
        // No caller is left to report to.
        if let Ok(file) = self.leave(&mut cleaned) {
            let children = |_, kept: &Kept| kept.file == file;
            let _unreported = removal::clean(&children, &mut cleaned);
        }
    }
}
