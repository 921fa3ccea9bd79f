//! Invariants of the bytes of a solution, and of the order in which its parts are in place.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::super::*;
use super::{Wrong, check};
use crate::cfg::Cfg;
use crate::code::{Fixed, Why};
use crate::{Addr, Image, Span};

fn splice(site: &Site) -> Span {
    Span::new(site.displaced.start, site.splice.bytes())
}

/// Returns whether a fixed site is no more than an instruction whose copy may fault as it does.
fn moves(special: &Fixed, instruction: &Instruction) -> bool {
    let Why::Exception { handler } = special.why else {
        return false;
    };
    special.span.start.0 == instruction.ip()
        && crate::isa::relocate::faults_alike(handler, instruction)
}

/// Checks the invariants of the bytes of a solution.
pub(super) fn bytes(image: &Image, graphs: &[&Cfg], placement: &Solution) -> Result<(), Wrong> {
    let instructions: BTreeMap<u64, Instruction> = graphs
        .iter()
        .flat_map(|cfg| &cfg.blocks)
        .flat_map(|block| &block.instructions)
        .map(|instruction| (instruction.ip(), instruction))
        .collect();
    check!(
        placement
            .sites
            .is_sorted_by(|one, other| one.displaced.end <= other.displaced.start),
        "displaced instructions overlap"
    );
    let mut written: Vec<Span> = placement.sites.iter().map(splice).collect();
    written.extend(
        placement
            .bounces
            .iter()
            .map(|bounce| Span::new(bounce.at, SPLICE_BYTES)),
    );
    written.sort_unstable();
    written.retain(|span| !span.is_empty());
    check!(
        written.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "writes overlap"
    );
    check!(
        placement.bounces.is_sorted_by_key(|bounce| bounce.at),
        "bounces are not sorted"
    );
    // Returns whether bytes are executed where they are.
    let runs = |span: Span| {
        (span.start.0.saturating_sub(15)..span.end.0)
            .filter_map(|at| instructions.get(&at))
            .any(|instruction| instruction.next_ip() > span.start.0)
    };
    let reached = placement.hooks.iter().flatten();
    let needed: BTreeSet<usize> = reached
        .flat_map(|reached| &reached.needs)
        .map(|site| site.0 as usize)
        .collect();
    let mut hosted: HashMap<usize, Vec<Span>> = HashMap::new();
    for bounce in &placement.bounces {
        if let Slot::Exposed(site) = bounce.slot {
            let span = Span::new(bounce.at, SPLICE_BYTES);
            hosted.entry(site.0 as usize).or_default().push(span);
        }
    }
    for (number, site) in placement.sites.iter().enumerate() {
        let awaited = site.splice != Splice::Tracer && needed.contains(&number);
        let mut at = site.displaced.start.0;
        let mut count = 0;
        let mut filled: Vec<Addr> = Vec::new();
        let hosted = hosted.get(&number).map(Vec::as_slice).unwrap_or_default();
        // The last end of an instruction near the splice that no bounce has.
        let ends = instructions.range(site.displaced.start.0..site.displaced.end.0);
        let ends = ends.map(|(_, instruction)| instruction.next_ip());
        let near = ends.filter(|end| end.saturating_sub(splice(site).end.0) <= 64);
        let is_free = |end: &u64| !hosted.iter().any(|bounce| bounce.contains(Addr(end - 1)));
        let filled_end = near.filter(is_free).max().unwrap_or_default();
        while at < site.displaced.end.0 {
            let instruction = instructions
                .get(&at)
                .ok_or(format!("{site:?} displaces what is no instruction"))?;
            let span = Span {
                start: Addr(at),
                end: Addr(instruction.next_ip()),
            };
            if site.splice != Splice::Tracer {
                let mut special = image.fixed().overlapping(span);
                check!(
                    special.all(|special| moves(special, instruction)),
                    "{site:?} displaces a site of the kernel's"
                );
                check!(
                    crate::isa::relocate::movable(instruction, &crate::layout::Abi::KERNEL).is_ok(),
                    "{site:?} displaces what does not move"
                );
                let call = matches!(
                    instruction.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                );
                check!(
                    !call || span.end == site.displaced.end,
                    "{site:?} displaces instructions after a call"
                );
            }
            let is_filled = span.end.0 <= filled_end && site.splice != Splice::Tracer;
            if is_filled {
                let rest = (at..span.end.0).filter(|&at| at >= splice(site).end.0);
                filled.extend(rest.map(Addr));
            }
            count += u32::from(
                awaited
                    || is_filled
                    || span.overlaps(splice(site))
                    || hosted.iter().any(|bounce| bounce.overlaps(span)),
            );
            at = instruction.next_ip();
        }
        filled.retain(|&at| !hosted.iter().any(|bounce| bounce.contains(at)));
        check!(
            site.filled_bytes().eq(filled.iter().copied()),
            "{site:?} does not fill what its splice leaves"
        );
        check!(
            at == site.displaced.end.0,
            "{site:?} displaces half an instruction"
        );
        check!(
            count == site.overwritten,
            "{site:?} overwrites {count} instructions"
        );
        let beyond = Span {
            start: site.displaced.end,
            end: splice(site).end,
        };
        check!(
            beyond.is_empty() || !runs(beyond),
            "the splice of {site:?} overwrites instructions after its own"
        );
        check!(
            site.splice == Splice::Tracer
                || image
                    .entered(site.displaced)
                    .iter()
                    .all(|&at| at == site.displaced.start),
            "{site:?} is entered"
        );
        check!(
            site.continuations.is_sorted_by_key(|run| run.edge),
            "run-ons are not sorted"
        );
        if let Splice::Short(bounce) = site.splice {
            let bounce = placement
                .bounces
                .get(bounce.0 as usize)
                .ok_or("no such bounce")?;
            check!(
                bounce.site.0 as usize == number,
                "the bounce of {site:?} is another's"
            );
            let far = splice(site).end.to(bounce.at);
            check!(
                (-128..=127).contains(&far),
                "the bounce of {site:?} is out of reach"
            );
        }
    }
    for bounce in &placement.bounces {
        let span = Span::new(bounce.at, SPLICE_BYTES);
        match bounce.slot {
            Slot::Padding => check!(
                !runs(Span {
                    start: Addr(span.start.0 - 1),
                    end: span.end
                }),
                "{bounce:?} is in no padding, or right after instructions"
            ),
            Slot::Exposed(site) => {
                let site = placement.sites.get(site.0 as usize).ok_or("no such site")?;
                check!(site.splice == Splice::Jump, "{site:?} hosts");
                check!(
                    span.start >= splice(site).end,
                    "{bounce:?} is in the splice of {site:?}"
                );
                let beyond = Span {
                    start: span.start.max(site.displaced.end),
                    end: span.end,
                };
                check!(
                    beyond.is_empty() || !runs(beyond),
                    "{bounce:?} is not exposed by {site:?}"
                );
                check!(
                    span.start < site.displaced.end,
                    "{bounce:?} has nothing of {site:?}"
                );
            }
        }
    }
    Ok(())
}

/// Returns the instructions that stay where they are and that decoding from the start of their function
/// does not find while every splice is in place, of how many.
pub(super) fn hidden(image: &Image, graphs: &[&Cfg], placement: &Solution) -> (Vec<Addr>, usize) {
    let (mut hidden, mut remaining) = (Vec::new(), 0);
    for cfg in graphs.iter().filter(|cfg| cfg.refusal.is_none()) {
        let sites = &placement.sites;
        let first = sites.partition_point(|site| site.displaced.end <= cfg.span.start);
        let end = sites.partition_point(|site| site.displaced.start < cfg.span.end);
        let group = &sites[first..end];
        let bounces = &placement.bounces;
        let first = bounces.partition_point(|bounce| bounce.at.add(SPLICE_BYTES) <= cfg.span.start);
        let end = bounces.partition_point(|bounce| bounce.at < cfg.span.end);
        let mut text = image.bytes(cfg.span).unwrap().to_vec();
        let mut write = |at: Addr, byte: u8| {
            if cfg.span.contains(at) {
                text[(at.0 - cfg.span.start.0) as usize] = byte;
            }
        };
        for site in group {
            let opcode = match site.splice {
                Splice::Jump => 0xe9,
                Splice::Short(_) => 0xeb,
                Splice::Tracer => continue,
                Splice::Trap => 0xcc,
                Splice::Call => 0xe8,
            };
            write(site.displaced.start, opcode);
            site.filled_bytes().for_each(|at| write(at, 0xcc));
        }
        for bounce in &bounces[first..end] {
            write(bounce.at, 0xe9);
        }
        let start = cfg.span.start.0;
        let decoder = Decoder::with_ip(64, &text, start, DecoderOptions::NONE);
        let starts: BTreeSet<u64> = decoder.into_iter().map(|one| one.ip()).collect();
        let displaced = |at: u64| {
            let next = group.partition_point(|site| site.displaced.start.0 <= at);
            next > 0 && group[next - 1].displaced.contains(Addr(at))
        };
        for block in &cfg.blocks {
            for instruction in block.instructions.iter().filter(|one| !displaced(one.ip())) {
                remaining += 1;
                if !starts.contains(&instruction.ip()) {
                    hidden.push(Addr(instruction.ip()));
                }
            }
        }
    }
    (hidden, remaining)
}

/// Checks that the dependency graph is acyclic: a short splice depends on its bounce, that on the site that
/// exposes it, and a point, with its bounce, on the requirements of its hook (if these have a point of the hook too:
/// where their patches are diverted around this one).
pub(super) fn order(placement: &Solution) -> Result<(), Wrong> {
    let sites = placement.sites.len();
    let mut on: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); sites + placement.bounces.len()];
    let bounce_of = |site: usize| match placement.sites[site].splice {
        Splice::Short(bounce) => Some(sites + bounce.0 as usize),
        _ => None,
    };
    for (site, on) in on.iter_mut().take(sites).enumerate() {
        on.extend(bounce_of(site));
    }
    for (number, bounce) in placement.bounces.iter().enumerate() {
        if let Slot::Exposed(host) = bounce.slot {
            on[sites + number].insert(host.0 as usize);
        }
    }
    for reached in placement.hooks.iter().flatten() {
        let own = |need: SiteIndex| reached.points.iter().any(|&(site, _)| site == need);
        for &need in &reached.needs {
            let needed = &placement.sites[need.0 as usize];
            for &(site, _) in &reached.points {
                let start = placement.sites[site.0 as usize].displaced.start;
                let past = |run: &Continuation| run.copied.start == start;
                if need != site && (!own(need) || needed.continuations.iter().any(past)) {
                    let site = site.0 as usize;
                    on[site].insert(need.0 as usize);
                    if let Some(bounce) = bounce_of(site) {
                        on[bounce].insert(need.0 as usize);
                    }
                }
            }
        }
    }
    // Kahn's order.
    let mut open: Vec<usize> = on.iter().map(BTreeSet::len).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); on.len()];
    for (what, on) in on.iter().enumerate() {
        on.iter().for_each(|&on| dependents[on].push(what));
    }
    let mut ready: Vec<usize> = (0..on.len()).filter(|&part| open[part] == 0).collect();
    let mut done = 0;
    while let Some(&part) = ready.get(done) {
        done += 1;
        for &what in &dependents[part] {
            open[what] -= 1;
            if open[what] == 0 {
                ready.push(what);
            }
        }
    }
    let circle = open.iter().position(|&open| open > 0);
    check!(
        circle.is_none(),
        "part {circle:?} of {sites} sites and then bounces waits for itself"
    );
    Ok(())
}
