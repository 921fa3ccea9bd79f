//! All hooks of a session as one problem.
//!
//! Every hook takes the cheapest approach that its function allows. Then all short splices are matched
//! with slots at once. A segment whose short splice gets no slot is closed; its hooks take their next
//! approach, which may bring new sites, and all is matched again: a worklist of functions, until it is empty.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::availability::Availability;
use super::body::{Body, Segment};
use super::continuations::{Continuations, beginning_at};
use super::cover::Requirements;
use super::draft::{self, Draft};
use super::ids::{BlockId, DraftId, InsnId, InsnRange, PartId, RequestId, SegmentId};
use super::sites;
use super::slots::{Host, SlotOffer};
use super::splice::{SHORT_SPLICE_BYTES, SPLICE_BYTES};
use super::splice::{SpliceForm, short_reach};
use super::spread::Spread;
use super::tactic::{Tactic, Tactics};
use super::tactics::search::{Approach, HookEvent};
use super::tactics::{donor, reach, reach_instruction, trap};
use crate::cfg::Cfg;
use crate::code::FunctionId;
use crate::code::Origin;
use crate::ids::{Id, Ids};
use crate::{Addr, HookType, Image, Refusal, Rule};

/// Bodies of functions without hooks, made when slots are searched there.
pub(super) struct Neighbours<'a> {
    pub(super) image: &'a Image,
    pub(super) tactics: Tactics,
    cache: RefCell<HashMap<FunctionId, Rc<Body<'a>>>>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(image: &'a Image, tactics: Tactics) -> Self {
        Self {
            image,
            // Nothing in a process handles an int3.
            tactics: match image.origin() {
                Origin::Kernel => tactics,
                Origin::Object => tactics.without(Tactic::Trap),
            },
            cache: RefCell::default(),
        }
    }

    pub(super) fn body(&self, function: FunctionId) -> Rc<Body<'a>> {
        let mut cache = self.cache.borrow_mut();
        let body = cache.entry(function).or_insert_with(|| {
            let cfg = Cfg::of(self.image, function);
            Rc::new(Body::of(self.image, vec![Cow::Owned(cfg)]))
        });
        Rc::clone(body)
    }

    /// The functions with a byte from `low` to `high`, or of the padding after them.
    pub(super) fn between(&self, low: Addr, high: Addr) -> impl Iterator<Item = FunctionId> {
        let functions = self.image.functions();
        let first = functions.partition_point(|function| function.span.end <= low);
        let first = first.saturating_sub(1);
        let near = functions
            .iter()
            .skip(first)
            .take_while(move |function| function.span.start <= high);
        near.map(|function| function.id)
    }
}

/// A hook or instruction of a function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    Hook(BlockId, HookType),
    /// An instruction about to execute.
    Instruction(InsnId),
}

/// A hook of the session, and how it is reached. The requirements of its approach are among its function's.
pub(super) struct Request {
    /// Its function, or [`PartId::NONE`].
    pub(super) part: PartId,
    goal: Goal,
    pub(super) answer: Result<(Tactic, HookEvent), Box<Refusal>>,
}

/// A short splice and its slot.
#[derive(Clone, Copy)]
pub(super) struct Assignment {
    pub(super) part: PartId,
    /// First instruction of the splice's site.
    pub(super) first: InsnId,
    pub(super) offer: SlotOffer,
}

/// A function in the problem.
pub(super) struct ProblemPart<'a> {
    pub(super) body: Rc<Body<'a>>,
    pub(super) available: Availability,
    /// True if it is to be relocated whole.
    whole: bool,
    pub(super) requests: Vec<RequestId>,
    pub(super) requirements: Requirements,
    /// Sites by address.
    pub(super) drafts: Ids<DraftId, Draft>,
    pub(super) continuations: Continuations,
}

impl<'a> ProblemPart<'a> {
    pub(super) fn new(body: Rc<Body<'a>>, tactics: Tactics) -> Self {
        Self {
            available: Availability::new(&body, tactics),
            body,
            whole: false,
            requests: Vec::new(),
            requirements: Requirements::default(),
            drafts: Ids::new(),
            continuations: Continuations::default(),
        }
    }

    /// Returns whether the short splice that begins here has no alternative to an `int3`.
    pub(super) fn is_preferred(&self, first: InsnId) -> bool {
        let segment = self.body.segment_of(first);
        let preferred = &self.available.preferred;
        segment.is_some_and(|segment| preferred.binary_search(&segment).is_ok())
    }

    /// Finds the cheapest approaches to all its requests, and the sites that these require.
    fn search(&mut self, requests: &mut Ids<RequestId, Request>) {
        if self.whole {
            self.available.whole = Some(Box::new(Spread::of(&self.body, &self.available)));
        }
        let mut approaches: Vec<(RequestId, Approach)> = Vec::with_capacity(self.requests.len());
        for &index in &self.requests {
            let request = &mut requests[index];
            let approach = match request.goal {
                Goal::Hook(block, hook) => reach(&self.body, &mut self.available, block, hook),
                Goal::Instruction(at) => reach_instruction(&self.body, &mut self.available, at),
            };
            match approach {
                Ok(mut approach) => {
                    if self.whole && approach.tactic == Tactic::DirectSplice {
                        approach.tactic = Tactic::WholeFunction;
                    }
                    approaches.push((index, approach));
                }
                Err(refusal) => request.answer = Err(Box::new(refusal)),
            }
        }
        if let Err(refusal) = self.draft(&approaches) {
            self.refuse(requests, &refusal);
            return;
        }
        for (index, approach) in approaches {
            requests[index].answer = Ok((approach.tactic, approach.event));
        }
    }

    /// Refuses all its requests.
    fn refuse(&mut self, requests: &mut Ids<RequestId, Request>, refusal: &Refusal) {
        self.requirements = Requirements::default();
        self.drafts.clear();
        self.continuations = Continuations::default();
        for &index in &self.requests {
            requests[index].answer = Err(Box::new(refusal.clone()));
        }
    }

    /// Drafts the sites that approaches require.
    ///
    /// # Errors
    /// The reason why it cannot be relocated whole.
    fn draft(&mut self, approaches: &[(RequestId, Approach)]) -> Result<(), Refusal> {
        self.requirements = Requirements::default();
        for (_, approach) in approaches {
            self.requirements.add(&approach.requirements);
        }
        self.requirements.normalize();
        let body = &self.body;
        if let Some(spread) = &self.available.whole {
            let events = approaches.iter().map(|(_, approach)| &approach.event);
            spread.complete(body, &self.available, events, &mut self.requirements)?;
        }
        let mut drafts: Vec<Draft> = std::mem::take(&mut self.drafts).into_values();
        drafts.clear();
        let mut points = self.requirements.copied.as_slice();
        while let Some((&first, after)) = points.split_first() {
            let Some(index) = body.segment_of(first) else {
                debug_assert!(
                    false,
                    "{first:?} is to be copied by a site, and is in no segment"
                );
                points = after;
                continue;
            };
            let segment = body.segments[index];
            let count = points.partition_point(|&at| at < segment.range.end);
            let (inside, rest) = points.split_at(count);
            if self.available.closed[index] {
                drafts.extend(trap::site(inside));
            } else {
                let tactics = self.available.tactics;
                let mut sites = sites::of_segment(body, segment, inside, tactics);
                if self.available.merged.binary_search(&index).is_ok() {
                    merge(segment, &mut sites);
                }
                drafts.append(&mut sites);
            }
            points = rest;
        }
        if let Some(tracer) = body.tracer.filter(|_| self.requirements.tracer) {
            // Parts of the function may be at lower addresses than its entry.
            let place = drafts.partition_point(|draft| draft.range.first < tracer);
            drafts.insert(
                place,
                Draft::new(SpliceForm::Tracer, InsnRange::one(tracer)),
            );
        }
        debug_assert!(
            drafts.is_sorted_by_key(|draft| draft.range.first),
            "sites are by address"
        );
        drafts.shrink_to_fit();
        self.drafts = drafts.into();
        self.requirements.copied.shrink_to_fit();
        self.follow();
        Ok(())
    }

    /// Follows the patches of its sites.
    fn follow(&mut self) {
        let whole = self.available.whole.as_ref();
        let ends = whole.map(|spread| spread.ends(&self.body, self.drafts.values()));
        let ends = ends.unwrap_or_default();
        self.continuations = Continuations::of(&self.body, &self.requirements, &ends, &self.drafts);
    }

    /// Merges the sites of each segment from `low` to `high` that could host more than one splice; returns
    /// whether that changes any.
    fn merge(&mut self, low: Addr, high: Addr) -> bool {
        let body = Rc::clone(&self.body);
        let segments = body.segments.values();
        let first = segments.partition_point(|segment| segment.limit <= low);
        let mut changes = false;
        for (index, segment) in body.segments.iter().skip(first) {
            if body.start(segment.range.first) > high {
                break;
            }
            let drafts = self.drafts.values();
            let from = drafts.partition_point(|draft| draft.range.first < segment.range.first);
            let sites = drafts.iter().skip(from);
            let mut sites = sites.take_while(|draft| draft.range.first < segment.range.end);
            let Some(site) = sites.next().filter(|site| site.form == SpliceForm::Jump) else {
                continue;
            };
            let first = site.range.first;
            let is_merged = first == segment.range.first && sites.next().is_none();
            let waits = self.requirements.waiting.binary_search(&first).is_ok();
            if is_merged || waits || body.capacity(*segment) < 2 * SPLICE_BYTES {
                continue;
            }
            changes |= insert(&mut self.available.merged, index);
        }
        changes
    }

    /// Undoes the merging of segments without a slot among `assigned`, sorted; returns whether that changes
    /// any.
    fn split(&mut self, assigned: &[Addr]) -> bool {
        let (body, before) = (&self.body, self.available.merged.len());
        self.available.merged.retain(|&index| {
            let segment = body.segments[index];
            let start = body.start(segment.range.first);
            let first = assigned.partition_point(|&slot| slot < start);
            assigned
                .get(first)
                .is_some_and(|&slot| slot < segment.limit)
        });
        self.available.merged.len() < before
    }
}

/// One site instead of those of a segment, whose splice leaves bytes for slots. A call at its end stays.
fn merge(segment: Segment, sites: &mut Vec<Draft>) {
    if let (Some(first), Some(last)) = (sites.first(), sites.last())
        && first.form == SpliceForm::Jump
    {
        let end = match last.form {
            SpliceForm::Call => last.range.first,
            _ => last.range.end,
        };
        let range = InsnRange {
            end,
            ..segment.range
        };
        *sites = vec![Draft::new(SpliceForm::Jump, range)];
    }
}

/// Inserts into a sorted list; returns whether the entry is new.
fn insert<T: Ord>(list: &mut Vec<T>, entry: T) -> bool {
    match list.binary_search(&entry) {
        Ok(_) => false,
        Err(place) => {
            list.insert(place, entry);
            true
        }
    }
}

/// The problem in one state of its solution.
pub(super) struct Problem<'n, 'a> {
    pub(super) neighbours: &'n Neighbours<'a>,
    pub(super) parts: Ids<PartId, ProblemPart<'a>>,
    pub(super) by_function: HashMap<FunctionId, PartId>,
    pub(super) requests: Ids<RequestId, Request>,
    /// The slots of short splices, by address of the splice.
    pub(super) assigned: Vec<Assignment>,
    /// Functions that have been searched since slots were last assigned.
    pub(super) changed: Vec<PartId>,
}

impl<'n, 'a> Problem<'n, 'a> {
    /// A problem of some functions; each goal names its function, or [`PartId::NONE`].
    pub(super) fn new(
        neighbours: &'n Neighbours<'a>,
        bodies: impl IntoIterator<Item = Rc<Body<'a>>>,
        goals: &[(PartId, Goal)],
    ) -> Self {
        let tactics = neighbours.tactics;
        let bodies = bodies.into_iter();
        let mut parts: Ids<PartId, ProblemPart<'a>> =
            bodies.map(|body| ProblemPart::new(body, tactics)).collect();
        let mut requests = Vec::with_capacity(goals.len());
        for (index, &(part, goal)) in goals.iter().enumerate() {
            if part != PartId::NONE {
                parts[part].requests.push(RequestId::new(index));
            }
            let why = "no graph was given for the hook, or it has no such block";
            let refusal = Refusal::new(Rule::NotText, Addr(0), why);
            let answer = Err(Box::new(refusal));
            requests.push(Request { part, goal, answer });
        }
        let by_function = parts.iter().flat_map(|(index, part)| {
            let graphs = part.body.graphs.iter();
            graphs.map(move |cfg| (cfg.function, index))
        });
        Self {
            by_function: by_function.collect(),
            neighbours,
            parts,
            requests: requests.into(),
            assigned: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Relocates a function whole, unless it refuses anyway.
    pub(super) fn relocate_whole(&mut self, part: PartId) {
        let tactics = self.neighbours.tactics;
        let part = &mut self.parts[part];
        part.whole = part.body.refusal.is_none() && tactics.has(Tactic::WholeFunction);
    }

    /// Answers all requests.
    pub(super) fn solve(&mut self) {
        let parts = self.parts.iter();
        let mut worklist: Vec<PartId> = parts
            .filter(|(_, part)| !part.requests.is_empty())
            .map(|(index, _)| index)
            .collect();
        while !worklist.is_empty() {
            for &index in &worklist {
                self.parts[index].search(&mut self.requests);
            }
            self.changed.extend(&worklist);
            worklist = self.cycles(&worklist);
            if worklist.is_empty() {
                worklist = self.assign();
            }
            if worklist.is_empty() {
                worklist = self.prefer();
            }
        }
        self.apply();
    }

    /// Forbids arrivals whose sites would depend on each other; returns the functions to search again.
    fn cycles(&mut self, searched: &[PartId]) -> Vec<PartId> {
        let mut again = Vec::new();
        for &index in searched {
            let part = &mut self.parts[index];
            let answers = part
                .requests
                .iter()
                .map(|&goal| &self.requests[goal].answer);
            let arrivals = answers.filter_map(|answer| match &answer.as_ref().ok()?.1 {
                HookEvent::Arrives(firsts) => Some(firsts.as_slice()),
                _ => None,
            });
            let cyclic = part.continuations.cycles(&part.drafts, arrivals);
            if cyclic.is_empty() {
                continue;
            }
            if part.whole && !part.available.anchored {
                part.available.anchored = true;
            } else {
                let firsts = cyclic.iter().map(|&site| part.drafts[site].range.first);
                part.available.cyclic.extend(firsts);
            }
            again.push(index);
        }
        again
    }

    /// Tries hooks that have only an `int3` again, before all others, and with all segments around
    /// merged; returns the functions to search again.
    fn prefer(&mut self) -> Vec<PartId> {
        let mut again = Vec::new();
        let mut splices: Vec<Addr> = Vec::new();
        for (index, part) in self.parts.iter_mut() {
            let drafts = part.drafts.values().iter();
            let traps = drafts.filter(|draft| draft.form == SpliceForm::Trap);
            let firsts = traps.map(|draft| draft.range.first);
            let closed: Vec<(SegmentId, InsnId)> = firsts
                .filter_map(|first| Some((part.body.segment_of(first)?, first)))
                .collect();
            for (segment, first) in closed {
                let capacity = part.body.capacity(part.body.segments[segment]);
                if capacity < SHORT_SPLICE_BYTES || !insert(&mut part.available.preferred, segment)
                {
                    continue;
                }
                part.available.closed[segment] = false;
                splices.push(part.body.start(first));
                again.push(index);
            }
        }
        for splice in splices {
            let (low, high) = short_reach(splice);
            for index in self.between(low, high) {
                if self.parts[index].merge(low, high) {
                    again.push(index);
                }
            }
        }
        again.sort_unstable();
        again.dedup();
        again
    }

    /// The functions with a byte from `low` to `high`, or of the padding after them.
    pub(super) fn between(&self, low: Addr, high: Addr) -> Vec<PartId> {
        let functions = self.neighbours.between(low, high);
        let mut parts: Vec<PartId> = functions
            .filter_map(|function| self.by_function.get(&function).copied())
            .collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// Displaces the bytes of the slots that are assigned.
    fn apply(&mut self) {
        let mut slots: Vec<Addr> = (self.assigned.iter())
            .map(|assigned| assigned.offer.at)
            .collect();
        slots.sort_unstable();
        for (_, part) in self.parts.iter_mut() {
            if !part.available.merged.is_empty() && part.split(&slots) {
                part.search(&mut self.requests);
            }
        }
        let mut donors: Vec<(PartId, InsnRange, Addr)> = Vec::new();
        let mut touched: Vec<PartId> = Vec::new();
        for Assignment { offer, .. } in &self.assigned {
            touched.push(offer.part);
            match offer.host {
                Host::Padding => {}
                Host::Site(first) => self.parts[offer.part].expose(first, offer.at),
                Host::Donor { free, .. } => donors.push((offer.part, free, offer.at)),
            }
        }
        donors.sort_unstable();
        for group in donors.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            if let (Some(&(part, free, slots)), Some(last)) = (group.first(), group.last()) {
                let end = last.2.add(SPLICE_BYTES);
                self.parts[part].add_donor(free, slots, end);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for part in touched {
            self.parts[part].follow();
        }
    }
}

impl ProblemPart<'_> {
    /// Has the site that begins at an instruction displace the slot at an address too.
    fn expose(&mut self, first: InsnId, slot: Addr) {
        let segment = self.body.segment_of(first);
        let site = beginning_at(&self.drafts, first);
        debug_assert!(
            segment.is_some() && site.is_some(),
            "the host of a slot begins at {first:?}"
        );
        let (Some(segment), Some(site)) = (segment, site) else {
            return;
        };
        let rest = InsnRange {
            first,
            ..self.body.segments[segment].range
        };
        let exposing = draft::up_to(&self.body, rest, slot.add(SPLICE_BYTES));
        let range = &mut self.drafts[site].range;
        range.end = range.end.max(exposing.end);
    }

    /// Adds a site that displaces free instructions for slots from one address to another.
    fn add_donor(&mut self, free: InsnRange, slots: Addr, end: Addr) {
        let range = donor::displaced(&self.body, free, slots, end);
        let mut draft = Draft::new(SpliceForm::Jump, range);
        draft.donor = true;
        let mut drafts = std::mem::take(&mut self.drafts).into_values();
        let place = drafts.partition_point(|draft| draft.range.first < range.first);
        drafts.insert(place, draft);
        self.drafts = drafts.into();
    }
}
