//! Stacks of a process: the tables by which its code finds callers, and the stacks that it has numbered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use gilk_engine::elf::caller_rules;
use gilk_engine::stacks::{CallerRule, CallerTable, StackTables};
use gilk_engine::{Addr, Plan};
use gilk_instruments::program::Expr;
use gilk_samples::kept_stacks::KeptStacks;

use super::mapped::number_of;
use super::names::ProcessNames;
use super::objects::{file_of, objects, slide};
use super::{maps, refused};
use crate::Result;

/// The end of the addresses that no mapping has (`vm.mmap_min_addr`).
const LOWEST: Addr = Addr(1 << 16);
/// Code without unwind tables may have frame pointers, as that of just-in-time compilers often has.
const FRAME_POINTER: CallerRule = CallerRule::Base {
    end: 16,
    saved_rbp: -16,
};

/// Returns whether an instrument of a plan numbers stacks of the process, or addresses.
pub(super) fn numbers_stacks(plan: &Plan) -> bool {
    let probes = plan.instruments.iter();
    let mut probes = probes.filter_map(|one| one.probe.as_deref()?.probe());
    probes.any(|probe| {
        let mut expressions = probe.expressions();
        expressions.any(|expr| expr.any(&mut Expr::is_stack))
    })
}

/// Bytes of the tables of stacks, with so many rows.
pub(super) fn table_bytes(rows: usize) -> u64 {
    (StackTables::ROWS + rows.max(1) as u64 * 8).next_multiple_of(maps::PAGE)
}

/// Reads the unwind tables of all objects that a process has mapped. Those of an object whose file cannot be read are
/// absent: a stack ends there, unless the object has frame pointers.
///
/// # Errors
/// [`crate::Error::Process`] if the mappings of the process cannot be read.
pub(super) fn callers(pid: u32) -> Result<CallerTable> {
    let mut others = vec![(Addr(0), CallerRule::NoCode), (LOWEST, FRAME_POINTER)];
    for mapping in maps::read(pid)? {
        // Memory without a file and a name may have code later.
        let is_data = !mapping.executable && !mapping.name.is_empty();
        if is_data {
            others.push((mapping.span.start, CallerRule::NoCode));
            others.push((mapping.span.end, FRAME_POINTER));
        }
    }
    let mut spans = Vec::new();
    for object in objects(pid)? {
        let read = file_of(pid, &object).and_then(|file| {
            let slide = slide(pid, &file, &object)?;
            Ok(caller_rules(&file, slide)?)
        });
        spans.extend(read.unwrap_or_default());
    }
    Ok(CallerTable::of(&others, spans))
}

/// Writes a table to the file of the words, in which tables of stacks are at an offset.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_callers(file: &File, offset: u64, table: &CallerTable) -> io::Result<()> {
    let bytes = |words: &[u64]| -> Vec<u8> {
        let words = words.iter();
        words.flat_map(|word| word.to_le_bytes()).collect()
    };
    file.write_all_at(&bytes(&table.rules), offset + StackTables::RULE_TABLE)?;
    file.write_all_at(&bytes(&table.rows), offset + StackTables::ROWS)?;
    let rows = table.rows.len() as u64;
    file.write_all_at(&rows.to_le_bytes(), offset)
}

/// A number, and the addresses of its frames.
type NumberedStack = (u64, Vec<u64>);

/// The reader of the stacks of a process, which remain after its end.
pub(super) struct StackReports {
    pid: u32,
    file: File,
    /// Offset of the tables in the file.
    offset: u64,
    /// Stacks that were reported, and hits whose stacks were not kept.
    reported: (u32, u64),
    names: ProcessNames,
}

impl std::fmt::Debug for StackReports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pid, reported, .. } = self;
        write!(f, "StackReports({pid}, {reported:?})")
    }
}

impl StackReports {
    /// Reads the tables at an offset of a file of words.
    pub(super) fn new(pid: u32, file: File, offset: u64) -> Self {
        let mut reports = Self {
            pid,
            file,
            offset,
            reported: (0, 0),
            names: ProcessNames::default(),
        };
        reports.look();
        reports
    }

    /// Reads the mappings of the process, while it executes the program that has mapped the file: those that are known stay
    /// when it has ended, or executes another one.
    fn look(&mut self) {
        self.names.begin();
        if let (Ok(mappings), Ok(file)) = (maps::read(self.pid), number_of(self.pid, &self.file))
            && mappings.iter().any(|mapping| mapping.inode == file)
        {
            self.names.keep(self.pid, mappings);
        }
    }

    /// Returns the stacks since the last call, with the names of their frames, and the number of hits since then whose
    /// stacks were not kept; nothing if there are neither.
    ///
    /// # Errors
    /// [`crate::Error::Process`] if the file cannot be read.
    pub(super) fn report(&mut self) -> Result<Option<KeptStacks>> {
        let read = self.read();
        let (stacks, lost) = read.map_err(|error| {
            let why = format!("its stacks cannot be read ({error})");
            refused(self.pid, why)
        })?;
        let lost_before = std::mem::replace(&mut self.reported.1, lost);
        if stacks.is_empty() && lost == lost_before {
            return Ok(None);
        }
        self.look();
        let named = stacks
            .into_iter()
            .map(|(number, frames)| (number, self.names.known_frames(self.pid, &frames)));
        let frames: BTreeMap<u64, Vec<String>> = named.collect();
        Ok(Some(KeptStacks {
            of_processes: frames.keys().copied().collect(),
            frames,
            lost: lost.saturating_sub(lost_before),
        }))
    }

    /// Reads the stacks since the last call, up to one that is being written.
    fn read(&mut self) -> io::Result<(Vec<NumberedStack>, u64)> {
        let word = |offset| {
            let mut word = [0; 8];
            let read = self.file.read_exact_at(&mut word, self.offset + offset);
            read.map(|()| u64::from_le_bytes(word))
        };
        let lost = word(StackTables::LOST)?;
        let used = word(StackTables::USED)? & u64::from(u32::MAX);
        let used = used.min(StackTables::STACKS.into());
        let mut stacks = Vec::new();
        while u64::from(self.reported.0) < used {
            let place = u64::from(self.reported.0) << StackTables::STACK_LOG2;
            let mut bytes = vec![0; 1 << StackTables::STACK_LOG2];
            let at = self.offset + StackTables::FRAMES + place;
            self.file.read_exact_at(&mut bytes, at)?;
            let (words, _) = bytes.as_chunks::<8>();
            let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
            let (number, count) = (words.next(), words.next());
            let (Some(number), Some(count @ 1..)) = (number, count) else {
                break;
            };
            let count = usize::try_from(count.min(StackTables::DEPTH)).unwrap_or_default();
            stacks.push((number, words.take(count).collect()));
            self.reported.0 += 1;
        }
        Ok((stacks, lost))
    }
}
