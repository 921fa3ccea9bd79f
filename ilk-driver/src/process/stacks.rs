//! Stacks of a process: the tables by which its code finds callers, and the stacks that it has numbered.

use std::collections::{BTreeMap, BTreeSet};
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

use super::ended::has_memory;
use super::mapped::number_of;
use super::maps::MappedSpan;
use super::names::ProcessNames;
use super::objects::{Object, file_of, objects, slide};
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
    /// Rows of each of the two tables, at most; none while the first objects are read.
    most_rows: Option<usize>,
    /// The rules of each object, by its file and first address with code.
    objects: BTreeMap<(u64, Addr), ObjectRules>,
    /// The number of times that objects were read.
    reads: u64,
    /// Sentences about objects in which stacks end early, which were not reported.
    limits: BTreeSet<String>,
}

/// Ways to find callers in an object, and the place of its code.
#[derive(Clone, Debug)]
struct ObjectRules {
    path: Arc<str>,
    /// Its mappings with code.
    code: Arc<[Span]>,
    rules: Arc<[(Span, CallerRule)]>,
    /// The number of the read that has found it.
    read: u64,
}

impl ObjectRules {
    /// Reads them. Without a table that can be read there are none, and a sentence says so.
    fn read(pid: u32, object: &Object, read: u64, limits: &mut BTreeSet<String>) -> Self {
        let rules = file_of(pid, object).and_then(|file| {
            let slide = slide(pid, &file, object)?;
            Ok(caller_rules(&file, slide)?)
        });
        let rules = rules.unwrap_or_else(|error| {
            // The files of a process that has ended are gone, too.
            if has_memory(pid) {
                let path = &object.path;
                limits.insert(format!(
                    "Stacks may end in {path}, whose unwind table cannot be read, so that its code is taken to have frame pointers: {error}"
                ));
            }
            Vec::new()
        });
        let code = object.code.iter().map(|code| code.span);
        Self {
            path: object.path.as_str().into(),
            code: code.collect(),
            rules: rules.into(),
            read,
        }
    }

    /// The number of its rows, at most.
    fn rows(&self) -> usize {
        let mut alone = CallerTable::default();
        alone.set(&[(Addr(0), CallerRule::NoCode)], self.rules.to_vec());
        alone.rows.len()
    }

    /// A rule by which stacks end in all of its code.
    fn ends(&self) -> impl Iterator<Item = (Span, CallerRule)> {
        self.code.iter().map(|span| (*span, CallerRule::End))
    }
}

impl Callers {
    /// Reads the unwind tables of all objects that a process has mapped. Those of an object whose file cannot be read are
    /// absent: a stack ends there, unless the object has frame pointers, and the report says so.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the mappings of the process cannot be read.
    pub(super) fn read(pid: u32) -> Result<Self> {
        let mut callers = Self {
            pid,
            table: CallerTable::default(),
            most_rows: None,
            objects: BTreeMap::new(),
            reads: 0,
            limits: BTreeSet::new(),
        };
        callers.refresh()?;
        callers.most_rows = Some(2 * callers.table.rows.len() + FURTHER_ROWS);
        Ok(callers)
    }

    /// Those of this process, or of a forked child, whose objects are its parent's. What the parent reports of them, its
    /// children do not.
    pub(super) fn of_process(mut self, pid: u32) -> Self {
        if pid != self.pid {
            self.limits.clear();
        }
        Self { pid, ..self }
    }

    /// Bytes of the tables of stacks in a process; of those of plans that number none, without callers.
    pub(super) fn table_bytes(callers: Option<&Self>) -> u64 {
        let rows = callers.map_or(1, |callers| 2 * callers.most_rows());
        (StackTables::ROWS + 8 * rows as u64).next_multiple_of(maps::PAGE)
    }

    /// Rows of each of the two tables, at most.
    fn most_rows(&self) -> usize {
        self.most_rows.unwrap_or(0)
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
                ObjectRules::read(self.pid, &object, self.reads, &mut self.limits)
            });
            found.insert(key, rules);
        }
        // One that ends has none.
        if found.is_empty() || found.keys().eq(self.objects.keys()) {
            return Ok(false);
        }
        self.objects = found;
        self.reads += 1;
        let mut others = vec![(Addr(0), CallerRule::NoCode), (LOWEST, FRAME_POINTER)];
        for mapping in maps::read(self.pid)? {
            // Memory without a file and a name may have code later.
            if !mapping.executable && !mapping.name.is_empty() {
                others.push((mapping.span.start, CallerRule::NoCode));
                others.push((mapping.span.end, FRAME_POINTER));
            }
        }
        self.set_rows(&others);
        Ok(true)
    }

    /// Makes the rows of all objects, and of all other addresses. If there are too many, those of the objects that were found
    /// first are made, and in the others stacks end.
    fn set_rows(&mut self, others: &[(Addr, CallerRule)]) {
        let rules = self.objects.values();
        let rules = rules.flat_map(|object| object.rules.iter().copied());
        self.table.set(others, rules.collect());
        let most = self.most_rows.unwrap_or(usize::MAX);
        if self.table.rows.len() > most {
            let mut objects: Vec<&ObjectRules> = self.objects.values().collect();
            objects.sort_by_key(|object| object.read);
            // A row begins where a span does, and one where it ends.
            let spans: usize = objects.iter().map(|object| object.code.len()).sum();
            let mut free = most.saturating_sub(others.len() + 2 * spans);
            let mut rules = Vec::new();
            for object in objects {
                match free.checked_sub(object.rows()) {
                    Some(rest) => {
                        free = rest;
                        rules.extend_from_slice(&object.rules);
                    }
                    None => {
                        rules.extend(object.ends());
                        self.limits.insert(format!(
                            "Stacks end in {}: with what the process has loaded since its start, there are more than {most} unwind rows.",
                            object.path
                        ));
                    }
                }
            }
            self.table.set(others, rules);
        }
        if self.table.rows.len() > most {
            self.table.cut(most);
            self.limits.insert(format!(
                "Stacks end at high addresses: the process has more than {most} mappings."
            ));
        }
        if self.table.lacks_rules {
            self.limits.insert(format!(
                "Stacks end in some functions: the objects of the process have frames of more than {} forms.",
                StackTables::RULES
            ));
        }
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
        let (table, most_rows) = (&self.callers.table, self.callers.most_rows());
        debug_assert!(table.rows.len() <= most_rows, "rows have a place");
        self.second = !self.second;
        let first = if self.second { most_rows as u64 } else { 0 };
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
        let unread = self.names.unread().iter();
        let mut limits = std::mem::take(&mut self.callers.limits);
        limits.extend(unread.map(|why| format!("Frames of a file are not named. {why}")));
        Ok(KeptStacks {
            of_processes: frames.keys().copied().collect(),
            frames,
            lost: lost.saturating_sub(lost_before),
            limits,
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
            most_rows: None,
            objects: BTreeMap::new(),
            reads: 0,
            limits: BTreeSet::new(),
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

    /// Objects of a process, each with rules at its own addresses.
    fn object(number: u64, count: u64, read: u64) -> ((u64, Addr), ObjectRules) {
        let start = Addr(number << 32);
        let rules = (0..count).map(|row| {
            let end = i32::try_from(8 * (row % 100 + 1)).unwrap();
            let rule = CallerRule::Stack { end, saved_rbp: 0 };
            (Span::new(start.add(16 * row), 16), rule)
        });
        let rules = ObjectRules {
            path: format!("object-{number}").into(),
            code: [Span::new(start, 16 * count)].into(),
            rules: rules.collect(),
            read,
        };
        ((number, start), rules)
    }

    /// Returns the rule of an address, as the code finds it.
    fn rule_at(table: &CallerTable, at: Addr) -> u64 {
        let after = table
            .rows
            .partition_point(|row| *row <= at.0 << 16 | 0xffff);
        table.rules[(table.rows[after - 1] & 0xffff) as usize]
    }

    #[test]
    fn stacks_end_in_what_is_loaded_beyond_the_rows_and_nowhere_else() {
        let others = [(Addr(0), CallerRule::NoCode), (LOWEST, FRAME_POINTER)];
        // The first ones have high addresses and low ones.
        let objects = [
            (7, 100, 0),
            (1, 100, 0),
            (3, 500, 1),
            (5, 50, 1),
            (2, 300, 2),
        ];
        let objects = objects.map(|(number, count, read)| object(number, count, read));
        let mut callers = Callers {
            pid: u32::MAX,
            table: CallerTable::default(),
            most_rows: Some(300),
            objects: objects.into(),
            reads: 3,
            limits: BTreeSet::new(),
        };
        callers.set_rows(&others);
        let limits: Vec<String> = std::mem::take(&mut callers.limits).into_iter().collect();
        let named =
            |limit: &String, number| limit.starts_with(&format!("Stacks end in object-{number}:"));
        assert!(
            limits.len() == 2 && named(&limits[0], 2) && named(&limits[1], 3),
            "{limits:?}"
        );
        let table = &callers.table;
        assert!(table.rows.len() <= 300);
        for (number, count) in [(7_u64, 100), (1, 100), (3, 500), (5, 50), (2, 300)] {
            let at = |row: u64| Addr((number << 32) + 16 * row + 15);
            for row in 0..count {
                let end = i32::try_from(8 * (row % 100 + 1)).unwrap();
                let meant = match number {
                    2 | 3 => CallerRule::End,
                    _ => CallerRule::Stack { end, saved_rbp: 0 },
                };
                assert_eq!(rule_at(table, at(row)), meant.encoded(), "{number} {row}");
            }
            assert_eq!(rule_at(table, at(count)), FRAME_POINTER.encoded());
        }
        // Without any room, stacks end everywhere.
        callers.most_rows = Some(2);
        callers.set_rows(&others);
        assert_eq!(callers.table.rows.len(), 2);
        assert_eq!(
            rule_at(&callers.table, Addr(7 << 32)),
            CallerRule::End.encoded()
        );
        assert_eq!(callers.limits.len(), 6, "{:?}", callers.limits);
    }
}
