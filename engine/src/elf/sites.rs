//! Code that is not to be touched: restartable sequences, and probes that are there.

use std::collections::HashMap;

use super::file::{Contents, bad};
use crate::code::{Function, FunctionId, Memory, present};
use crate::{Addr, Refusal, Result, Rule, Span};

/// The bytes of a process over those of the file.
///
/// # Errors
/// [`Error::Elf`](crate::Error::Elf) if a section of code is missing.
pub(super) fn overlaid(
    contents: &Contents<'_>,
    of_file: &Memory,
    live: &[(Addr, Vec<u8>)],
) -> Result<Memory> {
    let process = Memory::new(live.iter().map(|(at, bytes)| (*at, bytes.as_slice())));
    let mut parts: Vec<(Addr, &[u8])> = Vec::new();
    for section in &contents.sections {
        let bytes = process.bytes(section.span);
        if bytes.is_none() && section.executable {
            return Err(bad(format!(
                "its section {} was not read from the process",
                section.name
            )));
        }
        let bytes = bytes.or_else(|| of_file.bytes(section.span));
        parts.extend(bytes.map(|bytes| (section.span.start, bytes)));
    }
    Ok(Memory::new(parts.into_iter()))
}

/// The functions of which a byte differs between the file and the process, other than where the dynamic
/// linker writes.
pub(super) fn changed(
    contents: &Contents<'_>,
    of_file: &Memory,
    memory: &Memory,
    functions: &[Function],
) -> HashMap<FunctionId, Refusal> {
    let relocated = |at: Addr| {
        let after = contents.words.partition_point(|word| word.at <= at);
        let word = after
            .checked_sub(1)
            .and_then(|last| contents.words.get(last));
        word.is_some_and(|word| Span::new(word.at, 8).contains(at))
    };
    let mut changed = HashMap::new();
    for function in functions {
        let [file, live] = [of_file, memory].map(|memory| present(memory.bytes(function.span)));
        let differs = |(offset, (file, live)): &(u64, (&u8, &u8))| {
            file != live && !relocated(function.span.start.add(*offset))
        };
        let first = (0..).zip(file.iter().zip(live)).find(differs);
        if let Some((offset, _)) = first {
            let at = function.span.start.add(offset);
            let why =
                "its bytes there are not those of the file; another tool's probe may be there";
            changed.insert(function.id, Refusal::new(Rule::Probed, at, why));
        }
    }
    changed
}

/// Bytes of a descriptor of a restartable sequence (`struct rseq_cs` of include/uapi/linux/rseq.h).
const DESCRIPTOR: usize = 32;

/// The functions with restartable sequences, by the descriptors in `__rseq_cs`
/// (tools/testing/selftests/rseq of Linux): the kernel aborts a thread by its instruction pointer, so that
/// a copy elsewhere would not be restarted.
pub(super) fn restartable(
    contents: &Contents<'_>,
    memory: &Memory,
    functions: &[Function],
) -> HashMap<FunctionId, Refusal> {
    let mut refused = HashMap::new();
    for sequence in sequences(contents, memory) {
        let inside = functions
            .iter()
            .filter(|function| function.span.overlaps(sequence));
        for function in inside {
            let why = "a restartable sequence is there, which the kernel restarts by its addresses";
            let refusal = Refusal::new(Rule::Restartable, sequence.start, why);
            refused.insert(function.id, refusal);
        }
    }
    refused
}

fn sequences(contents: &Contents<'_>, memory: &Memory) -> Vec<Span> {
    let Some(section) = contents.section("__rseq_cs") else {
        return Vec::new();
    };
    let bytes = present(memory.bytes(section.span));
    let (descriptors, _) = bytes.as_chunks::<DESCRIPTOR>();
    (0..)
        .zip(descriptors)
        .filter_map(|(number, descriptor): (u64, _)| {
            let word = |at: usize| Some(u64::from_le_bytes(*descriptor.get(at..)?.first_chunk()?));
            let place = section.span.start.add(number * DESCRIPTOR as u64 + 8);
            let found = contents.words.binary_search_by_key(&place, |word| word.at);
            let relocated = found
                .ok()
                .and_then(|index| contents.words.get(index)?.value);
            let start = relocated.or(Some(Addr(word(8)?)))?;
            let end = start.0.checked_add(word(16)?)?;
            let code = contents.code_at(start)?.span;
            Some(Span {
                start,
                end: Addr(end).min(code.end),
            })
        })
        .collect()
}
