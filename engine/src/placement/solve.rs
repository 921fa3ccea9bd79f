//! All hooks of a session as one problem.
//!
//! Every hook takes the cheapest way that its function allows. Then all short splices and all slots
//! are matched at once. A segment whose short splice finds no slot is dead; the hooks that wanted
//! it take their next way, which may bring new sites, and all is matched again, until nothing fails.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::Tactic;
use super::cover::{Dead, Needs};
use super::draft::{self, Draft, Kind};
use super::hooks::{Event, Way, reach, reach_instruction};
use super::matching;
use super::runs::Runs;
use super::segments::{BlockNumber, Number, Outline};
use super::slots::{self, Slot};
use super::whole::Spread;
use crate::cfg::Cfg;
use crate::code::FunctionId;
use crate::{Addr, HookType, Image, Refusal};

/// Outlines of functions that nobody wants hooks in, made when room is looked for there.
pub(super) struct Neighbours<'a> {
    pub(super) image: &'a Image,
    known: RefCell<HashMap<FunctionId, Rc<Outline<'a>>>>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self {
            image,
            known: RefCell::default(),
        }
    }

    pub(super) fn outline(&self, function: FunctionId) -> Rc<Outline<'a>> {
        let mut known = self.known.borrow_mut();
        let outline = known.entry(function).or_insert_with(|| {
            let cfg = Cfg::of(self.image, function);
            Rc::new(Outline::of(self.image, vec![std::borrow::Cow::Owned(cfg)]))
        });
        Rc::clone(outline)
    }

    /// The functions with a byte from `low` to `high`, or of the padding behind them.
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

/// What is asked of a function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Hook(BlockNumber, HookType),
    /// An instruction about to run.
    Instruction(Number),
}

/// What is asked, of which part, and how it is reached. What the way needs is among its part's needs.
pub(super) type Asked = (u32, Ask, Result<(Tactic, Event), Box<Refusal>>);

/// A function in the problem.
pub(super) struct Part<'a> {
    pub(super) outline: Rc<Outline<'a>>,
    pub(super) dead: Dead,
    /// Whether it is to be relocated whole.
    whole: bool,
    pub(super) asks: Vec<u32>,
    pub(super) needs: Needs,
    /// By address.
    pub(super) drafts: Vec<Draft>,
    pub(super) runs: Runs,
}

impl<'a> Part<'a> {
    pub(super) fn new(outline: Rc<Outline<'a>>) -> Self {
        Self {
            dead: Dead::new(&outline),
            outline,
            whole: false,
            asks: Vec::new(),
            needs: Needs::default(),
            drafts: Vec::new(),
            runs: Runs::default(),
        }
    }

    /// Whether the short splice that begins here has nothing else but an `int3`.
    pub(super) fn is_needy(&self, first: Number) -> bool {
        let segment = self.outline.segment_of(first);
        segment.is_some_and(|segment| self.dead.needy.binary_search(&segment).is_ok())
    }

    /// The cheapest ways to all that is asked of it, and the sites that these need.
    fn look(&mut self, asked: &mut [Asked]) {
        if self.whole {
            self.dead.whole = Some(Box::new(Spread::of(&self.outline, &self.dead)));
        }
        let mut ways = Vec::with_capacity(self.asks.len());
        for &index in &self.asks {
            let Some((_, ask, known)) = asked.get_mut(index as usize) else {
                continue;
            };
            let way = match *ask {
                Ask::Hook(block, hook) => reach(&self.outline, &mut self.dead, block, hook),
                Ask::Instruction(at) => reach_instruction(&self.outline, &mut self.dead, at),
            };
            match way {
                Ok(mut way) => {
                    if self.whole && way.tactic == Tactic::DirectSplice {
                        way.tactic = Tactic::WholeFunction;
                    }
                    ways.push((index, way));
                }
                Err(refusal) => *known = Err(Box::new(refusal)),
            }
        }
        let own: Vec<&Way> = ways.iter().map(|(_, way)| way).collect();
        if let Err(refusal) = self.draft(&own) {
            self.refuse(asked, &refusal);
            return;
        }
        for (index, way) in ways {
            if let Some((.., known)) = asked.get_mut(index as usize) {
                *known = Ok((way.tactic, way.event));
            }
        }
    }

    /// Refuses all that is asked of it.
    fn refuse(&mut self, asked: &mut [Asked], refusal: &Refusal) {
        self.needs = Needs::default();
        self.drafts.clear();
        self.runs = Runs::default();
        for &ask in &self.asks {
            if let Some((.., way)) = asked.get_mut(ask as usize) {
                *way = Err(Box::new(refusal.clone()));
            }
        }
    }

    /// The sites that the ways of its hooks need.
    ///
    /// # Errors
    /// What keeps it from being relocated whole.
    fn draft(&mut self, ways: &[&Way]) -> Result<(), Refusal> {
        self.needs = Needs::default();
        for way in ways {
            self.needs.add(&way.needs);
        }
        let needs = &mut self.needs;
        for list in [&mut needs.runs, &mut needs.past] {
            list.sort_unstable();
            list.dedup();
        }
        for list in [&mut needs.copied, &mut needs.waiting] {
            list.sort_unstable();
            list.dedup();
        }
        let outline = &self.outline;
        if let Some(spread) = &self.dead.whole {
            spread.complete(outline, &self.dead, ways, needs)?;
        }
        self.drafts.clear();
        self.drafts.extend(
            (outline.tracer.filter(|_| needs.tracer))
                .map(|tracer| Draft::new(Kind::Tracer, tracer, tracer + 1)),
        );
        let mut points = needs.copied.as_slice();
        while let Some(&first) = points.first() {
            let found = outline
                .segment_of(first)
                .and_then(|index| Some((index, outline.segment(index)?)));
            let Some((index, segment)) = found else {
                points = points.get(1..).unwrap_or_default();
                continue;
            };
            let count = points.partition_point(|&at| at < segment.behind);
            let (own, rest) = points.split_at(count);
            let trap = self
                .dead
                .segments
                .get(index as usize)
                .copied()
                .unwrap_or(true);
            let mut sites = draft::sites(outline, segment, own, trap);
            if self.dead.merged.binary_search(&index).is_ok() {
                draft::merge(segment, &mut sites);
            }
            self.drafts.append(&mut sites);
            points = rest;
        }
        self.drafts.shrink_to_fit();
        self.needs.copied.shrink_to_fit();
        self.follow();
        Ok(())
    }

    /// Follows the patches of its sites.
    fn follow(&mut self) {
        let ends = self.dead.whole.as_ref();
        let ends = ends.map(|spread| spread.ends(&self.outline, &self.drafts));
        self.runs = Runs::of(&self.needs, &ends.unwrap_or_default(), &self.drafts);
    }
}

impl Part<'_> {
    /// Has the segments from `low` to `high` that have sites, and room for more than one splice, make
    /// do with one each: whether that changes any.
    fn merge(&mut self, low: Addr, high: Addr) -> bool {
        let outline = Rc::clone(&self.outline);
        let first = (outline.segments).partition_point(|segment| segment.room <= low);
        let mut changes = false;
        for (index, segment) in (0_u32..).zip(&outline.segments).skip(first) {
            if outline.start(segment.first) > high {
                break;
            }
            let from = (self.drafts).partition_point(|draft| draft.first < segment.first);
            let sites = self.drafts.iter().skip(from);
            let mut sites = sites.take_while(|draft| draft.first < segment.behind);
            let Some(site) = sites.next().filter(|site| site.kind == Kind::Jump) else {
                continue;
            };
            let is_one = site.first == segment.first && sites.next().is_none();
            let waits = self.needs.waiting.binary_search(&site.first).is_ok();
            if is_one || waits || outline.room(*segment) < 2 * super::SPLICE_BYTES {
                continue;
            }
            if let Err(place) = self.dead.merged.binary_search(&index) {
                self.dead.merged.insert(place, index);
                changes = true;
            }
        }
        changes
    }

    /// Lets segments have as many sites again as they like, but for those with a slot among `taken`,
    /// sorted: whether that changes any.
    fn split(&mut self, taken: &[Addr]) -> bool {
        let (outline, before) = (&self.outline, self.dead.merged.len());
        self.dead.merged.retain(|&index| {
            outline.segment(index).is_some_and(|segment| {
                let first = taken.partition_point(|&slot| slot < outline.start(segment.first));
                taken.get(first).is_some_and(|&slot| slot < segment.room)
            })
        });
        self.dead.merged.len() < before
    }
}

/// The problem, and how far it is solved.
pub(super) struct Problem<'n, 'a> {
    pub(super) neighbours: &'n Neighbours<'a>,
    pub(super) parts: Vec<Part<'a>>,
    pub(super) by_function: HashMap<FunctionId, usize>,
    pub(super) asked: Vec<Asked>,
    /// The slots of short splices: part, first instruction of the site, and slot. By address of the site.
    pub(super) taken: Vec<(usize, Number, Slot)>,
    /// Parts that were looked at since slots were given out.
    pub(super) changed: Vec<usize>,
}

impl<'n, 'a> Problem<'n, 'a> {
    /// Of what is asked of these functions; each ask names the function by its index.
    pub(super) fn new(
        neighbours: &'n Neighbours<'a>,
        outlines: impl IntoIterator<Item = Rc<Outline<'a>>>,
        asks: &[(usize, Ask)],
    ) -> Self {
        let mut parts: Vec<Part<'a>> = outlines.into_iter().map(Part::new).collect();
        for (index, &(part, _)) in asks.iter().enumerate() {
            if let Some(part) = parts.get_mut(part) {
                part.asks.push(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        let by_function = parts.iter().enumerate().flat_map(|(index, part)| {
            let graphs = part.outline.graphs.iter();
            graphs.map(move |cfg| (cfg.function, index))
        });
        Self {
            by_function: by_function.collect(),
            neighbours,
            parts,
            asked: asks
                .iter()
                .map(|&(part, ask)| {
                    (
                        u32::try_from(part).unwrap_or(u32::MAX),
                        ask,
                        no_part().map_err(Box::new),
                    )
                })
                .collect(),
            taken: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Relocates a function whole, unless it refuses anyway.
    pub(super) fn relocate_whole(&mut self, part: usize) {
        if let Some(part) = self.parts.get_mut(part) {
            part.whole = part.outline.refused.is_none();
        }
    }

    /// Finds ways to all that is asked.
    pub(super) fn solve(&mut self) {
        let mut open: Vec<usize> = (0..self.parts.len())
            .filter(|&part| {
                self.parts
                    .get(part)
                    .is_some_and(|part| !part.asks.is_empty())
            })
            .collect();
        while !open.is_empty() {
            for &index in &open {
                let Some(part) = self.parts.get_mut(index) else {
                    continue;
                };
                part.look(&mut self.asked);
            }
            self.changed.extend(&open);
            open = self.cycles(&open);
            if open.is_empty() {
                open = self.assign();
            }
            if open.is_empty() {
                open = self.prefer();
            }
        }
        self.apply();
    }

    /// Forbids arrivals whose sites would wait for each other: the parts to be looked at again.
    fn cycles(&mut self, open: &[usize]) -> Vec<usize> {
        let mut again = Vec::new();
        for &index in open {
            let Some(part) = self.parts.get_mut(index) else {
                continue;
            };
            let own = (part.asks.iter()).filter_map(|&ask| self.asked.get(ask as usize));
            let arrivals = own.filter_map(|(.., way)| match &way.as_ref().ok()?.1 {
                Event::Arrives(firsts) => Some(firsts.as_slice()),
                _ => None,
            });
            let found = part.runs.cycles(&part.drafts, arrivals);
            if !found.is_empty() && part.whole && !part.dead.anchored {
                part.dead.anchored = true;
                again.push(index);
            } else if !found.is_empty() {
                let firsts = found
                    .iter()
                    .filter_map(|&site| part.drafts.get(site as usize));
                part.dead.arrivals.extend(firsts.map(|site| site.first));
                again.push(index);
            }
        }
        again
    }

    /// Gives what is now left an `int3` another try, before all others, and with all the room around:
    /// the parts to be looked at again.
    fn prefer(&mut self) -> Vec<usize> {
        let mut again = Vec::new();
        let mut splices: Vec<Addr> = Vec::new();
        for (index, part) in self.parts.iter_mut().enumerate() {
            let traps = part.drafts.iter().filter(|draft| draft.kind == Kind::Trap);
            let dead: Vec<(u32, Number)> = traps
                .filter_map(|draft| Some((part.outline.segment_of(draft.first)?, draft.first)))
                .collect();
            for (segment, first) in dead {
                let room = part
                    .outline
                    .segment(segment)
                    .map(|segment| part.outline.room(segment));
                let Err(place) = part.dead.needy.binary_search(&segment) else {
                    continue;
                };
                if room.is_none_or(|room| room < super::SHORT_SPLICE_BYTES) {
                    continue;
                }
                part.dead.needy.insert(place, segment);
                if let Some(dead) = part.dead.segments.get_mut(segment as usize) {
                    *dead = false;
                }
                splices.push(part.outline.start(first));
                again.push(index);
            }
        }
        for splice in splices {
            let (low, high) = matching::reach(splice);
            for index in self.between(low, high) {
                if let Some(part) = self.parts.get_mut(index)
                    && part.merge(low, high)
                {
                    again.push(index);
                }
            }
        }
        again.sort_unstable();
        again.dedup();
        again
    }

    /// The parts with a byte from `low` to `high`, or of the padding behind them.
    pub(super) fn between(&self, low: Addr, high: Addr) -> Vec<usize> {
        let functions = self.neighbours.between(low, high);
        let mut parts: Vec<usize> = functions
            .filter_map(|function| self.by_function.get(&function).copied())
            .collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// Makes room for the bounces.
    fn apply(&mut self) {
        let mut slots: Vec<Addr> = self.taken.iter().map(|(.., slot)| slot.at).collect();
        slots.sort_unstable();
        for part in &mut self.parts {
            if !part.dead.merged.is_empty() && part.split(&slots) {
                part.look(&mut self.asked);
            }
        }
        let mut donors: Vec<(usize, (Number, Number, Addr), Addr)> = Vec::new();
        for &(.., slot) in &self.taken {
            let Some(part) = self.parts.get_mut(slot.function) else {
                continue;
            };
            let end = slot.at.add(super::SPLICE_BYTES);
            match slot.host {
                slots::Host::Padding => {}
                slots::Host::Site(first) => {
                    let outline = Rc::clone(&part.outline);
                    let segment = outline
                        .segment_of(first)
                        .and_then(|index| outline.segment(index));
                    let found = part.drafts.iter_mut().find(|draft| draft.first == first);
                    if let (Some(draft), Some(segment)) = (found, segment) {
                        let behind = draft::up_to(&outline, first, segment.behind, end);
                        draft.behind = draft.behind.max(behind);
                    }
                }
                slots::Host::Donor(first, behind, limit) => {
                    donors.push((slot.function, (first, behind, limit), slot.at));
                }
            }
        }
        donors.sort_unstable();
        for group in donors.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let (Some(&(index, (first, behind, _), slots)), Some(last)) =
                (group.first(), group.last())
            else {
                continue;
            };
            let Some(part) = self.parts.get_mut(index) else {
                continue;
            };
            let end = last.2.add(super::SPLICE_BYTES);
            let (first, behind) = slots::donor(&part.outline, first, behind, slots, end);
            let mut draft = Draft::new(Kind::Jump, first, behind);
            draft.donor = true;
            let place = part.drafts.partition_point(|draft| draft.first < first);
            part.drafts.insert(place, draft);
        }
        let mut touched: Vec<usize> = self.taken.iter().map(|(.., slot)| slot.function).collect();
        touched.sort_unstable();
        touched.dedup();
        for part in touched {
            if let Some(part) = self.parts.get_mut(part) {
                part.follow();
            }
        }
    }
}

/// What is said of an ask that names no function.
pub(super) fn no_part<T>() -> Result<T, Refusal> {
    Err(Refusal::new(
        crate::Rule::NotText,
        Addr(0),
        "no graph was given for it",
    ))
}
