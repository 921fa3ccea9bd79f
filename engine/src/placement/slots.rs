//! Where bounces may go: padding, what sites expose, and what may be displaced for the room.

use super::draft::{Draft, Kind, latest, up_to};
use super::segments::{Number, Outline, Segment};
use super::{SPLICE_BYTES, Tactic};
use crate::{Addr, Span};

/// What makes a slot's bytes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    /// Nobody runs them.
    Padding,
    /// The site that begins here, if it displaces enough.
    Site(Number),
    /// A donor: some of the instructions from the first up to the second, which no site displaces; the
    /// room ends at the address.
    Donor(Number, Number, Addr),
}

/// How much a slot costs: what it is, then the bytes that are displaced for it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost(u8, u64);

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) cost: Cost,
    pub(super) at: Addr,
    /// Index of the function among those of the problem.
    pub(super) function: usize,
    pub(super) host: Host,
}

impl Slot {
    /// The tactic of a short splice with this slot.
    pub(super) fn tactic(&self, of_same_function: bool) -> Tactic {
        match self.host {
            Host::Padding => Tactic::Padding,
            Host::Site(_) => Tactic::LocalBounce,
            Host::Donor(..) if of_same_function => Tactic::Donor,
            Host::Donor(..) => Tactic::Springboard,
        }
    }
}

/// A function with its sites so far.
pub(super) struct Hosts<'o, 'a> {
    pub(super) outline: &'o Outline<'a>,
    pub(super) function: usize,
    /// By address.
    pub(super) drafts: &'o [Draft],
    /// Sites that wait for others, and may hold nothing that those need: sorted.
    pub(super) waiting: &'o [Number],
    /// Whether nobody wants a hook in the function.
    pub(super) foreign: bool,
}

/// The slots between `low` and `high`, in no order.
pub(super) fn offer(hosts: &Hosts<'_, '_>, low: Addr, high: Addr, slots: &mut Vec<Slot>) {
    let outline = hosts.outline;
    let mut writer = Writer {
        hosts,
        low,
        high,
        slots,
    };
    let padding = outline.padding.partition_point(|gap| gap.end <= low);
    for gap in outline
        .padding
        .iter()
        .skip(padding)
        .take_while(|gap| gap.start <= high)
    {
        writer.padding(*gap);
    }
    let first = outline
        .segments
        .partition_point(|segment| segment.room <= low);
    for segment in outline.segments.iter().skip(first) {
        if outline.start(segment.first) > high {
            break;
        }
        writer.segment(*segment);
    }
}

struct Writer<'w, 'o, 'a> {
    hosts: &'w Hosts<'o, 'a>,
    low: Addr,
    high: Addr,
    slots: &'w mut Vec<Slot>,
}

impl Writer<'_, '_, '_> {
    fn add(&mut self, class: u8, bytes: u64, at: Addr, host: Host) {
        if self.low <= at && at <= self.high {
            let class = class + if self.hosts.foreign { 4 } else { 0 };
            self.slots.push(Slot {
                cost: Cost(class, bytes),
                at,
                function: self.hosts.function,
                host,
            });
        }
    }

    /// Slots at the end of padding; what is left before them. The first byte is left alone: an `int3`
    /// there keeps the processor from speculating past the return or jump before it.
    fn padding(&mut self, mut gap: Span) -> Addr {
        gap.start = gap.start.add(1).min(gap.end);
        let slots = gap.len() / SPLICE_BYTES;
        for slot in 1..=slots {
            self.add(0, 0, Addr(gap.end.0 - slot * SPLICE_BYTES), Host::Padding);
        }
        Addr(gap.end.0 - slots * SPLICE_BYTES)
    }

    fn segment(&mut self, segment: Segment) {
        let outline = self.hosts.outline;
        let room = outline.room(segment);
        if room < SPLICE_BYTES {
            return;
        }
        let first = (self.hosts.drafts).partition_point(|draft| draft.first < segment.first);
        let drafts = self.hosts.drafts.get(first..).unwrap_or_default();
        let count = drafts
            .iter()
            .take_while(|draft| draft.first < segment.behind)
            .count();
        let drafts = drafts.get(..count).unwrap_or_default();
        let end = outline.end(segment.behind - 1);
        let splices = drafts.last().map_or(end, |last| last.splice(outline).end);
        let start = end.max(splices).min(segment.room);
        let limit = self.padding(Span {
            start,
            end: segment.room,
        });
        if room < 2 * SPLICE_BYTES {
            return;
        }
        // Where instructions begin that no site displaces, nor may one that is there grow over.
        let mut free = Some(segment.first);
        for (index, draft) in drafts.iter().enumerate() {
            if let Some(free) = free.take() {
                self.donor(free, draft.first, outline.start(draft.first));
            }
            let next = drafts
                .get(index + 1)
                .map_or(limit, |next| outline.start(next.first));
            if draft.kind != Kind::Jump || self.hosts.waiting.binary_search(&draft.first).is_ok() {
                free = Some(draft.behind);
            } else {
                self.site(draft, next, end);
            }
        }
        if let Some(free) = free {
            self.donor(free, segment.behind, limit);
        }
    }

    /// Behind a site's splice.
    fn site(&mut self, draft: &Draft, limit: Addr, segment: Addr) {
        let displaced = self.hosts.outline.end(draft.behind - 1);
        let mut at = draft.splice(self.hosts.outline).end;
        while at.add(SPLICE_BYTES) <= limit && at < segment {
            let end = at.add(SPLICE_BYTES);
            let more = end.0.saturating_sub(displaced.0);
            self.add(
                if more == 0 { 1 } else { 2 },
                more,
                at,
                Host::Site(draft.first),
            );
            at = end;
        }
    }

    fn donor(&mut self, first: Number, behind: Number, limit: Addr) {
        if first >= behind {
            return;
        }
        let outline = self.hosts.outline;
        let mut at = outline.start(first).add(SPLICE_BYTES);
        let end = outline.end(behind - 1);
        while at.add(SPLICE_BYTES) <= limit && at < end {
            if self.low <= at && at <= self.high {
                let (from, to) = donor(outline, first, behind, at, at.add(SPLICE_BYTES));
                // Of a function that is relocated whole, what waits may have no site of its own: then the
                // donor would be it.
                if self.hosts.waiting.binary_search(&from).is_err() {
                    let bytes = outline.span(from, to).len();
                    self.add(3, bytes, at, Host::Donor(first, behind, limit));
                }
            }
            at = at.add(SPLICE_BYTES);
        }
    }
}

/// What a donor displaces that has slots from `slots` to `end`.
pub(super) fn donor(
    outline: &Outline<'_>,
    first: Number,
    behind: Number,
    slots: Addr,
    end: Addr,
) -> (Number, Number) {
    let from = latest(
        outline,
        first,
        behind.saturating_sub(1),
        SPLICE_BYTES,
        slots,
    );
    let from = from.unwrap_or(first);
    (from, up_to(outline, from, behind, end))
}
