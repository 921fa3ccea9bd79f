//! The splices of a plan in a process: written, read, and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use gilk_engine::cfg::BlockIndex;
use gilk_engine::layout::ReadGate;
use gilk_engine::plan::Patch;
use gilk_engine::reads::MemoryReader;
use gilk_engine::verify::reads;
use gilk_engine::{Addr, HookType, Image, Plan, Span, VerifiedPlan};

use super::ended::ends_now;
use super::guarded::GuardSearch;
use super::guards::{ReadGuards, reads_memory};
use super::library::is_of_go;
use super::mapped::{map, number_of, place};
use super::objects::program_of;
use super::pages::TextPages;
use super::record::{Kept, Record, Semaphore, Written, text_of};
use super::remote::Remote;
use super::removal::{self, Cleaned, Patched, unmap};
use super::replaced::linked::LinkedObject;
use super::reserved::{Reserved, STORAGE};
use super::rings::SampleRings;
use super::stacks::NumberedStacks;
use super::stopped::{Stopped, is_filtered, quiet, traced};
use super::subject::Subject;
use super::words::PlannedWords;
use super::{maps, refused, write_memory};
use crate::{Error, Result};

/// Opcode of the one-byte trap.
const INT3: u8 = 0xcc;
/// Attempts to leave an object that is unloaded at once: its thread waits, so that its stack does not change.
const ATTEMPTS_NOW: usize = 3;

/// A process that counts the hits of a plan. They are removed when this is dropped, if they were not before.
#[derive(Debug)]
pub struct Attached {
    pid: u32,
    memory: File,
    /// The words of all CPUs, which outlive the process.
    counters: File,
    record: Record,
    planned: PlannedWords,
    rings: Option<SampleRings>,
    /// The stacks that its instruments number.
    pub(super) stacks: NumberedStacks,
    /// The words that end its reads of memory, if it has any.
    gate: Option<ReadGate>,
    stopped: Duration,
    removed: bool,
    /// The mappings of object files whose functions are not called yet. They stay once they are.
    unused: Vec<Span>,
}

/// The parts of an attachment that forked children have, too, whose words are their own.
#[derive(Clone, Debug)]
pub(super) struct ForkedAttachment {
    record: Record,
    planned: PlannedWords,
    gate: Option<ReadGate>,
}

impl ForkedAttachment {
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// The attachment of a child, in which these words are mapped.
    pub(super) fn attached(&self, pid: u32, memory: File, counters: File) -> Attached {
        let Self {
            record,
            planned,
            gate,
        } = self.clone();
        Attached {
            pid,
            memory,
            counters,
            record,
            planned,
            rings: None,
            stacks: NumberedStacks::default(),
            gate,
            stopped: Duration::ZERO,
            removed: false,
            unused: Vec::new(),
        }
    }
}

/// A removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Hits by key: the packed identifier of an instrument that counts its hits, or the key of an aggregate's word.
    pub counts: Vec<(u64, u64)>,
    /// The process had ended, or executed another program.
    pub ended: bool,
    /// The process, or a child, began to filter its system calls, and its memory was not read any more.
    pub reads_ended: bool,
    /// Findings in the process and its forked children.
    pub cleaned: Cleaned,
}

/// Refuses splices in a program of Go: an instruction that faults in a patch would end it.
fn refuse_go(subject: &Subject, plan: &Plan) -> Result<()> {
    let path = program_of(subject.pid)?;
    let program = subject.objects.iter().find(|one| one.is_program(&path));
    let is_in = |span: Span| {
        let mut sites = plan.sites.iter();
        sites.any(|site| span.contains(site.displaced.start))
    };
    if program.is_some_and(|program| is_in(program.span)) && is_of_go(subject.pid)? {
        return Err(refused(
            subject.pid,
            "its program is written in Go, whose runtime ends it when an instruction faults elsewhere than in its own \
             code; `ilk clone` executes it in the code cache, where addresses are as they were (rule no-runtime)",
        ));
    }
    Ok(())
}

impl Attached {
    /// Writes a plan, which was made for the subject's image and the reserved layout, into its process.
    ///
    /// # Errors
    /// [`Error::Process`] if the process has ended or changed, or has no moment in which no thread is among the
    /// displaced instructions; [`Error::Target`] if an instrument of the plan begins or ends within the session. Nothing is
    /// left in the process then.
    pub fn attach(subject: &Subject, reserved: Reserved, plan: &VerifiedPlan) -> Result<Self> {
        Self::attach_searched(subject, reserved, plan, &mut GuardSearch::default())
    }

    /// The same, with what an earlier search of the process has found, if the plan reads its memory.
    pub(super) fn attach_searched(
        subject: &Subject,
        reserved: Reserved,
        plan: &VerifiedPlan,
        search: &mut GuardSearch,
    ) -> Result<Self> {
        crate::processor::check()?;
        let stubs = reserved.stubs(plan)?;
        let plan = plan.plan();
        reserved.check(plan, &subject.image)?;
        refuse_go(subject, plan)?;
        let guards = reads_memory(plan).then(|| ReadGuards::of(subject, &reserved, search));
        let guards = guards.transpose()?;
        let mut text = text_of(plan)?;
        text.extend(stubs);
        if let Some(guards) = &guards {
            guards.refuse_overlap(plan, &subject.image)?;
            text.extend(guards.text.iter().cloned());
        }
        let guarding = guards.iter().map(|guards| guards.plan.plan());
        let plans: Vec<&Plan> = std::iter::once(plan).chain(guarding).collect();
        let bounces = plans.iter().flat_map(|plan| &plan.bounces);
        let bounces = bounces.map(|bounce| Span::new(bounce.at, 5)).collect();
        let semaphores = match reserved.switches_on {
            true => semaphores(subject, plan, &text),
            false => Vec::new(),
        };
        let further = guards
            .iter()
            .flat_map(|guards| guards.arenas.iter().copied());
        let arenas = reserved.arenas.iter().copied().chain(further).collect();
        let record = record_of(
            &plans,
            (reserved.words, arenas),
            (text, bounces, semaphores),
        )?;
        let pid = subject.pid;
        let gate = guards.as_ref().map(|_| reserved.gate());
        let mut attached = traced(pid, || Self::prepare(subject, reserved, plan, record))?;
        // What fails from now on is undone by the drop.
        attached.gate = gate;
        if let Some((gate, guards)) = gate.zip(guards.as_ref()) {
            attached.write_readers(gate, guards)?;
        }
        for plan in &plans {
            attached.write_patches(plan)?;
        }
        let images = std::iter::once(&subject.image).chain(guards.iter().map(ReadGuards::image));
        let planned: Vec<(&Plan, &Image)> = plans.iter().copied().zip(images).collect();
        let passed = guards.as_ref().map(|guards| guards.passed.as_slice());
        let patched = attached.patched();
        let spliced = traced(pid, || splice(&patched, &planned, passed))?;
        attached.stopped = attached.stopped.max(spliced);
        attached.unused.clear();
        Ok(attached)
    }

    /// Maps words and arenas, and writes the record: nothing of the process refers to them yet.
    fn prepare(subject: &Subject, reserved: Reserved, plan: &Plan, record: Record) -> Result<Self> {
        let pid = subject.pid;
        let encoded = record.encode()?;
        let memory = subject.memory.try_clone();
        let memory =
            memory.map_err(|error| refused(pid, format!("its memory is gone ({error})")))?;
        let stopped = Stopped::stop(pid)?;
        subject.is_still_mapped()?;
        let counters = map(pid, &stopped, &memory, &record)?;
        let planned = PlannedWords::of(plan, &reserved);
        let objects = reserved.objects;
        let mut attached = Self {
            pid,
            memory,
            counters,
            record,
            planned,
            rings: None,
            stacks: NumberedStacks::default(),
            gate: None,
            stopped: Duration::ZERO,
            removed: false,
            unused: Vec::new(),
        };
        let mapped = attached.map_objects(&stopped, &objects);
        let written = mapped.and_then(|()| attached.prepared(&encoded));
        attached.stopped = stopped.duration();
        drop(stopped);
        // The drop removes the mappings.
        written.map(|()| attached)
    }

    /// Maps the object files of replacements.
    fn map_objects(&mut self, stopped: &Stopped, objects: &[LinkedObject]) -> Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let maps = maps::read(self.pid)?;
        let remote = Remote::of(self.pid, stopped, &self.memory, &maps)?;
        for part in objects.iter().flat_map(|object| &object.parts) {
            let sharing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            place(
                &remote,
                part.span(),
                (part.protection, sharing),
                (u64::MAX, 0),
            )?;
            self.unused.push(part.span());
            self.write(&part.bytes, part.start)?;
        }
        Ok(())
    }

    /// Unmaps the object files of replacements that were never called.
    fn unmap_objects(&mut self) -> Result<()> {
        if self.unused.is_empty() || self.has_ended() {
            return Ok(());
        }
        let unused = std::mem::take(&mut self.unused);
        let unmapped = traced(self.pid, || {
            let stopped = Stopped::stop(self.pid)?;
            let maps = maps::read(self.pid)?;
            let remote = Remote::of(self.pid, &stopped, &self.memory, &maps)?;
            unused.iter().try_for_each(|span| unmap(&remote, *span))
        });
        // It was killed meanwhile.
        unmapped.or_else(|error| match ends_now(|| self.has_ended()) {
            true => Ok(()),
            false => Err(error),
        })
    }

    fn prepared(&mut self, record: &[u8]) -> Result<()> {
        self.open_words()?;
        let end = self.record.holder().end.0;
        self.write(record, Addr(end - record.len() as u64))
    }

    /// Opens the rings and the tables of stacks in the file of the words.
    fn open_words(&mut self) -> Result<()> {
        let rings = SampleRings::open(&self.counters, &self.planned.layout);
        let pid = self.pid;
        self.rings = Some(rings.map_err(|error| {
            refused(
                pid,
                format!("its rings of samples cannot be opened ({error})"),
            )
        })?);
        let start = self.record.words.start;
        self.stacks = self.planned.write_callers(pid, &self.counters, start)?;
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: Addr) -> Result<()> {
        write_memory(self.pid, &self.memory, bytes, at)
    }

    /// The parts that forked children have, too.
    pub(super) fn forked(&self) -> ForkedAttachment {
        ForkedAttachment {
            record: self.record.clone(),
            planned: self.planned.clone(),
            gate: self.gate,
        }
    }

    /// Writes the arenas of its parent into a stopped child, whose words are mapped, and the splices at the addresses where
    /// its parent had them.
    pub(super) fn written_as(
        &mut self,
        arenas: &[(Addr, Vec<u8>)],
        spliced: &BTreeSet<Addr>,
        stopped: &Stopped,
    ) -> Result<()> {
        let pid = self.pid;
        self.open_words()?;
        for (at, bytes) in arenas {
            self.write(bytes, *at)?;
        }
        let text = self.record.text.iter();
        let text: Vec<&Written> = text.filter(|write| spliced.contains(&write.at)).collect();
        let originals: Vec<(Addr, &[u8])> = text
            .iter()
            .map(|write| (write.at, write.original.as_slice()))
            .collect();
        let splices: Vec<(Addr, &[u8])> = text
            .iter()
            .map(|write| (write.at, write.splice.as_slice()))
            .collect();
        let mut pages = TextPages::read(pid, &self.memory, &originals)?;
        pages.expect(&originals)?;
        pages.replace(&splices);
        pages.write(&self.memory)?;
        self.patched().switch_on()?;
        self.stopped = stopped.duration();
        Ok(())
    }

    /// Writes the code by which instruments read memory, and that by which the reads end.
    fn write_readers(&self, gate: ReadGate, guards: &ReadGuards) -> Result<()> {
        let readers = MemoryReader::all(&self.planned.layout, gate);
        let verified = reads::verify(&self.planned.layout, gate, readers);
        let verified = verified.map_err(|violation| Error::Plan {
            reason: format!("the code that reads memory is wrong: {violation}"),
        })?;
        for reader in verified.readers() {
            for (start, code) in reader.parts() {
                self.write(code, start)?;
            }
        }
        let mut ends = guards.ends.ends().iter();
        ends.try_for_each(|end| self.write(&end.code, end.start))
    }

    /// Returns whether its instruments read memory.
    pub(super) fn reads_memory(&self) -> bool {
        self.gate.is_some()
    }

    /// Returns whether a thread has ended the reads of memory.
    fn have_reads_ended(&self) -> Result<bool> {
        let Some(gate) = self.gate else {
            return Ok(false);
        };
        let offset = self.record.words.start.to(gate.closed).cast_unsigned();
        let mut word = [0; 4];
        let read = self.counters.read_exact_at(&mut word, offset);
        read.map_err(|error| {
            refused(
                self.pid,
                format!("the word that ends its reads cannot be read ({error})"),
            )
        })?;
        Ok(word != [0; 4])
    }

    /// Writes the patches, of which none is executed yet, in runs.
    fn write_patches(&self, plan: &Plan) -> Result<()> {
        let near = |before: &Patch, after: &Patch| {
            let end = before.address.add(before.code.len() as u64);
            end.to(after.address) < maps::PAGE.cast_signed()
        };
        for run in plan.patches.chunk_by(near) {
            let start = run.first().map_or(Addr(0), |patch| patch.address);
            let mut bytes = Vec::new();
            for patch in run {
                let offset = usize::try_from(start.to(patch.address)).unwrap_or(bytes.len());
                bytes.resize(offset, INT3);
                bytes.extend_from_slice(&patch.code);
            }
            self.write(&bytes, start)?;
        }
        Ok(())
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The longest time for which threads were stopped so far.
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
        let start = self.record.words.start;
        self.planned.counts(self.pid, &self.counters, start)
    }

    /// Takes the reader of the samples, which remain after the removal and the end of the process; once.
    pub fn take_rings(&mut self) -> Option<SampleRings> {
        self.rings.take()
    }

    /// Gives samples up that hold a ring up and will never be written: each process that has the ring had a moment since
    /// then in which no thread was in a patch, or would return to one. Its attempts are some time apart.
    pub(super) fn give_up(&mut self, rings: &mut SampleRings) {
        if let Some(before) = rings.held_up()
            && let Ok(file) = number_of(self.pid, &self.counters)
            && removal::have_left_patches(file, &mut self.stopped)
        {
            rings.give_up(before);
        }
    }

    /// Removes everything from the process and its forked children, and returns the last counts.
    ///
    /// # Errors
    /// [`Error::Process`] if its threads cannot be stopped.
    pub fn remove(mut self) -> Result<Removed> {
        self.take_out()
    }

    /// Forgets the text of an object that the process has unmapped. Splices that are still there are kept.
    pub(super) fn forget(&mut self, object: Span) {
        let memory = &self.memory;
        let remains = |write: &Written| {
            let mut bytes = vec![0; write.splice.len()];
            let read = memory.read_exact_at(&mut bytes, write.at.0);
            read.is_ok() && bytes == write.splice
        };
        let semaphores = &mut self.record.semaphores;
        semaphores.retain(|semaphore| !object.contains(semaphore.at));
        let text = &mut self.record.text;
        text.retain(|write| !object.contains(write.at) || remains(write));
        if !text.iter().any(|write| object.contains(write.at)) {
            let bounces = &mut self.record.bounces;
            bounces.retain(|bounce| !object.contains(bounce.start));
        }
    }

    /// Removes everything from the process, and not from its forked children. Returns the number of its file there.
    pub(super) fn leave(&mut self, cleaned: &mut Cleaned) -> Result<u64> {
        self.unmap_objects()?;
        cleaned.stopped = cleaned.stopped.max(self.stopped);
        let done = self.patched().remove(cleaned);
        self.removed = done.is_ok();
        done?;
        self.file_number()
    }

    /// The same, without a longer wait for threads that are in its patches, or may return there; returns whether none is.
    /// Otherwise the patches remain, unused, until the next attempt.
    pub(super) fn leave_now(&mut self, cleaned: &mut Cleaned) -> Result<bool> {
        self.unmap_objects()?;
        cleaned.stopped = cleaned.stopped.max(self.stopped);
        let busy = self.patched().take_out_within(ATTEMPTS_NOW, cleaned)?;
        self.removed = busy.is_none();
        // What is written there from now on is of others.
        self.record.text.clear();
        self.record.bounces.clear();
        self.record.semaphores.clear();
        Ok(self.removed)
    }

    /// The number of its file in the process, and in its forked children.
    pub(super) fn file_number(&self) -> Result<u64> {
        number_of(self.pid, &self.counters)
    }

    fn take_out(&mut self) -> Result<Removed> {
        let mut cleaned = Cleaned::default();
        let file = self.leave(&mut cleaned)?;
        self.clean_children(&[file].into(), cleaned)
    }

    /// Removes files that the process had, too, from its forked children, after it was left.
    pub(super) fn clean_children(
        &self,
        files: &BTreeSet<u64>,
        mut cleaned: Cleaned,
    ) -> Result<Removed> {
        let ended = self.has_ended() && cleaned.processes.is_empty();
        // What remains in the process itself was tried already.
        let (pid, tried) = (self.pid, !cleaned.remains.is_empty());
        let children = |one, kept: &Kept| files.contains(&kept.file) && !(tried && one == pid);
        removal::clean(&children, &mut cleaned)?;
        Ok(Removed {
            counts: self.counts()?,
            ended,
            reads_ended: self.have_reads_ended()?,
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

/// Writes the splices in a moment when no thread is among the displaced instructions; returns for how long all threads
/// were stopped.
///
/// No thread is where it has `passed` a guard of reads, and none filters its system calls, if there are guards.
fn splice(
    patched: &Patched<'_>,
    planned: &[(&Plan, &Image)],
    passed: Option<&[Span]>,
) -> Result<Duration> {
    let Patched {
        pid,
        memory,
        record,
    } = *patched;
    // Nothing returns to the first byte of a splice from within the displaced instructions.
    let sites = planned.iter().flat_map(|(plan, _)| &plan.sites);
    let displaced = sites.map(|site| Span {
        start: site.displaced.start.add(1),
        end: site.displaced.end,
    });
    let avoided = displaced.chain(record.bounces.iter().copied());
    let avoided = avoided.chain(passed.into_iter().flatten().copied());
    let avoided = Span::merged(avoided.collect());
    let stopped = quiet(pid, memory, &avoided)?;
    let filtered = |thread: &super::stopped::Thread| is_filtered(pid, thread.tid);
    if passed.is_some() && stopped.threads.iter().any(filtered) {
        return Err(refused(
            pid,
            "it has begun to filter its system calls (seccomp), and may be ended for reads of its memory",
        ));
    }
    let mut original: Vec<(Addr, &[u8])> = Vec::new();
    for (plan, image) in planned {
        for site in &plan.sites {
            let bytes = image.bytes(site.displaced).unwrap_or_default();
            original.push((site.displaced.start, bytes));
        }
    }
    for write in &record.text {
        original.push((write.at, &write.original));
    }
    let splices = record.text.iter();
    let splices: Vec<(Addr, &[u8])> = splices
        .map(|write| (write.at, write.splice.as_slice()))
        .collect();
    // All is compared before anything is written.
    let mut text = TextPages::read(pid, memory, &original)?;
    text.expect(&original)?;
    text.replace(&splices);
    text.write(memory)?;
    patched.switch_on()?;
    Ok(stopped.duration())
}

/// Returns the semaphores of the static probes at whose blocks instruments stand.
fn semaphores(subject: &Subject, plan: &Plan, text: &[Written]) -> Vec<Semaphore> {
    let image = &subject.image;
    let instruments = plan.instruments.iter();
    let before = instruments.filter(|one| one.id.hook == HookType::Pre);
    let starts: BTreeSet<Addr> = before
        .filter_map(|one| {
            let function = plan.function(one.id.major)?;
            let block = function.outline.block(BlockIndex(one.id.block))?;
            Some(block.start)
        })
        .collect();
    let probes = image.probes().iter();
    let hooked = probes.filter(|probe| starts.contains(&probe.at));
    // Several places of a probe share a semaphore.
    let all: BTreeMap<Addr, Addr> = hooked
        .filter_map(|probe| {
            let mut objects = subject.objects.iter();
            let object = objects.find(|object| object.span.contains(probe.at))?;
            let splice = text.iter().find(|write| object.span.contains(write.at))?;
            Some((probe.semaphore?, splice.at))
        })
        .collect();
    let all = all.into_iter();
    all.map(|(at, splice)| Semaphore { at, splice }).collect()
}

/// Returns the record of plans: the arenas have their patches, and the last of them the record itself.
fn record_of(
    plans: &[&Plan],
    (words, mut arenas): (Span, Vec<Span>),
    (text, bounces, semaphores): (Vec<Written>, Vec<Span>, Vec<Semaphore>),
) -> Result<Record> {
    let end_in = |plan: &Plan, arena: Span| {
        let after = plan
            .patches
            .partition_point(|patch| patch.address < arena.end);
        let last = after.checked_sub(1).and_then(|last| plan.patches.get(last));
        let end = last.map_or(arena.start, |patch| {
            patch.address.add(patch.code.len() as u64)
        });
        end.max(arena.start)
    };
    let used = |arena: Span| {
        let ends = plans.iter().map(|plan| end_in(plan, arena));
        ends.max().unwrap_or(arena.start)
    };
    // As a process lists its mappings.
    arenas.sort_unstable_by_key(|arena| arena.start);
    let mut record = Record {
        words,
        storage: STORAGE,
        arenas,
        text,
        bounces,
        semaphores,
        open: None,
    };
    // No address is longer than the end of what is reserved.
    let length = record.encode()?.len() as u64;
    let last = record.arenas.len().saturating_sub(1);
    for (number, arena) in record.arenas.iter_mut().enumerate() {
        let record = if number == last { length } else { 0 };
        let end = (used(*arena).0 + record).next_multiple_of(maps::PAGE);
        if end > arena.end.0 {
            return Err(Error::Plan {
                reason:
                    "its patches and their record do not fit into the arena; instrument fewer places"
                        .to_owned(),
            });
        }
        // An arena without patches is mapped, too.
        arena.end = Addr(end.max(arena.start.0 + maps::PAGE));
    }
    Ok(record)
}
