//! The independent verifier of plans: it decodes the bytes that a plan writes and proves them.
//!
//! It shares with the planner the decoder, the types of plans, the image and the reports of progress, and nothing
//! else: no graph, no liveness, no encoder. The statements of a plan about itself (which bytes of a patch are
//! copies, where blocks begin, how many instructions are overwritten, which part depends on which) are
//! claims, and are checked. The modules depend on each other in this order:
//!
//! | module | proves |
//! |---|---|
//! | `text` | Functions decode from their start, with all entries. Sites and bounces are at bytes that may be overwritten; displaced and copied instructions may move. |
//! | `symbolic` | Equality of symbolic values: linear sums of bit fields, hash-consed. |
//! | `patch` | On every path, a patch is equivalent to the original code; each instrument has its one hit, with the effect that its program defines; every row for faults and unwinding is right. |
//! | `meaning` | After each batch, and within it, each event runs the instruments that it hits, one time, in order. |
//! | `schedule` | After each write the text is whole; each poke finds the bytes that it expects; dependences and ranks hold; at the end the text is the original. |
//! | `target` | The layout is consistent; patches and writes do not overlap. |
//! | [`fragments`] | Of a code cache: translated code is a bisimulation of the original, with lookups as its only new exits. |
//! | [`rendezvous`] | Of a process that is followed: threads wait for the agent in code of a fixed form. |
//! | [`forks`] | Of a process whose forked children are to be clean: they wait for the agent in code of a fixed form. |
//! | [`reads`] | Of a process whose memory is read: code of a fixed form reads it, and cannot fault. |
//! | [`listing`] | Code of a fixed form is that of its listing. |
//!
//! Every violation names the rule that is broken ([`Reason`]). An entry that must exist and is absent is an
//! internal error, and refuses the plan (`internal`).
//!
//! # Not verified
//! - `text`: the image, that is its bytes, its fixed sites and the state that decides them, the addresses that
//!   other code targets, and which functions keep the calling convention. Indirect branches are assumed to
//!   target only these addresses.
//! - `symbolic`: nothing is assumed; where a limit is exceeded, a value is unknown, and equals no other.
//! - `patch`: the result of native functions, and that their stores through indices and pointers stay inside
//!   their objects; that the driver's words and tables are where the layout states.
//! - `meaning`: code that no known entry reaches is not analysed.
//! - `schedule`: the driver is assumed to write in the order of the pokes, with the waits that
//!   [`Poke`](crate::plan::Poke) states, and the CPUs to see the writes of one rank before the next.
//! - Time: the cost of a patch, and that a thread leaves a patch at all, except that patches have no loops of
//!   their own.

pub mod forks;
pub mod fragments;
mod hash;
mod internal;
pub mod listing;
mod meaning;
mod patch;
mod progress;
pub mod reads;
mod reason;
pub mod rendezvous;
mod schedule;
mod stacks;
mod symbolic;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod violation;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use self::hash::{Map, Set};
use self::internal::Required;
use self::meaning::hooks;
use self::meaning::hooks::{ById, HitEvent, HitEvents};
use self::meaning::state::Meaning;
use self::patch::descriptor;
use self::patch::fault;
use self::patch::phase::Facts;
use self::patch::walk::{Walk, WalkBuffers};
use self::progress::{ProofProgress, REPORTED};
use self::schedule::parts::Parts;
use self::schedule::player;
use self::symbolic::atom::Key;
use self::text::callee::Callees;
use self::text::liveness::{Changed, LiveSets};
use self::text::originals::OriginalCode;
use self::text::relied::may_be_relied_on;
use self::text::routine::Routine;
use self::text::site;
use crate::ids::{Id, Ids};
use crate::placement::{Bounce, Point, SiteIndex, Slot};
use crate::plan::{Patch, PatchFault, Plan, PlannedInstrument, Stage, Watch, report_stage};
use crate::{Addr, Image, InstrumentId};

pub use meaning::retirement::Retirement;
pub use reason::Reason;
pub use violation::Violation;

/// A plan that passed; the only kind that is written to a target.
#[derive(Clone, Debug)]
pub struct VerifiedPlan {
    plan: Plan,
    replaced: Vec<(InstrumentId, Addr)>,
}

impl VerifiedPlan {
    /// Returns the plan that was proven.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the instruments that replace a function, each with an address in its patch at which the original function
    /// can be called while the patch is in place.
    #[must_use]
    pub fn replaced(&self) -> &[(InstrumentId, Addr)] {
        &self.replaced
    }

    /// Returns the splices that may be removed early, by site: the splice alone, by the poke of its
    /// regular removal, at any time while it is in place.
    #[must_use]
    pub fn retirements(&self) -> Vec<Retirement> {
        meaning::retirement::retirements(&self.plan)
    }
}

/// Proves a plan.
///
/// # Errors
/// Every violation, at least one; of each patch the first one.
pub fn verify(image: &Image, plan: Plan) -> Result<VerifiedPlan, Vec<Violation>> {
    verify_watched(image, plan, &mut |_| ControlFlow::Continue(())).unwrap_or_else(|_| {
        let missing = "a verdict";
        let why = Reason::Internal { missing };
        Err(vec![Violation::Plan { why }])
    })
}

/// Proves a plan as [`verify`] does, with cancellation: the proof of a plan for a whole kernel takes seconds.
///
/// # Errors
/// [`Error::GivenUp`](crate::Error::GivenUp) if `watch` breaks; otherwise the violations, as of [`verify`].
pub fn verify_watched(
    image: &Image,
    plan: Plan,
    watch: &mut Watch<'_>,
) -> crate::Result<Result<VerifiedPlan, Vec<Violation>>> {
    let mut report = || report_stage(watch, Stage::Proofs);
    report()?;
    let mut violations = Vec::new();
    target::check(image, &plan, &mut violations);
    hooks::functions(image, &plan, &mut violations);
    hooks::handlers(image, &plan, &mut violations);
    let by_id = hooks::by_id(&plan, &mut violations);
    let originals = read(image, &plan, &mut report, &mut violations)?;
    let mut reader = Reader {
        plan: &plan,
        by_id: &by_id,
        originals: &originals,
        timers: BTreeMap::new(),
        replaced: Vec::new(),
        violations,
    };
    reader.sites();
    let facts = reader.patches(&mut report)?;
    reader.exits(&facts);
    let events = reader.events();
    report()?;
    let (mut violations, replaced) = (reader.violations, reader.replaced);
    let required = Required::default();
    let parts = Parts::of(&plan, &mut violations);
    let mut meaning = Meaning::new(&plan, &originals, &by_id, &events, facts, &required);
    player::play(
        (image, &plan, &by_id, &parts),
        &mut meaning,
        &mut report,
        &mut violations,
    )?;
    // In a plan that breaks a rule, entries may be absent.
    if violations.is_empty()
        && let Some(why) = required.error()
    {
        violations.push(Violation::Plan { why });
    }
    Ok(if violations.is_empty() {
        Ok(VerifiedPlan { plan, replaced })
    } else {
        Err(violations)
    })
}

/// Decodes every function that the plan writes into, copies from, or counts in.
fn read<'a>(
    image: &'a Image,
    plan: &Plan,
    report: &mut ProofProgress<'_>,
    violations: &mut Vec<Violation>,
) -> crate::Result<OriginalCode<'a>> {
    let sampled = hooks::sampled_at(plan);
    let sites = plan.sites.iter().flat_map(|site| {
        let continuations = site.continuations.iter();
        continuations
            .flat_map(|run_on| [run_on.copied.start, run_on.edge.from])
            .chain([site.displaced.start])
    });
    let bounces = plan.bounces.iter().map(|bounce| bounce.at);
    let functions = plan
        .functions
        .iter()
        .map(|function| function.outline.span.start);
    let points = plan.instruments.iter().flat_map(|one| &one.points);
    let edges = points.filter_map(|(_, point)| match point {
        Point::On(edge) => Some(edge.to),
        _ => None,
    });
    let all = image.functions();
    let mut touched: BTreeSet<usize> = BTreeSet::new();
    for at in sites.chain(bounces).chain(functions).chain(edges) {
        // Padding belongs to the function before it.
        let after = all.partition_point(|function| function.span.start <= at);
        touched.extend(after.checked_sub(1));
    }
    let callees = Callees::new(image);
    let mut routines = Vec::with_capacity(touched.len());
    let touched = touched.into_iter().filter_map(|index| all.get(index));
    for (number, function) in touched.enumerate() {
        if number.is_multiple_of(REPORTED) {
            report()?;
        }
        match Routine::read(&callees, function) {
            Ok(routine) => {
                let live = LiveSets::of(&routine, &sampled);
                routines.push((routine, live));
            }
            Err((at, why)) => violations.push(Violation::Plan {
                why: Reason::Routine {
                    at,
                    why: why.into(),
                },
            }),
        }
    }
    Ok(OriginalCode::new(image, routines))
}

/// Findings in patches, besides the edges that they take.
#[derive(Default)]
struct Findings {
    /// Entries of the table of storage that a patch uses, by key.
    entries: Vec<(Key, String)>,
    faults: Vec<PatchFault>,
    replaced: Vec<(InstrumentId, Addr)>,
}

struct Reader<'a> {
    plan: &'a Plan,
    by_id: &'a ById<'a>,
    originals: &'a OriginalCode<'a>,
    /// Address of each entry of the table of storage, as a function of the running task.
    timers: BTreeMap<Key, String>,
    /// Instruments that replace a function, and the addresses at which they call it.
    replaced: Vec<(InstrumentId, Addr)>,
    violations: Vec<Violation>,
}

impl Reader<'_> {
    /// Checks every site and every bounce.
    fn sites(&mut self) {
        let mut hosted: Map<SiteIndex, Vec<Bounce>> = Map::default();
        for bounce in &self.plan.bounces {
            if let Slot::Exposed(host) = bounce.slot {
                hosted.entry(host).or_default().push(*bounce);
            }
        }
        let needed: Set<SiteIndex> = self
            .plan
            .instruments
            .iter()
            .flat_map(|one| one.needs.iter().copied())
            .collect();
        for (number, site) in self.plan.sites.iter().enumerate() {
            let index = SiteIndex::new(number);
            let hosted = hosted.get(&index).map_or(&[][..], Vec::as_slice);
            let judged = site::judge(self.originals, site, needed.contains(&index), hosted);
            for (at, why) in judged.err().into_iter().flatten() {
                self.violations.push(Violation::Site {
                    site: number,
                    at,
                    why,
                });
            }
        }
        for (number, bounce) in self.plan.bounces.iter().enumerate() {
            if let Err(why) = site::judge_bounce(self.originals, &self.plan.sites, bounce) {
                self.violations.push(Violation::Bounce {
                    bounce: number,
                    at: bounce.at,
                    why,
                });
            }
        }
    }

    /// Proves every patch. Returns the edges and calls of the patches of each site.
    fn patches(
        &mut self,
        report: &mut ProofProgress<'_>,
    ) -> crate::Result<Ids<SiteIndex, Option<Facts>>> {
        let mut facts = Ids::<SiteIndex, _>::from(vec![None; self.plan.sites.len()]);
        let mut tools = WalkBuffers::new();
        let mut findings = Findings::default();
        for (number, patch) in self.plan.patches.iter().enumerate() {
            if number.is_multiple_of(REPORTED) {
                report()?;
            }
            let mut wrong = match self.patch(patch, &mut tools, &mut findings) {
                Ok(read) => match facts.find_mut(patch.site) {
                    None => Some((patch.address, Reason::NoSite)),
                    Some(Some(known)) if *known != read => {
                        Some((patch.address, Reason::OtherEdges))
                    }
                    Some(known) => {
                        *known = Some(read);
                        None
                    }
                },
                Err(fault) => Some(fault),
            };
            for (timer, entry) in findings.entries.drain(..) {
                let known = self.timers.entry(timer).or_insert_with(|| entry.clone());
                if *known != entry {
                    let why = Reason::OtherEntry {
                        key: format!("{timer:?}"),
                    };
                    wrong = wrong.or(Some((patch.address, why)));
                }
            }
            self.violations
                .extend(wrong.map(|(at, why)| Violation::Patch {
                    patch: number,
                    at,
                    why,
                }));
        }
        self.replaced = findings.replaced;
        fault::compare(self.plan, findings.faults, &mut self.violations);
        Ok(facts)
    }

    fn patch(
        &self,
        patch: &Patch,
        tools: &mut WalkBuffers,
        findings: &mut Findings,
    ) -> Result<Facts, (Addr, Reason)> {
        let whole = |why: Reason| (patch.address, why);
        let site = self.plan.site(patch.site);
        let site = site.ok_or_else(|| whole(Reason::NoSite))?;
        let lists = hooks::expected(self.plan, self.by_id, patch);
        let lists = lists.map_err(|why| (patch.address, why))?;
        let layout = &self.plan.layout;
        let (code, descriptors) = descriptor::split(patch, layout.sequences())?;
        let own = std::mem::replace(tools, WalkBuffers::new());
        let mut walk = Walk::new(
            own,
            (layout, &self.plan.faults),
            (patch, code, descriptors),
            site,
            self.originals,
            &lists,
        );
        let walked = walk.run();
        for (timer, entry) in std::mem::take(&mut walk.machine.entries) {
            let words = walk.machine.values.of_task_alone(entry);
            let words = words.ok_or_else(|| whole(Reason::EntryByOther));
            findings.entries.push((timer, walked.clone().and(words)?));
        }
        let facts = std::mem::take(&mut walk.facts);
        findings.replaced.append(&mut walk.replaced);
        findings.faults.append(&mut walk.machine.faults);
        *tools = walk.into_tools();
        walked.map(|()| facts)
    }

    /// Checks that no patch leaves to bytes that another site displaces.
    fn exits(&mut self, facts: &Ids<SiteIndex, Option<Facts>>) {
        let proven = facts
            .iter()
            .filter_map(|(site, facts)| Some((site, facts.as_ref()?)));
        for (index, facts) in proven {
            for (edge, _) in facts.edges.iter().filter(|(_, leaves)| *leaves) {
                let sites = &self.plan.sites;
                let after = sites.partition_point(|site| site.displaced.start < edge.to);
                let displacing = after.checked_sub(1).and_then(|before| sites.get(before));
                if displacing.is_some_and(|site| edge.to < site.displaced.end) {
                    self.violations.push(Violation::Site {
                        site: index.index(),
                        at: edge.to,
                        why: Reason::LeavesIntoSite,
                    });
                }
            }
        }
    }

    /// Returns the events that hit each instrument, sorted.
    fn events(&mut self) -> HitEvents {
        let mut events = HitEvents::with_capacity(self.plan.instruments.len());
        let mut changed = Changed::default();
        for one in &self.plan.instruments {
            match self.event(one, &mut changed) {
                Ok(found) => events.extend(found.into_iter().map(|event| (one.id, event))),
                Err((at, why)) => self.violations.push(Violation::Instrument {
                    id: one.id,
                    at,
                    why,
                }),
            }
        }
        events.sort_unstable();
        events
    }

    fn event(
        &self,
        instrument: &PlannedInstrument,
        changed: &mut Changed,
    ) -> Result<Vec<HitEvent>, (Addr, Reason)> {
        let function = self.plan.function(instrument.id.major);
        let start = function.map_or(Addr(0), |function| function.outline.span.start);
        let (routine, _) = self
            .originals
            .around(start.0)
            .ok_or((start, Reason::InstrumentFunction))?;
        let events = hooks::event(self.plan, routine, instrument, changed)?;
        if instrument.definition.replaces() && may_be_relied_on(self.originals.image, start) {
            return Err((start, Reason::ReplacedReliedOn));
        }
        let unread = events.iter().find_map(|event| match event {
            HitEvent::On(edge) if self.originals.around(edge.to.0).is_none() => Some(*edge),
            _ => None,
        });
        match unread {
            Some(edge) => Err((edge.from, Reason::NothingOnEdge { to: edge.to })),
            None => Ok(events),
        }
    }
}
