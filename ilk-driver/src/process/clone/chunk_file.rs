//! A file that grows by whole chunks, of which some give way to others where it can grow no more.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

/// A chunk that may be removed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removable {
    /// Its first byte in the file, and its bytes.
    at: u64,
    len: u64,
    /// The owner of the chunk, and the bytes that it loses with it.
    pub(super) owner: u32,
    pub(super) bytes: u64,
}

/// A file, and the chunks of it that may be removed again, in their order.
#[derive(Debug)]
pub(super) struct ChunkFile {
    file: File,
    /// It is no pipe: what was written can be taken back.
    is_file: bool,
    /// Bytes of whole chunks.
    len: u64,
    removable: Vec<Removable>,
}

impl ChunkFile {
    /// A file that is empty, and can be read and written, or a pipe.
    pub(super) fn new(file: File) -> io::Result<Self> {
        Ok(Self {
            is_file: file.metadata()?.is_file(),
            file,
            len: 0,
            removable: Vec::new(),
        })
    }

    /// Appends whole chunks; if they cannot be written the file is as it was.
    pub(super) fn append(&mut self, chunks: &[u8]) -> io::Result<()> {
        let written = match self.is_file {
            true => self.file.write_all_at(chunks, self.len),
            false => self.file.write_all(chunks),
        };
        match written {
            Ok(()) => self.len += chunks.len() as u64,
            Err(_) if self.is_file => self.file.set_len(self.len)?,
            Err(_) => {}
        }
        written
    }

    /// Appends a chunk that may be removed again, with which its owner loses so many bytes.
    pub(super) fn append_removable(
        &mut self,
        chunk: &[u8],
        (owner, bytes): (u32, u64),
    ) -> io::Result<()> {
        let at = self.len;
        self.append(chunk)?;
        if self.is_file {
            let len = chunk.len() as u64;
            self.removable.push(Removable {
                at,
                len,
                owner,
                bytes,
            });
        }
        Ok(())
    }

    /// Removes the last chunk that may be removed, if there is one, and returns it.
    pub(super) fn remove_last(&mut self) -> io::Result<Option<Removable>> {
        let Some(removed) = self.removable.pop() else {
            return Ok(None);
        };
        let next = removed.at + removed.len;
        let after = self.len.saturating_sub(next);
        let mut bytes = vec![0; usize::try_from(after).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, next)?;
        self.file.write_all_at(&bytes, removed.at)?;
        self.len -= removed.len;
        self.file.set_len(self.len)?;
        Ok(Some(removed))
    }

    /// Has the chunks of an owner stay.
    pub(super) fn keep(&mut self, owner: u32) {
        self.removable.retain(|one| one.owner != owner);
    }
}

/// Returns whether an error is that of a file or a disk that is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    let full = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG];
    error
        .raw_os_error()
        .is_some_and(|number| full.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_chunks_are_taken_out_of_the_middle() {
        let mut chunks = ChunkFile::new(tempfile::tempfile().unwrap()).unwrap();
        let contents = |chunks: &ChunkFile| {
            let mut bytes =
                vec![0; usize::try_from(chunks.file.metadata().unwrap().len()).unwrap()];
            chunks.file.read_exact_at(&mut bytes, 0).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        chunks.append(b"head ").unwrap();
        chunks.append_removable(b"first ", (1, 10)).unwrap();
        chunks.append(b"block ").unwrap();
        chunks.append_removable(b"second ", (2, 20)).unwrap();
        chunks.append_removable(b"third ", (3, 30)).unwrap();
        chunks.append(b"end ").unwrap();
        chunks.keep(2);
        let removed = chunks.remove_last().unwrap().unwrap();
        assert_eq!((removed.owner, removed.bytes), (3, 30));
        assert_eq!(contents(&chunks), "head first block second end ");
        let removed = chunks.remove_last().unwrap().unwrap();
        assert_eq!((removed.owner, removed.bytes), (1, 10));
        assert_eq!(contents(&chunks), "head block second end ");
        assert_eq!(chunks.remove_last().unwrap(), None);
        chunks.append(b"more").unwrap();
        assert_eq!(contents(&chunks), "head block second end more");
    }
}
