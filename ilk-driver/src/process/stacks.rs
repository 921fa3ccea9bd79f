//! Stacks of a process: the tables by which its code finds callers, and the stacks that it has numbered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use gilk_engine::elf::caller_rules;
use gilk_engine::layout::StackTables;
use gilk_engine::stacks::{CallerRule, CallerTable};
use gilk_engine::{Addr, Plan, Span};
use gilk_instruments::program::Probe;
use gilk_samples::kept_stacks::KeptStacks;

use super::mapped::number_of;
use super::maps::MappedSpan;
use super::names::ProcessNames;
use super::objects::{file_of, objects, slide};
use super::{maps, refused};
use crate::Result;

/// The end of the addresses that no mapping has (`vm.mmap_min_addr`).
const LOWEST: Addr = Addr(1 << 16);
/// Rows of objects that are loaded later, besides twice as many as there were.
const FURTHER_ROWS: usize = 1 << 18;
/// Code without unwind tables may have frame pointers, as that of just-in-time compilers often has.
const FRAME_POINTER: CallerRule = CallerRule::Base {
    end: 16,
    saved_rbp: -16,
};

/// Returns whether an instrument of a plan numbers stacks of the process, or addresses.
pub(super) fn numbers_stacks(plan: &Plan) -> bool {
    let probes = plan.instruments.iter();
    let mut probes = probes.filter_map(|one| one.probe.as_deref()?.probe());
    probes.any(Probe::numbers_stacks)
}

/// Ways to find callers in a process: those of the objects that it has mapped.
#[derive(Clone, Debug)]
pub(super) struct Callers {
    pid: u32,
    table: CallerTable,
    /// Rows of each of the two tables, at most.
    most_rows: usize,
    /// The rules of each object, by its file and first address with code.
    objects: BTreeMap<(u64, Addr), ObjectRules>,
}

type ObjectRules = Arc<[(Span, CallerRule)]>;

impl Callers {
    /// Reads the unwind tables of all objects that a process has mapped. Those of an object whose file cannot be read are
    /// absent: a stack ends there, unless the object has frame pointers.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the mappings of the process cannot be read.
    pub(super) fn read(pid: u32) -> Result<Self> {
        let mut callers = Self {
            pid,
            table: CallerTable::default(),
            most_rows: 0,
            objects: BTreeMap::new(),
        };
        callers.refresh()?;
        callers.most_rows = 2 * callers.table.rows.len() + FURTHER_ROWS;
        Ok(callers)
    }

    /// Those of a forked child, whose objects are its parent's.
    pub(super) fn of_child(self, pid: u32) -> Self {
        Self { pid, ..self }
    }

    /// Bytes of the tables of stacks in a process; of those of plans that number none, without callers.
    pub(super) fn table_bytes(callers: Option<&Self>) -> u64 {
        let rows = callers.map_or(1, |callers| 2 * callers.most_rows);
        (StackTables::ROWS + 8 * rows as u64).next_multiple_of(maps::PAGE)
    }

    /// Reads the objects that are mapped now, and returns whether they have changed.
    fn refresh(&mut self) -> Result<bool> {
        let mut found = BTreeMap::new();
        for object in objects(self.pid)? {
            let Some(code) = object.code.first() else {
                continue;
            };
            let key = (code.inode, code.span.start);
            let rules = self.objects.get(&key).cloned();
            let rules = rules.unwrap_or_else(|| {
                let read = file_of(self.pid, &object).and_then(|file| {
                    let slide = slide(self.pid, &file, &object)?;
                    Ok(caller_rules(&file, slide)?)
                });
                read.unwrap_or_default().into()
            });
            found.insert(key, rules);
        }
        // One that ends has none.
        if found.is_empty() || found.keys().eq(self.objects.keys()) {
            return Ok(false);
        }
        self.objects = found;
        let mut others = vec![(Addr(0), CallerRule::NoCode), (LOWEST, FRAME_POINTER)];
        for mapping in maps::read(self.pid)? {
            // Memory without a file and a name may have code later.
            if !mapping.executable && !mapping.name.is_empty() {
                others.push((mapping.span.start, CallerRule::NoCode));
                others.push((mapping.span.end, FRAME_POINTER));
            }
        }
        let rules = self.objects.values();
        let rules = rules.flat_map(|rules| rules.iter().copied());
        self.table.set(&others, rules.collect());
        Ok(true)
    }
}

/// The tables of stacks of a process, and the reader of its stacks, which remain after its end.
#[derive(Debug)]
pub(super) struct StackReports {
    callers: Callers,
    file: File,
    /// Offset of the tables in the file.
    offset: u64,
    /// The second of the two tables of rows is in use.
    second: bool,
    /// The number of places of stacks that were looked at.
    seen: u64,
    /// Those of them whose stacks were not written yet, and how often each was found so.
    unwritten: Vec<(u64, u32)>,
    /// Hits whose stacks were not kept.
    lost: u64,
    names: ProcessNames,
}

/// Reports that wait for a stack that a thread is writing.
const AWAITED: u32 = 20;

/// The stacks that the instruments of a plan have numbered; there are none if they number none.
#[derive(Debug, Default)]
pub(super) struct NumberedStacks(Option<StackReports>);

impl NumberedStacks {
    pub(super) fn of(reports: StackReports) -> Self {
        Self(Some(reports))
    }

    /// Returns whether samples may have a stack that a thread was still writing at the last call of
    /// [`report`](Self::report). A thread that has not written one for long has ended.
    pub(super) fn are_awaited(&self) -> bool {
        let unwritten = self.0.iter().flat_map(|reports| &reports.unwritten);
        unwritten.into_iter().any(|(_, found)| *found < AWAITED)
    }

    /// Returns those since the last call.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the file of words cannot be read.
    pub(super) fn report(&mut self) -> Result<KeptStacks> {
        let reports = self.0.as_mut();
        reports.map_or_else(|| Ok(KeptStacks::default()), StackReports::report)
    }

    /// Has stacks numbered with the objects that the process has loaded.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the tables cannot be written.
    pub(super) fn refresh(&mut self) -> Result<()> {
        self.0.as_mut().map_or(Ok(()), StackReports::refresh)
    }
}

/// The number of a stack, and the addresses of its frames.
type StackAddresses = (u64, Vec<u64>);

impl StackReports {
    /// Writes the tables at an offset of a file of words.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn new(callers: Callers, file: File, offset: u64) -> io::Result<Self> {
        let mut reports = Self {
            callers,
            file,
            offset,
            second: true,
            seen: 0,
            unwritten: Vec::new(),
            lost: 0,
            names: ProcessNames::default(),
        };
        reports.write()?;
        reports.look();
        Ok(reports)
    }

    /// Writes the rules and the rows, and has walks that begin from now on use them. Others continue with the rows from
    /// before.
    fn write(&mut self) -> io::Result<()> {
        let Callers {
            table, most_rows, ..
        } = &self.callers;
        if table.rows.len() > *most_rows {
            let why = "the libraries that it has loaded have too much code";
            return Err(io::Error::other(why));
        }
        self.second = !self.second;
        let first = if self.second { *most_rows as u64 } else { 0 };
        let write = |words: &[u64], offset| {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            let bytes: Vec<u8> = bytes.collect();
            self.file.write_all_at(&bytes, self.offset + offset)
        };
        write(&table.rules, StackTables::RULE_TABLE)?;
        write(&table.rows, StackTables::ROWS + 8 * first)?;
        let range = first << 32 | (first + table.rows.len() as u64);
        write(&[range], 0)?;
        let none = vec![0; StackTables::RECENT_ROWS as usize];
        write(&none, StackTables::RECENT)
    }

    /// Reads the objects of the process again, if it has loaded or unloaded some.
    fn refresh(&mut self) -> Result<()> {
        // The callers of one that has ended, or executes another program, stay: its forked children have them.
        if self.mappings().is_none() {
            return Ok(());
        }
        match self.callers.refresh() {
            Ok(false) => Ok(()),
            Ok(true) => self.write().map_err(|error| {
                let why = format!("its tables of stacks cannot be written ({error})");
                refused(self.callers.pid, why)
            }),
            Err(_) if self.mappings().is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the mappings of the process, if it executes the program that has mapped the file.
    fn mappings(&self) -> Option<Vec<MappedSpan>> {
        let file = number_of(self.callers.pid, &self.file).ok()?;
        let mappings = maps::read(self.callers.pid).ok()?;
        let is_mapped = mappings.iter().any(|mapping| mapping.inode == file);
        is_mapped.then_some(mappings)
    }

    /// Keeps the mappings of the process for names, while it executes the program that has mapped the file: those that are
    /// known stay when it has ended, or executes another one.
    fn look(&mut self) {
        self.names.begin();
        if let Some(mappings) = self.mappings() {
            self.names.keep(self.callers.pid, mappings);
        }
    }

    /// Returns the stacks since the last call, with the names of their frames, and the number of hits since then whose
    /// stacks were not kept.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the file cannot be read.
    fn report(&mut self) -> Result<KeptStacks> {
        let read = self.read();
        let (stacks, lost) = read.map_err(|error| {
            let why = format!("its stacks cannot be read ({error})");
            refused(self.callers.pid, why)
        })?;
        let lost_before = std::mem::replace(&mut self.lost, lost);
        if !stacks.is_empty() {
            self.look();
        }
        let pid = self.callers.pid;
        let named = stacks
            .into_iter()
            .map(|(number, frames)| (number, self.names.known_frames(pid, &frames)));
        let frames: BTreeMap<u64, Vec<String>> = named.collect();
        Ok(KeptStacks {
            of_processes: frames.keys().copied().collect(),
            frames,
            lost: lost.saturating_sub(lost_before),
        })
    }

    /// Reads the stacks that are written since the last call, and the number of hits up to now whose stacks were not kept.
    /// One that a thread is writing is read later; where the thread has ended meanwhile, never.
    fn read(&mut self) -> io::Result<(Vec<StackAddresses>, u64)> {
        let word = |offset| {
            let mut word = [0; 8];
            let read = self.file.read_exact_at(&mut word, self.offset + offset);
            read.map(|()| u64::from_le_bytes(word))
        };
        let lost = word(StackTables::LOST)?;
        let used = word(StackTables::USED)? & u64::from(u32::MAX);
        let used = used.min(StackTables::STACKS.into());
        let mut places = std::mem::take(&mut self.unwritten);
        places.extend((self.seen..used).map(|place| (place, 0)));
        self.seen = used;
        let mut stacks = Vec::new();
        for (place, found) in places {
            let mut bytes = vec![0; 1 << StackTables::STACK_LOG2];
            let at = StackTables::FRAMES + (place << StackTables::STACK_LOG2);
            self.file.read_exact_at(&mut bytes, self.offset + at)?;
            let (words, _) = bytes.as_chunks::<8>();
            let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
            match (words.next(), words.next()) {
                (Some(number), Some(count @ 1..)) => {
                    // No more words follow than frames.
                    let count = usize::try_from(count).unwrap_or(usize::MAX);
                    stacks.push((number, words.take(count).collect()));
                }
                _ => self.unwritten.push((place, found.saturating_add(1))),
            }
        }
        Ok((stacks, lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place whose thread was killed before it had written its stack holds no other up, and one that is written late is
    /// reported then.
    #[test]
    fn stacks_are_reported_once_they_are_written() {
        let file = tempfile::tempfile().unwrap();
        let offset = maps::PAGE;
        file.set_len(offset + Callers::table_bytes(None)).unwrap();
        let callers = Callers {
            pid: u32::MAX,
            table: CallerTable::default(),
            most_rows: 0,
            objects: BTreeMap::new(),
        };
        let words = file.try_clone().unwrap();
        let put = |at: u64, all: &[u64]| {
            for (word, at) in all.iter().zip((offset + at..).step_by(8)) {
                words.write_all_at(&word.to_le_bytes(), at).unwrap();
            }
        };
        let place = |number: u64| StackTables::FRAMES + (number << StackTables::STACK_LOG2);
        let mut reports = StackReports::new(callers, file, offset).unwrap();
        let mut report = || {
            let KeptStacks { frames, lost, .. } = reports.report().unwrap();
            (frames.into_iter().collect::<Vec<_>>(), lost)
        };
        let named = |frames: &[u64]| frames.iter().map(|at| format!("{at:#x}")).collect();
        let stack = |number: u64, frames: &[u64]| -> (u64, Vec<String>) { (number, named(frames)) };
        assert_eq!(report(), (vec![], 0));
        put(StackTables::USED, &[3]);
        put(place(1), &[71, 2, 0x10, 0x20]);
        assert_eq!(report(), (vec![stack(71, &[0x10, 0x20])], 0));
        put(place(2), &[72, 1, 0x30]);
        put(StackTables::LOST, &[5]);
        assert_eq!(report(), (vec![stack(72, &[0x30])], 5));
        put(StackTables::LOST, &[6]);
        assert_eq!(report(), (vec![], 1));
        put(place(0), &[70, 1, 0x40]);
        assert_eq!(report(), (vec![stack(70, &[0x40])], 0));
        // More places were requested than there are.
        put(StackTables::USED, &[u64::from(StackTables::STACKS) + 9]);
        put(place(4095), &[73, u64::MAX, 0x50]);
        let (last, _) = report();
        assert_eq!(last[0].0, 73);
        assert_eq!(last[0].1.len() as u64, StackTables::DEPTH);
        // All others of these are being written, for a time.
        let mut numbered = NumberedStacks::of(reports);
        let awaiting = std::iter::from_fn(|| {
            numbered.report().unwrap();
            Some(numbered.are_awaited())
        });
        assert_eq!(awaiting.take(100).filter(|awaits| *awaits).count(), 18);
    }
}
