//! Instruments in the translations of a process.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use gilk_engine::cache::PatchMoment;
use gilk_engine::reads::MemoryReader;
use gilk_engine::{Addr, Refusal, Span};

use super::super::super::objects::Object;
use super::super::super::refused;
use super::super::instruments::CloneInstruments;
use super::patches::PlacedPatch;
use super::{CacheArena, ProcessCache, unproved};
use crate::Result;

impl ProcessCache {
    /// Returns whether instruments run in the cache.
    pub(in super::super) fn has_instruments(&self) -> bool {
        !self.instruments.is_empty()
    }

    /// The instruments of the objects from the start, and then those of each object that was loaded later.
    pub(in super::super) fn instruments(&self) -> &[CloneInstruments] {
        &self.instruments
    }

    /// Runs the instruments of an object, none of whose code was translated.
    ///
    /// # Errors
    /// [`Rule::CacheFull`](gilk_engine::Rule::CacheFull): they run once the cache has begun again.
    pub(in super::super) fn add_instruments(
        &mut self,
        part: CloneInstruments,
    ) -> Result<std::result::Result<(), Refusal>> {
        let mut arenas = std::mem::take(&mut self.arenas);
        let added = arenas.iter_mut().map(|arena| self.add_to(arena, &part));
        let added = added.collect::<Result<_>>();
        self.arenas = arenas;
        self.instruments.push(part);
        added
    }

    /// Runs instruments in an arena.
    pub(super) fn add_to(
        &self,
        arena: &mut CacheArena,
        part: &CloneInstruments,
    ) -> Result<std::result::Result<(), Refusal>> {
        let translated = Arc::clone(&part.translated);
        let reader = match arena.translator.add_instruments(translated) {
            Ok(reader) => reader.cloned(),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let proof = Arc::clone(&part.proof);
        let proved = arena.prover.add_instruments(proof, reader.as_ref());
        proved.map_err(|violation| unproved(self.pid, &[violation]))?;
        if let Some(reader) = reader {
            for (start, code) in reader.parts() {
                self.write(arena, code, start)?;
            }
        }
        Ok(Ok(()))
    }

    /// Has no instruments any more in objects that are mapped no more, of which nothing is translated. No thread is in
    /// code that reads memory. Returns the words of those that were loaded later.
    pub(in super::super) fn forget_instruments(
        &mut self,
        is_gone: impl Fn(&Object) -> bool,
    ) -> Result<Vec<Span>> {
        let objects = self.instruments.iter().flat_map(|part| &part.objects);
        let gone = objects.filter(|object| is_gone(object));
        let gone: Vec<Span> = gone.map(|object| object.span).collect();
        for span in gone {
            for arena in &mut self.arenas {
                self.dropped.bytes += arena.translator.remove_instruments(span);
                let removed = arena.prover.remove_instruments(span);
                removed.map_err(|violation| unproved(self.pid, &[violation]))?;
            }
        }
        let mut parts = self.instruments.iter_mut();
        // Its words have those by which reads end.
        if let Some(start) = parts.next() {
            start.forget(&is_gone);
        }
        let later = self.instruments.len().min(1)..;
        let over = self.instruments.extract_if(later, |part| {
            part.forget(&is_gone);
            part.objects.is_empty()
        });
        Ok(over.map(|part| part.span()).collect())
    }

    /// Keeps words that no thread can unmap now until the process is let go.
    pub(in super::super) fn leave_words(&mut self, words: Vec<Span>) {
        self.left_words.extend(words);
    }

    /// Returns whether instruments read memory, and the reads have not ended.
    pub(in super::super) fn reads_memory(&self) -> bool {
        let mut parts = self.instruments.iter();
        !self.reads_ended && parts.any(|part| part.reads)
    }

    /// Has all reads of memory fail from now on but those that are under way.
    pub(in super::super) fn end_reads(&mut self) -> Result<()> {
        let Some(gate) = self.instruments.first().map(|part| part.gate) else {
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

    /// The last instruction of the code that reads memory, or of that which numbers stacks, if an address is in that.
    pub(in super::super) fn end_of_read(&self, at: Addr) -> Option<Addr> {
        let arena = self.arenas.iter().find(|arena| arena.span.contains(at))?;
        let mut parts = arena.translator.readers().flat_map(MemoryReader::parts);
        parts.find_map(|(start, code)| {
            let code = Span::new(start, code.len() as u64);
            code.contains(at).then(|| Addr(code.end.0 - 1))
        })
    }

    /// Returns whether a span of original code has an instruction with instruments.
    pub(in super::super) fn is_instrumented(&self, span: Span) -> bool {
        let mut parts = self.instruments.iter();
        parts.any(|part| part.translated.any_in(span))
    }

    /// The place at which threads leave the instruments before an original instruction, which was translated.
    pub(in super::super) fn exit(&self, original: Addr) -> Option<Addr> {
        let mut arenas = self.arenas.iter();
        arenas.find_map(|arena| arena.patches.exits.get(&original).copied())
    }

    /// The place at which threads begin the instruments after an original instruction, or on a way of it, that may not be
    /// executed again, if it was translated.
    pub(in super::super) fn begin_after(&self, after: (Addr, PatchMoment)) -> Option<Addr> {
        let mut arenas = self.arenas.iter();
        arenas.find_map(|arena| arena.patches.begins.get(&after).copied())
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
