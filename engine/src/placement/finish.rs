//! From what was worked out to sites, bounces and points.

use super::draft::{Draft, Kind};
use super::hooks::Event;
use super::segments::{Number, Outline};
use super::slots::{Host, Slot};
use super::solve::{Part, Problem, no_part};
use super::{
    Bounce, BounceIndex, Continuation, InsnEdge, Point, Reached, SPLICE_BYTES, Site, SiteIndex,
    Slot as Bytes, Solution, Splice, Tactic,
};
use crate::{Addr, Refusal, Rule, Span};

/// Sites by number: the part, and the index among its drafts.
struct Numbers {
    order: Vec<(Addr, u32, u32)>,
    /// By part, by draft.
    numbers: Vec<Vec<SiteIndex>>,
}

impl Numbers {
    fn of(parts: &[Part<'_>]) -> Self {
        let mut order = Vec::new();
        order.reserve_exact(parts.iter().map(|part| part.drafts.len()).sum());
        for (index, part) in (0_u32..).zip(parts) {
            let drafts = (0_u32..).zip(&part.drafts);
            order
                .extend(drafts.map(|(draft, site)| (part.outline.start(site.first), index, draft)));
        }
        order.sort_unstable();
        let mut numbers: Vec<Vec<SiteIndex>> = parts
            .iter()
            .map(|part| vec![SiteIndex(u32::MAX); part.drafts.len()])
            .collect();
        for (number, &(_, part, draft)) in (0_u32..).zip(&order) {
            let part = numbers.get_mut(part as usize);
            let place = part.and_then(|part| part.get_mut(draft as usize));
            if let Some(place) = place {
                *place = SiteIndex(number);
            }
        }
        Self { order, numbers }
    }

    fn site(&self, part: usize, draft: usize) -> Option<SiteIndex> {
        self.numbers.get(part)?.get(draft).copied()
    }
}

/// The draft that begins at an instruction, by index.
fn at(part: &Part<'_>, first: Number) -> Option<usize> {
    part.drafts
        .binary_search_by_key(&first, |draft| draft.first)
        .ok()
}

/// The draft that displaces an instruction.
fn displacing(part: &Part<'_>, at: Number) -> Option<usize> {
    let behind = part.drafts.partition_point(|draft| draft.first <= at);
    let index = behind.checked_sub(1)?;
    part.drafts
        .get(index)
        .filter(|draft| draft.copies(at))
        .map(|_| index)
}

/// The placement of a solved problem, from which it takes what was asked.
pub(super) fn finish(problem: &mut Problem<'_, '_>) -> Solution {
    let asked = std::mem::take(&mut problem.asked);
    let numbers = Numbers::of(&problem.parts);
    let mut bounces: Vec<(Bounce, Slot, usize)> = Vec::with_capacity(problem.taken.len());
    for &(index, first, slot) in &problem.taken {
        let host = problem.parts.get(slot.function);
        let exposed = |at: Option<usize>| {
            at.and_then(|draft| numbers.site(slot.function, draft))
                .map(Bytes::Exposed)
        };
        let bytes = match slot.host {
            Host::Padding => Some(Bytes::Padding),
            Host::Site(first) => exposed(host.and_then(|host| at(host, first))),
            Host::Donor(..) => exposed(host.and_then(|host| before(host, slot.at))),
        };
        let site = problem
            .parts
            .get(index)
            .and_then(|part| numbers.site(index, at(part, first)?));
        if let (Some(bytes), Some(site)) = (bytes, site) {
            let bounce = Bounce {
                at: slot.at,
                slot: bytes,
                site,
            };
            bounces.push((bounce, slot, index));
        }
    }
    bounces.sort_unstable_by_key(|(bounce, ..)| bounce.at);
    let mut by_site: Vec<Option<(BounceIndex, Tactic)>> = vec![None; numbers.order.len()];
    let mut hosted: Vec<(SiteIndex, Addr)> = Vec::new();
    for (number, (bounce, slot, part)) in (0_u32..).zip(&bounces) {
        if let Some(site) = by_site.get_mut(bounce.site.0 as usize) {
            *site = Some((BounceIndex(number), slot.tactic(*part == slot.function)));
        }
        if let Bytes::Exposed(host) = bounce.slot {
            hosted.push((host, bounce.at));
        }
    }
    hosted.sort_unstable();
    let sites = numbers
        .order
        .iter()
        .enumerate()
        .filter_map(|(number, &(_, part, draft))| {
            let part = problem.parts.get(part as usize)?;
            let bounce = by_site
                .get(number)
                .copied()
                .flatten()
                .map(|(bounce, _)| bounce);
            let own = SiteIndex(u32::try_from(number).ok()?);
            let first = hosted.partition_point(|&(host, _)| host < own);
            let behind = hosted.partition_point(|&(host, _)| host <= own);
            let hosted = hosted.get(first..behind).unwrap_or_default();
            site(part, draft as usize, bounce, hosted)
        });
    // Filtering, an iterator does not know how many there will be.
    let mut all: Vec<Site> = Vec::with_capacity(numbers.order.len());
    all.extend(sites);
    let mut sites = all;
    // There may be a million: they go where the asks were.
    let hooks = asked.into_iter().map(|(index, _, way)| {
        let (tactic, event) = way.map_err(|refusal| *refusal)?;
        let index = index as usize;
        match problem.parts.get(index) {
            Some(part) => reached(part, index, (tactic, &event), &numbers, &by_site),
            None => no_part(),
        }
    });
    let hooks: Vec<_> = hooks.collect();
    for &awaited in hooks
        .iter()
        .flatten()
        .flat_map(|reached: &Reached| &reached.needs)
    {
        let part = numbers.order.get(awaited.0 as usize);
        let draft = part.and_then(|&(_, part, draft)| {
            problem.parts.get(part as usize)?.drafts.get(draft as usize)
        });
        if let (Some(site), Some(draft)) = (sites.get_mut(awaited.0 as usize), draft)
            && draft.kind != Kind::Tracer
        {
            // Who is among them would go on by the text past what waits for this site.
            site.overwritten = draft.behind - draft.first;
        }
    }
    Solution {
        sites,
        hooks,
        bounces: bounces.into_iter().map(|(bounce, ..)| bounce).collect(),
    }
}

/// The last draft that begins before an address.
fn before(part: &Part<'_>, at: Addr) -> Option<usize> {
    let behind = part
        .drafts
        .partition_point(|draft| part.outline.start(draft.first) < at);
    behind.checked_sub(1)
}

fn site(
    part: &Part<'_>,
    index: usize,
    bounce: Option<BounceIndex>,
    hosted: &[(SiteIndex, Addr)],
) -> Option<Site> {
    let outline = &*part.outline;
    let draft = part.drafts.get(index)?;
    let splice = match draft.kind {
        Kind::Jump => Splice::Jump,
        Kind::Short => Splice::Short(bounce?),
        Kind::Tracer => Splice::Tracer,
        Kind::Trap => Splice::Trap,
    };
    let continuations = part.runs.of_site(index).iter();
    Some(Site {
        splice,
        displaced: outline.span(draft.first, draft.behind),
        overwritten: overwritten(outline, draft, hosted),
        continuations: continuations
            .map(|&(from, to, first, behind)| Continuation {
                edge: edge(outline, from, outline.start(to)),
                copied: outline.span(first, behind),
            })
            .collect(),
    })
}

fn edge(outline: &Outline<'_>, from: Number, to: Addr) -> InsnEdge {
    InsnEdge {
        from: outline.start(from),
        to,
    }
}

/// Instructions that the splice or a bounce writes over.
fn overwritten(outline: &Outline<'_>, draft: &Draft, hosted: &[(SiteIndex, Addr)]) -> u32 {
    let splice = draft.splice(outline);
    let written = (draft.first..draft.behind).filter(|&at| {
        let bytes = outline.span(at, at + 1);
        bytes.overlaps(splice)
            || hosted
                .iter()
                .any(|&(_, bounce)| bytes.overlaps(Span::new(bounce, SPLICE_BYTES)))
    });
    u32::try_from(written.count()).unwrap_or(u32::MAX)
}

/// Where a hook's instruments stand, in all patches that its event may happen in.
///
/// # Errors
/// [`Rule::Unreached`] if there is none: blocks that lead to each other alone are run in no patch.
fn reached(
    part: &Part<'_>,
    index: usize,
    (reach, event): (Tactic, &Event),
    numbers: &Numbers,
    bounces: &[Option<(BounceIndex, Tactic)>],
) -> Result<Reached, Refusal> {
    let outline = &*part.outline;
    let number = |draft: usize| numbers.site(index, draft);
    let mut points: Vec<(SiteIndex, Point)> = Vec::new();
    let mut needs: Vec<SiteIndex> = Vec::new();
    let mut tactic = reach;
    let mut add = |draft: Option<usize>, point| {
        points.extend(draft.and_then(number).map(|site| (site, point)));
    };
    let mut own = |site: Option<usize>, at: Number| {
        let draft = site.and_then(|site| part.drafts.get(site));
        if draft.is_some_and(|draft| {
            outline.start(at) >= draft.splice(outline).end && draft.kind == Kind::Jump
        }) {
            tactic = tactic.max(Tactic::BlockRelocation);
        }
    };
    match event {
        Event::Before(at) => {
            let site = displacing(part, *at);
            own(site, *at);
            let first = site
                .and_then(|site| part.drafts.get(site))
                .is_some_and(|site| site.first == *at);
            let point = Point::Before(outline.start(*at));
            add(site, if first { Point::Entry } else { point });
            for site in part.runs.copying(*at) {
                add(Some(site as usize), point);
            }
        }
        Event::On(edges) => {
            for &(from, to) in edges {
                let point = Point::On(edge(outline, from, to));
                let site = displacing(part, from);
                if reach == Tactic::DirectSplice {
                    own(site, from);
                }
                add(site, point);
                for site in part.runs.copying(from) {
                    add(Some(site as usize), point);
                }
            }
        }
        Event::Arrives(firsts) => {
            for &first in firsts {
                let site = at(part, first);
                add(site, Point::Entry);
                let awaited = site.and_then(|site| u32::try_from(site).ok()).into_iter();
                let awaited = awaited.flat_map(|site| part.runs.awaited(site));
                needs.extend(awaited.filter_map(|site| number(site as usize)));
            }
        }
        Event::Traced => add(
            outline.tracer.and_then(|tracer| at(part, tracer)),
            Point::Entry,
        ),
    }
    if points.is_empty() {
        let at = match event {
            Event::Before(at) => Some(*at),
            Event::On(edges) => edges.first().map(|edge| edge.0),
            Event::Arrives(firsts) => firsts.first().copied(),
            Event::Traced => outline.tracer,
        };
        let at = at.map_or(Addr(0), |at| outline.start(at));
        return Err(Refusal::new(
            Rule::Unreached,
            at,
            "nothing leads here but what nothing leads to",
        ));
    }
    points.sort_unstable();
    points.dedup();
    needs.sort_unstable();
    needs.dedup();
    for site in points
        .iter()
        .map(|&(site, _)| site)
        .chain(needs.iter().copied())
    {
        let Some(&(_, _, draft)) = numbers.order.get(site.0 as usize) else {
            continue;
        };
        tactic = tactic.max(
            match part.drafts.get(draft as usize).map(|draft| draft.kind) {
                Some(Kind::Trap) => Tactic::Trap,
                Some(Kind::Tracer) => Tactic::Tracer,
                Some(Kind::Short) => bounces
                    .get(site.0 as usize)
                    .copied()
                    .flatten()
                    .map_or(tactic, |(_, tactic)| tactic),
                _ => tactic,
            },
        );
    }
    Ok(Reached {
        tactic,
        points: points.into(),
        needs: needs.into(),
    })
}
