//! A tree over all CPUs of a lane, for low zoom: count, minimum, maximum and sum of time spans.
//!
//! Every span is a power of four ticks, and is split in four when it holds [`SPLIT`] samples: fine
//! where much happens, coarse where little does. A view takes whole spans that are narrower than
//! half a column, and unsplit ones that are narrower than a column, placed by their middle. It
//! returns the spans that need more detail, which is read from the runs.

use std::ops::Range;

use super::column::Column;
use super::run::Run;

/// Number of samples at which a span is split.
const SPLIT: u64 = 32;
/// Binary logarithm of the narrowest span in ticks.
const LEAST: u32 = 6;
/// Binary logarithm of a lane's first span in ticks: about a second.
const FIRST: u32 = 32;
/// Marks a span that is not split.
const WHOLE: u32 = u32::MAX;

/// Aggregate of a time span: a [`Column`] in fewer bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    count: u64,
    min: u64,
    max: u64,
    /// Low and high half.
    sum: [u64; 2],
    /// Page of its quarters, or [`WHOLE`].
    quarters: u32,
}

impl Span {
    fn column(&self) -> Column {
        let [low, high] = self.sum;
        Column {
            count: self.count,
            min: self.min,
            max: self.max,
            sum: u128::from(high) << 64 | u128::from(low),
        }
    }

    fn merge(&mut self, column: &Column) {
        let mut all = self.column();
        all.merge(column);
        self.count = all.count;
        self.min = all.min;
        self.max = all.max;
        self.sum = [all.sum as u64, (all.sum >> 64) as u64];
    }
}

/// Recent samples in one span that are not in the tree yet.
#[derive(Clone, Copy, Debug)]
struct PendingSpan {
    column: Column,
    /// Start of the span.
    start: u64,
    /// Binary logarithm of its width.
    shift: u32,
    /// Number of further samples until it is split.
    room: u64,
}

/// The spans of a lane.
#[derive(Debug)]
pub(super) struct Tree {
    /// By the width of their spans, so that neighbours in time are neighbours in memory: at index
    /// `n` are pages of spans of `4^n` ticks.
    pages: Vec<Vec<[Span; 4]>>,
    root: Span,
    start: u64,
    /// Binary logarithm of the root's width.
    shift: u32,
    open: Option<PendingSpan>,
}

const EMPTY: Span = Span {
    count: 0,
    min: u64::MAX,
    max: 0,
    sum: [0; 2],
    quarters: WHOLE,
};

/// Returns the start of the aligned span of that width around `tsc`.
fn floor(tsc: u64, shift: u32) -> u64 {
    tsc.checked_shr(shift)
        .unwrap_or_default()
        .checked_shl(shift)
        .unwrap_or_default()
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self {
            pages: Vec::new(),
            root: EMPTY,
            start: 0,
            shift: 0,
            open: None,
        }
    }

    /// Adds a sample that is already in `runs`.
    pub(super) fn add(&mut self, tsc: u64, value: u64, runs: &[Run]) {
        if let Some(open) = &mut self.open
            && floor(tsc, open.shift) == open.start
            && open.room > 1
        {
            open.room -= 1;
            open.column.add(value);
            return;
        }
        self.close();
        if self.shift == 0 {
            (self.shift, self.start) = (FIRST, floor(tsc, FIRST));
        }
        while floor(tsc, self.shift) != self.start {
            self.grow();
        }
        let mut column = Column::default();
        column.add(value);
        let (start, shift, count) = self.put(tsc, &column);
        if count >= SPLIT {
            self.split_at(tsc, shift, runs);
        }
        self.open = Some(PendingSpan {
            column: Column::default(),
            start,
            shift,
            // A span that is split or cannot be is located again at the next sample.
            room: SPLIT.saturating_sub(count),
        });
    }

    /// Turns the root into a quarter of a new root.
    fn grow(&mut self) {
        let place = (self.start >> self.shift) & 3;
        let mut page = [EMPTY; 4];
        if let Some(quarter) = page.get_mut(place as usize) {
            *quarter = self.root;
        }
        self.root.quarters = self.keep(self.shift, page);
        self.shift += 2;
        self.start = floor(self.start, self.shift);
    }

    /// Returns a page of spans of that width.
    fn page(&self, shift: u32, number: u32) -> Option<&[Span; 4]> {
        self.pages.get(shift as usize / 2)?.get(number as usize)
    }

    /// Stores a page of spans of that width, and returns its number.
    fn keep(&mut self, shift: u32, page: [Span; 4]) -> u32 {
        let level = shift as usize / 2;
        if self.pages.len() <= level {
            self.pages.resize_with(level + 1, Vec::new);
        }
        let Some(pages) = self.pages.get_mut(level) else {
            return WHOLE;
        };
        pages.push(page);
        (pages.len() - 1) as u32
    }

    /// Moves pending samples into their spans.
    fn close(&mut self) {
        if let Some(open) = self.open.take().filter(|open| open.column.count > 0) {
            self.put(open.start, &open.column);
        }
    }

    /// Adds `column` to every span around `tsc`, and returns start, width and count of the
    /// narrowest.
    fn put(&mut self, tsc: u64, column: &Column) -> (u64, u32, u64) {
        self.root.merge(column);
        let (mut shift, mut count) = (self.shift, self.root.count);
        let mut page = self.root.quarters;
        while page != WHOLE {
            shift -= 2;
            let pages = self.pages.get_mut(shift as usize / 2);
            let quarters = pages.and_then(|pages| pages.get_mut(page as usize));
            let Some(span) = quarters.and_then(|of| of.get_mut((tsc >> shift & 3) as usize)) else {
                break;
            };
            span.merge(column);
            count = span.count;
            page = span.quarters;
        }
        (floor(tsc, shift), shift, count)
    }

    /// Splits the narrowest span around `tsc`, which has this width.
    fn split_at(&mut self, tsc: u64, shift: u32, runs: &[Run]) {
        let cut = self.cut(floor(tsc, shift), shift, runs);
        let (mut at, mut page) = (self.shift, self.root.quarters);
        if page == WHOLE {
            self.root.quarters = cut;
        }
        while page != WHOLE {
            at -= 2;
            let pages = self.pages.get_mut(at as usize / 2);
            let quarters = pages.and_then(|pages| pages.get_mut(page as usize));
            let Some(span) = quarters.and_then(|of| of.get_mut((tsc >> at & 3) as usize)) else {
                return;
            };
            page = span.quarters;
            if at == shift {
                span.quarters = cut;
                return;
            }
        }
    }

    /// Returns the page of a span's quarters, which are split themselves where they hold many
    /// samples.
    fn cut(&mut self, start: u64, shift: u32, runs: &[Run]) -> u32 {
        if shift <= LEAST {
            return WHOLE;
        }
        let mut columns = [Column::default(); 4];
        for run in runs {
            run.quarters(start, shift, &mut columns);
        }
        let quarter = 1u64 << (shift - 2);
        let spans = [0, 1, 2, 3].map(|n| start + n * quarter);
        let mut page = [EMPTY; 4];
        for ((span, column), start) in page.iter_mut().zip(columns).zip(spans) {
            span.merge(&column);
            if column.count >= SPLIT {
                span.quarters = self.cut(start, shift - 2, runs);
            }
        }
        self.keep(shift - 2, page)
    }

    /// Adds to each of `out` the samples in its part of `view`, and returns the spans, in order of
    /// time, that are to be read from the runs instead. A sample may be in an adjacent column if it
    /// is within half a column of that; never if `exact`.
    pub(super) fn view(
        &self,
        view: Range<u64>,
        exact: bool,
        out: &mut [Column],
    ) -> Vec<Range<u64>> {
        let width = view.end.saturating_sub(view.start);
        let share = |parts: u64| {
            if exact {
                0
            } else {
                width / (out.len() as u64 * parts).max(1)
            }
        };
        let mut look = Look {
            tree: self,
            scale: out.len() as f64 / width as f64,
            snap: share(2),
            least: share(1).saturating_sub(2),
            view,
            out,
            closer: Vec::new(),
        };
        if self.shift > 0 {
            look.visit(&self.root, self.start, self.shift);
        }
        look.closer
    }
}

struct Look<'a> {
    tree: &'a Tree,
    view: Range<u64>,
    /// Columns per tick.
    scale: f64,
    /// Half a column, in ticks.
    snap: u64,
    /// A column in ticks, minus the rounding error.
    least: u64,
    out: &'a mut [Column],
    closer: Vec<Range<u64>>,
}

impl Look<'_> {
    fn column(&self, tsc: u64) -> usize {
        ((tsc - self.view.start) as f64 * self.scale) as usize
    }

    fn visit(&mut self, span: &Span, start: u64, shift: u32) {
        let last = start + (u64::MAX >> (64 - shift));
        let is_open = |open: &&PendingSpan| (start..=last).contains(&open.start);
        let open = self.tree.open.as_ref().filter(is_open);
        let count = span.count + open.map_or(0, |open| open.column.count);
        if count == 0 || last < self.view.start || start >= self.view.end {
            return;
        }
        if start >= self.view.start && last < self.view.end {
            let (from, to) = (self.column(start), self.column(last));
            // Wide spans would make counts look like a comb, so only sparse ones are taken.
            let narrow = match span.quarters {
                WHOLE => self.least,
                _ => self.snap,
            };
            if from == to || last - start < narrow {
                // The middle is safe from the rounding of edges.
                let middle = self.column(start + (last - start) / 2);
                let most = self.out.len().saturating_sub(1);
                if let Some(out) = self.out.get_mut(middle.min(most)) {
                    out.merge(&span.column());
                    if let Some(open) = open {
                        out.merge(&open.column);
                    }
                }
                return;
            }
        }
        if let Some(quarters) = self.tree.page(shift.wrapping_sub(2), span.quarters) {
            for (quarter, place) in quarters.iter().zip(0..) {
                self.visit(quarter, start + (place << (shift - 2)), shift - 2);
            }
            return;
        }
        let (from, to) = (
            start.max(self.view.start),
            last.saturating_add(1).min(self.view.end),
        );
        match self.closer.last_mut() {
            Some(before) if before.end == from => before.end = to,
            _ => self.closer.push(from..to),
        }
    }
}
