//! The splices of a plan in a process: written, read, and removed.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use gilk_engine::layout::{CounterSlot, RuntimeLayout, Sequences};
use gilk_engine::plan::PokeKind;
use gilk_engine::{Addr, Plan, Span, VerifiedPlan};

use super::record::{Client, Kept, Record, Written};
use super::remote::Remote;
use super::removal::{self, Cleaned, Patched, unmap};
use super::rings::SampleRings;
use super::stopped::{Stopped, quiet, traced};
use super::subject::{Subject, rows};
use super::{maps, proc, refused};
use crate::writes;
use crate::{Error, Result};

/// A process that counts the hits of a plan. They are removed when this is dropped, if they were not before.
#[derive(Debug)]
pub struct Attached {
    pid: u32,
    memory: File,
    /// The words of all CPUs, which outlive the process.
    counters: File,
    record: Record,
    layout: RuntimeLayout,
    sequences: Sequences,
    /// Keys and words of the counters.
    slots: Vec<(u64, CounterSlot)>,
    rings: Option<SampleRings>,
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
    /// Findings in the process and its forked children.
    pub cleaned: Cleaned,
}

impl Attached {
    /// Writes a plan, which was made for the subject's image and layout, into its process.
    ///
    /// # Errors
    /// [`Error::Process`] if the process has ended or changed, or has no moment in which no thread is among the
    /// displaced instructions; [`Error::Plan`] if not all instruments of the plan begin and end together. Nothing is
    /// left in the process then.
    pub fn attach(subject: Subject, plan: &VerifiedPlan) -> Result<Self> {
        crate::processor::check()?;
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
            reserved,
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
        let record = record_of(plan, &layout, reserved, (words, text, bounces))?;
        let encoded = record.encode()?;
        let counters = map(pid, &stopped, &memory, &record)?;
        let mut attached = Self {
            pid,
            memory,
            counters,
            record,
            layout,
            sequences,
            slots: slots(plan),
            rings: None,
            stopped: Duration::ZERO,
            removed: false,
        };
        let opened = SampleRings::open(&attached.counters, &attached.layout);
        let opened = opened.map_err(|error| {
            refused(
                pid,
                format!("its rings of samples cannot be opened ({error})"),
            )
        });
        let written = opened.and_then(|rings| {
            attached.rings = Some(rings);
            attached.write(plan, &encoded)
        });
        attached.stopped = stopped.duration();
        drop(stopped);
        // A failed write is undone by the drop.
        written.map(|()| attached)
    }

    /// Writes the record and the patches, then the text.
    fn write(&self, plan: &Plan, record: &[u8]) -> Result<()> {
        let write = |bytes: &[u8], at: Addr| {
            let written = self.memory.write_all_at(bytes, at.0);
            written.map_err(|error| {
                refused(self.pid, format!("its memory cannot be written ({error})"))
            })
        };
        let end = self.record.arena.end.0;
        write(record, Addr(end - record.len() as u64))?;
        for patch in &plan.patches {
            write(&patch.code, patch.address)?;
        }
        for one in &self.record.text {
            write(&one.splice, one.at)?;
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
        self.patched().has_ended()
    }

    fn patched(&self) -> Patched<'_> {
        Patched {
            pid: self.pid,
            memory: &self.memory,
            record: &self.record,
        }
    }

    /// The hits up to now, by key.
    ///
    /// # Errors
    /// [`Error::Process`] if the file of counters cannot be read.
    pub fn counts(&self) -> Result<Vec<(u64, u64)>> {
        let mut bytes = vec![0; usize::try_from(rows(self.sequences)).unwrap_or(0)];
        let read = self.counters.read_exact_at(&mut bytes, 0);
        read.map_err(|error| refused(self.pid, format!("its counters cannot be read ({error})")))?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: u64| {
            let offset = at.checked_sub(self.record.words.start.0)?;
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

    /// Takes the reader of the samples, which remain after the removal and the end of the process; once.
    pub fn take_rings(&mut self) -> Option<SampleRings> {
        self.rings.take()
    }

    /// Removes everything from the process and its forked children, and returns the last counts.
    ///
    /// # Errors
    /// [`Error::Process`] if its threads cannot be stopped.
    pub fn remove(mut self) -> Result<Removed> {
        self.take_out()
    }

    fn take_out(&mut self) -> Result<Removed> {
        let mut cleaned = Cleaned {
            stopped: self.stopped,
            ..Cleaned::default()
        };
        let patched = self.patched();
        let done = patched.remove(&mut cleaned);
        let ended = patched.has_ended() && cleaned.processes.is_empty();
        self.removed = done.is_ok();
        done?;
        let file = self.counters.metadata().map_err(|error| {
            refused(self.pid, format!("its file of counters is gone ({error})"))
        })?;
        let file = file.ino();
        // What remains in the process itself was tried already.
        let (pid, tried) = (self.pid, !cleaned.remains.is_empty());
        let children = |one, kept: Kept| kept.file == file && !(tried && one == pid);
        removal::clean(&children, &mut cleaned)?;
        Ok(Removed {
            counts: self.counts()?,
            ended,
            cleaned,
        })
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

/// Returns the record of a plan: its arena has the patches, then the record itself.
fn record_of(
    plan: &Plan,
    layout: &RuntimeLayout,
    reserved: Span,
    (words, text, bounces): (Span, Vec<Written>, Vec<Span>),
) -> Result<Record> {
    let ends = plan
        .patches
        .iter()
        .map(|patch| patch.address.add(patch.code.len() as u64));
    let used = ends.max().unwrap_or(layout.arena.start);
    let mut record = Record {
        words,
        arena: reserved,
        text,
        bounces,
    };
    // No address is longer than the end of what is reserved.
    let end = used.0 + record.encode()?.len() as u64 + maps::PAGE;
    record.arena.end = Addr(end & !(maps::PAGE - 1));
    if record.arena.end <= reserved.end {
        Ok(record)
    } else {
        Err(Error::Plan {
            reason:
                "its patches and their record do not fit into the arena; instrument fewer places"
                    .to_owned(),
        })
    }
}

/// Maps the words and the arena into a process; returns the file of the words.
fn map(pid: u32, stopped: &Stopped, memory: &File, record: &Record) -> Result<File> {
    let (words, arena) = (record.words, record.arena);
    let maps = maps::read(pid)?;
    let remote = Remote::of(pid, stopped, memory, &maps)?;
    let name = remote.put(&Client::current()?.file_name())?;
    let arguments = [name, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0];
    let number = remote.call(
        "create a file of counters",
        libc::SYS_memfd_create,
        arguments,
    )?;
    let bytes = words.len() + arena.len();
    let counters = counters(pid, number, bytes).and_then(|counters| {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        place(&remote, words, (writable, libc::MAP_SHARED), (number, 0))?;
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        let placed = (executable, libc::MAP_PRIVATE);
        if let Err(error) = place(&remote, arena, placed, (number, words.len())) {
            unmap(&remote, words)?;
            return Err(error);
        }
        Ok(counters)
    });
    remote.call(
        "close the file of counters",
        libc::SYS_close,
        [number, 0, 0, 0, 0, 0],
    )?;
    counters
}

/// Opens the file of counters that a process has created, and sets its length.
pub(super) fn counters(pid: u32, number: u64, bytes: u64) -> Result<File> {
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

/// Maps a span of a process: part of a file, by its number and offset.
pub(super) fn place(
    remote: &Remote<'_>,
    span: Span,
    (protection, sharing): (i32, i32),
    (file, offset): (u64, u64),
) -> Result<()> {
    let number = |flags: i32| u64::from(flags.cast_unsigned());
    let arguments = [
        span.start.0,
        span.len(),
        number(protection),
        number(sharing | libc::MAP_FIXED_NOREPLACE),
        file,
        offset,
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
