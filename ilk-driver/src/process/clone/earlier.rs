//! The blocks that a program has executed in the cache before: its next start translates them at once, each object when
//! its code is first needed, in place of one request after the other.
//!
//! They are kept in a file for each program, in the user's cache directory. It names addresses and has no code: what it
//! names is read from the process, translated and proved as all else is, so a wrong file costs time and nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gilk_engine::{Addr, Span};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// The start of a file, with the version of its format.
const MAGIC: [u8; 8] = *b"gilkblk\x01";
/// Blocks of an object that are kept, at most: a program that has translated more differs from start to start.
const MOST_BLOCKS: usize = 1 << 18;
/// Bytes of a file, at most.
const MOST_BYTES: u64 = 16 << 20;
/// Programs that are kept, at most; those that were used last.
const MOST_PROGRAMS: usize = 128;

/// A file as it is mapped, by numbers that change with its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ObjectVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: u64,
    /// Offset of the mapping in the file.
    offset: u64,
}

impl ObjectVersion {
    /// The version of a file whose code is mapped from an offset on.
    pub(super) fn new(file: &Metadata, offset: u64) -> Self {
        let seconds = file.mtime().cast_unsigned();
        Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            modified_ns: seconds
                .wrapping_mul(1_000_000_000)
                .wrapping_add(file.mtime_nsec().cast_unsigned()),
            offset,
        }
    }
}

/// The blocks of an object, in order: twice their distance from the start of its code, and 1 if lookups have found them.
type ObjectBlocks = Vec<u32>;

/// The blocks of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EarlierBlocks(BTreeMap<ObjectVersion, ObjectBlocks>);

/// Blocks to translate at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockList {
    pub(super) blocks: Vec<Addr>,
    /// Those that lookups have found.
    pub(super) landed: Vec<Addr>,
}

impl EarlierBlocks {
    /// The blocks of an object whose code is mapped in a span.
    pub(super) fn of(&self, object: &ObjectVersion, span: Span) -> BlockList {
        let blocks = self.0.get(object).into_iter().flatten();
        let placed = blocks.map(|entry| (span.start.add(u64::from(entry / 2)), entry % 2 != 0));
        let mut list = BlockList::default();
        for (at, landed) in placed.filter(|(at, _)| span.contains(*at)) {
            list.blocks.push(at);
            list.landed.extend(landed.then_some(at));
        }
        list
    }

    /// Adds blocks of an object whose code is mapped in a span. If there are too many then, all of them are forgotten.
    pub(super) fn add(&mut self, object: ObjectVersion, span: Span, list: &BlockList) {
        let entry = |at: &Addr| u32::try_from(span.start.to(*at)).ok()?.checked_mul(2);
        let all = self.0.entry(object).or_default();
        all.extend(list.blocks.iter().filter_map(entry));
        // Of a block that is there twice the entry that lookups have found.
        all.sort_unstable_by_key(|entry| (entry / 2, entry % 2 == 0));
        all.dedup_by_key(|entry| *entry / 2);
        if all.len() > MOST_BLOCKS {
            all.clear();
        }
        for landed in list.landed.iter().filter_map(entry) {
            let place = all.binary_search_by_key(&(landed / 2), |entry| entry / 2);
            if let Some(found) = place.ok().and_then(|place| all.get_mut(place)) {
                *found = landed + 1;
            }
        }
    }

    /// Reads the file of a program; no blocks if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is another file.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        let another = || io::Error::other("it is no list of blocks, or is cut off");
        Self::decode(&bytes).ok_or_else(another)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(&MAGIC)?;
        let (all, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(all)
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        postcard::to_extend(self, MAGIC.to_vec()).map_err(io::Error::other)
    }

    /// Replaces the file of a program, and removes those of programs that were not used for long.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(path);
        fs::create_dir_all(folder)?;
        // A start of the program meanwhile finds the one or the other.
        let mut written = NamedTempFile::new_in(folder)?;
        written.write_all(&self.encode()?)?;
        written.persist(path)?;
        let mut kept = BTreeSet::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(about) => kept.insert((about.modified()?, entry.path())),
                // Another agent has renamed or removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
        }
        let surplus = kept.len().saturating_sub(MOST_PROGRAMS);
        for (_, path) in kept.into_iter().take(surplus) {
            match fs::remove_file(path) {
                // Another agent has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }
}

/// The file of the program that a process executes; `None` if there is no cache directory, or the program is not known.
/// Blocks that record their accesses are longer, and have a file of their own.
pub(super) fn file_of(pid: u32, records: bool) -> Option<PathBuf> {
    let program = fs::metadata(super::super::proc(pid, "exe")).ok()?;
    let ObjectVersion {
        device,
        inode,
        bytes,
        modified_ns,
        ..
    } = ObjectVersion::new(&program, 0);
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = set("XDG_CACHE_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    let kind = if records { "-accesses" } else { "" };
    let name = format!("{device:x}-{inode:x}-{bytes:x}-{modified_ns:x}{kind}");
    Some(folder.join("gilk/clone").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(inode: u64) -> ObjectVersion {
        ObjectVersion {
            device: 1,
            inode,
            bytes: 0x5000,
            modified_ns: 7,
            offset: 0x1000,
        }
    }

    fn list(blocks: &[u64], landed: &[u64]) -> BlockList {
        BlockList {
            blocks: blocks.iter().copied().map(Addr).collect(),
            landed: landed.iter().copied().map(Addr).collect(),
        }
    }

    #[test]
    fn blocks_are_those_that_were_written_at_the_place_of_their_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/program");
        let mut all = EarlierBlocks::read(&path).unwrap();
        assert_eq!(all, EarlierBlocks::default());
        let span = Span::new(Addr(0x7f00_0000), 0x4000);
        all.add(object(2), span, &list(&[0x7f00_0010, 0x7f00_0120], &[]));
        let landed = [0x7f00_0120, 0x7f00_0300];
        all.add(object(2), span, &list(&[0x7f00_0120], &landed));
        all.add(object(3), span, &list(&[0x7f00_0000], &[0x7f00_0000]));
        all.write(&path).unwrap();
        let read = EarlierBlocks::read(&path).unwrap();
        assert_eq!(read, all);
        let moved = Span::new(Addr(0x5500_0000), 0x4000);
        let expected = list(&[0x5500_0010, 0x5500_0120], &[0x5500_0120]);
        assert_eq!(read.of(&object(2), moved), expected);
        assert_eq!(read.of(&object(4), moved), BlockList::default());
        // What is mapped may be shorter.
        let short = Span::new(Addr(0x5500_0000), 0x100);
        assert_eq!(read.of(&object(2), short), list(&[0x5500_0010], &[]));
    }

    #[test]
    fn agents_of_one_program_write_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::thread::scope(|scope| {
            for inode in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let mut all = EarlierBlocks::default();
                    all.add(object(inode), Span::new(Addr(0), 0x4000), &list(&[1], &[]));
                    for _ in 0..50 {
                        all.write(path).unwrap();
                        EarlierBlocks::read(path).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_cut_off_or_another_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut all = EarlierBlocks::default();
        let span = Span::new(Addr(0), 0x4000);
        all.add(object(2), span, &list(&[1, 2, 3], &[2]));
        let whole = all.encode().unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            EarlierBlocks::read(&path).unwrap_err();
        }
        fs::write(&path, [whole.as_slice(), &[0]].concat()).unwrap();
        EarlierBlocks::read(&path).unwrap_err();
        fs::write(&path, b"another file").unwrap();
        EarlierBlocks::read(&path).unwrap_err();
    }

    #[test]
    fn programs_that_were_not_used_for_long_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MOST_PROGRAMS + 3 {
            let path = folder.path().join(number.to_string());
            EarlierBlocks::default().write(&path).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MOST_PROGRAMS);
        let last = folder.path().join((MOST_PROGRAMS + 2).to_string());
        assert!(last.exists());
    }
}
