//! Text of a stopped process, read and written in runs of pages: thousands of splices are few system calls.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gilk_engine::{Addr, Span};

use super::{maps, refused};
use crate::Result;

/// The pages of text that a change is about.
pub(super) struct TextPages {
    pid: u32,
    /// Runs of pages by address.
    runs: Vec<(Addr, Vec<u8>)>,
}

impl TextPages {
    /// Reads the pages with these bytes.
    pub(super) fn read(pid: u32, memory: &File, about: &[(Addr, &[u8])]) -> Result<Self> {
        let page = |at: u64| at & !(maps::PAGE - 1);
        let spans = about.iter().map(|(at, bytes)| Span {
            start: Addr(page(at.0)),
            end: Addr(page(at.0 + bytes.len() as u64 + maps::PAGE - 1)),
        });
        let runs = Span::merged(spans.collect()).into_iter().map(|span| {
            let mut bytes = vec![0; usize::try_from(span.len()).unwrap_or(0)];
            let read = memory.read_exact_at(&mut bytes, span.start.0);
            read.map_err(|error| {
                let start = span.start;
                refused(pid, format!("its text at {start} cannot be read ({error})"))
            })?;
            Ok((span.start, bytes))
        });
        Ok(Self {
            pid,
            runs: runs.collect::<Result<_>>()?,
        })
    }

    /// The bytes of a span that was read.
    pub(super) fn bytes(&mut self, at: Addr, length: usize) -> Option<&mut [u8]> {
        let after = self.runs.partition_point(|(start, _)| *start <= at);
        let (start, bytes) = self.runs.get_mut(after.checked_sub(1)?)?;
        let offset = usize::try_from(start.to(at)).ok()?;
        bytes.get_mut(offset..)?.get_mut(..length)
    }

    /// Compares with the bytes that a plan expects.
    ///
    /// # Errors
    /// [`Error::Process`](crate::Error::Process) at the first that differ.
    pub(super) fn expect(&mut self, expected: &[(Addr, &[u8])]) -> Result<()> {
        for (at, bytes) in expected {
            if self
                .bytes(*at, bytes.len())
                .is_none_or(|found| found != *bytes)
            {
                let why = format!("its text at {at} has changed since it was read; try again");
                return Err(refused(self.pid, why));
            }
        }
        Ok(())
    }

    /// Replaces bytes that were read.
    pub(super) fn replace(&mut self, writes: &[(Addr, &[u8])]) {
        for (at, bytes) in writes {
            let found = self.bytes(*at, bytes.len());
            debug_assert!(found.is_some(), "a write outside of what was read");
            if let Some(found) = found {
                found.copy_from_slice(bytes);
            }
        }
    }

    /// Writes all pages.
    pub(super) fn write(&self, memory: &File) -> Result<()> {
        for (start, bytes) in &self.runs {
            let written = memory.write_all_at(bytes, start.0);
            written.map_err(|error| {
                refused(
                    self.pid,
                    format!("its text at {start} cannot be written ({error})"),
                )
            })?;
        }
        Ok(())
    }
}
