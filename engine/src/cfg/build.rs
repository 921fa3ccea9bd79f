//! From instructions to blocks and edges.

use std::sync::Arc;

use super::decode::{DecodedFunction, FlowAfter, Target, decode};
use super::instructions::{FunctionBytes, Instructions};
use super::{Block, BlockEnd, BlockIndex, Cfg, Edge, EdgeKind};
use crate::code::{FunctionId, Why};
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
            by_target: Vec::new(),
            refusal: Some(refusal),
        };
    };
    let (blocks, edges, refusal) = match decode(image, function) {
        Ok(decoded) => {
            let text = FunctionBytes {
                start: function.span.start,
                bytes: image.bytes(function.span).unwrap_or_default().into(),
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
        blocks,
        by_target: by_target(&edges),
        edges,
        refusal,
    }
}

/// The numbers of the edges, sorted by target.
fn by_target(edges: &[Edge]) -> Vec<u32> {
    let mut numbered: Vec<(BlockIndex, u32)> =
        edges.iter().map(|edge| edge.to).zip(0_u32..).collect();
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
    Some(Refusal::new(
        Rule::Blacklisted,
        span.start.max(site.span.start),
        "the kernel forbids probes in this function",
    ))
}

/// A block under construction: the indexes of its first and last instruction.
#[derive(Clone, Copy)]
struct BlockCut {
    first: usize,
    last: usize,
}

fn cuts(decoded: &DecodedFunction) -> Vec<BlockCut> {
    let mut cuts: Vec<BlockCut> = Vec::new();
    // Whether the next instruction belongs to the last block.
    let mut open = false;
    let marks = decoded
        .padding
        .iter()
        .zip(&decoded.leaders)
        .zip(&decoded.flows);
    for (index, ((&padding, &leader), &flow)) in marks.enumerate() {
        if padding {
            open = false;
            continue;
        }
        match cuts.last_mut() {
            Some(cut) if open && !leader => cut.last = index,
            _ => cuts.push(BlockCut {
                first: index,
                last: index,
            }),
        }
        open = flow == FlowAfter::Next;
    }
    cuts
}

fn graph(decoded: &DecodedFunction, text: &Arc<FunctionBytes>) -> (Vec<Block>, Vec<Edge>) {
    let cuts = cuts(decoded);
    let number = |position: usize| BlockIndex(u32::try_from(position).unwrap_or(u32::MAX));
    // The block that has an instruction; for leaders, the one that begins there.
    let block_of = |index: usize| {
        let position = cuts
            .partition_point(|cut| cut.first <= index)
            .checked_sub(1)?;
        cuts.get(position)
            .filter(|cut| index <= cut.last)
            .map(|_| number(position))
    };
    let target = |target: Target| match target {
        Target::Inside(index) => block_of(index),
        Target::Outside => None,
    };
    let mut edges = Vec::new();
    let mut ends = Vec::with_capacity(cuts.len());
    for (position, cut) in cuts.iter().enumerate() {
        let from = number(position);
        let mut edge =
            |to: Option<BlockIndex>, kind| edges.extend(to.map(|to| Edge { from, to, kind }));
        let next = block_of(cut.last + 1);
        let end = match decoded
            .flows
            .get(cut.last)
            .copied()
            .unwrap_or(FlowAfter::Indirect)
        {
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

    let mut blocks = Vec::with_capacity(cuts.len());
    for ((position, cut), end) in cuts.iter().enumerate().zip(ends) {
        let own = decoded.instructions.get(cut.first..=cut.last);
        let Some((first, last)) = own.and_then(|own| own.first().zip(own.last())) else {
            continue;
        };
        blocks.push(Block {
            index: number(position),
            span: Span {
                start: Addr(first.ip()),
                end: Addr(last.next_ip()),
            },
            instructions: Instructions::new(text, first, last, cut.last - cut.first + 1),
            end,
            entered: decoded.entered.get(cut.first).copied().unwrap_or(true),
            open: decoded.open.get(cut.first).copied().unwrap_or(true),
        });
    }
    (blocks, edges)
}
