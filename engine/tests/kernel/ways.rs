//! Every way into every block of a real kernel, against a plain reading of all of its branches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gilk_engine::cfg::{Block, BlockEnd, Cfg, Edge, EdgeKind};
use gilk_engine::code::Why;
use gilk_engine::{Addr, Image, Span};
use iced_x86::{FlowControl, Instruction, OpKind};

fn target(instruction: &Instruction) -> Option<Addr> {
    (instruction.op0_kind() == OpKind::NearBranch64).then(|| Addr(instruction.near_branch_target()))
}

/// Returns the branches of all instructions and of the jump table: (target, source).
fn branches(image: &Image, graphs: &[Cfg]) -> BTreeSet<(Addr, Addr)> {
    let written = graphs
        .iter()
        .flat_map(|cfg| &cfg.blocks)
        .flat_map(|block| &block.instructions)
        .filter_map(|instruction| Some((target(&instruction)?, Addr(instruction.ip()))));
    let keys = image
        .fixed()
        .iter()
        .filter(|site| site.why == Why::StaticKey);
    let keys = keys.filter_map(|site| Some((site.target?, site.span.start)));
    written.chain(keys).collect()
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn every_branch_is_a_way_into_the_block_it_leads_to_and_there_are_no_others() {
    let image = super::saved::image();
    let graphs = super::saved::graphs(&image);
    let branches = branches(&image, &graphs);
    let of: HashMap<Addr, usize> = (graphs.iter().enumerate())
        .flat_map(|(number, cfg)| cfg.blocks.iter().map(move |block| (block, number)))
        .flat_map(|(block, number)| block.instructions.iter().map(move |one| (one, number)))
        .map(|(instruction, number)| (Addr(instruction.ip()), number))
        .collect();
    let (mut complete, mut outside, mut dead) = (0, 0, 0);
    for (number, cfg) in graphs.iter().enumerate() {
        for block in &cfg.blocks {
            let start = block.span.start;
            let ways = cfg.ways_in(&image, block.index).unwrap();
            let mut targets: BTreeSet<Addr> = BTreeSet::new();
            for edge in &ways.edges {
                assert!(cfg.successors(edge.from).any(|out| out == *edge));
                let last = cfg.block(edge.from).unwrap().instructions.last().unwrap();
                if edge.kind != EdgeKind::Fallthrough && edge.kind != EdgeKind::Fixup {
                    targets.insert(Addr(last.ip()));
                }
                if edge.kind == EdgeKind::Fallthrough {
                    assert_eq!(edge.from.0 + 1, edge.to.0);
                }
                if edge.kind == EdgeKind::Fixup {
                    assert!(block.open, "{}: a fixup is entered by a fault", cfg.name);
                }
            }
            let mut others = 0;
            for branch in ways.branches {
                assert_eq!(branch.target, start);
                assert!(
                    branches.contains(&(branch.target, branch.source))
                        || image.function_at(branch.source).is_some_and(|function| {
                            graphs[function.id.0 as usize].blocks.is_empty()
                        }),
                    "{}: nothing at {} branches to {start}",
                    cfg.name,
                    branch.source
                );
                targets.insert(branch.source);
                others += 1;
            }
            outside += others;
            // A static key that does not jump now falls through to the next block.
            let expected: BTreeSet<Addr> = branches
                .range((start, Addr(0))..=(start, Addr(u64::MAX)))
                .map(|&(_, source)| source)
                .collect();
            if block.index.0 == 0 && block.open {
                // Calls of a whole function are not kept.
                continue;
            }
            for source in &expected {
                let call = of.get(source).is_some_and(|&other| other == number);
                assert!(
                    targets.contains(source),
                    "{}: {source} branches to {start}, unknown (own function: {call})",
                    cfg.name
                );
            }
            if ways.complete {
                complete += 1;
                dead += usize::from(ways.edges.is_empty() && ways.branches.is_empty());
                assert!(block.entered || ways.branches.is_empty());
                let first = block.instructions.first().unwrap();
                assert_ne!(first.code(), iced_x86::Code::Endbr64);
            }
        }
    }
    let blocks: usize = graphs.iter().map(|cfg| cfg.blocks.len()).sum();
    println!(
        "of {blocks} blocks, every way into {complete} is known, {outside} of them from other functions; nothing branches to {dead}"
    );
    let open = blocks - complete;
    assert!(
        open < graphs.len() + 2_000,
        "{open} can be entered by ways that are not known"
    );
    assert!(dead * 200 < blocks, "nothing branches to {dead} blocks");
}

#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn edges_are_found_from_both_of_their_ends() {
    let image = super::saved::image();
    for cfg in super::saved::graphs(&image) {
        let key = |edge: &Edge| (edge.from, edge.to, edge.kind as u8);
        let all: BTreeSet<_> = cfg.edges.iter().map(key).collect();
        assert_eq!(all.len(), cfg.edges.len());
        let of = |block: &Block| block.index;
        let out: BTreeSet<_> = (cfg.blocks.iter().map(of))
            .flat_map(|index| cfg.successors(index).map(key).collect::<Vec<_>>())
            .collect();
        let into: BTreeSet<_> = (cfg.blocks.iter().map(of))
            .flat_map(|index| cfg.predecessors(index).map(key).collect::<Vec<_>>())
            .collect();
        assert!(all == out && all == into, "{}", cfg.name);
    }
}

/// Code of one assembly symbol may fall through into the next; compiled code does not fall off its end.
#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn no_function_runs_off_its_end() {
    let image = super::saved::image();
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for cfg in super::saved::graphs(&image) {
        let Some(last) = cfg.blocks.last() else {
            continue;
        };
        let runs_off = last.end == BlockEnd::FallThrough
            || last.end == BlockEnd::Conditional && !branches_both_ways(&cfg, last);
        if !runs_off {
            *ends.entry(format!("{:?}", last.end)).or_default() += 1;
            continue;
        }
        let next = image.function_at(cfg.span.end);
        assert!(
            !image.keeps_convention(cfg.span.start),
            "{} runs off its end",
            cfg.name
        );
        assert!(
            cfg.refusal.is_some() || next.is_some(),
            "{} falls through into bytes of no function",
            cfg.name
        );
        *ends
            .entry("falls through into the next".to_owned())
            .or_default() += 1;
        println!(
            "{} falls through into {:?}",
            cfg.name,
            next.map(|next| &next.name)
        );
    }
    println!("{ends:?}");
    assert!(ends["falls through into the next"] < 40);
}

/// Returns whether the last block's branch has its other target inside the function.
fn branches_both_ways(cfg: &Cfg, block: &Block) -> bool {
    let taken = block.instructions.last().as_ref().and_then(target);
    let inside = taken.is_some_and(|to| cfg.span.contains(to));
    cfg.successors(block.index).count() == 1 + usize::from(inside)
}

/// All of the text is functions, and padding between them.
#[test]
#[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
fn functions_cover_the_text() {
    let image = super::saved::image();
    let mut end = image.text().start;
    for function in image.functions() {
        assert!(
            function.span.start >= end,
            "{} overlaps another",
            function.name
        );
        let gap = Span {
            start: end,
            end: function.span.start,
        };
        let bytes = image.bytes(gap).unwrap_or_default();
        for line in gilk_engine::listing::disassemble(None, gap.start, bytes) {
            let idle = [
                "int3",
                "nop",
                "xchg ax, ax",
                "add [rax], al",
                "add byte ptr [rax], al",
            ];
            assert!(
                idle.iter().any(|name| line.text.starts_with(name)),
                "{} {}, before {}",
                line.at,
                line.text,
                function.name
            );
        }
        end = function.span.end;
    }
    let flows = |cfg: &Cfg| {
        let calls = cfg.blocks.iter().flat_map(|block| &block.instructions);
        calls
            .filter(|one| one.flow_control() == FlowControl::Call)
            .count()
    };
    assert!(
        super::saved::graphs(&image)
            .iter()
            .map(flows)
            .sum::<usize>()
            > 100_000
    );
}
