//! From a solved problem to sites, bounces and points.

use super::body::Body;
use super::continuations::{beginning_at, displacing};
use super::draft::Draft;
use super::fill::fill;
use super::ids::{BounceIndex, DraftId, InsnId, InsnRange, PartId, SiteIndex};
use super::slots::{Host, SlotOffer};
use super::solution::{Bounce, Continuation, InsnEdge, Point, Reached, Site, Slot, Solution};
use super::solve::{Problem, ProblemPart};
use super::splice::SPLICE_BYTES;
use super::splice::SpliceForm;
use super::tactic::Tactic;
use super::tactics::block_relocation;
use super::tactics::search::HookEvent;
use crate::ids::{self, Id, Ids, to_u32};
use crate::{Addr, Refusal, Rule, Span};

/// Numbering of drafts as sites of the solution, in order of address.
struct SiteNumbers {
    /// By address.
    order: Ids<SiteIndex, (Addr, PartId, DraftId)>,
    numbers: Ids<PartId, Ids<DraftId, SiteIndex>>,
}

impl SiteNumbers {
    fn of(parts: &Ids<PartId, ProblemPart<'_>>) -> Self {
        let count = parts.values().iter().map(|part| part.drafts.len()).sum();
        let mut order = Vec::with_capacity(count);
        for (index, part) in parts.iter() {
            let drafts = part.drafts.iter();
            order.extend(
                drafts.map(|(draft, site)| (part.body.start(site.range.first), index, draft)),
            );
        }
        order.sort_unstable();
        let order: Ids<SiteIndex, _> = order.into();
        let parts = parts.values().iter();
        let unknown = SiteIndex(u32::MAX);
        let mut numbers: Ids<PartId, _> =
            parts.map(|part| Ids::like(&part.drafts, unknown)).collect();
        for (number, &(_, part, draft)) in order.iter() {
            numbers[part][draft] = number;
        }
        Self { order, numbers }
    }
}

/// Returns the solution of a solved problem, whose requests it takes.
pub(super) fn finish(problem: &mut Problem<'_, '_>) -> Solution {
    let requests = std::mem::take(&mut problem.requests);
    let numbers = SiteNumbers::of(&problem.parts);
    let bounces = bounces(problem, &numbers);
    let mut by_site: Ids<SiteIndex, Option<(BounceIndex, Tactic)>> =
        Ids::like(&numbers.order, None);
    let mut hosted: Vec<(SiteIndex, Addr)> = Vec::new();
    for (number, (bounce, offer, part)) in bounces.iter() {
        by_site[bounce.site] = Some((number, offer.tactic(*part == offer.part)));
        if let Slot::Exposed(host) = bounce.slot {
            hosted.push((host, bounce.at));
        }
    }
    hosted.sort_unstable();
    // There may be a million: exactly as much memory as they take.
    let mut sites: Vec<Site> = Vec::with_capacity(numbers.order.len());
    for (number, &(_, part, draft)) in numbers.order.iter() {
        let bounce = by_site[number].map(|(bounce, _)| bounce);
        let first = hosted.partition_point(|&(host, _)| host < number);
        let end = hosted.partition_point(|&(host, _)| host <= number);
        let hosted = ids::part(&hosted, first..end);
        sites.extend(site(&problem.parts[part], draft, bounce, hosted));
    }
    debug_assert_eq!(sites.len(), numbers.order.len(), "each draft is a site");
    let mut sites: Ids<SiteIndex, Site> = sites.into();
    // There may be a million: they are collected into the memory of the requests.
    let hooks = requests.into_values().into_iter().map(|request| {
        let (tactic, event) = request.answer.map_err(|refusal| *refusal)?;
        let part = (&problem.parts[request.part], request.part);
        reached(part, (tactic, &event), &numbers, &by_site)
    });
    let hooks: Vec<_> = hooks.collect();
    let reached = hooks.iter().flatten();
    for &prerequisite in reached.flat_map(|reached: &Reached| &reached.needs) {
        let (_, part, draft) = numbers.order[prerequisite];
        let draft = problem.parts[part].drafts[draft];
        let site = &mut sites[prerequisite];
        // A thread inside these instructions would bypass the dependent site.
        site.overwritten = site.splice.overwrites(draft.range.len());
    }
    let bounces = bounces.into_values().into_iter();
    Solution {
        sites: sites.into_values(),
        hooks,
        bounces: bounces.map(|(bounce, ..)| bounce).collect(),
    }
}

/// All bounces by address, each with its slot and the function of its splice.
fn bounces(
    problem: &Problem<'_, '_>,
    numbers: &SiteNumbers,
) -> Ids<BounceIndex, (Bounce, SlotOffer, PartId)> {
    let mut bounces = Vec::with_capacity(problem.assigned.len());
    for assigned in &problem.assigned {
        let offer = assigned.offer;
        let host = &problem.parts[offer.part];
        let exposed = |draft: Option<DraftId>| {
            let number = draft.map(|draft| numbers.numbers[offer.part][draft]);
            number.map(Slot::Exposed)
        };
        let slot = match offer.host {
            Host::Padding => Some(Slot::Padding),
            Host::Site(first) => exposed(beginning_at(&host.drafts, first)),
            Host::Donor { .. } => exposed(before(host, offer.at)),
        };
        let drafts = &problem.parts[assigned.part].drafts;
        let site = beginning_at(drafts, assigned.first);
        debug_assert!(
            slot.is_some() && site.is_some(),
            "a bounce has a splice and a host"
        );
        if let (Some(slot), Some(site)) = (slot, site) {
            let bounce = Bounce {
                at: offer.at,
                slot,
                site: numbers.numbers[assigned.part][site],
            };
            bounces.push((bounce, offer, assigned.part));
        }
    }
    bounces.sort_unstable_by_key(|(bounce, ..)| bounce.at);
    bounces.into()
}

/// The last draft that begins before an address.
fn before(part: &ProblemPart<'_>, at: Addr) -> Option<DraftId> {
    let is_before = |draft: &Draft| part.body.start(draft.range.first) < at;
    let count = part.drafts.values().partition_point(is_before);
    count.checked_sub(1).map(DraftId::new)
}

/// A site, or `None` for a short splice without a bounce.
fn site(
    part: &ProblemPart<'_>,
    index: DraftId,
    bounce: Option<BounceIndex>,
    hosted: &[(SiteIndex, Addr)],
) -> Option<Site> {
    let body = &*part.body;
    let draft = &part.drafts[index];
    let continuations = part.continuations.of_site(index).iter();
    let splice = draft.form.with(bounce);
    debug_assert!(splice.is_some(), "a short splice has no bounce");
    let written = draft.splice(body);
    let hosted = hosted.iter().map(|&(_, at)| Span::new(at, SPLICE_BYTES));
    let hosted: Vec<Span> = hosted.collect();
    let (filled, end) = match draft.form {
        SpliceForm::Tracer => (0, draft.range.first),
        _ => fill(body, draft.range, written, &hosted),
    };
    let is_overwritten = |at: &InsnId| {
        let bytes = body.span(InsnRange::one(*at));
        let mut hosted = hosted.iter();
        *at < end || bytes.overlaps(written) || hosted.any(|bounce| bytes.overlaps(*bounce))
    };
    let overwritten = draft.range.iter().filter(is_overwritten).count();
    Some(Site {
        splice: splice?,
        displaced: body.span(draft.range),
        overwritten: to_u32(overwritten),
        filled,
        continuations: continuations
            .map(|run| Continuation {
                edge: InsnEdge {
                    from: body.start(run.from),
                    to: body.start(run.to),
                },
                copied: body.span(run.copied),
            })
            .collect(),
    })
}

/// The instructions from which patches branch to a call: not other calls, which return to the original code.
fn sources(body: &Body<'_>, call: InsnId) -> Vec<InsnId> {
    let mut sources = if body.begins_block(call) {
        body.sources(body.block_of(call))
    } else {
        call.previous().into_iter().collect()
    };
    sources.retain(|&from| !body.is_call(from));
    sources
}

/// The points of a hook's instruments, in all patches in which its event may happen.
///
/// # Errors
/// [`Rule::Unreached`] if there is none: blocks that only each other target are executed in no patch.
fn reached(
    (part, index): (&ProblemPart<'_>, PartId),
    (approach, event): (Tactic, &HookEvent),
    numbers: &SiteNumbers,
    bounces: &Ids<SiteIndex, Option<(BounceIndex, Tactic)>>,
) -> Result<Reached, Refusal> {
    let body = &*part.body;
    let number = |draft: DraftId| numbers.numbers[index][draft];
    let mut points: Vec<(SiteIndex, Point)> = Vec::new();
    let mut needs: Vec<SiteIndex> = Vec::new();
    let mut tactic = approach;
    let mut relocate = |site: Option<DraftId>, at: InsnId| {
        if site.is_some_and(|site| block_relocation::is_used(body, &part.drafts[site], at)) {
            tactic = tactic.max(Tactic::BlockRelocation);
        }
    };
    match event {
        HookEvent::Before(at) => {
            let site = displacing(&part.drafts, *at);
            relocate(site, *at);
            let point = Point::Before(body.start(*at));
            points.extend(site.map(|site| {
                let is_first = part.drafts[site].range.first == *at;
                (number(site), if is_first { Point::Entry } else { point })
            }));
            let copying = part.continuations.copying(*at);
            points.extend(copying.map(|site| (number(site), point)));
            if site.is_none() && body.is_call(*at) {
                // The call stays in the original code, and the patches that branch to it have the points.
                let to = body.start(*at);
                for from in sources(body, *at) {
                    let site = displacing(&part.drafts, from);
                    relocate(site, from);
                    let from_start = body.start(from);
                    let point = Point::On(InsnEdge {
                        from: from_start,
                        to,
                    });
                    let copying = part.continuations.copying(from).chain(site);
                    points.extend(copying.map(|site| (number(site), point)));
                }
            }
        }
        HookEvent::On(edges) => {
            for &(from, to) in edges {
                let point = Point::On(InsnEdge {
                    from: body.start(from),
                    to,
                });
                let site = displacing(&part.drafts, from);
                if approach == Tactic::DirectSplice {
                    relocate(site, from);
                }
                let copying = part.continuations.copying(from).chain(site);
                points.extend(copying.map(|site| (number(site), point)));
            }
        }
        HookEvent::Arrives(firsts) => {
            for &first in firsts {
                let site = beginning_at(&part.drafts, first);
                points.extend(site.map(|site| (number(site), Point::Entry)));
                let site = site.into_iter();
                let prerequisites = site.flat_map(|site| part.continuations.prerequisites(site));
                needs.extend(prerequisites.map(number));
            }
        }
        HookEvent::Traced => {
            let tracer = body.tracer;
            let site = tracer.and_then(|tracer| beginning_at(&part.drafts, tracer));
            points.extend(site.map(|site| (number(site), Point::Entry)));
        }
    }
    if points.is_empty() {
        let at = match event {
            HookEvent::Before(at) => Some(*at),
            HookEvent::On(edges) => edges.first().map(|edge| edge.0),
            HookEvent::Arrives(firsts) => firsts.first().copied(),
            HookEvent::Traced => body.tracer,
        };
        return Err(Refusal::new(
            Rule::Unreached,
            at.map_or(Addr(0), |at| body.start(at)),
            "the block is reachable only from unreachable blocks",
        ));
    }
    points.sort_unstable();
    points.dedup();
    needs.sort_unstable();
    needs.dedup();
    let form = |site: SiteIndex| {
        let (_, _, draft) = numbers.order[site];
        part.drafts[draft].form
    };
    let mut sites = points.iter().map(|&(site, _)| site);
    if tactic == Tactic::DirectSplice && sites.all(|site| form(site) == SpliceForm::Call) {
        tactic = Tactic::CallSplice;
    }
    for &site in points.iter().map(|(site, _)| site).chain(&needs) {
        let required = match form(site) {
            SpliceForm::Jump | SpliceForm::Call => None,
            SpliceForm::Short => bounces[site].map(|(_, tactic)| tactic),
            SpliceForm::Tracer => Some(Tactic::Tracer),
            SpliceForm::Trap => Some(Tactic::Trap),
        };
        tactic = tactic.max(required.unwrap_or(tactic));
    }
    Ok(Reached {
        tactic,
        points: points.into(),
        needs: needs.into(),
    })
}
