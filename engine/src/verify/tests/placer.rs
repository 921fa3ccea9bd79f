//! Sites for tests: one over each whole segment that a long jump fits in. It knows nothing of the
//! planner's placement, so that the reader can be tried without it.

use iced_x86::{FlowControl, Instruction};

use crate::cfg::{BlockEnd, Cfg};
use crate::isa::relocate::movable;
use crate::layout::Abi;
use crate::placement::{
    InsnEdge, Point, Reached, Site, SiteIndex, Solution, Splice, Tactic, Wanted,
};
use crate::{Addr, HookType, Image, Refusal, Rule, Span};

/// The segments of a function, as indices of instructions.
fn segments(image: &Image, cfg: &Cfg) -> Vec<Vec<Instruction>> {
    let mut segments: Vec<Vec<Instruction>> = Vec::new();
    let mut open = false;
    for block in &cfg.blocks {
        let before = segments.last().and_then(|segment| segment.last());
        let index = block.index;
        let runs_in = before.is_some_and(|before| before.next_ip() == block.span.start.0);
        let alone = cfg.predecessors(index).count() == 1
            && cfg
                .predecessors(index)
                .all(|edge| edge.from.0 + 1 == index.0);
        if !(runs_in && alone && !block.entered) {
            open = false;
        }
        for instruction in &block.instructions {
            let span = Span::new(Addr(instruction.ip()), instruction.len() as u64);
            let kernels = image.fixed().overlapping(span).next().is_some();
            if kernels || movable(&instruction, &Abi::KERNEL).is_err() {
                open = false;
                continue;
            }
            if !open {
                segments.push(Vec::new());
            }
            segments.last_mut().unwrap().push(instruction);
            open = !matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::Return
            );
        }
    }
    segments
}

/// Sites over whole segments, or over as little of their start as a jump needs.
pub(super) fn place(image: &Image, graphs: &[&Cfg], wanted: &[Wanted], whole: bool) -> Solution {
    let all: Vec<Vec<Instruction>> = graphs
        .iter()
        .flat_map(|cfg| segments(image, cfg))
        .filter(|segment| segment.last().unwrap().next_ip() - segment[0].ip() >= 5)
        .map(|mut segment| {
            let end = segment[0].ip() + 5;
            segment.retain(|one| whole || one.ip() < end);
            segment
        })
        .collect();
    let mut sites: Vec<Site> = all
        .iter()
        .map(|segment| {
            let start = Addr(segment[0].ip());
            let overlapped = |one: &&Instruction| one.ip() < start.0 + 5;
            Site {
                splice: Splice::Jump,
                displaced: Span {
                    start,
                    end: Addr(segment.last().unwrap().next_ip()),
                },
                overwritten: segment.iter().filter(overlapped).count() as u32,
                filled: 0,
                continuations: Box::default(),
            }
        })
        .collect();
    sites.sort_unstable_by_key(|site| site.displaced.start);
    let site_of = |at: Addr| {
        let number = sites.iter().position(|site| site.displaced.contains(at))?;
        Some(SiteIndex(number as u32))
    };
    let before = |at: Addr| {
        let site = site_of(at)?;
        let first = sites[site.0 as usize].displaced.start == at;
        Some((
            site,
            if first {
                Point::Entry
            } else {
                Point::Before(at)
            },
        ))
    };
    let hooks = wanted
        .iter()
        .map(|want| {
            let block = graphs[want.graph].block(want.block).unwrap();
            let stays = |one: &Instruction| {
                let span = Span::new(Addr(one.ip()), one.len() as u64);
                want.block.0 == 0 && image.fixed().overlapping(span).next().is_some()
            };
            let first = block.instructions.iter().find(|one| !stays(one));
            let last = block.instructions.last().unwrap();
            let point = match want.hook {
                HookType::Pre => first.and_then(|first| before(Addr(first.ip()))),
                HookType::Post if block.end == BlockEnd::FallThrough => {
                    let from = Addr(last.ip());
                    let calls = last.flow_control() == FlowControl::Call;
                    let edge = InsnEdge {
                        from,
                        to: block.span.end,
                    };
                    (site_of(from).filter(|_| !calls)).map(|site| (site, Point::On(edge)))
                }
                HookType::Post => before(Addr(last.ip())),
                HookType::Taken | HookType::Untaken => {
                    let branches = last.is_jcc_short_or_near();
                    let jumps = want.hook == HookType::Taken;
                    let (to, next) = (last.near_branch_target(), last.next_ip());
                    let from = Addr(last.ip());
                    let edge = InsnEdge {
                        from,
                        to: Addr(if jumps { to } else { next }),
                    };
                    (site_of(from).filter(|_| branches && to != next))
                        .map(|site| (site, Point::On(edge)))
                }
            };
            point
                .map(|point| Reached {
                    tactic: Tactic::DirectSplice,
                    points: vec![point].into(),
                    needs: vec![].into(),
                })
                .ok_or_else(|| {
                    Refusal::new(Rule::BlockTooShort, block.span.start, "no long jump fits")
                })
        })
        .collect();
    // Sites without hooks are never in place.
    Solution {
        sites,
        bounces: vec![],
        hooks,
    }
}
