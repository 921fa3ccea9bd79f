//! The record of an instrumented process: what removes the instrumentation, kept in the process itself.
//!
//! It is at the end of the last arena, which is named in `/proc/pid/maps`, so that any `ilk` with the right to trace the
//! process finds and removes what a killed one has left, in forked children too.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::plan::{Poke, PokeKind};
use gilk_engine::{Addr, Plan, Span};
use serde::{Deserialize, Serialize};

use super::maps::{self, MappedSpan};
use super::{refused, text};
use crate::{Error, Result};

/// The start of the name of the file of counters and patches, as `/proc/pid/maps` has it.
const SHOWN: &str = "/memfd:gilk:";
/// The end of a record of this format.
const MAGIC: u64 = u64::from_le_bytes(*b"gilk\0\0\0\x04");
/// Bytes after a record: a word that is not 0 while its static probes are switched on, its length, and the format.
const TRAILER: usize = 24;
/// The most bytes that a record has for each splice, and for each bounce.
pub(super) const MOST_PER_WRITE: u64 = 128;

/// A write of text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) at: Addr,
    pub(super) original: Vec<u8>,
    pub(super) splice: Vec<u8>,
}

/// The semaphore of a static probe: a number of two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Semaphore {
    pub(super) at: Addr,
    /// A write of text in the same object: where its splice is, the object is mapped still.
    pub(super) splice: Addr,
}

/// A process that instruments others, or is instrumented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// Its number.
    pub pid: u32,
    /// Its start, in clock ticks from that of the machine: numbers are used again.
    pub started: u64,
}

/// Contents of a process, and those from before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The words of all CPUs, and all that is mapped with them.
    pub(super) words: Span,
    /// Bytes at their end of the table for variables of threads and calls, of which each forked child has a copy.
    pub(super) storage: u64,
    /// The patches, by address; this record is at the end of the last.
    pub(super) arenas: Vec<Span>,
    pub(super) text: Vec<Written>,
    /// Bytes of bounces, which threads pass through.
    pub(super) bounces: Vec<Span>,
    /// Those of static probes that are switched on, each increased by 1.
    pub(super) semaphores: Vec<Semaphore>,
    /// A word of four bytes: threads that wait in an arena leave it once the word is 0.
    pub(super) open: Option<Addr>,
}

/// A file of counters and patches that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Kept {
    /// The number of the file, which is that of the forked children's too.
    pub(super) file: u64,
    pub(super) client: Client,
    /// The mapping of the words. A client that was killed early has not mapped all.
    words: Option<Span>,
    /// The mappings of the patches and the record, by address.
    arenas: Vec<Span>,
}

impl Kept {
    /// The mappings of the patches and the record, by address.
    pub(super) fn arenas(&self) -> &[Span] {
        &self.arenas
    }
}

impl Client {
    /// This process.
    ///
    /// # Errors
    /// [`Error::Process`] if `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        Self::of(std::process::id())
    }

    /// A process.
    ///
    /// # Errors
    /// [`Error::Process`] if there is none.
    pub fn of(pid: u32) -> Result<Self> {
        let started = status(pid)?.map(|(_, started)| started);
        let started = started.ok_or_else(|| refused(pid, "/proc does not show its start"))?;
        Ok(Self { pid, started })
    }

    /// The name of its files, as `memfd_create` takes it.
    pub(super) fn file_name(self) -> Vec<u8> {
        format!("gilk:{}:{}\0", self.pid, self.started).into_bytes()
    }

    /// Returns whether it executes still.
    #[must_use]
    pub fn is_alive(self) -> bool {
        self.state()
            .is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// Returns whether a signal has stopped it.
    pub(super) fn is_stopped(self) -> bool {
        self.state() == Some('T')
    }

    /// The letter of its state; `None` if it has ended.
    fn state(self) -> Option<char> {
        let found = status(self.pid).ok().flatten();
        let (state, started) = found?;
        (started == self.started).then_some(state)
    }
}

/// Returns the state and the start of a process.
fn status(pid: u32) -> Result<Option<(char, u64)>> {
    // `1234 (name) S …`: a name may have parentheses.
    let stat = text(pid, "stat")?;
    let fields = || {
        let (_, after) = stat.rsplit_once(')')?;
        let mut fields = after.split_whitespace();
        let state = fields.next()?.chars().next()?;
        Some((state, fields.nth(18)?.parse().ok()?))
    };
    Ok(fields())
}

impl Record {
    /// The arena that it is at the end of.
    pub(super) fn holder(&self) -> Span {
        self.arenas.last().copied().unwrap_or_default()
    }

    /// The word that is not 0 while its static probes are switched on.
    pub(super) fn switch(&self) -> Addr {
        Addr(self.holder().end.0 - TRAILER as u64)
    }

    /// Returns it as bytes that end where the last arena ends.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let wrong = |error| Error::Plan {
            reason: format!("the record of its patches cannot be made ({error})"),
        };
        let mut bytes = postcard::to_stdvec(self).map_err(wrong)?;
        let length = bytes.len() as u64;
        bytes.extend([0; 8]);
        bytes.extend(length.to_le_bytes());
        bytes.extend(MAGIC.to_le_bytes());
        Ok(bytes)
    }

    /// Reads the record of what a process keeps.
    pub(super) fn read(pid: u32, memory: &File, kept: &Kept) -> Result<Self> {
        let arena = kept.arenas.last().copied().unwrap_or_default();
        let unreadable = |why: String| {
            let at = arena.start;
            refused(
                pid,
                format!("the record of its patches at {at} cannot be read ({why})"),
            )
        };
        let mut bytes = vec![0; usize::try_from(arena.len()).unwrap_or(0)];
        memory
            .read_exact_at(&mut bytes, arena.start.0)
            .map_err(|error| unreadable(error.to_string()))?;
        // The record is written before the text.
        let trailer = bytes.len().saturating_sub(TRAILER);
        if bytes.iter().skip(trailer).all(|byte| *byte == 0) {
            return Ok(Self {
                words: kept.words.unwrap_or_default(),
                storage: 0,
                arenas: kept.arenas.clone(),
                text: Vec::new(),
                bounces: Vec::new(),
                semaphores: Vec::new(),
                open: None,
            });
        }
        let record = || {
            let (before, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER)?)?;
            let (_switch, trailer) = trailer.split_first_chunk::<8>()?;
            let (length, magic) = trailer.split_first_chunk()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (_, record) = before.split_at_checked(before.len().checked_sub(length)?)?;
            let record: Self = postcard::from_bytes(record).ok()?;
            (magic == MAGIC.to_le_bytes() && record.arenas == kept.arenas).then_some(record)
        };
        record().ok_or_else(|| {
            unreadable("another version of gilk wrote it, or the process did".to_owned())
        })
    }
}

/// Returns whether a mapping is gilk's.
pub(super) fn is_ours(mapping: &MappedSpan) -> bool {
    client_of(mapping).is_some()
}

fn client_of(mapping: &MappedSpan) -> Option<Client> {
    let rest = mapping.name.strip_prefix(SHOWN)?;
    let (pid, started) = rest.split_once(' ')?.0.split_once(':')?;
    let (pid, started) = (pid.parse().ok()?, started.parse().ok()?);
    Some(Client { pid, started })
}

/// Returns what clients have mapped in a process.
pub(super) fn kept(pid: u32) -> Result<Vec<Kept>> {
    let mut all: Vec<Kept> = Vec::new();
    for mapping in maps::read(pid)? {
        let Some(client) = client_of(&mapping) else {
            continue;
        };
        // The client itself reads samples there.
        if client.pid == pid && client.is_alive() {
            continue;
        }
        let existing = all.iter().position(|one| one.file == mapping.inode);
        let mut object = existing.map_or(
            Kept {
                file: mapping.inode,
                client,
                words: None,
                arenas: Vec::new(),
            },
            |existing| all.swap_remove(existing),
        );
        match mapping.executable {
            true => object.arenas.push(mapping.span),
            // The words, and the table after them.
            false => {
                let start = object.words.map_or(mapping.span.start, |words| words.start);
                object.words = Some(Span {
                    start,
                    ..mapping.span
                });
            }
        }
        all.push(object);
    }
    Ok(all)
}

/// Returns the text that this program has written into a process, which may be mapped still.
pub(super) fn own_text(pid: u32, memory: &File) -> Result<Vec<Written>> {
    let own = Client::current()?;
    let own = kept(pid)?.into_iter().filter(|kept| kept.client == own);
    let records = own.map(|kept| Record::read(pid, memory, &kept));
    let records: Vec<Record> = records.collect::<Result<_>>()?;
    Ok(records.into_iter().flat_map(|record| record.text).collect())
}

/// Builds the error of instruments that begin or end in the middle of a session.
pub(super) fn refused_times() -> Error {
    let why = "In a process every instrument is in place from the start of the session to its end; give all of them \
               launch 0 and the session's duration as splash.";
    Error::Target(why.to_owned())
}

/// Returns the writes of a plan whose instruments are all in place from the start of the session to its end.
pub(super) fn text_of(plan: &Plan) -> Result<Vec<Written>> {
    let (installs, removals) = match plan.batches.as_slice() {
        [] => return Ok(Vec::new()),
        [installs, removals] if installs.at <= 0.0 && removals.at >= plan.duration => {
            (installs, removals)
        }
        _ => return Err(refused_times()),
    };
    let only = |pokes: &[Poke], kind| pokes.iter().all(|poke| poke.kind == kind);
    if !only(&installs.pokes, PokeKind::Install) || !only(&removals.pokes, PokeKind::Remove) {
        return Err(refused_times());
    }
    let writes = installs.pokes.iter().map(|poke| Written {
        at: poke.at,
        original: poke.expect.to_vec(),
        splice: poke.write.to_vec(),
    });
    Ok(writes.collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_record_is_read_from_the_end_of_its_arena_and_nothing_else_is() {
        let record = Record {
            words: Span::new(Addr(0x1000), 0x2000),
            storage: 0x1000,
            arenas: vec![Span::new(Addr(0), 4096)],
            text: vec![Written {
                at: Addr(0x40_1000),
                original: vec![1, 2, 3, 4, 5],
                splice: vec![5, 4, 3, 2, 1],
            }],
            bounces: Vec::new(),
            semaphores: vec![Semaphore {
                at: Addr(0x40_2000),
                splice: Addr(0x40_1000),
            }],
            open: Some(Addr(0x1008)),
        };
        let client = Client::current().unwrap();
        assert!(client.is_alive());
        let later = Client {
            started: client.started + 1,
            ..client
        };
        assert!(!later.is_alive());
        let bytes = record.encode().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![0xcc; 4096 - bytes.len()]).unwrap();
        file.write_all(&bytes).unwrap();
        let kept = Kept {
            file: 1,
            client,
            words: None,
            arenas: record.arenas,
        };
        let found = Record::read(1, &file, &kept).unwrap();
        assert_eq!(found.encode().unwrap(), bytes);
        // No byte of it, changed, makes the reader fail in another way than by an error.
        for at in 4096 - bytes.len()..4096 {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at as u64).unwrap();
            for changed in [!byte[0], byte[0] ^ 0x80, 0xff] {
                file.write_all_at(&[changed], at as u64).unwrap();
                let _read_or_refused = Record::read(1, &file, &kept);
            }
            file.write_all_at(&byte, at as u64).unwrap();
        }
        file.write_all_at(&[0], 4088).unwrap();
        let error = Record::read(1, &file, &kept).unwrap_err().to_string();
        assert!(error.contains("another version"), "{error}");
    }
}
