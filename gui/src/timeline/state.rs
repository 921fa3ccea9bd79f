//! State of the timeline pane: the recording, the view, the markers, and the note being edited.

use std::path::Path;
use std::sync::Arc;

use egui::Context;
use gilk_engine::Image;
use gilk_engine::cfg::BlockIndex;
use gilk_samples::histogram::Histogram;
use gilk_samples::index::Owner;
use gilk_samples::level::Average;
use gilk_samples::metadata::Metadata;
use gilk_samples::totals::Totals;

use super::heat::Heats;
use super::lane_facts::LaneFacts;
use super::list::{LaneList, LaneView, is_at};
use super::order::{Axis, Stack};
use super::paths::CountedTotals;
use super::search::Found;
use super::totals::{self, Symbols};
use super::{Losses, Range, Record, SampleSearch, hits_in};
use crate::document::Note;
use crate::live::Live;
use crate::recent::Recent;

/// A lane by its index, with its hits and their rate per second in a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LaneHits {
    pub(super) lane: usize,
    pub(super) hits: u64,
    pub(super) rate: f64,
}

/// Lanes with hits in a range, most first.
pub(super) type LaneCounts = Arc<Vec<LaneHits>>;

/// State of the pane.
#[derive(Debug)]
pub struct Timeline {
    /// The recording shown, if any.
    pub record: Option<Record>,
    /// Count of recordings shown so far.
    openings: u64,
    /// The time range in view.
    pub range: Range,
    /// Keeps the newest samples in view.
    pub follow: bool,
    /// Scroll offset of the lanes in points.
    pub(super) scroll: f32,
    /// The markers A and B, in seconds.
    pub markers: [Option<f64>; 2],
    /// The search among samples, while it is open.
    pub find: Option<SampleSearch>,
    /// The sample that the search has found.
    pub(crate) found: Option<Found>,
    /// Requests the next (`false`) or previous (`true`) matching sample.
    pub(crate) step: Option<bool>,
    /// The note being edited.
    pub(super) writing: Option<NoteEdit>,
    /// The note under the pointer.
    pub(crate) hovered_note: Option<usize>,
    /// The lane selected last.
    pub chosen: Option<u64>,
    /// Requests a scroll to the lanes of the selected block.
    pub(crate) reveal: bool,
    /// Requests a scroll to the lane selected last.
    pub(crate) reveal_chosen: bool,
    /// Time at the pointer, while it is over the lanes.
    pub(super) pointer: Option<f64>,
    pub(super) histogram: Option<CachedHistogram>,
    /// Cached averages of levels between the markers.
    pub(super) averages: Vec<CachedAverage>,
    /// True while a range is being dragged.
    pub(super) ranging: bool,
    /// The choice of lanes.
    pub(crate) view: LaneView,
    /// The lanes, by recording and choice.
    list: Live<(u64, u64), Arc<LaneList>>,
    /// The hits of all lanes, by recording.
    pub(crate) hits: Live<u64, u64>,
    /// Facts about the lanes.
    pub(super) facts: LaneFacts,
    /// Totals that are not on lanes, by recording and number of totals.
    pub(crate) counted: Recent<(u64, u64), Arc<CountedTotals>>,
    /// Lanes with samples between the markers, by recording, first and last tick.
    pub(super) between: Live<(u64, u64, u64), LaneCounts>,
    pub(super) heats: Heats,
    /// Names of addresses among the values of totals.
    pub(crate) symbols: Symbols,
    /// The recording, the kernel, and the number of changes of the totals that `symbols` names.
    named: (u64, u64, u64),
    /// True if the user hid the totals.
    pub(super) totals_hidden: bool,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            record: None,
            openings: 0,
            range: Range::whole(10.0),
            follow: true,
            scroll: 0.0,
            markers: [None; 2],
            find: None,
            found: None,
            step: None,
            writing: None,
            hovered_note: None,
            chosen: None,
            reveal: false,
            reveal_chosen: false,
            pointer: None,
            histogram: None,
            averages: Vec::new(),
            ranging: false,
            view: LaneView::default(),
            list: Live::default(),
            hits: Live::default(),
            counted: Recent::default(),
            facts: LaneFacts::default(),
            between: Live::default(),
            heats: Heats::default(),
            symbols: Symbols::default(),
            named: (0, 0, 0),
            totals_hidden: false,
        }
    }
}

/// A computed histogram, with its key: lane, first tick, last tick, number of samples.
#[derive(Clone, Debug)]
pub(super) struct CachedHistogram {
    pub(super) of: (u64, u64, u64, u64),
    pub(super) histogram: Histogram,
    /// The median and the 99th percentile.
    pub(super) percentiles: [u64; 2],
}

/// A computed average of a level, with its key: lane, first tick, last tick, number of samples.
pub(super) type CachedAverage = ((u64, u64, u64, u64), Option<Average>);

/// A note being edited, with its index if it exists already.
#[derive(Clone, Debug)]
pub(crate) struct NoteEdit {
    pub(crate) place: Option<usize>,
    pub(crate) note: Note,
}

impl Timeline {
    /// Returns the number of the recording shown.
    pub(crate) const fn opened(&self) -> u64 {
        self.openings
    }

    /// Opens a recording and shows all of it.
    pub fn open(&mut self, record: Record) {
        self.openings += 1;
        self.range = Range::whole(record.duration);
        self.follow = true;
        self.scroll = 0.0;
        (self.markers, self.chosen, self.found) = ([None; 2], None, None);
        self.heats.clear();
        self.averages.clear();
        self.view.change(|view| {
            view.pinned.clear();
            view.folded.clear();
        });
        self.totals_hidden = false;
        self.record = Some(record);
    }

    /// Returns whether the recording has totals and no lanes.
    pub(crate) fn has_only_totals(&self) -> bool {
        self.rows().is_some_and(|list| list.all == 0)
    }

    /// Shows no recording.
    pub(crate) fn close(&mut self) {
        self.open(Record::default());
        self.record = None;
    }

    /// Takes the measured times and losses of the run that has ended, if its recording is still shown.
    pub(crate) fn measured(
        &mut self,
        path: &Path,
        losses: Losses,
        (metadata, named): (Metadata, Totals),
    ) {
        let Some(record) = &mut self.record else {
            return;
        };
        if record.path.as_deref() == Some(path) && record.run() == metadata.clock.start_unix_ns {
            (record.losses, record.named) = (losses, named);
            record.metadata = Arc::new(metadata);
            // Numbers by the planned times are computed again.
            self.openings += 1;
        }
    }

    /// Takes the metadata of the running session, which has more instruments now.
    pub(crate) fn describe(&mut self, metadata: Arc<Metadata>) {
        if let Some(record) = self.record.as_mut().filter(|record| record.now.is_some()) {
            record.metadata = metadata;
            // Lanes are listed again.
            self.openings += 1;
        }
    }

    /// Changes the groups of the lanes.
    pub fn stack_by(&mut self, stack: Stack) {
        self.view.change(|view| view.stack = stack);
        self.found = None;
        // The key of a thread may be the key of a CPU.
        self.heats.clear();
        self.scroll = 0.0;
    }

    /// Changes the axis of the lanes' values.
    pub(crate) fn draw_on(&mut self, axis: Axis) {
        self.view.change(|view| view.axis = axis);
        self.heats.clear();
    }

    /// Pins the lanes of the instrument selected last, or releases them.
    pub(crate) fn pin_chosen(&mut self) {
        let (Some(id), Some(record)) = (self.chosen, &self.record) else {
            return;
        };
        let is_chosen = |index: usize| {
            let info = record.lanes().get(index);
            info.is_some_and(|info| info.id == id)
        };
        let owners = self.rows().map(|list| list.owners(is_chosen));
        for owner in owners.into_iter().flatten() {
            self.view.pin((id, owner));
        }
    }

    /// Names the addresses among the totals' values after a change of them or of the kernel.
    pub(crate) fn name_addresses(&mut self, kernel: u64, image: &Image) {
        let Some(record) = &self.record else { return };
        let key = (self.openings, kernel, record.totals_changes());
        if self.named != key {
            self.named = key;
            self.symbols = totals::symbols(&record.totals, &record.named.stacks, image);
        }
    }

    /// Returns whether the recording has an instrument at a block of a function.
    pub(crate) fn measures(&self, function: &str, block: BlockIndex) -> bool {
        self.facts.opened == self.openings && self.facts.measures(function, block)
    }

    /// Returns whether a lane of a block of a function is among the rows; true until rows are computed.
    pub(crate) fn lists(&self, function: &str, block: BlockIndex) -> bool {
        let (Some(list), Some(record)) = (self.rows(), &self.record) else {
            return true;
        };
        let is_at = |index: usize| {
            let info = record.lanes().get(index);
            info.is_some_and(|info| is_at(&record.metadata, info, (function, block)))
        };
        list.position(|index, _| is_at(index)).is_some()
    }

    /// Updates the rows after a change of the recording or of their choice. Of many lanes, the last rows stay until a
    /// thread has computed the next.
    pub(super) fn list_rows(&mut self, ctx: &Context) {
        let Some(record) = &self.record else { return };
        let key = (self.openings, self.view.changes);
        let (metadata, index) = (Arc::clone(&record.metadata), record.index.clone());
        let view = self.view.clone();
        self.list
            .request(key, record.live_recording(), ctx, move || {
                Arc::new(LaneList::of(&metadata, &index.look(), &view))
            });
    }

    /// Returns the last rows of the recording shown.
    pub(super) fn rows(&self) -> Option<&Arc<LaneList>> {
        let last = self.list.last();
        let last = last.filter(|((opened, _), _)| *opened == self.openings);
        last.map(|(_, list)| list)
    }

    /// Updates the hits of all lanes, the blocks that have instruments, and the totals.
    pub(crate) fn count_hits(&mut self, ctx: &Context) {
        let Some(record) = &self.record else { return };
        if self.facts.opened != self.openings {
            self.facts = LaneFacts::of(self.openings, record);
        }
        let key = (self.openings, record.totals_changes());
        self.counted
            .of(key, 0, false, || Arc::new(CountedTotals::of(record)));
        let (metadata, index) = (Arc::clone(&record.metadata), record.index.clone());
        let of = record.live_recording();
        self.hits.request(self.openings, of, ctx, move || {
            let index = index.look();
            let lanes = metadata.instruments.iter();
            lanes.map(|info| hits_in(&index, info, Owner::All)).sum()
        });
    }

    /// Shows the recorded range, or the whole session if the recorded range is in view already.
    pub fn fit(&mut self) {
        let Some(record) = &self.record else { return };
        let whole = Range::whole(record.duration);
        // During a run the recorded range grows.
        let recorded = record.recorded().filter(|_| record.now.is_none());
        let recorded = recorded.map_or(whole, |(first, last)| Range::around(first, last));
        self.range = if self.range == recorded {
            whole
        } else {
            recorded
        };
        self.scroll = 0.0;
    }

    /// Ends the session's range at `seconds`, after a run was stopped.
    pub(crate) fn stopped_at(&mut self, seconds: f64) {
        if let Some(record) = &mut self.record {
            record.duration = seconds.max(1e-6);
            if self.follow {
                self.range = Range::whole(record.duration);
            }
        }
    }

    /// Scrolls to the newest samples, if requested.
    pub(super) fn follow_newest(&mut self) {
        let Some(now) = self.record.as_ref().and_then(|record| record.now) else {
            return;
        };
        let width = self.range.width();
        if self.follow && (now > self.range.end - 0.04 * width || now < self.range.start) {
            self.range.end = now + 0.04 * width;
            self.range.start = self.range.end - width;
        }
    }

    /// Sets marker A (0) or B (1) at the pointer, or in the middle of the view.
    pub fn mark(&mut self, which: usize) {
        let at = self.pointed();
        if let Some(marker) = self.markers.get_mut(which) {
            *marker = Some(at);
        }
    }

    /// Returns the range between the markers, if both are set.
    #[must_use]
    pub fn span(&self) -> Option<(f64, f64)> {
        let [Some(a), Some(b)] = self.markers else {
            return None;
        };
        Some((a.min(b), a.max(b)))
    }

    /// Starts a note at the pointer, or in the middle of the view.
    pub fn annotate(&mut self) {
        self.writing = Some(NoteEdit {
            place: None,
            note: Note {
                at: self.pointed(),
                text: String::new(),
                run: self.record.as_ref().map(Record::run),
            },
        });
    }

    fn pointed(&self) -> f64 {
        let middle = (self.range.start + self.range.end) / 2.0;
        self.pointer.unwrap_or(middle)
    }

    /// Returns whether a note is being edited.
    pub(crate) const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Ends the edit of a note and returns it.
    pub(crate) fn finish_note(&mut self) -> Option<NoteEdit> {
        self.writing.take()
    }
}
