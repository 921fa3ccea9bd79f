//! The timeline pane: ruler, lanes, zoom, pan and hover.

use egui::accesskit::Role;
use egui::{Id, Painter, Rangef, Rect, RichText, Sense, Stroke, Ui, pos2};
use gilk_engine::InstrumentId;
use gilk_engine::cfg::BlockIndex;
use gilk_samples::metadata::InstrumentInfo;

use super::between::{self, Averaged, Made};
use super::heat::Heats;
use super::input;
use super::notes::{self, Note, Writing};
use super::rows::{lane, name, now_line, ruler, scroll_bar};
use super::scale::{Scale, length, moment};
use super::stack::{self, Row, Stack};
use super::{Range, Record, hover, totals};
use crate::command::Command;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Width of the names of lanes, in points.
pub(super) const NAMES: f32 = 270.0;
/// Width of what was added up, beside the lanes.
const TOTALS: f32 = 380.0;
/// Height of the ruler.
const RULER: f32 = 24.0;
/// Height of a lane: at least this, and more where there is room.
const LANE: (f32, f32) = (36.0, 64.0);

/// The pane's state.
#[derive(Debug)]
pub struct Timeline {
    /// What is shown, if there is anything.
    pub record: Option<Record>,
    /// The seconds that are seen.
    pub range: Range,
    /// Whether the newest samples stay in view.
    pub follow: bool,
    /// Points that the lanes are scrolled by.
    pub(super) scroll: f32,
    /// The markers A and B, in seconds.
    pub markers: [Option<f64>; 2],
    /// The note that is being written.
    pub(super) writing: Option<Writing>,
    /// The note that the pointer is over.
    pub(crate) over: Option<usize>,
    /// The lanes of the chosen block, and the instrument chosen last.
    pub chosen: Option<u64>,
    /// Whether the lanes of the chosen block are to be brought into view.
    pub(crate) reveal: bool,
    /// Seconds at the pointer, while it is over the lanes.
    pub(super) pointer: Option<f64>,
    pub(super) made: Option<Made>,
    /// What levels were between the markers.
    pub(super) averages: Vec<Averaged>,
    /// Whether a range is being dragged.
    pub(super) ranging: bool,
    /// How lanes are stacked.
    pub stack: Stack,
    pub(super) heats: Heats,
    /// Whether what was added up is not shown.
    totals_away: bool,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            record: None,
            range: Range::whole(10.0),
            follow: true,
            scroll: 0.0,
            markers: [None; 2],
            writing: None,
            over: None,
            chosen: None,
            reveal: false,
            pointer: None,
            made: None,
            averages: Vec::new(),
            ranging: false,
            stack: Stack::default(),
            heats: Heats::default(),
            totals_away: false,
        }
    }
}

impl Timeline {
    /// Shows a recording, all of it.
    pub fn open(&mut self, record: Record) {
        self.range = Range::whole(record.duration);
        self.follow = true;
        self.scroll = 0.0;
        (self.markers, self.chosen) = ([None; 2], None);
        self.heats.clear();
        self.averages.clear();
        self.totals_away = false;
        self.record = Some(record);
    }

    /// Stacks the lanes in another way.
    pub(crate) fn stack_by(&mut self, stack: Stack) {
        self.stack = stack;
        // A thread's place may be another one's CPU.
        self.heats.clear();
        self.scroll = 0.0;
    }

    /// Shows everything that was recorded; if just that is shown, the whole session.
    pub fn fit(&mut self) {
        let Some(record) = &self.record else { return };
        let whole = Range::whole(record.duration);
        // While it runs the end is now, which moves.
        let recorded = record.recorded().filter(|_| record.now.is_none());
        let recorded = recorded.map_or(whole, |(first, last)| Range::around(first, last));
        self.range = if self.range == recorded {
            whole
        } else {
            recorded
        };
        self.scroll = 0.0;
    }

    /// Nothing comes any more: what was to come after `seconds` is not shown.
    pub(crate) fn stopped_at(&mut self, seconds: f64) {
        if let Some(record) = &mut self.record {
            record.duration = seconds.max(1e-6);
            if self.follow {
                self.range = Range::whole(record.duration);
            }
        }
    }

    /// Keeps the live end in view, if that is wanted.
    fn keep_up(&mut self) {
        let Some(now) = self.record.as_ref().and_then(|record| record.now) else {
            return;
        };
        let width = self.range.width();
        if self.follow && (now > self.range.end - 0.04 * width || now < self.range.start) {
            self.range.end = now + 0.04 * width;
            self.range.start = self.range.end - width;
        }
    }
}

/// Draws the pane and takes its input.
pub fn show(
    ui: &mut Ui,
    timeline: &mut Timeline,
    written: &[Note],
    here: Option<(&str, BlockIndex)>,
    said: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    timeline.keep_up();
    let Some(record) = timeline.record.take() else {
        widgets::empty(
            ui,
            "No samples yet",
            "Run the session, or open a recording: every instrument gets a lane here.",
        );
        return;
    };
    // All lanes are of the same moment: what comes meanwhile is added behind the frame.
    let index = record.index.clone();
    let _still = index.look();
    let mut rect = ui.available_rect_before_wrap();
    // While a range is dragged the lanes keep their width: nothing moves under the pointer.
    if let Some(span) = timeline.span().filter(|_| !timeline.ranging)
        && rect.width() > NAMES + 2.0 * between::WIDTH
    {
        let numbers = Rect::from_min_max(pos2(rect.right() - between::WIDTH, rect.top()), rect.max);
        rect.max.x = numbers.left() - 1.0;
        let inside = egui::UiBuilder::new().max_rect(numbers).id_salt("between");
        ui.scope_builder(inside, |ui| between::show(ui, timeline, &record, span));
    } else if !record.totals.is_empty()
        && !timeline.totals_away
        && rect.width() > NAMES + 2.0 * TOTALS
    {
        let beside = Rect::from_min_max(pos2(rect.right() - TOTALS, rect.top()), rect.max);
        rect.max.x = beside.left() - 1.0;
        let inside = egui::UiBuilder::new().max_rect(beside).id_salt("totals");
        timeline.totals_away = ui
            .scope_builder(inside, |ui| totals::show(ui, &record))
            .inner;
    }
    if timeline.stack == Stack::Thread && index.look().threads().is_none() {
        rect = stack::untold(ui, rect, said);
    }
    ui.painter().rect_filled(rect, 0.0, tokens.canvas);
    let plot = Rect::from_min_max(pos2(rect.left() + NAMES, rect.top() + RULER), rect.max);
    let response = ui.interact(rect, Id::unique("timeline"), Sense::click_and_drag());
    let response = widgets::named(response, Role::Canvas, "Timeline");
    let lanes = stack::rows(&record, timeline.stack);
    let height = (plot.height() / lanes.len().max(1) as f32).clamp(LANE.0, LANE.1);
    let deepest = (height * lanes.len() as f32 - plot.height()).max(0.0);
    input::take(ui, timeline, &record, plot, &response);
    if std::mem::take(&mut timeline.reveal)
        && let Some(here) = here
        && let Some(first) = lanes.iter().position(|of| stands(&record, of.info, here))
    {
        // No further than it takes.
        let top = height * first as f32;
        let least = top + height - plot.height();
        timeline.scroll = timeline.scroll.clamp(least.min(top), top);
    }
    timeline.scroll = timeline.scroll.clamp(0.0, deepest);

    let scale = Scale {
        range: timeline.range,
        x: Rangef::new(plot.left(), plot.right()),
    };
    let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
    let rows = |index: usize| {
        let top = plot.top() + index as f32 * height - timeline.scroll;
        Rect::from_min_max(pos2(plot.left(), top), pos2(plot.right(), top + height))
    };
    ruler(&painter, rect, plot, &scale, record.duration, tokens);
    let below = painter.with_clip_rect(
        Rect::from_min_max(pos2(rect.left(), plot.top()), rect.max).intersect(ui.clip_rect()),
    );
    timeline.heats.begin();
    for (index, &of) in lanes.iter().enumerate() {
        let row = rows(index);
        if row.bottom() < plot.top() || row.top() > plot.bottom() {
            continue;
        }
        if here.is_some_and(|here| stands(&record, of.info, here)) {
            let names = Rect::from_min_max(pos2(rect.left(), row.top()), row.left_bottom());
            below.rect_filled(names, 0.0, tokens.accent_fill);
        }
        let heats = &mut timeline.heats;
        let hottest = lane(&below, &record, of, row, &scale, tokens, heats);
        name(ui, &below, &record, of, row, rect, hottest);
    }
    if timeline.heats.waits() {
        ui.ctx().request_repaint();
    }
    now_line(&below, &record, plot, &scale, tokens);
    notes::show(ui, timeline, written, &painter, plot, &scale, said);
    scroll_bar(&painter, plot, timeline.scroll, deepest, tokens);
    timeline.pointer = None;
    if response.clicked()
        && let Some(at) = response
            .interact_pointer_pos()
            .filter(|at| at.y > plot.top())
    {
        let index = ((at.y - plot.top() + timeline.scroll) / height).max(0.0) as usize;
        if let Some(info) = lanes.get(index).map(|of| of.info) {
            timeline.chosen = Some(info.id);
            said.extend(place(&record, info).map(|(name, block)| Command::OpenNamed(name, block)));
        }
    }
    if let Some(pointer) = response
        .hover_pos()
        .filter(|pointer| plot.contains(*pointer))
    {
        timeline.pointer = Some(scale.seconds(pointer.x));
        let index = ((pointer.y - plot.top() + timeline.scroll) / height)
            .floor()
            .max(0.0) as usize;
        let of = lanes.get(index).copied();
        pointed(
            &below, &response, &record, of, pointer, plot, &scale, tokens,
        );
    }
    timeline.record = Some(record);
}

/// The function and the block of an instrument.
fn place(record: &Record, info: &InstrumentInfo) -> Option<(String, BlockIndex)> {
    let id = InstrumentId::unpack(info.id)?;
    let mut functions = record.metadata.functions.iter();
    let function = functions.find(|function| function.major == id.major)?;
    Some((function.name.clone(), BlockIndex(id.block)))
}

/// Whether an instrument of the recording stands at a block.
pub(crate) fn measured(record: &Record, here: (&str, BlockIndex)) -> bool {
    let mut lanes = record.lanes().iter();
    lanes.any(|info| stands(record, info, here))
}

fn stands(record: &Record, info: &InstrumentInfo, here: (&str, BlockIndex)) -> bool {
    place(record, info).is_some_and(|(name, block)| (name.as_str(), block) == here)
}

/// What stands beside the pane's tab: the recording, and what of it is seen.
pub(crate) fn header(ui: &mut Ui, timeline: &Timeline, said: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let Some(record) = &timeline.record else {
        return;
    };
    widgets::button(ui, "Fit", Command::FitTimeline, true, said);
    if timeline.markers.iter().any(Option::is_some) {
        widgets::button(ui, "Clear A B", Command::ClearMarkers, true, said);
    }
    ui.spacing_mut().item_spacing.x = 2.0;
    for (stack, label) in Stack::ALL.into_iter().rev() {
        let chosen = timeline.stack == stack;
        let response = ui.selectable_label(chosen, RichText::new(label).small());
        let name = format!("lanes by {label}");
        if widgets::chosen(response, Role::RadioButton, chosen, &name).clicked() {
            said.push(Command::Stack(stack));
        }
    }
    ui.add_space(space::TIGHT);
    widgets::caption(ui, "lanes by");
    ui.spacing_mut().item_spacing.x = space::SMALL;
    ui.add_space(space::SMALL);
    if record.now.is_some() {
        let label = if timeline.follow {
            "Following"
        } else {
            "Follow"
        };
        widgets::button(ui, label, Command::FollowLive, true, said);
        widgets::pill(ui, "live", tokens.good, tokens.bar);
    }
    let words = format!("{} in view", length(timeline.range.width()));
    ui.label(RichText::new(words).small().color(tokens.weak));
    let name = record.path.as_ref().and_then(|path| path.file_name());
    if let Some(name) = name {
        let name = RichText::new(name.to_string_lossy()).font(code(text::CODE));
        ui.add(egui::Label::new(name.color(tokens.weak)).truncate());
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "all of them are what the pointer is over"
)]
fn pointed(
    painter: &Painter,
    response: &egui::Response,
    record: &Record,
    of: Option<Row<'_>>,
    pointer: egui::Pos2,
    plot: Rect,
    scale: &Scale,
    tokens: &Tokens,
) {
    painter.vline(pointer.x, plot.y_range(), Stroke::new(1.0, tokens.outline));
    if response.dragged() {
        return;
    }
    let at = scale.seconds(pointer.x);
    let index = record.index.look();
    let found = of.and_then(|of| {
        let words = hover::words(
            (of.owner, of.owner.part(&index)),
            of.info,
            &record.metadata,
            at,
            4.0 / scale.density(),
        )?;
        Some((of, words))
    });
    response.clone().on_hover_ui_at_pointer(|ui| match found {
        Some((of, words)) => {
            ui.label(RichText::new(of.label(record)).color(tokens.strong));
            for line in words {
                ui.label(RichText::new(line).font(code(text::CODE)));
            }
        }
        None => {
            ui.label(
                RichText::new(moment(at))
                    .font(code(text::CODE))
                    .color(tokens.weak),
            );
        }
    });
}
