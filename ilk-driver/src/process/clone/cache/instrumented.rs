//! Instruments in the translations of a process.

use std::os::unix::fs::FileExt;

use gilk_engine::{Addr, Span};

use super::super::super::refused;
use super::ProcessCache;
use super::patches::PlacedPatch;
use crate::Result;

impl ProcessCache {
    /// Returns whether instruments run in the cache.
    pub(in super::super) fn has_instruments(&self) -> bool {
        self.instruments.is_some()
    }

    /// Returns whether instruments read memory, and the reads have not ended.
    pub(in super::super) fn reads_memory(&self) -> bool {
        let instruments = self.instruments.as_ref();
        !self.reads_ended && instruments.is_some_and(|instruments| instruments.gate.is_some())
    }

    /// Has all reads of memory fail from now on but those that are under way.
    pub(in super::super) fn end_reads(&mut self) -> Result<()> {
        let instruments = self.instruments.as_ref();
        let Some(gate) = instruments.and_then(|instruments| instruments.gate) else {
            return Ok(());
        };
        let closed = self
            .memory
            .write_all_at(&1_u32.to_le_bytes(), gate.closed.0);
        closed
            .map_err(|error| refused(self.pid, format!("its reads cannot be ended ({error})")))?;
        self.reads_ended = true;
        Ok(())
    }

    /// The last instruction of the code that reads memory, if an address is in that.
    pub(in super::super) fn end_of_read(&self, at: Addr) -> Option<Addr> {
        let arena = self.arenas.iter().find(|arena| arena.span.contains(at))?;
        let reader = arena.translator.reader()?;
        let code = Span::new(reader.start, reader.code.len() as u64);
        code.contains(at).then(|| Addr(code.end.0 - 1))
    }

    /// Returns whether a span of original code has an instruction with instruments.
    pub(in super::super) fn is_instrumented(&self, span: Span) -> bool {
        let instruments = self.instruments.as_ref();
        instruments.is_some_and(|instruments| instruments.translated.any_in(span))
    }

    /// The place at which threads leave the instruments before an original instruction, which was translated.
    pub(in super::super) fn exit(&self, original: Addr) -> Option<Addr> {
        let mut arenas = self.arenas.iter();
        arenas.find_map(|arena| arena.patches.exits.get(&original).copied())
    }

    /// Returns whether all code from one address to another is in the place of an original instruction.
    pub(in super::super) fn is_in_place(&self, original: Addr, from: Addr, to: Addr) -> bool {
        let arena = self.arenas.iter().find(|arena| arena.span.contains(from));
        arena.is_some_and(|arena| {
            let [first, last] = [from, to].map(|at| arena.rows.partition_point(|row| row.at <= at));
            let rows = first
                .checked_sub(1)
                .and_then(|first| arena.rows.get(first..last));
            from <= to && rows.is_some_and(|rows| rows.iter().all(|row| row.original == original))
        })
    }

    /// The patch that an address is in, or in the branch to it.
    pub(in super::super) fn patch(&self, at: Addr) -> Option<PlacedPatch> {
        let arena = self.arenas.iter().find(|arena| arena.span.contains(at))?;
        arena.patches.find(at)
    }
}
