//! Mappings of this program in a process: the file of counters and patches, created and mapped by one of its threads.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use gilk_engine::{Addr, Span};

use super::record::{Client, Record};
use super::remote::Remote;
use super::removal::unmap;
use super::stopped::Stopped;
use super::{maps, proc, refused};
use crate::Result;

/// Returns the number of a file that a process has mapped.
pub(super) fn number_of(pid: u32, file: &File) -> Result<u64> {
    let found = file.metadata();
    let found =
        found.map_err(|error| refused(pid, format!("its file of counters is gone ({error})")))?;
    Ok(found.ino())
}

/// Maps the words and the arenas into a process; returns the file of the words.
pub(super) fn map(pid: u32, stopped: &Stopped, memory: &File, record: &Record) -> Result<File> {
    let maps = maps::read(pid)?;
    let remote = Remote::of(pid, stopped, memory, &maps)?;
    map_by(pid, &remote, record)
}

/// The same, by a thread of the process.
pub(super) fn map_by(pid: u32, remote: &Remote<'_>, record: &Record) -> Result<File> {
    let words = record.words;
    let name = remote.put(&Client::current()?.file_name())?;
    let arguments = [name, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0];
    let number = remote.call(
        "create a file of counters",
        libc::SYS_memfd_create,
        arguments,
    )?;
    let arenas = record.arenas.iter();
    let bytes = words.len() + arenas.map(|arena| arena.len()).sum::<u64>();
    let counters = counters(pid, number, bytes).and_then(|counters| {
        place_words(remote, (words, record.storage), number)?;
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        let placed = (executable, libc::MAP_PRIVATE);
        let (mut mapped, mut offset) = (vec![words], words.len());
        for &arena in &record.arenas {
            if let Err(error) = place(remote, arena, placed, (number, offset)) {
                for span in mapped {
                    unmap(remote, span)?;
                }
                return Err(error);
            }
            mapped.push(arena);
            offset += arena.len();
        }
        Ok(counters)
    });
    remote.call(
        "close the file of counters",
        libc::SYS_close,
        [number, 0, 0, 0, 0, 0],
    )?;
    counters
}

/// Opens the file of counters that a process has created, and sets its length.
pub(super) fn counters(pid: u32, number: u64, bytes: u64) -> Result<File> {
    let path = proc(pid, &format!("fd/{number}"));
    let open = || {
        let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
        file.set_len(bytes)?;
        Ok(file)
    };
    open().map_err(|error: std::io::Error| {
        refused(
            pid,
            format!("its file of counters cannot be opened ({error})"),
        )
    })
}

/// Maps the start of a file of counters, by its number: words and rings, which forked children share, and, of so many
/// bytes at the end, the table for variables of threads and calls, of which each has a copy.
pub(super) fn place_words(
    remote: &Remote<'_>,
    (words, storage): (Span, u64),
    file: u64,
) -> Result<()> {
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let storage = Addr(words.end.0 - storage);
    let [shared, own] =
        [(words.start, storage), (storage, words.end)].map(|(start, end)| Span { start, end });
    place(remote, shared, (writable, libc::MAP_SHARED), (file, 0))?;
    if own.is_empty() {
        return Ok(());
    }
    let sharing = libc::MAP_PRIVATE;
    let placed = place(remote, own, (writable, sharing), (file, shared.len()));
    if placed.is_err() {
        unmap(remote, shared)?;
    }
    placed
}

/// Maps a span of a process: part of a file, by its number and offset.
pub(super) fn place(
    remote: &Remote<'_>,
    span: Span,
    (protection, sharing): (i32, i32),
    (file, offset): (u64, u64),
) -> Result<()> {
    let number = |flags: i32| u64::from(flags.cast_unsigned());
    let arguments = [
        span.start.0,
        span.len(),
        number(protection),
        number(sharing | libc::MAP_FIXED_NOREPLACE),
        file,
        offset,
    ];
    let what = format!("map memory at {}", span.start);
    let at = remote.call(&what, libc::SYS_mmap, arguments)?;
    if at == span.start.0 {
        return Ok(());
    }
    // Before Linux 4.17 the flag is a hint.
    let elsewhere = Span::new(Addr(at), span.len());
    unmap(remote, elsewhere)?;
    Err(remote.refused(format!("its memory at {} is taken", span.start)))
}
