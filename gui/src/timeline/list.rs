//! The rows of the timeline: lanes filtered, sorted and grouped, pinned lanes first.
//!
//! A list is computed after a change only. A frame looks at the rows in view.

use std::collections::{BTreeSet, HashMap, HashSet};

use gilk_engine::InstrumentId;
use gilk_engine::cfg::BlockIndex;
use gilk_samples::Meaning;
use gilk_samples::index::{By, Index, Owner};
use gilk_samples::metadata::{InstrumentInfo, Metadata};

use super::hits_in;
use super::order::{Axis, LaneSort, Stack};
use super::paths::counts_paths;

/// Height of a group's heading in points.
pub(crate) const HEADING: f32 = 24.0;

/// The user's choice of rows. Every change increases `changes`.
#[derive(Clone, Debug, Default)]
pub struct LaneView {
    pub(crate) stack: Stack,
    pub(crate) sort: LaneSort,
    pub(crate) axis: Axis,
    /// Letters of a function, an instrument, or an owner.
    pub(crate) filter: String,
    /// Hides lanes without samples.
    pub(crate) hide_empty: bool,
    /// Lanes above all others.
    pub(crate) pinned: HashSet<(u64, Owner)>,
    /// Titles of the groups whose lanes are hidden.
    pub(crate) folded: BTreeSet<String>,
    pub(crate) changes: u64,
}

impl LaneView {
    /// Changes the choice.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.changes += 1;
    }

    /// Pins a lane, or releases it.
    pub(crate) fn pin(&mut self, lane: (u64, Owner)) {
        self.change(|view| {
            if !view.pinned.remove(&lane) {
                view.pinned.insert(lane);
            }
        });
    }

    /// Folds a group, or unfolds it.
    pub(crate) fn fold(&mut self, title: &str) {
        self.change(|view| {
            if !view.folded.remove(title) {
                view.folded.insert(title.to_owned());
            }
        });
    }
}

/// A row of the timeline: the heading of a group, or a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListRow {
    /// The heading of a group.
    Group {
        title: String,
        lanes: usize,
        hits: u64,
        folded: bool,
    },
    /// A lane: the index of its instrument in the recording, and the owner of its samples.
    Lane(usize, Owner),
}

/// The rows of the timeline, with the number of headings and lanes before each.
#[derive(Debug, Default)]
pub(crate) struct LaneList {
    rows: Vec<(ListRow, usize, usize)>,
    /// Number of rows that are pinned; they are the first.
    pub(crate) pinned: usize,
    /// Number of lanes shown, those of folded groups included.
    pub(crate) shown: usize,
    /// Number of lanes of the recording in these groups.
    pub(crate) all: usize,
}

/// A lane with what orders it.
struct Candidate {
    index: usize,
    owner: Owner,
    hits: u64,
    largest: Option<u64>,
    name: String,
}

impl LaneList {
    /// Computes the rows of a recording.
    pub(crate) fn of(metadata: &Metadata, index: &Index, view: &LaneView) -> Self {
        let mut lanes = candidates(metadata, index, view.stack);
        let all = lanes.len();
        let wanted = view.filter.trim().to_lowercase();
        lanes.retain(|lane| {
            let is_pinned = metadata
                .instruments
                .get(lane.index)
                .is_some_and(|info| view.pinned.contains(&(info.id, lane.owner)));
            let is_empty = view.hide_empty && lane.hits == 0;
            is_pinned || (!is_empty && lane.name.to_lowercase().contains(&wanted))
        });
        let shown = lanes.len();
        sort(&mut lanes, view.sort);
        let is_pinned = |lane: &Candidate| {
            let info = metadata.instruments.get(lane.index);
            info.is_some_and(|info| view.pinned.contains(&(info.id, lane.owner)))
        };
        let (pinned, others): (Vec<_>, Vec<_>) = lanes.into_iter().partition(is_pinned);
        let mut list = Self {
            pinned: pinned.len(),
            shown,
            all,
            ..Self::default()
        };
        pinned.iter().for_each(|lane| list.push_lane(lane));
        let title = |lane: &Candidate| {
            let info = metadata.instruments.get(lane.index)?;
            match view.stack {
                Stack::Session => None,
                Stack::Function => Some(subject(metadata, info)),
                Stack::Instrument => Some(info.instrument.clone()),
                Stack::Cpu | Stack::Thread => Some(
                    lane.owner
                        .name(metadata, index)
                        .unwrap_or_else(|| "all".to_owned()),
                ),
                Stack::Process => Some(process(index, lane.owner)),
            }
        };
        list.push_groups(others, title, view);
        list
    }

    fn push(&mut self, row: ListRow) {
        let (headings, lanes) = match self.rows.last() {
            Some((ListRow::Group { .. }, headings, lanes)) => (headings + 1, *lanes),
            Some((ListRow::Lane(..), headings, lanes)) => (*headings, lanes + 1),
            None => (0, 0),
        };
        self.rows.push((row, headings, lanes));
    }

    fn push_lane(&mut self, lane: &Candidate) {
        self.push(ListRow::Lane(lane.index, lane.owner));
    }

    fn push_groups(
        &mut self,
        lanes: Vec<Candidate>,
        title: impl Fn(&Candidate) -> Option<String>,
        view: &LaneView,
    ) {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut groups: Vec<(String, Vec<Candidate>)> = Vec::new();
        for lane in lanes {
            let Some(title) = title(&lane) else {
                self.push_lane(&lane);
                continue;
            };
            let place = *places.entry(title.clone()).or_insert_with(|| {
                groups.push((title, Vec::new()));
                groups.len() - 1
            });
            if let Some((_, lanes)) = groups.get_mut(place) {
                lanes.push(lane);
            }
        }
        // By largest value or name, the first lane of a group orders the group.
        match (view.sort, view.stack) {
            (LaneSort::Count, _) => {
                groups.sort_by_key(|(_, lanes)| std::cmp::Reverse(hits(lanes)));
            }
            (LaneSort::Session, Stack::Instrument) => {
                groups.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            _ => {}
        }
        for (title, lanes) in groups {
            if let ([lane], Stack::Function) = (lanes.as_slice(), view.stack) {
                // The lane has the function's name.
                self.push_lane(lane);
                continue;
            }
            let folded = view.folded.contains(&title);
            self.push(ListRow::Group {
                title,
                lanes: lanes.len(),
                hits: hits(&lanes),
                folded,
            });
            if !folded {
                lanes.iter().for_each(|lane| self.push_lane(lane));
            }
        }
    }

    /// Returns the number of headings and of lanes in all rows.
    pub(crate) fn counts(&self) -> (usize, usize) {
        match self.rows.last() {
            Some((ListRow::Group { .. }, headings, lanes)) => (headings + 1, *lanes),
            Some((ListRow::Lane(..), headings, lanes)) => (*headings, lanes + 1),
            None => (0, 0),
        }
    }

    /// Returns a row.
    pub(crate) fn row(&self, place: usize) -> Option<&ListRow> {
        self.rows.get(place).map(|(row, ..)| row)
    }

    /// Returns the number of rows.
    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the distance of a row's top from the first row's top, with lanes of `height`.
    pub(crate) fn top(&self, place: usize, height: f32) -> f32 {
        let (headings, lanes) = match self.rows.get(place) {
            Some((_, headings, lanes)) => (*headings, *lanes),
            None => self.counts(),
        };
        headings as f32 * HEADING + lanes as f32 * height
    }

    /// Returns the row that has the points at distance `y` from the first row's top; rows past the
    /// end for points below the last.
    pub(crate) fn at(&self, y: f32, height: f32) -> usize {
        let after = self.rows.partition_point(|(_, headings, lanes)| {
            *headings as f32 * HEADING + *lanes as f32 * height <= y
        });
        match after.checked_sub(1) {
            Some(last) if y >= self.top(last + 1, height) && last + 1 == self.rows.len() => {
                self.rows.len()
            }
            Some(place) => place,
            None => 0,
        }
    }

    /// Returns the owners of the lanes that match.
    pub(crate) fn owners(&self, matches: impl Fn(usize) -> bool) -> Vec<Owner> {
        let owner = |row: &ListRow| match row {
            ListRow::Lane(index, owner) if matches(*index) => Some(*owner),
            _ => None,
        };
        self.rows
            .iter()
            .filter_map(|(row, ..)| owner(row))
            .collect()
    }

    /// Returns the lanes in order.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (usize, Owner)> {
        self.rows.iter().filter_map(|(row, ..)| match row {
            ListRow::Lane(index, owner) => Some((*index, *owner)),
            ListRow::Group { .. } => None,
        })
    }

    /// Returns the place of the first lane that matches.
    pub(crate) fn position(&self, matches: impl Fn(usize, Owner) -> bool) -> Option<usize> {
        self.rows.iter().position(
            |(row, ..)| matches!(row, ListRow::Lane(index, owner) if matches(*index, *owner)),
        )
    }
}

/// Returns the name of the process of a lane.
fn process(index: &Index, owner: Owner) -> String {
    match (owner, index.threads()) {
        (Owner::Thread(thread, _), Some(threads)) => threads.process(thread),
        _ => "all".to_owned(),
    }
}

fn hits(lanes: &[Candidate]) -> u64 {
    lanes.iter().map(|lane| lane.hits).sum()
}

fn sort(lanes: &mut [Candidate], sort: LaneSort) {
    // Stable: equal lanes stay in session order.
    match sort {
        LaneSort::Session => {}
        LaneSort::Count => lanes.sort_by_key(|lane| std::cmp::Reverse(lane.hits)),
        LaneSort::Largest => lanes.sort_by_key(|lane| std::cmp::Reverse(lane.largest)),
        LaneSort::Name => lanes.sort_by(|a, b| a.name.cmp(&b.name)),
    }
}

/// Returns all lanes, in session order.
fn candidates(metadata: &Metadata, index: &Index, stack: Stack) -> Vec<Candidate> {
    let ids: Vec<u64> = metadata.instruments.iter().map(|info| info.id).collect();
    let with_lane: HashSet<usize> = metadata.lanes().into_iter().collect();
    let lanes = match stack {
        Stack::Session | Stack::Function | Stack::Instrument => index.lanes_whole(&ids),
        Stack::Cpu => index.lanes_by(By::Cpu, &ids),
        Stack::Thread | Stack::Process => index.lanes_by(By::Thread, &ids),
    };
    let lanes = lanes
        .into_iter()
        .filter(|(place, _)| with_lane.contains(place));
    let candidate = |(place, owner): (usize, Owner)| {
        let info = metadata.instruments.get(place)?;
        // Counts of paths are totals, and one list for all instruments of a function.
        if counts_paths(info) {
            return None;
        }
        let lane = owner.part(index).lane(info.id);
        let total = lane.map(|lane| lane.total);
        let has_values = matches!(
            info.meaning,
            Meaning::Duration | Meaning::Value | Meaning::Level
        );
        let owner_name = owner.name(metadata, index).unwrap_or_default();
        Some(Candidate {
            index: place,
            owner,
            hits: hits_in(index, info, owner),
            largest: total.filter(|_| has_values).map(|total| total.max),
            name: format!("{} {} {owner_name}", subject(metadata, info), info.label),
        })
    };
    lanes.filter_map(candidate).collect()
}

/// Returns the name of the function whose calls or blocks an instrument measures; of imported
/// recordings, which have none, the label without the instrument.
pub(crate) fn subject(metadata: &Metadata, info: &InstrumentInfo) -> String {
    if let Some(placed) = &info.placed {
        return placed.function.clone();
    }
    let id = InstrumentId::unpack(info.id);
    let name = id.and_then(|id| function(metadata, id.major));
    let label = || {
        let rest = info.label.strip_prefix(info.instrument.as_str());
        let rest = rest.map(str::trim).filter(|rest| !rest.is_empty());
        rest.unwrap_or(&info.label).to_owned()
    };
    name.map_or_else(label, str::to_owned)
}

/// Splits a label into the process or the machine that it begins with, if any, and the rest.
pub(crate) fn owner_of<'l>(label: &'l str, instrument: &str) -> (Option<&'l str>, &'l str) {
    let owned = label.split_once(": ");
    let owned = owned.filter(|(_, rest)| rest.starts_with(instrument));
    owned.map_or((None, label), |(owner, rest)| (Some(owner), rest))
}

/// Returns the label of an instrument without the name of its function. The process or the machine that it begins with, if
/// any, is at its end: those of many lanes are the same.
pub(crate) fn place_of(label: &str, instrument: &str, function: &str) -> String {
    let (owner, label) = owner_of(label, instrument);
    let place = label.strip_prefix(instrument).unwrap_or(label);
    let place = place.replacen(function, "", 1);
    let words: Vec<&str> = place
        .split_whitespace()
        .filter(|word| *word != "of")
        .collect();
    let words = words.join(" ");
    let words = words.trim_start_matches([',', ' ']);
    let place = format!("{instrument} {words}");
    match owner {
        Some(owner) => format!("{} · {owner}", place.trim_end()),
        None => place.trim_end().to_owned(),
    }
}

/// Returns the name of the function with a major number.
pub(crate) fn function(metadata: &Metadata, major: u32) -> Option<&str> {
    let functions = &metadata.functions;
    // Functions are in the order of their numbers, except in imported and joined recordings.
    let there = functions.get(major as usize);
    let there = there.filter(|function| function.major == major);
    let found = there.or_else(|| functions.iter().find(|function| function.major == major));
    found.map(|function| function.name.as_str())
}

/// Returns whether an instrument is at a block of a function.
pub(crate) fn is_at(metadata: &Metadata, info: &InstrumentInfo, here: (&str, BlockIndex)) -> bool {
    InstrumentId::unpack(info.id)
        .is_some_and(|id| id.block == here.1.0 && function(metadata, id.major) == Some(here.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::timeline::Record;
    use gilk_engine::HookType;
    use gilk_samples::metadata::{Clock, FunctionInfo};
    use gilk_samples::{Batch, Sample};

    /// Two functions with two lanes each; the lanes of block 1 are empty.
    fn record() -> Record {
        let mut metadata = Metadata {
            clock: Clock {
                hz: 1_000_000,
                start: 0,
                start_unix_ns: 0,
            },
            ..Metadata::default()
        };
        let mut samples = Vec::new();
        for (major, name) in ["beta", "alpha"].into_iter().enumerate() {
            let major = major as u32;
            metadata.functions.push(FunctionInfo {
                major,
                name: name.to_owned(),
                address: 0,
                blocks: Vec::new(),
                edges: Vec::new(),
            });
            for block in 0..2 {
                let id = InstrumentId::new(major, HookType::Pre, block, 0);
                let id = id.unwrap().pack();
                metadata.instruments.push(InstrumentInfo {
                    id,
                    label: format!("elapsed pre {name} block {block}"),
                    instrument: "elapsed".into(),
                    meaning: Meaning::Duration,
                    unit: "ticks".into(),
                    splash: 10.0,
                    ..fixture::instrument()
                });
                // alpha has more samples, beta has the largest.
                let count = if block == 1 {
                    0
                } else {
                    3 + 4 * u64::from(major)
                };
                samples.extend((0..count).map(|n| Sample {
                    id,
                    value: 100 / (1 + u64::from(major)),
                    tsc: n,
                }));
            }
        }
        let record = Record::live("run.arrow".into(), metadata, 10.0);
        record.append(&Batch { cpu: 0, samples });
        record
    }

    fn words(record: &Record, view: &LaneView) -> Vec<String> {
        let list = LaneList::of(&record.metadata, &record.index.look(), view);
        let rows = (0..list.len()).filter_map(|place| list.row(place));
        rows.map(|row| match row {
            ListRow::Group { title, hits, .. } => format!("{title}: {hits}"),
            ListRow::Lane(index, _) => record.lanes()[*index].label.replace("elapsed pre ", ""),
        })
        .collect()
    }

    #[test]
    fn lanes_are_grouped_sorted_filtered_and_hidden() {
        let record = record();
        let mut view = LaneView::default();
        let lanes = [
            "beta block 0",
            "beta block 1",
            "alpha block 0",
            "alpha block 1",
        ];
        assert_eq!(words(&record, &view), lanes);
        view.change(|view| (view.stack, view.sort) = (Stack::Function, LaneSort::Count));
        let alpha = ["alpha: 7", "alpha block 0", "alpha block 1"];
        let beta = ["beta: 3", "beta block 0", "beta block 1"];
        assert_eq!(words(&record, &view), [alpha, beta].concat());
        view.change(|view| view.sort = LaneSort::Largest);
        assert_eq!(words(&record, &view), [beta, alpha].concat());
        view.fold("beta");
        let folded = [&beta[..1], &alpha].concat();
        assert_eq!(words(&record, &view), folded);
        // A lane alone needs no heading.
        view.change(|view| view.hide_empty = true);
        assert_eq!(words(&record, &view), ["beta block 0", "alpha block 0"]);
        view.change(|view| view.filter = " ALPHA ".into());
        assert_eq!(words(&record, &view), ["alpha block 0"]);
        let list = LaneList::of(&record.metadata, &record.index.look(), &view);
        assert_eq!((list.shown, list.all), (1, 4));
    }

    #[test]
    fn the_process_of_a_lane_is_after_its_place() {
        let place = |label| place_of(label, "counter", "libc.so.6:random");
        let here = "counter pre block 3";
        assert_eq!(place("counter pre libc.so.6:random block 3"), here);
        assert_eq!(
            place("process 7 br: counter pre libc.so.6:random block 3"),
            format!("{here} · process 7 br")
        );
    }

    #[test]
    fn pinned_lanes_are_first_and_are_neither_filtered_nor_hidden() {
        let record = record();
        let mut view = LaneView::default();
        let empty = record.lanes()[3].id;
        view.pin((empty, Owner::All));
        view.change(|view| {
            view.filter = "beta".into();
            view.hide_empty = true;
        });
        assert_eq!(words(&record, &view), ["alpha block 1", "beta block 0"]);
        assert_eq!(
            LaneList::of(&record.metadata, &record.index.look(), &view).pinned,
            1
        );
        view.pin((empty, Owner::All));
        assert_eq!(words(&record, &view), ["beta block 0"]);
    }

    #[test]
    fn a_point_is_in_the_row_that_is_drawn_there() {
        let record = record();
        let mut view = LaneView::default();
        view.change(|view| view.stack = Stack::Function);
        let list = LaneList::of(&record.metadata, &record.index.look(), &view);
        assert_eq!(list.counts(), (2, 4));
        for place in 0..list.len() {
            let top = list.top(place, 40.0);
            assert_eq!(list.at(top, 40.0), place);
            assert_eq!(list.at(list.top(place + 1, 40.0) - 1.0, 40.0), place);
        }
        assert_eq!(list.at(list.top(list.len(), 40.0), 40.0), list.len());
        assert_eq!(list.at(-5.0, 40.0), 0);
    }
}
