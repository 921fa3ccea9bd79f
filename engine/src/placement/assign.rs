//! Gives slots to short splices.
//!
//! A splice and a slot meet only where one is in reach of the other. So the splices whose reaches meet, in
//! one row, are a problem of their own, small, and solved again only if something in its reach changed.

use super::draft::{Draft, Kind};
use super::matching::{self, Matching};
use super::segments::Number;
use super::slots::{self, Hosts, Slot};
use super::solve::{Part, Problem};
use crate::cfg::padding_after;
use crate::{Addr, Span};

/// A short splice: where, of which part, and the first instruction of its site.
type Short = (Addr, usize, Number);

/// How far a short splice reaches, at most.
const REACH: u64 = 130;

impl<'a> Problem<'_, 'a> {
    /// Gives slots to all short splices: the parts where some found none.
    pub(super) fn assign(&mut self) -> Vec<usize> {
        let changed = self.changes();
        let shorts = self.shorts();
        let old = std::mem::take(&mut self.taken);
        let mut old = old.into_iter().peekable();
        let mut again = Vec::new();
        let mut slots = Vec::new();
        let meet =
            |one: &Short, next: &Short| matching::reach(next.0).0 <= matching::reach(one.0).1;
        for row in shorts.chunk_by(meet) {
            let (Some(first), Some(last)) = (row.first(), row.last()) else {
                continue;
            };
            let (low, high) = (matching::reach(first.0).0, matching::reach(last.0).1);
            let start = |part: usize, first: Number, parts: &[Part<'a>]| {
                parts.get(part).map(|part| part.outline.start(first))
            };
            let before = |at: Option<Addr>, end: Addr| at.is_none_or(|at| at < end);
            while old
                .next_if(|&(part, at, _)| before(start(part, at, &self.parts), first.0))
                .is_some()
            {}
            let own = std::iter::from_fn(|| {
                old.next_if(|&(part, at, _)| before(start(part, at, &self.parts), last.0.add(1)))
            });
            let near = changed.partition_point(|span| span.end < low);
            if changed.get(near).is_none_or(|span| span.start > high) {
                self.taken.extend(own);
                continue;
            }
            own.for_each(drop);
            self.row(row, &mut slots, &mut again);
        }
        again.sort_unstable();
        again.dedup();
        again
    }

    /// All short splices, by address.
    fn shorts(&self) -> Vec<Short> {
        let mut shorts = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let short = |draft: &&Draft| draft.kind == Kind::Short;
            let own = part.drafts.iter().filter(short);
            shorts.extend(own.map(|draft| (part.outline.start(draft.first), index, draft.first)));
        }
        shorts.sort_unstable();
        shorts
    }

    /// Where something is other than when slots were given out last, or in reach of that: by address.
    fn changes(&mut self) -> Vec<Span> {
        let image = self.neighbours.image;
        let mut spans: Vec<Span> = Vec::new();
        for part in std::mem::take(&mut self.changed) {
            let graphs = self.parts.get(part).map(|part| part.outline.graphs.iter());
            spans.extend(graphs.into_iter().flatten().map(|cfg| {
                Span {
                    start: Addr(cfg.span.start.0.saturating_sub(REACH)),
                    end: padding_after(image, cfg.function)
                        .end
                        .max(cfg.span.end)
                        .add(REACH),
                }
            }));
        }
        spans.sort_unstable_by_key(|span| span.start);
        spans.dedup_by(|next, span| {
            let meets = next.start <= span.end;
            if meets {
                span.end = span.end.max(next.end);
            }
            meets
        });
        spans
    }

    /// Gives slots to the splices of one row; adds the parts where some found none.
    fn row(&mut self, shorts: &[Short], slots: &mut Vec<Slot>, again: &mut Vec<usize>) {
        let mut matching = Matching::new(shorts.iter().map(|short| short.0).collect());
        slots.clear();
        let all: Vec<usize> = (0..shorts.len()).collect();
        self.slots(shorts, &all, |part| !part.asks.is_empty(), slots);
        let offered = slots.len();
        let needy: Vec<bool> = (shorts.iter())
            .map(|&(_, index, first)| {
                self.parts
                    .get(index)
                    .is_some_and(|part| part.is_needy(first))
            })
            .collect();
        if needy.contains(&true) {
            matching.only(Some(needy));
            for slot in slots.iter() {
                matching.offer(slot.at);
            }
            matching.only(None);
            let mut left = vec![true; slots.len()];
            for &slot in matching.taken.iter().flatten() {
                if let Some(left) = left.get_mut(slot as usize) {
                    *left = false;
                }
            }
            for (slot, _) in (0_u32..).zip(left).filter(|(_, left)| *left) {
                matching.offer_again(slot);
            }
        } else {
            for slot in slots.iter() {
                matching.offer(slot.at);
            }
        }
        let without: Vec<usize> = matching.without().collect();
        if !without.is_empty() {
            self.invite(shorts, &without);
            self.slots(shorts, &without, |part| part.asks.is_empty(), slots);
            for slot in slots.iter().skip(offered) {
                matching.offer(slot.at);
            }
        }
        for (&(_, index, first), slot) in shorts.iter().zip(&matching.taken) {
            match slot.and_then(|slot| slots.get(slot as usize)) {
                Some(&slot) => self.taken.push((index, first, slot)),
                None => {
                    let Some(part) = self.parts.get_mut(index) else {
                        continue;
                    };
                    let dead = part.outline.segment_of(first);
                    let dead =
                        dead.and_then(|segment| part.dead.segments.get_mut(segment as usize));
                    if let Some(dead) = dead {
                        *dead = true;
                    }
                    again.push(index);
                }
            }
        }
    }

    /// Takes in the functions around the splices that found no slot.
    fn invite(&mut self, shorts: &[Short], which: &[usize]) {
        for &(splice, ..) in which.iter().filter_map(|&short| shorts.get(short)) {
            let (low, high) = matching::reach(splice);
            for function in self.neighbours.between(low, high) {
                if !self.by_function.contains_key(&function) {
                    self.by_function.insert(function, self.parts.len());
                    self.parts
                        .push(Part::new(self.neighbours.outline(function)));
                }
            }
        }
    }

    /// Adds the slots in reach of some splices, of some parts, the cheapest first.
    fn slots(
        &self,
        shorts: &[Short],
        which: &[usize],
        of: impl Fn(&Part<'a>) -> bool,
        slots: &mut Vec<Slot>,
    ) {
        let mut windows: Vec<(Addr, Addr)> = Vec::new();
        for &(splice, ..) in which.iter().filter_map(|&short| shorts.get(short)) {
            let (low, high) = matching::reach(splice);
            match windows.last_mut() {
                Some(window) if low <= window.1 => window.1 = high,
                _ => windows.push((low, high)),
            }
        }
        let before = slots.len();
        for (low, high) in windows {
            for index in self.between(low, high) {
                let Some(part) = self.parts.get(index).filter(|part| of(part)) else {
                    continue;
                };
                let hosts = Hosts {
                    outline: &part.outline,
                    function: index,
                    drafts: &part.drafts,
                    waiting: &part.needs.waiting,
                    foreign: part.asks.is_empty(),
                };
                slots::offer(&hosts, low, high, slots);
            }
        }
        if let Some(new) = slots.get_mut(before..) {
            new.sort_unstable();
        }
    }
}
