//! Objects that are loaded and unloaded: their instruments run from their first instruction on, and their counts are kept.

use gilk_engine::{Addr, Refusal, Span};

use super::super::super::maps;
use super::super::super::objects::{Object, objects};
use super::super::super::ptrace::{self, Registers, Tid};
use super::super::super::refused;
use super::super::super::remote::{Remote, RemoteCode};
use super::super::super::removal::unmap;
use super::super::super::stopped::{Thread, is_filtered};
use super::super::super::subject::Subject;
use super::CacheAgent;
use crate::{Result, interrupt};

impl CacheAgent<'_> {
    /// Runs the instruments of the object that has an address, if it was loaded after the start and none of it was
    /// executed: a thread is about to, with these original registers.
    ///
    /// # Errors
    /// [`Rule::CacheFull`](gilk_engine::Rule::CacheFull).
    pub(super) fn meet_object(
        &mut self,
        tid: Tid,
        registers: &Registers,
        at: Addr,
    ) -> Result<std::result::Result<(), Refusal>> {
        let Some(later) = &mut self.later else {
            return Ok(Ok(()));
        };
        let (mapping, may_change) = match (self.code.mapping(at), self.code.changing(at)) {
            (Some(mapping), _) => (mapping, false),
            (None, Some(mapping)) if mapping.inode != 0 => (mapping, true),
            (None, _) => return Ok(Ok(())),
        };
        if later.is_settled(mapping) {
            return Ok(Ok(()));
        }
        let mapping = mapping.clone();
        let all = objects(self.pid)?;
        // What may change is not noticed when it is unmapped.
        if !may_change {
            later.settle(mapping);
        }
        let found = all.into_iter().find(|object| object.has_code(at));
        let Some(object) =
            found.filter(|object| later.is_chosen(object) && !later.is_left_alone(object))
        else {
            return Ok(Ok(()));
        };
        let parts = self.cache.instruments().iter();
        let mut known = parts.flat_map(|part| &part.objects);
        let known = known.find(|known| object.has(known));
        if known.is_some_and(|known| known.has_code(at)) {
            return Ok(Ok(()));
        }
        let why = match may_change {
            true => Some("its code can be written"),
            false if known.is_some() || object.is_repeated() => {
                Some("it is mapped more than once at the same time")
            }
            false => None,
        };
        if let Some(why) = why {
            later.note(&object.path, why);
            return Ok(Ok(()));
        }
        match self.instrument(tid, registers, &object) {
            Ok(done) => Ok(done),
            // Its end is seen next.
            Err(error) if self.is_gone(tid) => Err(error),
            // The process is let go next, and planning was given up for that.
            Err(_) if interrupt::arrived() => Ok(Ok(())),
            Err(error) => {
                if let Some(later) = &mut self.later {
                    later.leave_alone(object, &error.to_string());
                }
                Ok(Ok(()))
            }
        }
    }

    /// Plans for an object, maps its words by a thread, and adds its instruments to the cache.
    fn instrument(
        &mut self,
        tid: Tid,
        registers: &Registers,
        object: &Object,
    ) -> Result<std::result::Result<(), Refusal>> {
        let parts = self.cache.instruments();
        let (Some(start), Some(later), Some(words)) = (parts.first(), &mut self.later, &self.words)
        else {
            return Ok(Ok(()));
        };
        let mut objects = parts.iter().flat_map(|part| &part.objects);
        if objects.any(|known| known.span.overlaps(object.span)) {
            let why = "another object was unloaded there by a thread that was not in the cache";
            return Err(refused(self.pid, why));
        }
        let subject = Subject::of_new_object(self.pid, object, start.registered)?;
        let planned = later.planner()(&subject);
        let planned = planned.map_err(|reason| refused(self.pid, reason))?;
        let Some(planned) = planned else {
            return Ok(Ok(()));
        };
        let instruments = start.later(subject, &planned.reserved, &planned.plan)?;
        let thread = Thread {
            tid,
            registers: *registers,
            rseq: ptrace::rseq(tid).map_err(self.failed(tid))?,
        };
        ptrace::set_registers(tid, registers).map_err(self.failed(tid))?;
        let code = RemoteCode::find(self.pid, &self.memory, &maps::read(self.pid)?)?;
        let remote = Remote::by(self.pid, &thread, &self.memory, code)?;
        let mapped = instruments.map(&remote)?;
        if let Err(error) = words.begin_load(object, planned.plan, planned.kept, mapped) {
            unmap(&remote, instruments.span())?;
            return Err(error);
        }
        drop(remote);
        self.cache.add_instruments(instruments)
    }

    /// Keeps the counts of objects that were unloaded, since they are not among those of now, and unmaps their words by a
    /// stopped thread with these original registers. No thread is in code of these spans, which is gone, or reads memory.
    pub(super) fn forget_objects(
        &mut self,
        (tid, registers): (Tid, &Registers),
        gone: &[Span],
        now: &[Object],
    ) -> Result<()> {
        let (Some(later), Some(words)) = (&mut self.later, &self.words) else {
            return Ok(());
        };
        let is_gone = |object: &Object| !now.iter().any(|one| one.has(object));
        later.forget(gone, is_gone);
        let over = self.cache.forget_instruments(is_gone)?;
        if over.is_empty() {
            return Ok(());
        }
        for span in &over {
            words.end_load(*span)?;
        }
        // A filter may end the process for a system call.
        if is_filtered(self.pid, tid) {
            self.cache.leave_words(over);
            return Ok(());
        }
        let thread = Thread {
            tid,
            registers: *registers,
            rseq: ptrace::rseq(tid).map_err(self.failed(tid))?,
        };
        ptrace::set_registers(tid, registers).map_err(self.failed(tid))?;
        let code = RemoteCode::find(self.pid, &self.memory, &maps::read(self.pid)?)?;
        let remote = Remote::by(self.pid, &thread, &self.memory, code)?;
        over.into_iter().try_for_each(|span| unmap(&remote, span))
    }
}
