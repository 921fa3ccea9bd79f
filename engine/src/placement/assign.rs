//! Assigns slots to short splices.
//!
//! A splice can only get slots in its reach. So the splices whose reaches overlap, in one row, are a small
//! problem of their own, solved again only if a function in its reach has changed.

use super::ids::{InsnId, PartId};
use super::matching::{Matching, ShortId, SlotId};
use super::offers;
use super::slots::{Hosts, SlotOffer};
use super::solve::{Assignment, Problem, ProblemPart};
use super::splice::{SpliceForm, short_reach};
use crate::cfg::padding_after;
use crate::ids::{self, Ids};
use crate::{Addr, Span};

/// A short splice without a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ShortSplice {
    at: Addr,
    part: PartId,
    /// First instruction of its site.
    first: InsnId,
}

/// The furthest that a short splice reaches, in bytes.
const REACH: u64 = 130;

impl<'a> Problem<'_, 'a> {
    /// Assigns slots to all short splices; returns the functions where some got none.
    pub(super) fn assign(&mut self) -> Vec<PartId> {
        let changed = self.changes();
        let shorts = self.shorts();
        let mut old = std::mem::take(&mut self.assigned).into_iter().peekable();
        let mut again = Vec::new();
        let mut offers = Vec::new();
        let overlap =
            |one: &ShortSplice, next: &ShortSplice| short_reach(next.at).0 <= short_reach(one.at).1;
        for row in shorts.chunk_by(overlap) {
            let (Some(first), Some(last)) = (row.first(), row.last()) else {
                continue;
            };
            let (low, high) = (short_reach(first.at).0, short_reach(last.at).1);
            let is_before = |assignment: &Assignment, end: Addr| {
                let body = &self.parts[assignment.part].body;
                body.start(assignment.first) < end
            };
            while old.next_if(|old| is_before(old, first.at)).is_some() {}
            let end = last.at.add(1);
            let of_row = std::iter::from_fn(|| old.next_if(|old| is_before(old, end)));
            let near = changed.partition_point(|span| span.end < low);
            if changed.get(near).is_none_or(|span| span.start > high) {
                self.assigned.extend(of_row);
                continue;
            }
            of_row.for_each(drop);
            self.row(row, &mut offers, &mut again);
        }
        again.sort_unstable();
        again.dedup();
        again
    }

    /// All short splices, by address.
    fn shorts(&self) -> Vec<ShortSplice> {
        let mut shorts = Vec::new();
        for (part, function) in self.parts.iter() {
            let drafts = function.drafts.values().iter();
            let short = drafts.filter(|draft| draft.form == SpliceForm::Short);
            shorts.extend(short.map(|draft| ShortSplice {
                at: function.body.start(draft.range.first),
                part,
                first: draft.range.first,
            }));
        }
        shorts.sort_unstable();
        shorts
    }

    /// Bytes in reach of functions that have changed since slots were last assigned, by address.
    fn changes(&mut self) -> Vec<Span> {
        let image = self.neighbours.image;
        let mut spans: Vec<Span> = Vec::new();
        for part in std::mem::take(&mut self.changed) {
            let graphs = self.parts[part].body.graphs.iter();
            spans.extend(graphs.map(|cfg| {
                let padding = padding_after(image, cfg.function);
                Span {
                    start: Addr(cfg.span.start.0.saturating_sub(REACH)),
                    end: padding.end.max(cfg.span.end).add(REACH),
                }
            }));
        }
        spans.sort_unstable_by_key(|span| span.start);
        spans.dedup_by(|next, span| {
            let overlaps = next.start <= span.end;
            if overlaps {
                span.end = span.end.max(next.end);
            }
            overlaps
        });
        spans
    }

    /// Assigns slots to the splices of one row; adds the functions where some got none.
    fn row(
        &mut self,
        shorts: &[ShortSplice],
        offers: &mut Vec<SlotOffer>,
        again: &mut Vec<PartId>,
    ) {
        let mut matching = Matching::new(shorts.iter().map(|short| short.at).collect());
        offers.clear();
        self.offers(shorts, |part| !part.requests.is_empty(), offers);
        let preferred = shorts
            .iter()
            .map(|short| self.parts[short.part].is_preferred(short.first));
        let preferred: Ids<ShortId, bool> = preferred.collect();
        if preferred.values().contains(&true) {
            matching.restrict(Some(preferred));
            for offer in offers.iter() {
                matching.offer(offer.at);
            }
            matching.restrict(None);
            let mut rest: Ids<SlotId, bool> = vec![true; offers.len()].into();
            for &slot in matching.assigned.values().iter().flatten() {
                rest[slot] = false;
            }
            for (slot, _) in rest.iter().filter(|(_, rest)| **rest) {
                matching.offer_again(slot);
            }
        } else {
            for offer in offers.iter() {
                matching.offer(offer.at);
            }
        }
        let unmatched = matching.unmatched();
        let unmatched: Vec<ShortSplice> =
            unmatched.map(|short| *ids::entry(shorts, short)).collect();
        if !unmatched.is_empty() {
            self.invite(&unmatched);
            let offered = offers.len();
            self.offers(&unmatched, |part| part.requests.is_empty(), offers);
            for offer in offers.iter().skip(offered) {
                matching.offer(offer.at);
            }
        }
        for (short, slot) in shorts.iter().zip(matching.assigned.values()) {
            let (part, first) = (short.part, short.first);
            if let Some(slot) = *slot {
                let offer = *ids::entry(offers, slot);
                self.assigned.push(Assignment { part, first, offer });
                continue;
            }
            let function = &mut self.parts[part];
            if let Some(segment) = function.body.segment_of(first) {
                function.available.closed[segment] = true;
            }
            again.push(part);
        }
    }

    /// Adds the functions around the splices that got no slot to the problem.
    fn invite(&mut self, unmatched: &[ShortSplice]) {
        for short in unmatched {
            let (low, high) = short_reach(short.at);
            for function in self.neighbours.between(low, high) {
                if !self.by_function.contains_key(&function) {
                    let body = self.neighbours.body(function);
                    let tactics = self.neighbours.tactics;
                    let part = self.parts.push(ProblemPart::new(body, tactics));
                    self.by_function.insert(function, part);
                }
            }
        }
    }

    /// Appends the slots in reach of some splices, of some functions, the cheapest first.
    fn offers(
        &self,
        shorts: &[ShortSplice],
        of: impl Fn(&ProblemPart<'a>) -> bool,
        offers: &mut Vec<SlotOffer>,
    ) {
        let mut windows: Vec<(Addr, Addr)> = Vec::new();
        for short in shorts {
            let (low, high) = short_reach(short.at);
            match windows.last_mut() {
                Some(window) if low <= window.1 => window.1 = high,
                _ => windows.push((low, high)),
            }
        }
        let first = offers.len();
        for (low, high) in windows {
            for index in self.between(low, high) {
                let part = &self.parts[index];
                if !of(part) {
                    continue;
                }
                let hosts = Hosts {
                    body: &part.body,
                    tactics: self.neighbours.tactics,
                    part: index,
                    drafts: part.drafts.values(),
                    waiting: &part.requirements.waiting,
                    foreign: part.requests.is_empty(),
                };
                offers::offer(&hosts, low, high, offers);
            }
        }
        offers.split_at_mut(first).1.sort_unstable();
    }
}
