//! Descriptors of restartable sequences, as the kernel reads them (`struct rseq_cs` of include/uapi/linux/rseq.h).

use super::slot::SlotWords;
use crate::layout::Sequences;
use crate::plan::Patch;
use crate::verify::reason::Reason;
use crate::verify::symbolic::atom::SymValue;
use crate::{Addr, Span};

/// Bytes of a descriptor: `struct rseq_cs`.
const BYTES: usize = 32;

/// A sequence, by addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sequence {
    /// Its first instruction.
    pub(super) start: u64,
    /// The end of its last instruction.
    pub(super) commit: u64,
    /// The address at which a thread continues that was interrupted inside.
    pub(crate) abort: u64,
}

/// The instruction of a sequence that was executed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SequenceStep {
    /// The one before the first, which stores the address of the descriptor.
    Armed,
    /// The number of the CPU is read.
    Read(SymValue),
    /// It is compared with the number of CPUs.
    Compared(SymValue),
    /// It is that of a CPU.
    Registered(SymValue),
    /// The head of the CPU's ring is read.
    Headed { cpu: SymValue, head: SymValue },
    /// It is compared with the ring's limit.
    Limited { cpu: SymValue, head: SymValue },
    /// As many slots are free as the sample has words, from that of the head on. They are filled, with one time; so many
    /// of them are complete.
    Filling {
        cpu: SymValue,
        head: SymValue,
        tsc: SymValue,
        written: SlotWords,
        word: u8,
    },
}

/// A descriptor at the end of a patch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(super) at: u64,
    pub(super) sequence: Sequence,
    /// An instruction stores its address.
    pub(super) armed: bool,
}

/// The code of a patch, and the descriptors after it.
pub(crate) type SplitCode<'p> = (&'p [u8], Vec<Descriptor>);

/// Returns the code of a patch, and the descriptors after it.
///
/// # Errors
/// A descriptor is not as the kernel reads it, or its sequence is not inside the code.
pub(crate) fn split(
    patch: &Patch,
    sequences: Option<Sequences>,
) -> Result<SplitCode<'_>, (Addr, Reason)> {
    let wrong = |at: u64, why| (Addr(at), Reason::Descriptor { why });
    let begin = patch.address.0;
    let tail = usize::try_from(patch.sequences).ok();
    let tail = tail.and_then(|count| count.checked_mul(BYTES));
    let code = tail.and_then(|tail| patch.code.len().checked_sub(tail));
    let code = code.ok_or_else(|| wrong(begin, "is longer than the patch"))?;
    let (code, tail) = patch.code.split_at(code);
    let Some(sequences) = sequences.filter(|_| !tail.is_empty()) else {
        return match tail {
            [] => Ok((code, Vec::new())),
            _ => Err(wrong(begin, "has no use in this target")),
        };
    };
    let span = Span::new(patch.address, code.len() as u64);
    let inside = |at: u64| span.start.0 <= at && at < span.end.0;
    let (all, _) = tail.as_chunks::<BYTES>();
    let mut descriptors = Vec::with_capacity(all.len());
    for (number, bytes) in (0..).zip(all) {
        let at = span.end.0.wrapping_add(number * BYTES as u64);
        let (words, _) = bytes.as_chunks::<8>();
        let [flags, start, length, abort] = *words else {
            return Err(wrong(at, "is cut short"));
        };
        let [flags, start, length, abort] = [flags, start, length, abort].map(u64::from_le_bytes);
        let commit = start.wrapping_add(length);
        let before = abort.wrapping_sub(begin).checked_sub(4);
        let signature = before
            .and_then(|offset| code.get(usize::try_from(offset).ok()?..)?.first_chunk())
            .map(|bytes| u32::from_le_bytes(*bytes));
        let why = if !at.is_multiple_of(BYTES as u64) {
            "is not aligned"
        } else if flags != 0 {
            "has a version or flags"
        } else if !inside(start) || !inside(abort) || commit <= start || commit > span.end.0 {
            "is not of code in the patch"
        } else if (start..commit).contains(&abort) {
            "restarts inside the sequence"
        } else if signature != Some(sequences.signature) {
            "restarts where no signature precedes"
        } else {
            descriptors.push(Descriptor {
                at,
                sequence: Sequence {
                    start,
                    commit,
                    abort,
                },
                armed: false,
            });
            continue;
        };
        return Err(wrong(at, why));
    }
    Ok((code, descriptors))
}

/// Checks that all descriptors are used.
///
/// # Errors
/// The first one that is not.
pub(crate) fn all_armed(descriptors: &[Descriptor]) -> Result<(), (Addr, Reason)> {
    let why = "is never stored";
    match descriptors.iter().find(|one| !one.armed) {
        Some(one) => Err((Addr(one.at), Reason::Descriptor { why })),
        None => Ok(()),
    }
}

impl Descriptor {
    /// The address where its sequence restarts.
    pub(crate) fn abort(&self) -> u64 {
        self.sequence.abort
    }
}
