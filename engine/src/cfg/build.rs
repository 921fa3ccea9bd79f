//! From instructions to blocks and edges.

use std::sync::Arc;

use super::decode::{DecodedFunction, FlowAfter, InsnIndex, Target, decode};
use super::instructions::{FunctionBytes, Instructions};
use super::{Block, BlockEnd, BlockIndex, Cfg, Edge, EdgeIndex, EdgeKind};
use crate::code::{FunctionId, Why, present};
use crate::ids::{Id, Ids};
use crate::{Addr, Image, Refusal, Rule, Span};

/// Analyses one function.
pub(super) fn build(image: &Image, id: FunctionId) -> Cfg {
    let Some(function) = image.function(id) else {
        let refusal = Refusal::new(
            Rule::NotText,
            Addr(0),
            format!("the kernel has no function number {}", id.0),
        );
        return Cfg {
            function: id,
            name: String::new(),
            span: Span::default(),
            blocks: Vec::new(),
            edges: Vec::new(),
            tables: Vec::new(),
            by_target: Vec::new(),
            refusal: Some(refusal),
        };
    };
    let (blocks, edges, refusal) = match decode(image, function) {
        Ok(decoded) => {
            let text = FunctionBytes {
                start: function.span.start,
                bytes: present(image.bytes(function.span)).into(),
            };
            let (blocks, edges) = graph(&decoded, &Arc::new(text));
            (blocks, edges, forbidden(image, function.span))
        }
        Err(refusal) => (Vec::new(), Vec::new(), Some(refusal)),
    };
    Cfg {
        function: id,
        name: function.name.clone(),
        span: function.span,
        by_target: by_target(&edges),
        tables: tables(image, &blocks),
        blocks,
        edges,
        refusal,
    }
}

/// The edges of jumps through tables.
fn tables(image: &Image, blocks: &[Block]) -> Vec<Edge> {
    let starting = |at: &Addr| {
        let block = blocks.binary_search_by_key(at, |block| block.span.start);
        block.ok().map(BlockIndex::new)
    };
    let edges = blocks.iter().flat_map(|block| {
        let targets = match block.end {
            BlockEnd::Indirect => image.table_targets(block.last_at()),
            _ => &[],
        };
        // A target in a part of the function is in another graph.
        targets.iter().filter_map(starting).map(|to| Edge {
            from: block.index,
            to,
            kind: EdgeKind::Table,
        })
    });
    edges.collect()
}

/// The edges, sorted by target.
fn by_target(edges: &[Edge]) -> Vec<EdgeIndex> {
    let numbers = (0..edges.len()).map(EdgeIndex::new);
    let mut numbered: Vec<(BlockIndex, EdgeIndex)> =
        edges.iter().map(|edge| edge.to).zip(numbers).collect();
    numbered.sort_unstable();
    numbered.into_iter().map(|(_, number)| number).collect()
}

/// The refusal of a function that lies in text where the kernel forbids probes.
fn forbidden(image: &Image, span: Span) -> Option<Refusal> {
    if image.text_at(span.start).is_some_and(|text| text.own) {
        return Some(Refusal::new(
            Rule::OwnText,
            span.start,
            "it is the text of the module that does the splicing",
        ));
    }
    let site = image
        .fixed()
        .overlapping(span)
        .find(|site| site.why == Why::Forbidden)?;
    if image.fixed().is_doubted(span.start) {
        let why = format!(
            "it may be assembly, which may execute with another stack (it has no site of the function tracer, and no parameters or result by the kernel's types), and the lists of such code were not compared with {}; `--unknown-kernel` permits it",
            image.release()
        );
        return Some(Refusal::new(Rule::UnknownKernel, span.start, why));
    }
    Some(Refusal::new(
        Rule::Blacklisted,
        span.start.max(site.span.start),
        "the kernel forbids probes in this function, or executes it when it handles a trap or a fault",
    ))
}

/// A block under construction: its first and last instruction, and their number.
#[derive(Clone, Copy)]
struct BlockCut {
    first: InsnIndex,
    last: InsnIndex,
    count: usize,
}

fn cuts(decoded: &DecodedFunction) -> Ids<BlockIndex, BlockCut> {
    let mut cuts: Vec<BlockCut> = Vec::new();
    // Whether the next instruction belongs to the last block.
    let mut open = false;
    for (index, insn) in decoded.insns.iter() {
        if insn.padding {
            open = false;
            continue;
        }
        match cuts.last_mut() {
            Some(cut) if open && !insn.leader => {
                cut.last = index;
                cut.count += 1;
            }
            _ => cuts.push(BlockCut {
                first: index,
                last: index,
                count: 1,
            }),
        }
        open = insn.flow == FlowAfter::Next;
    }
    cuts.into()
}

fn graph(decoded: &DecodedFunction, text: &Arc<FunctionBytes>) -> (Vec<Block>, Vec<Edge>) {
    let cuts = cuts(decoded);
    // The block that has an instruction; for leaders, the one that begins there. Padding is in none.
    let block_of = |index: InsnIndex| {
        let until = cuts.values().partition_point(|cut| cut.first <= index);
        let block = BlockIndex::new(until.checked_sub(1)?);
        (index <= cuts[block].last).then_some(block)
    };
    let target = |target: Target| match target {
        Target::Inside(index) | Target::PastLock(index) => block_of(index),
        Target::Outside => None,
    };
    let mut edges = Vec::new();
    let mut ends = Vec::with_capacity(cuts.len());
    for (from, cut) in cuts.iter() {
        let mut edge =
            |to: Option<BlockIndex>, kind| edges.extend(to.map(|to| Edge { from, to, kind }));
        let next = block_of(cut.last.next());
        let end = match decoded.insns[cut.last].flow {
            FlowAfter::Next => {
                edge(next, EdgeKind::Fallthrough);
                BlockEnd::FallThrough
            }
            FlowAfter::Jump(to) => {
                edge(target(to), EdgeKind::Jump);
                if to == Target::Outside {
                    BlockEnd::TailCall
                } else {
                    BlockEnd::Jump
                }
            }
            FlowAfter::Conditional(to) => {
                edge(next, EdgeKind::Fallthrough);
                edge(target(to), EdgeKind::Taken);
                BlockEnd::Conditional
            }
            FlowAfter::Key(to, jumps) => {
                edge(
                    next,
                    if jumps {
                        EdgeKind::StaticKey
                    } else {
                        EdgeKind::Fallthrough
                    },
                );
                edge(
                    target(to),
                    if jumps {
                        EdgeKind::Jump
                    } else {
                        EdgeKind::StaticKey
                    },
                );
                BlockEnd::Conditional
            }
            FlowAfter::Return => BlockEnd::Return,
            FlowAfter::Indirect => BlockEnd::Indirect,
            FlowAfter::NoReturn => BlockEnd::NoReturn,
        };
        ends.push(end);
    }
    for &(instruction, fixup) in &decoded.fixups {
        edges.extend(
            block_of(instruction)
                .zip(block_of(fixup))
                .map(|(from, to)| Edge {
                    from,
                    to,
                    kind: EdgeKind::Fixup,
                }),
        );
    }
    edges.sort_unstable_by_key(|edge| (edge.from, edge.to, edge.kind as u8));
    edges.dedup();

    let block = |((index, cut), end): ((BlockIndex, &BlockCut), BlockEnd)| {
        let (first, last) = (&decoded.insns[cut.first], &decoded.insns[cut.last]);
        Block {
            index,
            span: Span {
                start: Addr(first.instruction.ip()),
                end: Addr(last.instruction.next_ip()),
            },
            instructions: Instructions::new(text, &first.instruction, &last.instruction, cut.count),
            end,
            entered: first.entered,
            open: first.open,
            skipped: first.skipped,
        }
    };
    (cuts.iter().zip(ends).map(block).collect(), edges)
}
