//! The areas in which the threads of a process record their accesses of memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use gilk_engine::cache::{AccessArea, AccessPlace, RecordedBlock};
use gilk_engine::{Addr, Span};

use super::super::mapped::{counters, place};
use super::super::maps;
use super::super::objects::program_name;
use super::super::ptrace::{Registers, Tid};
use super::super::refused;
use super::super::remote::Remote;
use super::super::shared::SharedWords;
use super::access_file::{AccessOptions, ProcessRecords};
use super::files::{close_file, create_file};
use crate::accesses::AccessTotals;
use crate::{Error, Result};

/// Threads that record at the same time.
const AREAS: usize = 64;
/// The lowest address of the areas: the base of `gs` is below theirs.
const LOWEST: u64 = 1 << 32;
/// The end of addresses of processes, less a page.
const HIGHEST: u64 = (1 << 47) - maps::PAGE;

/// The thread that has an area, and its bases.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadArea {
    owner: Option<Tid>,
    /// The thread's base of `gs` in the original code.
    program_gs: u64,
    /// Its base of `fs`, which the records in the area are relative to.
    fs: u64,
}

/// The areas of a process.
pub(super) struct AccessAreas {
    pid: u32,
    span: Span,
    words: SharedWords,
    areas: Vec<ThreadArea>,
    records: ProcessRecords,
    blocks: BTreeMap<u32, RecordedBlock>,
    /// The numbers of blocks in the cache, by where their groups are reserved.
    places: BTreeMap<Addr, u32>,
    /// Numbers of blocks, and of their instructions that were executed, by where a conditional branch of them is taken.
    exits: BTreeMap<Addr, (u32, u32)>,
    totals: AccessTotals,
}

impl AccessAreas {
    /// Maps the areas into a stopped process.
    pub(super) fn map(pid: u32, remote: &Remote<'_>, options: &AccessOptions) -> Result<Self> {
        let records = options.begin(pid, &program_name(pid)?)?;
        let bytes = AccessArea::BYTES * AREAS as u64;
        let mapped = maps::read(pid)?;
        let span = maps::free_below(&mapped, bytes, HIGHEST);
        let span = span.filter(|span| span.start.0 >= LOWEST).ok_or_else(|| {
            let why = format!("it has no {bytes} free bytes for records of accesses");
            refused(pid, why)
        })?;
        let number = create_file(remote)?;
        let sharing = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let protection = (libc::PROT_READ | libc::PROT_WRITE, sharing);
        let shared = counters(pid, number, bytes)
            .and_then(|shared| place(remote, span, protection, (number, 0)).map(|()| shared));
        close_file(remote, number)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let words = SharedWords::new(&shared?, bytes).map_err(|error| {
            Error::Target(format!(
                "The agent cannot map the areas of records ({error})."
            ))
        })?;
        Ok(Self {
            pid,
            span,
            words,
            areas: vec![ThreadArea::default(); AREAS],
            records,
            blocks: BTreeMap::new(),
            places: BTreeMap::new(),
            exits: BTreeMap::new(),
            totals: AccessTotals::default(),
        })
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// The base of `gs` of an area.
    fn base(&self, area: usize) -> u64 {
        let start = self.span.start.0 + AccessArea::BYTES * area as u64;
        start - AccessArea::START
    }

    /// The area that a base of `gs` is of.
    fn area(&self, gs: u64) -> Option<usize> {
        let start = gs.checked_add(AccessArea::START)?;
        let offset = start.checked_sub(self.span.start.0)?;
        let area = usize::try_from(offset / AccessArea::BYTES).ok()?;
        (offset % AccessArea::BYTES == 0 && area < self.areas.len()).then_some(area)
    }

    /// A word of an area.
    fn word(&self, area: usize, offset: u64) -> Result<&AtomicU64> {
        let index = Self::index(area, offset);
        let word = index.and_then(|index| self.words.word(index));
        word.ok_or_else(|| self.outside_areas(offset))
    }

    /// The index of a word of an area.
    fn index(area: usize, offset: u64) -> Option<usize> {
        let inside = offset.checked_sub(AccessArea::START)?;
        let is_inside = inside < AccessArea::BYTES;
        let index = is_inside.then_some((AccessArea::BYTES * area as u64 + inside) / 8);
        usize::try_from(index?).ok()
    }

    fn outside_areas(&self, offset: u64) -> Error {
        let why = format!("its records of accesses are wrong: no area has the offset {offset:#x}");
        refused(self.pid, why)
    }

    /// Adds blocks of a translation that was written.
    pub(super) fn add(&mut self, blocks: &[RecordedBlock]) -> Result<()> {
        for block in blocks {
            self.records.block(block)?;
            self.places.insert(block.from, block.number);
            for exit in &block.exits {
                self.exits.insert(exit.at, (block.number, exit.executed));
            }
            self.blocks.insert(block.number, block.clone());
        }
        Ok(())
    }

    /// Forgets the places of all blocks: no thread is in the cache.
    pub(super) fn flush(&mut self) {
        self.places.clear();
        self.exits.clear();
    }

    /// Gives registers the base of `gs` that they have in the original code.
    pub(super) fn outside(&self, registers: &mut Registers) {
        let area = self
            .area(registers.gs_base)
            .and_then(|area| self.areas.get(area));
        if let Some(area) = area {
            registers.gs_base = area.program_gs;
        }
    }

    /// Gives the original registers of a thread its area. Returns false if there is none for it.
    pub(super) fn inside(&mut self, tid: Tid, registers: &mut Registers) -> Result<bool> {
        let owned = self.areas.iter().position(|one| one.owner == Some(tid));
        let free = || self.areas.iter().position(|one| one.owner.is_none());
        let Some(area) = owned.or_else(free) else {
            self.totals.threads_left_out += 1;
            return Ok(false);
        };
        if owned.is_none() {
            self.set_position(area)?;
        }
        self.outside(registers);
        let known = self.areas.get(area).copied().unwrap_or_default();
        if owned.is_some() && known.fs != registers.fs_base {
            self.drain_area(area)?;
        }
        let base = self.base(area);
        if let Some(one) = self.areas.get_mut(area) {
            *one = ThreadArea {
                owner: Some(tid),
                program_gs: registers.gs_base,
                fs: registers.fs_base,
            };
        }
        registers.gs_base = base;
        Ok(true)
    }

    fn set_position(&self, area: usize) -> Result<()> {
        let position = self.word(area, AccessArea::POSITION)?;
        position.store(AccessArea::START, Ordering::Release);
        Ok(())
    }

    /// The value that the register with the recorder's has in the original code.
    pub(super) fn kept(&self, gs: u64) -> Result<u64> {
        let area = self.area(gs).unwrap_or(usize::MAX);
        Ok(self.word(area, AccessArea::KEPT)?.load(Ordering::Acquire))
    }

    /// The block whose group is reserved at a place in the cache, and that has not ended.
    pub(super) fn block_at(&self, at: Addr) -> Option<&RecordedBlock> {
        let (_, number) = self.places.range(..=at).next_back()?;
        self.blocks.get(number).filter(|block| at < block.end)
    }

    /// Notes that a thread, with registers of the original code but `gs`, leaves a block at a place before an
    /// instruction. `executes` is true if that is executed elsewhere. A thread or a child that has just begun has the area
    /// of the thread that began it, where nothing is noted for it.
    pub(super) fn cut(
        &self,
        tid: Tid,
        (at, original): (Addr, Addr),
        registers: &Registers,
        executes: bool,
    ) -> Result<()> {
        let owned = |area: &usize| {
            let area = self.areas.get(*area);
            area.is_some_and(|area| area.owner == Some(tid))
        };
        let Some(area) = self.area(registers.gs_base).filter(owned) else {
            return Ok(());
        };
        if let Some((number, executed)) = self.exits.get(&at)
            && let Some(block) = self.blocks.get(number)
        {
            return self.note(area, block, u64::from(*executed));
        }
        let Some(block) = self.block_at(at) else {
            return Ok(());
        };
        let mut instructions = block.instructions.iter();
        let Some(executed) = instructions.position(|one| *one == original) else {
            return Ok(());
        };
        let position = self
            .word(area, AccessArea::POSITION)?
            .load(Ordering::Acquire);
        let group = position.saturating_sub(block.group());
        let mut executed = executed as u64 + u64::from(executes);
        for access in &block.accesses {
            let is_next = block.instructions.get(access.instruction as usize) == Some(&original);
            if let AccessPlace::Repeated {
                after,
                register,
                copied,
                ..
            } = access.place
                && is_next
                && at >= copied
            {
                // Some of its repetitions may have been executed.
                let now = match register {
                    6 => registers.rsi,
                    _ => registers.rdi,
                };
                let slot = group + 8 * (1 + u64::from(after));
                self.word(area, slot)?.store(now, Ordering::Release);
                executed = u64::from(access.instruction) + 1;
            }
        }
        self.note(area, block, executed)
    }

    /// Notes in the last group of an area, which is one of a block, how many instructions of that were executed.
    fn note(&self, area: usize, block: &RecordedBlock, executed: u64) -> Result<()> {
        let position = self
            .word(area, AccessArea::POSITION)?
            .load(Ordering::Acquire);
        let group = position.saturating_sub(block.group());
        let header = u64::from(block.number) | (executed + 1) << 32;
        self.word(area, group)?.store(header, Ordering::Release);
        Ok(())
    }

    /// Drains the area of a thread that is not in a recorded block, if it is full.
    pub(super) fn drain_full(&mut self, gs: u64) -> Result<()> {
        let Some(area) = self.area(gs) else {
            return Ok(());
        };
        let position = self
            .word(area, AccessArea::POSITION)?
            .load(Ordering::Acquire);
        match position >= AccessArea::END {
            true => self.drain_area(area),
            false => Ok(()),
        }
    }

    /// Drains the area of a thread that has ended or left the cache, and gives it to others.
    pub(super) fn end(&mut self, tid: Tid) -> Result<()> {
        let Some(area) = self.areas.iter().position(|one| one.owner == Some(tid)) else {
            return Ok(());
        };
        self.drain_area(area)?;
        if let Some(one) = self.areas.get_mut(area) {
            one.owner = None;
        }
        Ok(())
    }

    fn drain_area(&mut self, area: usize) -> Result<()> {
        let known = self.areas.get(area).copied().unwrap_or_default();
        let position = self
            .word(area, AccessArea::POSITION)?
            .load(Ordering::Acquire);
        let bytes = position.saturating_sub(AccessArea::START);
        if bytes == 0 {
            return Ok(());
        }
        let first = Self::index(area, AccessArea::START);
        let range = first.zip(Self::index(area, position));
        let words = range.and_then(|(first, end)| self.words.read(first..end));
        let words = words.ok_or_else(|| self.outside_areas(position))?;
        let thread = known.owner.unwrap_or_default();
        let records = &self.records;
        match records.groups(thread.cast_unsigned(), known.fs, &words)? {
            true => self.totals.bytes += bytes,
            false => self.totals.bytes_lost += bytes,
        }
        self.set_position(area)
    }

    /// Drains all areas, and ends the records with names of the blocks.
    pub(super) fn finish(
        &mut self,
        stepped: u64,
        mut name: impl FnMut(Addr) -> String,
    ) -> Result<AccessTotals> {
        let owners: Vec<Tid> = self.areas.iter().filter_map(|one| one.owner).collect();
        for tid in owners {
            self.end(tid)?;
        }
        self.totals.stepped = stepped;
        let mut named = |block: &RecordedBlock| {
            let first = block.instructions.first().copied().unwrap_or_default();
            (block.number, name(first))
        };
        let names: Vec<_> = self.blocks.values().map(&mut named).collect();
        self.records.end(&names, &mut self.totals)?;
        Ok(self.totals)
    }
}
