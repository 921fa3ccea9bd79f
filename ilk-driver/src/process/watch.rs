//! The watch of a process's dynamic linker: its threads wait, after each change of the objects, until this program has
//! seen it (`gilk_engine::rendezvous`).

use std::os::unix::fs::FileExt;
use std::time::Duration;

use gilk_engine::rendezvous::{RENDEZVOUS, Rendezvous, RendezvousWords};
use gilk_engine::verify::rendezvous::verify;
use gilk_engine::{Addr, Span, VerifiedPlan};

use super::linker::Linker;
use super::objects::ObjectChoice;
use super::record::{Kept, Record, Written};
use super::removal::{self, Cleaned, memory};
use super::reserved::Reserved;
use super::stopped::traced;
use super::subject::Subject;
use super::waits::Waits;
use super::{Attached, maps, refused};
use crate::{Error, Result};

/// `RT_CONSISTENT` of glibc's elf/link.h and musl's ldso/dynlink.c: no object is being mapped or unmapped.
const CONSISTENT: u32 = 0;
/// The longest wait for the end of a change of the objects that had begun.
const SETTLED: Duration = Duration::from_secs(5);

/// A watch that is attached before the objects of a process are read, so that they stay as they are read.
#[derive(Debug)]
pub struct EarlyWatch(Option<Result<LinkerWatch>>);

impl EarlyWatch {
    /// Has the threads of a process that change its objects wait until these are instrumented. A session that names the
    /// function in which they wait has its instruments there in the place of the watch; patterns leave it out. Nothing is
    /// mapped at addresses that are `reserved`.
    #[must_use]
    pub fn attach(pid: u32, choice: &ObjectChoice, reserved: &[Span]) -> Self {
        let is_early = choice.has_libraries() && !choice.names_rendezvous();
        Self(is_early.then(|| LinkerWatch::attach(pid, reserved)))
    }

    /// [Writes](Attached::attach) a plan into the process. Threads that wait among the instructions that are to be displaced
    /// continue first.
    ///
    /// # Errors
    /// As [`Attached::attach`].
    pub fn attach_plan(
        &self,
        subject: &Subject,
        reserved: &Reserved,
        plan: &VerifiedPlan,
    ) -> Result<Attached> {
        let attach = || Attached::attach(subject, reserved.clone(), plan);
        attach().or_else(|error| match self.release() {
            true => attach(),
            false => Err(error),
        })
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
        self.0.unwrap_or_else(|| LinkerWatch::attach(pid, &[]))
    }
}

/// The splice in the dynamic linker of a process. It is removed when this is dropped, if it was not before.
#[derive(Debug)]
pub(super) struct LinkerWatch {
    waits: Waits,
    removed: bool,
}

impl LinkerWatch {
    /// Has the threads of a process wait after each change of its objects, until it is answered.
    ///
    /// # Errors
    /// [`Error::Process`] if the process has no dynamic linker, one that is not known, or one that
    /// another tool watches.
    pub(super) fn attach(pid: u32, reserved: &[Span]) -> Result<Self> {
        let memory = memory(pid)?;
        let Linker {
            object: linker,
            image,
            state,
        } = Linker::read(pid, &memory)?;
        let mut maps = maps::read(pid)?;
        for &span in reserved {
            maps::insert(&mut maps, span);
        }
        let full = || {
            refused(
                pid,
                "no memory is free near its dynamic linker, or in its lower 2 GiB",
            )
        };
        let words = maps::free_below(&maps, maps::PAGE, 1 << 31).ok_or_else(full)?;
        maps::insert(&mut maps, words);
        let arena = maps::free_near(&maps, maps::PAGE, linker.span).ok_or_else(full)?;
        let shared = RendezvousWords { start: words.start };
        let patience = Waits::patience();
        let rendezvous = Rendezvous::new(&image, RENDEZVOUS, arena.start, shared, patience)?;
        let rendezvous = verify(&image, rendezvous).map_err(|violation| Error::Plan {
            reason: format!("the watch of the dynamic linker is wrong: {violation}"),
        })?;
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
            storage: 0,
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
        let waits = traced(pid, || {
            Waits::prepare(pid, memory, record, &[(*start, code)])
        })?;
        let watch = Self {
            waits,
            removed: false,
        };
        // The drop undoes what fails.
        let changes = traced(pid, || watch.splice(state))?;
        if changes && let Some(request) = watch.request(SETTLED) {
            watch.answer(request);
        }
        Ok(watch)
    }

    /// Writes the splice; returns whether a thread was changing the objects then.
    fn splice(&self, state: Addr) -> Result<bool> {
        let stopped = self.waits.splice()?;
        let mut state_now = [0; 4];
        let read = self.waits.memory.read_exact_at(&mut state_now, state.0);
        read.map_err(|error| {
            refused(
                self.waits.pid,
                format!("its memory cannot be read ({error})"),
            )
        })?;
        drop(stopped);
        Ok(u32::from_le_bytes(state_now) != CONSISTENT)
    }

    /// Waits for a request, for some time at most; returns its number.
    pub(super) fn request(&self, longest: Duration) -> Option<u32> {
        self.waits.request(longest)
    }

    /// Answers a request, and all before it: their threads continue. Returns whether they had waited until now.
    pub(super) fn answer(&self, request: u32) -> bool {
        self.waits.answer(request)
    }

    /// Removes everything from the process, and not from its forked children. Returns the number of its file there.
    pub(super) fn leave(&mut self, cleaned: &mut Cleaned) -> Result<u64> {
        let done = self.waits.patched().remove(cleaned);
        self.removed = done.is_ok();
        done?;
        self.waits.number()
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
