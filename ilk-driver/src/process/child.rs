//! A forked child that waits before its first instruction: everything is removed from it, and it continues there.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::forks::WaitingFrame;
use gilk_engine::{Addr, Span};

use super::ptrace::{self, Registers};
use super::record::{self, Client, Record};
use super::remote::{Remote, RemoteCode};
use super::removal::{Cleaned, Patched, memory};
use super::stopped::{Stopped, Thread, is_filtered};
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
    let memory = memory(pid)?;
    let stopped = Stopped::stop(pid)?;
    let own = Client::current()?;
    let kept = record::kept(pid)?.into_iter();
    let records = kept
        .filter(|kept| kept.client == own)
        .map(|kept| Record::read(pid, &memory, &kept));
    let records: Vec<Record> = records.collect::<Result<_>>()?;
    // A child has one thread until it continues.
    let found = match stopped.threads.as_slice() {
        [thread] => {
            let at = Addr(thread.registers.rip);
            let place = places.iter().find(|place| place.code.contains(at));
            place.map(|place| (thread, place, place.waiting.contains(at)))
        }
        _ => None,
    };
    let (thread, place) = match found {
        Some((thread, place, true)) => (thread, place),
        Some((_, _, false)) => return Ok(ChildPlace::Near),
        None if has_splice(&memory, &records) => return Ok(ChildPlace::Elsewhere),
        None => return Ok(ChildPlace::Original),
    };
    let Continued { registers, blocked } = continued(pid, &memory, thread, place.after)?;
    let patched = records.iter().map(|record| Patched {
        pid,
        memory: &memory,
        record,
    });
    for one in patched.clone() {
        one.restore_stopped(cleaned)?;
    }
    // Should this program be killed from now on, the child continues there.
    let moved = ptrace::set_registers(thread.tid, &registers);
    let moved = moved.and_then(|()| ptrace::set_blocked(thread.tid, blocked));
    moved.map_err(|error| refused(pid, format!("it cannot be moved ({error})")))?;
    for one in patched.clone() {
        one.disarm(&stopped)?;
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
    let code = match code.is_in(&memory, &maps) {
        true => code,
        false => RemoteCode::find(pid, &memory, &maps)?,
    };
    let remote = Remote::by(pid, &thread, &memory, code)?;
    let mut patched = patched;
    patched.try_for_each(|one| one.unmap_by(&remote, &maps))?;
    Ok(ChildPlace::Freed)
}

/// Returns whether a splice is in place.
fn has_splice(memory: &File, records: &[Record]) -> bool {
    let mut text = records.iter().flat_map(|record| &record.text);
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
