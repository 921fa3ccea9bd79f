//! The splices of a plan in a process: written, read, and removed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use gilk_engine::layout::{CounterSlot, RuntimeLayout, Sequences};
use gilk_engine::plan::PokeKind;
use gilk_engine::{Addr, Plan, Span, VerifiedPlan};

use super::remote::Remote;
use super::stopped::{Stopped, traced};
use super::subject::Subject;
use super::{maps, proc, refused};
use crate::writes;
use crate::{Error, Result};

/// Attempts to find a moment in which no thread is where it must not be, a millisecond apart.
const ATTEMPTS: usize = 500;
/// Time between two attempts.
const BETWEEN: Duration = Duration::from_millis(1);
/// Name of the file of counters, as `/proc/pid/maps` shows it.
const COUNTERS: &[u8] = b"gilk-counters\0";

/// A write of text.
#[derive(Clone, Debug)]
struct Written {
    at: Addr,
    original: Vec<u8>,
    splice: Vec<u8>,
}

/// A process that counts the hits of a plan. They are removed when this is dropped, if they were not before.
#[derive(Debug)]
pub struct Attached {
    pid: u32,
    memory: File,
    /// The words of all CPUs, which outlive the process.
    counters: File,
    words: Span,
    /// The part of the arena that is mapped.
    arena: Span,
    layout: RuntimeLayout,
    sequences: Sequences,
    /// Keys and words of the counters.
    slots: Vec<(u64, CounterSlot)>,
    text: Vec<Written>,
    /// Bytes of bounces, which threads pass through.
    bounces: Vec<Span>,
    stopped: Duration,
    removed: bool,
}

/// A removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Hits by key: the packed identifier of an instrument that counts its hits, or the key of an aggregate's word.
    pub counts: Vec<(u64, u64)>,
    /// The process had ended, or executed another program.
    pub ended: bool,
    /// The reason why the arena remains in the process, if it does. Nothing enters it any more.
    pub remains: Option<String>,
    /// Splices that were not there any more: something else has written over them.
    pub overwritten: usize,
    /// The longest time for which the threads were stopped.
    pub stopped: Duration,
}

impl Attached {
    /// Writes a plan, which was made for the subject's image and layout, into its process.
    ///
    /// # Errors
    /// [`Error::Process`] if the process has ended or changed, or has no moment in which no thread is among the
    /// displaced instructions; [`Error::Plan`] if not all instruments of the plan begin and end together. Nothing is
    /// left in the process then.
    pub fn attach(subject: Subject, plan: &VerifiedPlan) -> Result<Self> {
        traced(subject.pid, || Self::attach_traced(subject, plan))
    }

    fn attach_traced(subject: Subject, plan: &VerifiedPlan) -> Result<Self> {
        let Subject {
            pid,
            memory,
            image,
            layout,
            sequences,
            words,
        } = subject;
        let plan = plan.plan();
        if plan.layout != layout || plan.release != image.release() {
            return Err(Error::Plan {
                reason: "it is of another process".to_owned(),
            });
        }
        let text = text_of(plan)?;
        // Nothing returns to the first byte of a splice from within the displaced instructions.
        let displaced = plan.sites.iter().map(|site| Span {
            start: site.displaced.start.add(1),
            end: site.displaced.end,
        });
        let bounces: Vec<Span> = plan
            .bounces
            .iter()
            .map(|bounce| Span::new(bounce.at, 5))
            .collect();
        let avoided: Vec<Span> = displaced.chain(bounces.iter().copied()).collect();
        let stopped = quiet(pid, &memory, &avoided)?;
        for site in &plan.sites {
            let original = image.bytes(site.displaced).unwrap_or_default();
            same(pid, &memory, site.displaced.start, original)?;
        }
        for write in &text {
            same(pid, &memory, write.at, &write.original)?;
        }
        let used = plan
            .patches
            .iter()
            .map(|patch| patch.address.add(patch.code.len() as u64));
        let used = used.max().unwrap_or(layout.arena.start);
        let arena = Span {
            start: layout.arena.start,
            end: Addr(used.0.next_multiple_of(maps::PAGE)),
        };
        let counters = map(pid, &stopped, &memory, (words, arena))?;
        let slots = slots(plan);
        let mut attached = Self {
            pid,
            memory,
            counters,
            words,
            arena,
            layout,
            sequences,
            slots,
            text: Vec::new(),
            bounces,
            stopped: Duration::ZERO,
            removed: false,
        };
        let written = attached.write(plan, text);
        attached.stopped = stopped.duration();
        drop(stopped);
        // A failed write is undone by the drop.
        written.map(|()| attached)
    }

    /// Writes the patches, then the text.
    fn write(&mut self, plan: &Plan, text: Vec<Written>) -> Result<()> {
        let failed = |pid, error| refused(pid, format!("its memory cannot be written ({error})"));
        for patch in &plan.patches {
            let written = self.memory.write_all_at(&patch.code, patch.address.0);
            written.map_err(|error| failed(self.pid, error))?;
        }
        for write in text {
            let written = self.memory.write_all_at(&write.splice, write.at.0);
            self.text.push(write);
            written.map_err(|error| failed(self.pid, error))?;
        }
        Ok(())
    }

    /// The time for which all threads were stopped at the start.
    #[must_use]
    pub fn stopped(&self) -> Duration {
        self.stopped
    }

    /// Returns whether the process has ended, or executed another program.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut byte = [0];
        self.memory
            .read_exact_at(&mut byte, self.arena.start.0)
            .is_err()
    }

    /// The hits up to now, by key.
    ///
    /// # Errors
    /// [`Error::Process`] if the file of counters cannot be read.
    pub fn counts(&self) -> Result<Vec<(u64, u64)>> {
        let mut bytes = vec![0; usize::try_from(self.words.len()).unwrap_or(0)];
        let read = self.counters.read_exact_at(&mut bytes, 0);
        read.map_err(|error| refused(self.pid, format!("its counters cannot be read ({error})")))?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: u64| {
            let offset = at.checked_sub(self.words.start.0)?;
            Some(u64::from_le_bytes(
                *words.get(usize::try_from(offset / 8).ok()?)?,
            ))
        };
        let sum = |slot: CounterSlot| -> Option<u64> {
            let first = self.layout.counter(slot)?.0;
            let rows = 0..=u64::from(self.sequences.cpus);
            let rows = rows.map(|row| word(first + (row << self.sequences.stride_log2)));
            rows.sum()
        };
        let counts = self.slots.iter().map(|&(key, slot)| {
            let sum = sum(slot).ok_or_else(|| {
                refused(
                    self.pid,
                    "a counter is outside of its file, which is a bug in gilk",
                )
            });
            Ok((key, sum?))
        });
        counts.collect()
    }

    /// Removes everything from the process, and returns the last counts.
    ///
    /// # Errors
    /// [`Error::Process`] if its threads cannot be stopped.
    pub fn remove(mut self) -> Result<Removed> {
        self.take_out()
    }

    fn take_out(&mut self) -> Result<Removed> {
        let mut removed = Removed {
            counts: Vec::new(),
            ended: false,
            remains: None,
            overwritten: 0,
            stopped: self.stopped,
        };
        let done = traced(self.pid, || self.restore(&mut removed));
        removed.ended = self.has_ended();
        self.removed = done.is_ok() || removed.ended;
        if !removed.ended {
            done?;
            removed.remains = traced(self.pid, || self.unmap(&mut removed.stopped))?;
        }
        removed.counts = self.counts()?;
        Ok(removed)
    }

    /// Writes the original text.
    fn restore(&self, removed: &mut Removed) -> Result<()> {
        let stopped = quiet(self.pid, &self.memory, &self.bounces)?;
        for write in self.text.iter().rev() {
            let failed =
                |error| refused(self.pid, format!("its text cannot be restored ({error})"));
            let mut found = vec![0; write.splice.len()];
            self.memory
                .read_exact_at(&mut found, write.at.0)
                .map_err(failed)?;
            if found == write.splice {
                let restored = self.memory.write_all_at(&write.original, write.at.0);
                restored.map_err(failed)?;
            } else if found != write.original {
                removed.overwritten += 1;
            }
        }
        removed.stopped = removed.stopped.max(stopped.duration());
        Ok(())
    }

    /// Unmaps the arena and the counters once no thread is in a patch or will return to one. Returns the reason if
    /// that does not come.
    fn unmap(&self, longest: &mut Duration) -> Result<Option<String>> {
        let mut busy = 0;
        for _ in 0..ATTEMPTS {
            let stopped = match Stopped::stop(self.pid) {
                Err(_) if self.has_ended() => return Ok(None),
                stopped => stopped?,
            };
            match stopped.inside(&self.memory, &[self.arena])? {
                Some(tid) => busy = tid,
                None => {
                    self.disarm(&stopped)?;
                    let maps = maps::read(self.pid)?;
                    let remote = Remote::of(self.pid, &stopped, &self.memory, &maps)?;
                    for span in [self.arena, self.words] {
                        unmap(&remote, span)?;
                    }
                    *longest = (*longest).max(stopped.duration());
                    return Ok(None);
                }
            }
            *longest = (*longest).max(stopped.duration());
            drop(stopped);
            std::thread::sleep(BETWEEN);
        }
        Ok(Some(format!(
            "the stack of its thread {busy} points into the arena, such as in the frame of a signal"
        )))
    }

    /// Clears the descriptor of each thread that is in the arena: the kernel would not find it there, and kill the
    /// process.
    fn disarm(&self, stopped: &Stopped) -> Result<()> {
        for thread in stopped
            .threads
            .iter()
            .filter(|thread| thread.rseq.area != 0)
        {
            let failed = |error| {
                let tid = thread.tid;
                refused(
                    self.pid,
                    format!("the area of its thread {tid} cannot be cleared ({error})"),
                )
            };
            let at = thread.rseq.area + 8;
            let mut word = [0; 8];
            self.memory.read_exact_at(&mut word, at).map_err(failed)?;
            if self.arena.contains(Addr(u64::from_le_bytes(word))) {
                self.memory.write_all_at(&[0; 8], at).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.removed {
            // No caller is left to report to.
            let _unreported = self.take_out();
        }
    }
}

/// Returns the writes of a plan whose instruments all begin and end together.
fn text_of(plan: &Plan) -> Result<Vec<Written>> {
    let reason = "in a process all instruments begin and end together";
    let apart = || Error::Plan {
        reason: reason.to_owned(),
    };
    let (installs, removals) = match plan.batches.as_slice() {
        [] => return Ok(Vec::new()),
        [installs, removals] => (installs, removals),
        _ => return Err(apart()),
    };
    let only = |pokes: &[gilk_engine::plan::Poke], kind| pokes.iter().all(|poke| poke.kind == kind);
    if !only(&installs.pokes, PokeKind::Install) || !only(&removals.pokes, PokeKind::Remove) {
        return Err(apart());
    }
    let writes = installs.pokes.iter().map(|poke| Written {
        at: poke.at,
        original: poke.expect.to_vec(),
        splice: poke.write.to_vec(),
    });
    Ok(writes.collect())
}

/// The words of a plan, with their keys.
fn slots(plan: &Plan) -> Vec<(u64, CounterSlot)> {
    let instruments = plan.instruments.iter();
    let hits = instruments.filter_map(|one| Some((one.id.pack(), one.counter?)));
    let aggregates = writes::owners(plan).flat_map(|(owner, probed)| {
        writes::aggregates_of(owner, probed).flat_map(|(_, words)| words)
    });
    hits.chain(aggregates).collect()
}

/// Stops a process in a moment when no thread is in some spans, or will return there.
fn quiet(pid: u32, memory: &File, avoided: &[Span]) -> Result<Stopped> {
    let mut busy = 0;
    for _ in 0..ATTEMPTS {
        let stopped = Stopped::stop(pid)?;
        match stopped.inside(memory, avoided)? {
            None => return Ok(stopped),
            Some(tid) => busy = tid,
        }
        drop(stopped);
        std::thread::sleep(BETWEEN);
    }
    Err(refused(
        pid,
        format!("its thread {busy} stays among instructions that would be displaced; try again"),
    ))
}

/// Compares bytes of a process with those that a plan expects.
fn same(pid: u32, memory: &File, at: Addr, expected: &[u8]) -> Result<()> {
    let mut found = vec![0; expected.len()];
    let read = memory.read_exact_at(&mut found, at.0);
    read.map_err(|error| refused(pid, format!("its text at {at} cannot be read ({error})")))?;
    if found == expected {
        Ok(())
    } else {
        Err(refused(
            pid,
            format!("its text at {at} has changed since it was read; try again"),
        ))
    }
}

/// Maps the words and the arena into a process; returns the file of the words.
fn map(pid: u32, stopped: &Stopped, memory: &File, (words, arena): (Span, Span)) -> Result<File> {
    let maps = maps::read(pid)?;
    let remote = Remote::of(pid, stopped, memory, &maps)?;
    let name = remote.put(COUNTERS)?;
    let arguments = [name, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0];
    let number = remote.call(
        "create a file of counters",
        libc::SYS_memfd_create,
        arguments,
    )?;
    let counters = counters(pid, number, words.len()).and_then(|counters| {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        place(&remote, words, (writable, flags), number)?;
        Ok(counters)
    });
    remote.call(
        "close the file of counters",
        libc::SYS_close,
        [number, 0, 0, 0, 0, 0],
    )?;
    let counters = counters?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    if let Err(error) = place(&remote, arena, (executable, flags), u64::MAX) {
        unmap(&remote, words)?;
        return Err(error);
    }
    Ok(counters)
}

/// Opens the file of counters that a process has created, and sets its length.
fn counters(pid: u32, number: u64, bytes: u64) -> Result<File> {
    let path = proc(pid, &format!("fd/{number}"));
    let open = || {
        let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
        file.set_len(bytes)?;
        Ok(file)
    };
    open().map_err(|error: std::io::Error| {
        refused(
            pid,
            format!("its file of counters cannot be opened ({error})"),
        )
    })
}

/// Maps a span of a process.
fn place(
    remote: &Remote<'_>,
    span: Span,
    (protection, flags): (i32, i32),
    file: u64,
) -> Result<()> {
    let number = |flags: i32| u64::from(flags.cast_unsigned());
    let arguments = [
        span.start.0,
        span.len(),
        number(protection),
        number(flags),
        file,
        0,
    ];
    let what = format!("map memory at {}", span.start);
    let at = remote.call(&what, libc::SYS_mmap, arguments)?;
    if at == span.start.0 {
        return Ok(());
    }
    // Before Linux 4.17 the flag is a hint.
    let elsewhere = Span::new(Addr(at), span.len());
    unmap(remote, elsewhere)?;
    Err(remote.refused(format!("its memory at {} is taken", span.start)))
}

fn unmap(remote: &Remote<'_>, span: Span) -> Result<()> {
    let arguments = [span.start.0, span.len(), 0, 0, 0, 0];
    let what = format!("unmap memory at {}", span.start);
    remote.call(&what, libc::SYS_munmap, arguments).map(drop)
}
