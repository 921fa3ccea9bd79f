//! Sites at random: whatever is sound by the documentation of their types, not what is clever.

use std::collections::BTreeMap;

use iced_x86::{Code, Instruction};

use super::choices::Choices;
use crate::cfg::{Block, Cfg};
use crate::code::{Decision, Transfer, Why};
use crate::isa::relocate::movable;
use crate::layout::Abi;
use crate::liveness::{Analysis, Liveness};
use crate::placement::*;
use crate::{Addr, HookType, Image, Span};

/// Sites, bounces, and how each hook of the graphs is reached that can be.
pub(super) struct RandomPlaces {
    pub(super) sites: Vec<Site>,
    pub(super) bounces: Vec<Bounce>,
    pub(super) hooks: BTreeMap<(usize, u32, HookType), Reached>,
}

pub(super) fn at(instruction: &Instruction) -> Addr {
    Addr(instruction.ip())
}

pub(super) fn next(instruction: &Instruction) -> Addr {
    Addr(instruction.next_ip())
}

/// Returns whether control never falls through from a copy of the instruction.
pub(super) fn stops(instruction: &Instruction) -> bool {
    use iced_x86::FlowControl::*;
    matches!(
        instruction.flow_control(),
        Call | Return | UnconditionalBranch
    )
}

/// Possible targets of an instruction.
pub(super) fn target(image: &Image, instruction: &Instruction) -> Option<Addr> {
    use iced_x86::FlowControl::*;
    match image.decided(at(instruction)).map(|site| site.by) {
        Some(Decision::StaticKey { target, .. }) => Some(target),
        Some(_) => None,
        None => matches!(
            instruction.flow_control(),
            ConditionalBranch | UnconditionalBranch
        )
        .then(|| Addr(instruction.near_branch_target())),
    }
}

pub(super) struct Builder<'a> {
    pub(super) image: &'a Image,
    pub(super) graphs: &'a [&'a Cfg],
    liveness: Vec<Liveness>,
    random: Choices,
    sites: Vec<Site>,
    /// Exposed bytes that are free: site number before sorting, span.
    exposed: Vec<(usize, Span)>,
    bounces: Vec<(Addr, Option<usize>, usize)>,
}

pub(super) fn places(image: &Image, graphs: &[&Cfg], seed: u64) -> RandomPlaces {
    let analysis = Analysis::new(image);
    let mut builder = Builder {
        image,
        graphs,
        liveness: graphs
            .iter()
            .map(|cfg| Liveness::of(&analysis, cfg))
            .collect(),
        random: Choices(seed),
        sites: Vec::new(),
        exposed: Vec::new(),
        bounces: Vec::new(),
    };
    let mut short = Vec::new();
    for cfg in graphs {
        for block in &cfg.blocks {
            builder.choose(block, &mut short);
        }
    }
    for displaced in short {
        builder.short(displaced);
    }
    builder.tracer_and_numbers()
}

impl Builder<'_> {
    fn may_displace(&self, instruction: &Instruction) -> bool {
        let span = Span::new(at(instruction), instruction.len() as u64);
        movable(instruction, &Abi::KERNEL).is_ok()
            && self.image.fixed().overlapping(span).next().is_none()
    }

    /// Perhaps a site in the block.
    fn choose(&mut self, block: &Block, short: &mut Vec<Span>) {
        let mut first = 0;
        let all = block.instructions.to_vec();
        while first < all.len() {
            let rest = &all[first..];
            let mut count = rest.iter().take_while(|one| self.may_displace(one)).count();
            if let Some(call) = rest[..count].iter().position(stops) {
                count = call + 1;
            }
            if count == 0 || self.random.once_in(4) {
                first += 1;
                continue;
            }
            count = 1 + self.random.below(count);
            let displaced = Span {
                start: at(&rest[0]),
                end: next(&rest[count - 1]),
            };
            let only = &rest[0];
            let called = count == 1 && only.code() == Code::Call_rel32_64;
            let splice = match displaced.len() {
                SPLICE_BYTES if called && self.random.once_in(2) => Some(Splice::Call),
                _ if self.random.once_in(9) => Some(Splice::Trap),
                SPLICE_BYTES.. if !self.random.once_in(4) => Some(Splice::Jump),
                _ => None,
            };
            if let Some(splice) = splice {
                self.exposed
                    .push((self.sites.len(), rest_after(displaced, splice.bytes())));
                self.sites.push(Site {
                    splice,
                    displaced,
                    overwritten: 0,
                    filled: 0,
                    continuations: Box::default(),
                });
                first += count;
            } else if displaced.len() >= SHORT_SPLICE_BYTES {
                short.push(displaced);
                first += count;
            } else {
                first += 1;
            }
        }
    }

    /// A short splice, if there is room for a bounce.
    fn short(&mut self, displaced: Span) {
        let from = displaced.start.add(SHORT_SPLICE_BYTES);
        let reaches = |to: Addr| i8::try_from(from.to(to)).is_ok();
        let number = self.sites.len();
        let candidates: Vec<usize> = (0..self.exposed.len())
            .filter(|&n| {
                let (_, free) = self.exposed[n];
                free.len() >= SPLICE_BYTES && reaches(free.start)
            })
            .collect();
        if !candidates.is_empty() && !self.random.once_in(5) {
            let slot = candidates[self.random.below(candidates.len())];
            let (host, free) = self.exposed[slot];
            self.exposed[slot].1 = rest_after(free, SPLICE_BYTES);
            self.bounces.push((free.start, Some(host), number));
        } else {
            // Padding of the function, after all bounces in it.
            let Some(function) = self.image.function_at(displaced.start) else {
                return;
            };
            let last = self
                .bounces
                .iter()
                .map(|(at, ..)| at.add(SPLICE_BYTES))
                .max();
            let free = function.span.end.add(16).max(last.unwrap_or(Addr(0)));
            let bytes = self.image.bytes_from(free, 5).unwrap();
            if !reaches(free) || bytes != [0xcc; 5] {
                return;
            }
            self.bounces.push((free, None, number));
        }
        self.exposed
            .push((number, rest_after(displaced, SHORT_SPLICE_BYTES)));
        self.sites.push(Site {
            splice: Splice::Short(BounceIndex(self.bounces.len() as u32 - 1)),
            displaced,
            overwritten: 0,
            filled: 0,
            continuations: Box::default(),
        });
    }

    fn tracer_and_numbers(mut self) -> RandomPlaces {
        for cfg in self.graphs {
            let site = self
                .image
                .fixed()
                .overlapping(Span::new(cfg.span.start, 9))
                .find(|site| site.why == Why::Tracer);
            if let Some(site) = site
                && self.random.once_in(2)
            {
                self.sites.push(Site {
                    splice: Splice::Tracer,
                    displaced: site.span,
                    overwritten: 0,
                    filled: 0,
                    continuations: Box::default(),
                });
            }
        }
        // Numbers by address, for sites and bounces.
        let mut order: Vec<usize> = (0..self.sites.len()).collect();
        order.sort_by_key(|&n| self.sites[n].displaced);
        let number = |old: usize| SiteIndex(order.iter().position(|&n| n == old).unwrap() as u32);
        let mut slots: Vec<usize> = (0..self.bounces.len()).collect();
        slots.sort_by_key(|&n| self.bounces[n].0);
        let bounces: Vec<Bounce> = slots
            .iter()
            .map(|&n| {
                let (at, host, site) = self.bounces[n];
                Bounce {
                    at,
                    slot: host.map_or(Slot::Padding, |host| Slot::Exposed(number(host))),
                    site: number(site),
                }
            })
            .collect();
        let mut sites: Vec<Site> = order.iter().map(|&n| self.sites[n].clone()).collect();
        for site in &mut sites {
            if let Splice::Short(old) = &mut site.splice {
                let new = slots.iter().position(|&n| n == old.0 as usize).unwrap();
                *old = BounceIndex(new as u32);
            }
        }
        for index in 0..sites.len() {
            sites[index].overwritten = self.overwritten(&sites[index], index, &bounces);
            if !self.random.once_in(3) {
                sites[index].continuations = self.continuations(&sites, index).into();
            }
        }
        let hooks = self.hooks(&sites);
        RandomPlaces {
            sites,
            bounces,
            hooks,
        }
    }

    /// The instructions of a span.
    pub(super) fn instructions(&self, span: Span) -> Vec<Instruction> {
        let block = self
            .graphs
            .iter()
            .find_map(|cfg| cfg.block_at(span.start))
            .unwrap();
        let all = block.instructions.iter();
        all.skip_while(|one| at(one) < span.start)
            .take_while(|one| span.contains(at(one)))
            .collect()
    }

    fn overwritten(&self, site: &Site, index: usize, bounces: &[Bounce]) -> u32 {
        if site.splice == Splice::Tracer {
            return 0;
        }
        let mut written = vec![Span::new(site.displaced.start, site.splice.bytes())];
        let own = |bounce: &&Bounce| bounce.slot == Slot::Exposed(SiteIndex(index as u32));
        written.extend(
            bounces
                .iter()
                .filter(own)
                .map(|one| Span::new(one.at, SPLICE_BYTES)),
        );
        let instructions = self.instructions(site.displaced);
        instructions
            .iter()
            .filter(|one| {
                let span = Span::new(at(one), one.len() as u64);
                written.iter().any(|written| written.overlaps(span))
            })
            .count() as u32
    }

    /// Edges out of what is copied.
    fn edges(&self, span: Span) -> Vec<InsnEdge> {
        let mut edges = Vec::new();
        for instruction in &self.instructions(span) {
            let from = at(instruction);
            if let Some(to) = target(self.image, instruction) {
                edges.push(InsnEdge { from, to });
            }
            let emulated = self.image.decided(from);
            let ends = match emulated.map(|site| site.by) {
                Some(Decision::StaticCall { transfer, .. }) => transfer == Transfer::Call,
                Some(Decision::StaticKey { .. }) => false,
                None => stops(instruction),
            };
            if next(instruction) == span.end && !ends {
                let to = span.end;
                edges.push(InsnEdge { from, to });
            }
        }
        edges
    }

    fn continuations(&mut self, sites: &[Site], index: usize) -> Vec<Continuation> {
        let mut continuations: BTreeMap<InsnEdge, Span> = BTreeMap::new();
        let mut copied = vec![sites[index].displaced];
        let mut done = 0;
        while done < copied.len() && copied.len() < 6 {
            for edge in self.edges(copied[done]) {
                if self.random.once_in(3) || continuations.contains_key(&edge) {
                    continue;
                }
                let Some(span) = self.copyable(sites, edge.to) else {
                    continue;
                };
                continuations.insert(edge, span);
                if !copied.contains(&span) {
                    copied.push(span);
                }
            }
            done += 1;
        }
        continuations
            .into_iter()
            .map(|(edge, copied)| Continuation { edge, copied })
            .collect()
    }

    /// Instructions from `start` that a patch may continue with.
    fn copyable(&mut self, sites: &[Site], start: Addr) -> Option<Span> {
        let (graph, block) = (0..)
            .zip(self.graphs)
            .find_map(|(number, cfg)| Some((number, cfg.block_at(start)?)))?;
        let all = block.instructions.to_vec();
        let first = all
            .iter()
            .position(|instruction| at(instruction) == start)?;
        let mut ends = Vec::new();
        for instruction in &all[first..] {
            let by = self.image.decided(at(instruction)).map(|site| site.by);
            let flags = self.liveness[graph as usize].before(at(instruction)).flags;
            let ends_here = match by {
                None if !self.may_displace(instruction) => break,
                None => stops(instruction),
                Some(Decision::StaticKey { .. }) if flags => break,
                Some(Decision::StaticKey { .. }) => false,
                Some(_) => break,
            };
            let end = next(instruction);
            if !sites
                .iter()
                .any(|site| site.displaced.start < end && end < site.displaced.end)
            {
                ends.push(end);
            }
            if ends_here {
                break;
            }
        }
        let count = ends.len();
        let chosen = (count > 0).then(|| self.random.below(count))?;
        Some(Span {
            start,
            end: ends[chosen],
        })
    }
}

/// The instruction that the pre-hook of a block stands before.
pub(super) fn begins(image: &Image, block: &Block) -> Option<Addr> {
    let stays = |one: &Instruction| {
        let span = Span::new(at(one), one.len() as u64);
        let mut sites = image.fixed().overlapping(span);
        one.mnemonic() == iced_x86::Mnemonic::Endbr64 || sites.any(|site| site.why == Why::Tracer)
    };
    Some(at(&block.instructions.iter().find(|one| !stays(one))?))
}

fn rest_after(span: Span, bytes: u64) -> Span {
    Span {
        start: span.start.add(bytes),
        end: span.end,
    }
}
