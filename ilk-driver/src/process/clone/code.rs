//! The code of a process, as it was when it was first needed.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::cache::CodeBytes;
use gilk_engine::{Addr, Refusal, Rule, Span};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _};

use super::super::maps::{self, MappedSpan};
use super::super::proc;
use super::super::record::is_ours;
use crate::Result;

/// The section of descriptors of restartable sequences.
const SEQUENCES: &str = "__rseq_cs";

/// A mapping with code.
struct CodeRegion {
    mapping: MappedSpan,
    bytes: Vec<u8>,
    /// Its file has restartable sequences.
    restarts: bool,
}

/// The code that may be translated.
pub(super) struct ProcessCode {
    pid: u32,
    regions: Vec<CodeRegion>,
    /// All mappings with code that were read, the last first.
    seen: VecDeque<MappedSpan>,
}

impl CodeBytes for ProcessCode {
    fn code_from(&self, at: Addr) -> Option<&[u8]> {
        let region = self.region(at)?;
        let offset = usize::try_from(at.0 - region.mapping.span.start.0).ok()?;
        region.bytes.get(offset..)
    }
}

impl ProcessCode {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            regions: Vec::new(),
            seen: VecDeque::new(),
        }
    }

    /// The mappings with code that the process had while it was in the cache; of the same addresses, the last first.
    pub(super) fn seen(&self) -> Vec<MappedSpan> {
        self.seen.iter().cloned().collect()
    }

    fn region(&self, at: Addr) -> Option<&CodeRegion> {
        let after = self
            .regions
            .partition_point(|one| one.mapping.span.start <= at);
        let region = self.regions.get(after.checked_sub(1)?)?;
        region.mapping.span.contains(at).then_some(region)
    }

    /// The spans of all code.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> {
        self.regions.iter().map(|region| region.mapping.span)
    }

    /// Returns whether a span has a byte of code that was read.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        self.spans().any(|code| code.overlaps(span))
    }

    /// Reads the mappings with code that are not known yet. Returns whether all that are known are still mapped, with
    /// the same files.
    ///
    /// # Errors
    /// A mapping cannot be read.
    pub(super) fn refresh(&mut self, memory: &File) -> Result<bool> {
        let maps = maps::read(self.pid)?;
        let is_code =
            |one: &&MappedSpan| one.executable && !is_ours(one) && one.name != "[vsyscall]";
        let mut same = true;
        self.regions.retain(|region| {
            let kept = maps.contains(&region.mapping);
            same &= kept;
            kept
        });
        for mapping in maps.iter().filter(is_code) {
            if self.regions.iter().any(|region| region.mapping == *mapping) {
                continue;
            }
            let mut bytes = vec![0; usize::try_from(mapping.span.len()).unwrap_or(0)];
            // The end of a file may be before that of its mapping: no code is there.
            if memory
                .read_exact_at(&mut bytes, mapping.span.start.0)
                .is_err()
            {
                continue;
            }
            self.seen.push_front(mapping.clone());
            self.regions.push(CodeRegion {
                mapping: mapping.clone(),
                bytes,
                restarts: has_sequences(self.pid, mapping),
            });
        }
        self.regions.sort_by_key(|region| region.mapping.span.start);
        Ok(same)
    }

    /// Returns the reason why some code may not be translated, if there is one.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.regions.iter().find_map(|region| {
            let MappedSpan { span, name, .. } = &region.mapping;
            let refuse = |rule, why: &str| {
                let place = if name.is_empty() {
                    "memory without a file"
                } else {
                    name
                };
                Some(Refusal::new(rule, span.start, format!("{place} {why}")))
            };
            if region.mapping.writable {
                return refuse(Rule::MayChange, "can be written and executed");
            }
            if region.mapping.shared {
                return refuse(
                    Rule::MayChange,
                    "is shared with other mappings, which may write it",
                );
            }
            if region.restarts {
                return refuse(
                    Rule::Restartable,
                    "has restartable sequences, which the kernel restarts by their addresses",
                );
            }
            None
        })
    }
}

/// Returns whether the file of a mapping has restartable sequences.
fn has_sequences(pid: u32, mapping: &MappedSpan) -> bool {
    if mapping.inode == 0 {
        return false;
    }
    let path = proc(pid, "root").join(mapping.name.trim_start_matches('/'));
    // A file that is gone was replaced by another version of it: its sections are not known, and its code is that
    // which is mapped.
    let Ok(bytes) = std::fs::read(path) else {
        return false;
    };
    let file = ElfFile64::<Endianness>::parse(bytes.as_slice());
    file.is_ok_and(|file| file.section_by_name(SEQUENCES).is_some())
}
