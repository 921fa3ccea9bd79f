//! The objects of a process with code of files, and their functions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gilk_engine::code::FunctionId;
use gilk_engine::elf::ElfParts;
use gilk_engine::{Addr, Image, Span};

use super::super::earlier::ObjectVersion;
use crate::debug_symbols;
use crate::process::maps::{self, MappedSpan};
use crate::process::root_of;

/// Images that are kept for other executions, at most.
const MOST_IMAGES: usize = 32;

/// A file of a name as it is mapped at an address, as a program or as a library.
#[derive(PartialEq, Eq)]
struct ImageKey {
    version: ObjectVersion,
    name: String,
    start: Addr,
    is_program: bool,
}

struct ReadImage {
    key: ImageKey,
    image: Arc<Image>,
}

/// The objects that were read last for recordings: a process and its forked children have the same.
#[derive(Clone, Default)]
pub struct ReadImages(Arc<Mutex<VecDeque<ReadImage>>>);

impl ReadImages {
    /// Returns an image that was read, or reads it.
    fn get(
        &self,
        key: ImageKey,
        read: impl FnOnce() -> Result<Image, String>,
    ) -> Result<Arc<Image>, String> {
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = images.iter().find(|one| one.key == key) {
            return Ok(Arc::clone(&found.image));
        }
        let image = Arc::new(read()?);
        images.push_front(ReadImage {
            key,
            image: Arc::clone(&image),
        });
        images.truncate(MOST_IMAGES);
        Ok(image)
    }
}

/// The inode of an object's file, and the address of the file's first byte.
pub(super) type ObjectId = (u64, u64);

/// An object: its mappings with code, and its functions once they were needed, or the reason why they are not known.
struct CodeObject {
    code: Vec<MappedSpan>,
    is_program: bool,
    image: Option<Result<Arc<Image>, String>>,
}

/// The objects that a process has, with those that it has had.
pub(super) struct CodeObjects {
    pid: u32,
    /// The inode of its program.
    program: u64,
    objects: BTreeMap<ObjectId, CodeObject>,
    /// The mappings of now, by their starts.
    mapped: BTreeMap<Addr, (Span, ObjectId)>,
    /// The time that was spent reading objects, each once.
    reading: Duration,
    pub(super) images: ReadImages,
}

impl CodeObjects {
    pub(super) fn new(pid: u32, program: u64) -> Self {
        Self {
            pid,
            program,
            objects: BTreeMap::new(),
            mapped: BTreeMap::new(),
            reading: Duration::ZERO,
            images: ReadImages::default(),
        }
    }

    /// The time that was spent reading objects.
    pub(super) fn reading(&self) -> Duration {
        self.reading
    }

    /// Has the objects be those of mappings; what was read of them before is kept.
    pub(super) fn refresh(&mut self, mapped: &[MappedSpan]) {
        self.mapped.clear();
        let mut seen: BTreeSet<ObjectId> = BTreeSet::new();
        for mapping in mapped.iter().filter(|one| one.executable && one.inode != 0) {
            let id = (mapping.inode, mapping.origin());
            let object = self.objects.entry(id).or_insert_with(|| CodeObject {
                code: Vec::new(),
                is_program: mapping.inode == self.program,
                image: None,
            });
            if seen.insert(id) {
                object.code.clear();
            }
            object.code.push(mapping.clone());
            self.mapped.insert(mapping.span.start, (mapping.span, id));
        }
    }

    /// The name of the program's file, if it is known.
    pub(super) fn program(&self) -> Option<&str> {
        let mut objects = self.objects.values();
        let program = objects.find(|object| object.is_program)?;
        Some(program.code.first()?.file())
    }

    /// The reasons why the functions of objects are not known.
    pub(super) fn unread(&self) -> Vec<String> {
        let unread = self.objects.values().filter_map(|object| {
            let why = object.image.as_ref()?.as_ref().err()?;
            Some(format!("{}: {why}", object.code.first()?.name))
        });
        unread.collect()
    }

    /// Returns the functions that a dynamic block is in: it may fall through from one to the next. None if a byte of it
    /// is in no function.
    pub(super) fn functions(&mut self, block: Span) -> Option<Reached> {
        let (_, (span, id)) = self.mapped.range(..=block.start).next_back()?;
        let id = span.contains(block.start).then_some(*id)?;
        let pid = self.pid;
        let object = self.objects.get_mut(&id)?;
        let CodeObject {
            code,
            is_program,
            image,
        } = object;
        let first = code.first()?;
        let (reading, images) = (&mut self.reading, &self.images);
        let image = image.get_or_insert_with(|| {
            let begun = Instant::now();
            let image = read(pid, first, *is_program, images);
            *reading += begun.elapsed();
            image
        });
        let image = Arc::clone(image.as_ref().ok()?);
        let functions = reached(&image, block);
        (!functions.is_empty()).then_some(Reached {
            object: id,
            image,
            functions,
        })
    }
}

/// Functions of one object.
pub(super) struct Reached {
    pub(super) object: ObjectId,
    pub(super) image: Arc<Image>,
    pub(super) functions: BTreeSet<FunctionId>,
}

/// Reads the object of a mapping from its file, unless it was read.
fn read(
    pid: u32,
    mapping: &MappedSpan,
    is_program: bool,
    images: &ReadImages,
) -> Result<Arc<Image>, String> {
    let (mut file, about) = maps::open(pid, mapping).map_err(|error| error.to_string())?;
    let key = ImageKey {
        version: ObjectVersion::new(&about, mapping.offset),
        name: mapping.name.clone(),
        start: mapping.span.start,
        is_program,
    };
    images.get(key, || {
        let mut bytes = Vec::new();
        let read = file.read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
        let slide = maps::slide(&bytes, mapping).ok_or("it is not mapped as its file is")?;
        let path = Path::new(&mapping.name);
        let debug = debug_symbols::of_file(&bytes, path, &root_of(pid));
        let debug = debug.map_err(|error| error.to_string())?;
        let parts = ElfParts {
            is_library: !is_program,
            debug: debug.as_ref(),
            slide,
            ..ElfParts::of_file(mapping.file(), &bytes)
        };
        Image::from_elf(&parts).map_err(|error| error.to_string())
    })
}

/// The functions with the bytes of a block; empty if one has none.
fn reached(image: &Image, block: Span) -> BTreeSet<FunctionId> {
    let mut found = BTreeSet::new();
    let mut at = block.start;
    while at < block.end {
        let Some(function) = image.function_at(at) else {
            return BTreeSet::new();
        };
        found.insert(function.id);
        at = function.span.end;
    }
    found
}
