//! A forked child that waits before its first instruction: everything is removed from it, and it continues there; or it is
//! given words of its own.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::MutexGuard;

use gilk_engine::forks::WaitingFrame;
use gilk_engine::{Addr, Span};

use super::attached::{Attached, ForkedAttachment};
use super::mapped::map_by;
use super::maps::MappedSpan;
use super::ptrace::{self, Registers};
use super::record::{self, Client, Record};
use super::remote::{Remote, RemoteCode};
use super::removal::{Cleaned, Patched, memory};
use super::stopped::{Stopped, Thread, alone, is_filtered};
use super::{maps, refused};
use crate::Result;

/// Code in which children wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingPlace {
    pub(super) code: Span,
    /// The instructions of it at which they wait.
    pub(super) waiting: Span,
    /// The address where they continue.
    pub(super) after: Addr,
}

/// A position of a child when it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildPlace {
    /// It waited, and everything is removed from it.
    Freed,
    /// It is in the code in which children wait, before or after that.
    Near,
    /// It executes its own code, or a patch.
    Elsewhere,
    /// So it does, and has no splice.
    Original,
}

/// The state in which a child continues.
struct Continued {
    registers: Registers,
    /// Blocked signals.
    blocked: u64,
}

/// Removes everything of this program from a child that waits, and has it continue in its own code. Returns where it
/// was. `code` is where its parent has it. Executed by the tracer.
///
/// # Errors
/// [`Error::Process`](crate::Error::Process) if it cannot be stopped, has ended, or cannot be written. If it lives, it waits
/// still then, or continues in its own code.
pub(super) fn freed(
    pid: u32,
    (places, code): (&[WaitingPlace], RemoteCode),
    cleaned: &mut Cleaned,
) -> Result<ChildPlace> {
    let child = StoppedChild::stop(pid)?;
    let (thread, place) = match child.waiting(places) {
        Ok(waiting) => waiting,
        Err(place) => return Ok(place),
    };
    let StoppedChild {
        memory, stopped, ..
    } = &child;
    let Continued { registers, blocked } = continued(pid, memory, thread, place.after)?;
    for one in child.patched() {
        one.restore_stopped(cleaned)?;
    }
    // Should this program be killed from now on, the child continues there.
    let moved = ptrace::set_registers(thread.tid, &registers);
    let moved = moved.and_then(|()| ptrace::set_blocked(thread.tid, blocked));
    moved.map_err(|error| refused(pid, format!("it cannot be moved ({error})")))?;
    for one in child.patched() {
        one.disarm(stopped)?;
    }
    if is_filtered(pid, thread.tid) {
        let why = format!("process {pid} filters its system calls (seccomp), as its parent does");
        cleaned.remains.push(why);
        return Ok(ChildPlace::Freed);
    }
    let maps = maps::read(pid)?;
    let thread = Thread {
        tid: thread.tid,
        registers,
        rseq: thread.rseq,
    };
    let remote = Remote::by(pid, &thread, memory, child.code(code, &maps)?)?;
    let mut patched = child.patched();
    patched.try_for_each(|one| one.unmap_by(&remote, &maps))?;
    Ok(ChildPlace::Freed)
}

/// Gives a child that waits words of its own in place of its parent's, and removes all else but the code in which it waits,
/// which has the file of this number. Returns nothing if it does not wait, or has no splice of the parent's plan.
/// Executed by the tracer.
///
/// # Errors
/// As [`freed`]. If it lives, it waits still then, with the instruments of its parent or without any.
pub(super) fn adopted(
    pid: u32,
    (places, code): (&[WaitingPlace], RemoteCode),
    watch: u64,
    parent: &ForkedAttachment,
) -> Result<Option<Attached>> {
    let child = StoppedChild::stop(pid)?;
    let Ok((thread, _)) = child.waiting(places) else {
        return Ok(None);
    };
    let StoppedChild {
        memory, stopped, ..
    } = &child;
    if !has_splice(memory, std::iter::once(parent.record())) {
        return Ok(None);
    }
    if is_filtered(pid, thread.tid) {
        let why = "it filters its system calls (seccomp), as its parent does";
        return Err(refused(pid, why));
    }
    let mut cleaned = Cleaned::default();
    let mut restored = BTreeSet::new();
    let others = || child.records.iter().filter(|(file, _)| *file != watch);
    for (_, record) in others() {
        let patched = child.patched_by(record);
        restored.extend(patched.restore_stopped(&mut cleaned)?);
        patched.disarm(stopped)?;
    }
    let mut arenas = Vec::new();
    for arena in &parent.record().arenas {
        let mut bytes = vec![0; usize::try_from(arena.len()).unwrap_or(0)];
        let read = memory.read_exact_at(&mut bytes, arena.start.0);
        read.map_err(|error| refused(pid, format!("its patches cannot be read ({error})")))?;
        arenas.push((arena.start, bytes));
    }
    let maps = maps::read(pid)?;
    let remote = Remote::by(pid, thread, memory, child.code(code, &maps)?)?;
    for (_, record) in others() {
        child.patched_by(record).unmap_by(&remote, &maps)?;
    }
    let counters = map_by(pid, &remote, parent.record())?;
    drop(remote);
    let memory = memory.try_clone();
    let memory = memory.map_err(|error| refused(pid, format!("its memory is gone ({error})")))?;
    // What fails from now on is undone by the drop, once the child is not stopped any more.
    let mut attached = parent.attached(pid, memory, counters);
    let written = attached.written_as(&arenas, &restored, stopped);
    drop(child);
    written.map(|()| Some(attached))
}

/// A child that is stopped, with all that this program has mapped there.
struct StoppedChild {
    pid: u32,
    memory: File,
    stopped: Stopped,
    /// Each with the number of its file.
    records: Vec<(u64, Record)>,
    _alone: MutexGuard<'static, ()>,
}

impl StoppedChild {
    fn stop(pid: u32) -> Result<Self> {
        let memory = memory(pid)?;
        let alone = alone();
        let stopped = Stopped::stop(pid)?;
        let own = Client::current()?;
        let kept = record::kept(pid)?.into_iter();
        let records = kept
            .filter(|kept| kept.client == own)
            .map(|kept| Ok((kept.file, Record::read(pid, &memory, &kept)?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            pid,
            memory,
            stopped,
            records,
            _alone: alone,
        })
    }

    /// Its thread, and the code in which it waits; or where it is.
    fn waiting<'c>(
        &'c self,
        places: &'c [WaitingPlace],
    ) -> std::result::Result<(&'c Thread, &'c WaitingPlace), ChildPlace> {
        // A child has one thread until it continues.
        let found = match self.stopped.threads.as_slice() {
            [thread] => {
                let at = Addr(thread.registers.rip);
                let place = places.iter().find(|place| place.code.contains(at));
                place.map(|place| (thread, place, place.waiting.contains(at)))
            }
            _ => None,
        };
        match found {
            Some((thread, place, true)) => Ok((thread, place)),
            Some((_, _, false)) => Err(ChildPlace::Near),
            None => {
                let records = self.records.iter().map(|(_, record)| record);
                match has_splice(&self.memory, records) {
                    true => Err(ChildPlace::Elsewhere),
                    false => Err(ChildPlace::Original),
                }
            }
        }
    }

    fn patched(&self) -> impl Iterator<Item = Patched<'_>> {
        let records = self.records.iter();
        records.map(|(_, record)| self.patched_by(record))
    }

    fn patched_by<'c>(&'c self, record: &'c Record) -> Patched<'c> {
        Patched {
            pid: self.pid,
            memory: &self.memory,
            record,
        }
    }

    /// Returns the instructions of its parent for system calls, or finds its own.
    fn code(&self, code: RemoteCode, maps: &[MappedSpan]) -> Result<RemoteCode> {
        match code.is_in(&self.memory, maps) {
            true => Ok(code),
            false => RemoteCode::find(self.pid, &self.memory, maps),
        }
    }
}

/// Returns whether a splice is in place.
fn has_splice<'r>(memory: &File, records: impl Iterator<Item = &'r Record>) -> bool {
    let mut text = records.flat_map(|record| &record.text);
    text.any(|write| {
        let mut bytes = vec![0; write.splice.len()];
        // An object that was unmapped has none.
        memory.read_exact_at(&mut bytes, write.at.0).is_ok() && bytes == write.splice
    })
}

/// Returns the state of a waiting child after its system call: as it was before, with the result 0.
fn continued(pid: u32, memory: &File, thread: &Thread, after: Addr) -> Result<Continued> {
    const WORDS: usize = WaitingFrame::FLAGS as usize / 8 + 1;
    let stack = thread.registers.rsp;
    let mut bytes = [0; WORDS * 8];
    let read = memory.read_exact_at(&mut bytes, stack);
    read.map_err(|error| refused(pid, format!("its stack cannot be read ({error})")))?;
    let (words, _) = bytes.as_chunks::<8>();
    let word = |offset: u64| {
        let index = usize::try_from(offset / 8).ok();
        let word = index.and_then(|index| words.get(index));
        debug_assert!(word.is_some(), "a frame has all its words");
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    let register = |number: u64| word(WaitingFrame::REGISTERS + 8 * number);
    let flags = word(WaitingFrame::FLAGS);
    let registers = Registers {
        r10: register(0),
        r9: register(1),
        r8: register(2),
        rdx: register(3),
        rsi: register(4),
        rdi: register(5),
        eflags: flags,
        rsp: stack.wrapping_add(WaitingFrame::LEN_BYTES),
        rip: after.0,
        // As a system call leaves them.
        rax: 0,
        rcx: after.0,
        r11: flags,
        // None was interrupted that the kernel would restart.
        orig_rax: u64::MAX,
        ..thread.registers
    };
    Ok(Continued {
        registers,
        blocked: word(WaitingFrame::BLOCKED),
    })
}
