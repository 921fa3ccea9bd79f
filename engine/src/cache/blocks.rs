//! The original blocks that direct branches reach, each decoded once.

use std::collections::VecDeque;
use std::ops::Range;

use iced_x86::{Instruction, InstructionInfoFactory};
use rustc_hash::FxHashSet;

use super::CodeBytes;
use super::flow::FlowKind;
use super::holders::leaves_one;
use super::original::OriginalReader;
use crate::ids::part;
use crate::isa::{RegisterSet, memory};
use crate::{Addr, Span};

/// The most instructions of a block.
const MOST_IN_BLOCK: usize = 64;

/// Bounds of what one translation follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranslationReach {
    /// Direct calls in a row that are followed.
    pub calls: u32,
    /// Blocks after which no more are begun.
    pub blocks: usize,
}

impl TranslationReach {
    /// No branch is followed.
    pub(super) const NOTHING: Self = Self {
        calls: 0,
        blocks: 0,
    };
}

/// An original instruction, with its translation's form.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodedInstruction {
    pub(super) instruction: Instruction,
    pub(super) flow: FlowKind,
    /// Offset of the displacement to its operand in memory, if that is relative to the instruction.
    pub(super) displacement: Option<usize>,
}

impl DecodedInstruction {
    pub(super) fn at(&self) -> Addr {
        Addr(self.instruction.ip())
    }

    pub(super) fn next(&self) -> Addr {
        Addr(self.instruction.next_ip())
    }
}

/// A block of original code. One that records its accesses continues after conditional branches that are not taken.
#[derive(Debug)]
pub(super) struct DecodedBlock {
    pub(super) start: Addr,
    /// Its instructions among those of all blocks, to its end or further: another block may begin before it.
    instructions: Range<usize>,
    /// Another instruction follows the last one, which is not of this block.
    pub(super) continues: bool,
}

/// The blocks that a request reaches.
#[derive(Debug, Default)]
pub(super) struct DecodedBlocks {
    /// In order of their addresses.
    pub(super) blocks: Vec<DecodedBlock>,
    /// The addresses that returns target.
    pub(super) returned: FxHashSet<Addr>,
    pub(super) instructions: Vec<DecodedInstruction>,
}

impl DecodedBlocks {
    /// Follows direct branches from some addresses, breadth first, up to what is translated.
    pub(super) fn search(
        (code, arena): (&dyn CodeBytes, Span),
        records: bool,
        is_instrumented: impl Fn(Addr) -> bool,
        is_translated: impl Fn(Addr) -> bool,
        seeds: &[Addr],
        reach: TranslationReach,
    ) -> Self {
        let mut discovered = Self::default();
        let mut seen = FxHashSet::default();
        let mut reader = OriginalReader::new(code);
        let mut factory = InstructionInfoFactory::new();
        let mut worklist: VecDeque<(Addr, u32)> =
            seeds.iter().map(|&seed| (seed, reach.calls)).collect();
        while let Some((at, calls)) = worklist.pop_front() {
            // One that is needed for a block to end is begun in any case.
            if is_translated(at) || code.code_from(at).is_none() || !seen.insert(at) {
                continue;
            }
            let start = discovered.instructions.len();
            let instructions = &mut discovered.instructions;
            let continues = match records {
                true => decode_recorded(
                    &mut reader,
                    (at, arena),
                    &mut factory,
                    &is_instrumented,
                    instructions,
                ),
                false => decode_block(
                    &mut reader,
                    (at, arena),
                    instructions,
                    |decoded| decoded.at() == at || !is_instrumented(decoded.at()),
                    FlowKind::is_sequential,
                ),
            };
            let block = DecodedBlock {
                start: at,
                instructions: start..discovered.instructions.len(),
                continues,
            };
            let decoded = discovered.decoded(&block);
            let Some((&last, before)) = decoded.split_last() else {
                discovered.blocks.push(block);
                continue;
            };
            let exits: Vec<Addr> = before.iter().filter_map(|one| one.flow.exit()).collect();
            discovered.blocks.push(block);
            // It ends where no instruction is.
            if last.flow.is_sequential() && !continues {
                continue;
            }
            let next = last.next();
            if matches!(last.flow, FlowKind::Call(_) | FlowKind::IndirectCall) {
                discovered.returned.insert(next);
            }
            if discovered.blocks.len() >= reach.blocks {
                continue;
            }
            worklist.extend(exits.into_iter().map(|to| (to, calls)));
            match last.flow {
                FlowKind::Jump(to) => worklist.push_back((to, calls)),
                FlowKind::Conditional(to) | FlowKind::ShortConditional(to) => {
                    worklist.push_back((next, calls));
                    worklist.push_back((to, calls));
                }
                FlowKind::Call(to) => {
                    worklist.push_back((next, calls));
                    if let Some(calls) = calls.checked_sub(1) {
                        worklist.push_back((to, calls));
                    }
                }
                // A block of the most instructions continues in another.
                FlowKind::IndirectCall
                | FlowKind::SystemCall
                | FlowKind::Copied
                | FlowKind::LeftOut => {
                    worklist.push_back((next, calls));
                }
                FlowKind::IndirectJump | FlowKind::Return | FlowKind::Stepped => {}
            }
        }
        discovered.blocks.sort_unstable_by_key(|block| block.start);
        discovered
    }

    /// The instructions from the start of a block on.
    pub(super) fn decoded(&self, block: &DecodedBlock) -> &[DecodedInstruction] {
        part(&self.instructions, block.instructions.clone())
    }
}

/// Decodes the instructions of a block: up to one after which it does not continue, or before one that cannot be decoded
/// or is not taken. Returns whether another instruction follows in another block.
fn decode_block(
    reader: &mut OriginalReader<'_>,
    (at, arena): (Addr, Span),
    instructions: &mut Vec<DecodedInstruction>,
    mut takes: impl FnMut(&mut DecodedInstruction) -> bool,
    continues: impl Fn(FlowKind) -> bool,
) -> bool {
    let Some(decoder) = reader.at(at) else {
        return false;
    };
    for _ in 0..MOST_IN_BLOCK {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return false;
        }
        let flow = FlowKind::of(&instruction, arena);
        let displacement = instruction.is_ip_rel_memory_operand().then(|| {
            let offsets = decoder.get_constant_offsets(&instruction);
            offsets.displacement_offset()
        });
        let mut decoded = DecodedInstruction {
            instruction,
            flow,
            displacement,
        };
        if !takes(&mut decoded) {
            return true;
        }
        instructions.push(decoded);
        if !continues(decoded.flow) {
            return false;
        }
    }
    true
}

/// As [`decode_block`], of a block that leaves a register to the recorder, and the base of `gs`. It has one group, of
/// which a conditional branch that is taken leaves a part.
fn decode_recorded(
    reader: &mut OriginalReader<'_>,
    place: (Addr, Span),
    factory: &mut InstructionInfoFactory,
    is_instrumented: &dyn Fn(Addr) -> bool,
    instructions: &mut Vec<DecodedInstruction>,
) -> bool {
    let mut named = RegisterSet::EMPTY;
    let takes = |decoded: &mut DecodedInstruction| {
        let is_first = decoded.at() == place.0;
        if !is_first && is_instrumented(decoded.at()) {
            return false;
        }
        if memory::uses_thread_bases(&decoded.instruction) {
            decoded.flow = FlowKind::Stepped;
        }
        named = named.union(memory::named(factory, &decoded.instruction));
        is_first || leaves_one(named)
    };
    decode_block(reader, place, instructions, takes, |flow| {
        flow.is_sequential() || flow.exit().is_some()
    })
}
