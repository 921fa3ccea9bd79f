//! The code of a process, as it was when it was first needed.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt as _};

use gilk_engine::cache::CodeBytes;
use gilk_engine::{Addr, Refusal, Rule, Span};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ReadCache};

use super::super::generated::RegisteredObjects;
use super::super::maps::{self, MappedSpan};
use super::super::proc;
use super::super::record::is_ours;
use super::earlier::ObjectVersion;
use super::writes::PageMapping;
use crate::Result;

/// The section of descriptors of restartable sequences.
const SEQUENCES: &str = "__rseq_cs";

/// A mapping with code.
struct CodeRegion {
    mapping: MappedSpan,
    bytes: Vec<u8>,
    /// Its file; `None` if it has none, or another one has its name.
    object: Option<ObjectVersion>,
    /// Its file has restartable sequences.
    restarts: bool,
}

/// The code that may be translated: `CodeBytes` has what changes by new mappings only.
pub(super) struct ProcessCode {
    pid: u32,
    regions: Vec<CodeRegion>,
    /// Mappings of code that is made or may be written while the process executes, as they were last read.
    changing: Vec<MappedSpan>,
    /// All mappings of shared memory.
    shared: Vec<MappedSpan>,
    /// The mappings of changing code may be others by now.
    stale: bool,
    /// The lines of all mappings, as they were last read.
    lines: String,
    /// All mappings with code that were read, the last first.
    seen: VecDeque<MappedSpan>,
    /// Generated code that is registered for debuggers.
    registered: RegisteredObjects,
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
            changing: Vec::new(),
            shared: Vec::new(),
            stale: false,
            lines: String::new(),
            seen: VecDeque::new(),
            registered: RegisteredObjects::default(),
        }
    }

    /// The mappings with code that the process had while it was in the cache; of the same addresses, the last first.
    pub(super) fn seen(&self) -> Vec<MappedSpan> {
        self.seen.iter().cloned().collect()
    }

    /// Reads the objects of generated code that the process has registered since the last time.
    pub(super) fn read_registered(&mut self, memory: &File) {
        self.registered.read(memory);
    }

    /// Gives away the objects of generated code that were read.
    pub(super) fn take_registered(&mut self) -> RegisteredObjects {
        std::mem::take(&mut self.registered)
    }

    fn region(&self, at: Addr) -> Option<&CodeRegion> {
        let after = self
            .regions
            .partition_point(|one| one.mapping.span.start <= at);
        let region = self.regions.get(after.checked_sub(1)?)?;
        region.mapping.span.contains(at).then_some(region)
    }

    /// The mapping of the code that has an address and does not change.
    pub(super) fn mapping(&self, at: Addr) -> Option<&MappedSpan> {
        self.region(at).map(|region| &region.mapping)
    }

    /// The span of the code that has an address and does not change, and its file.
    pub(super) fn object(&self, at: Addr) -> Option<(Span, Option<ObjectVersion>)> {
        let region = self.region(at)?;
        Some((region.mapping.span, region.object))
    }

    /// The spans of code that does not change.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> {
        self.regions.iter().map(|region| region.mapping.span)
    }

    /// Returns whether changing code is in shared memory.
    pub(super) fn shares_changing(&self) -> bool {
        self.changing.iter().any(|one| one.shared)
    }

    /// The spans of changing code.
    pub(super) fn changing_spans(&self) -> impl Iterator<Item = Span> {
        self.changing.iter().map(|one| one.span)
    }

    /// The mapping of changing code at an address.
    pub(super) fn changing(&self, at: Addr) -> Option<&MappedSpan> {
        self.changing.iter().find(|one| one.span.contains(at))
    }

    /// Changing code that the process, or others, can write as it is mapped.
    pub(super) fn writable(&self) -> Option<&MappedSpan> {
        self.changing.iter().find(|one| one.writable || one.shared)
    }

    /// Returns whether a span has a byte of code that does not change.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        self.spans().any(|code| code.overlaps(span))
    }

    /// Returns whether a span has a byte of changing code.
    pub(super) fn overlaps_changing(&self, span: Span) -> bool {
        self.changing_spans().any(|code| code.overlaps(span))
    }

    /// Notes that the mappings of changing code may be others by now.
    pub(super) fn expire(&mut self) {
        self.stale = true;
    }

    /// Returns whether [`changing`](Self::changing) is to be read again first.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// The places where a page of changing code is mapped.
    pub(super) fn mapped(&self, code: &MappedSpan, page: Addr) -> Vec<PageMapping> {
        let own = PageMapping {
            mapping: code.span,
            page,
        };
        if !code.shared {
            return vec![own];
        }
        let offset = code.offset + (page.0 - code.span.start.0);
        let others = self.shared.iter().filter(|one| one.inode == code.inode);
        let others = others.filter_map(|one| {
            let distance = offset.checked_sub(one.offset)?;
            (distance < one.span.len()).then(|| PageMapping {
                mapping: one.span,
                page: one.span.start.add(distance),
            })
        });
        others.collect()
    }

    /// Returns whether the mappings are others than those that were last read.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn is_outdated(&self) -> Result<bool> {
        Ok(maps::lines(self.pid)? != self.lines)
    }

    /// Reads the mappings with code that are not known yet. Returns those that were known and are not mapped any more, or
    /// with another file.
    ///
    /// # Errors
    /// A mapping cannot be read.
    pub(super) fn refresh(&mut self, memory: &File) -> Result<Vec<Span>> {
        let lines = maps::lines(self.pid)?;
        let maps = maps::parsed(&lines);
        self.lines = lines;
        let is_code =
            |one: &&MappedSpan| one.executable && !is_ours(one) && one.name != "[vsyscall]";
        let mut gone = Vec::new();
        self.stale = false;
        self.registered.find(self.pid, &maps);
        self.shared = maps.iter().filter(|one| one.shared).cloned().collect();
        self.changing.clear();
        self.regions.retain(|region| {
            let kept = maps.contains(&region.mapping);
            gone.extend((!kept).then_some(region.mapping.span));
            kept
        });
        for mapping in maps.iter().filter(is_code) {
            if may_change(mapping) {
                if !self.seen.contains(mapping) {
                    self.seen.push_front(mapping.clone());
                }
                self.changing.push(mapping.clone());
                continue;
            }
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
            let (object, restarts) = object(self.pid, mapping).unwrap_or_default();
            self.regions.push(CodeRegion {
                mapping: mapping.clone(),
                bytes,
                object,
                restarts,
            });
        }
        self.regions.sort_by_key(|region| region.mapping.span.start);
        Ok(gone)
    }

    /// Returns the reason why some code may not be translated, if there is one.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.regions.iter().find_map(|region| {
            let why = "has restartable sequences, which the kernel restarts by their addresses";
            region.restarts.then(|| {
                let why = format!("{} {why}", named(&region.mapping));
                Refusal::new(Rule::Restartable, region.mapping.span.start, why)
            })
        })
    }
}

/// Returns whether code is not that of a file as it was mapped.
fn may_change(mapping: &MappedSpan) -> bool {
    let is_file = mapping.inode != 0 || mapping.name == "[vdso]";
    mapping.writable || mapping.shared || !is_file
}

/// The name of memory in a refusal.
pub(super) fn named(mapping: &MappedSpan) -> &str {
    match mapping.name.as_str() {
        "" => "memory without a file",
        name => name,
    }
}

/// Returns the file of a mapping, and whether it has restartable sequences. A file that is gone was replaced by another
/// version of it: its sections are not known, and its code is that which is mapped.
fn object(pid: u32, mapping: &MappedSpan) -> Option<(Option<ObjectVersion>, bool)> {
    let path = proc(pid, "root").join(mapping.name.trim_start_matches('/'));
    let file = (mapping.inode != 0).then(|| File::open(path))?.ok()?;
    let about = file.metadata().ok()?;
    let is_same = about.ino() == mapping.inode;
    let version = is_same.then(|| ObjectVersion::new(&about, mapping.offset));
    // Reads the headers alone.
    let bytes = ReadCache::new(file);
    let file = ElfFile64::<Endianness, _>::parse(&bytes);
    let restarts = file.is_ok_and(|file| file.section_by_name(SEQUENCES).is_some());
    Some((version, restarts))
}
