//! The timeline pane: ruler, lanes, zoom, pan and hover.

use egui::accesskit::Role;
use egui::{Id, Painter, Rangef, Rect, RichText, Sense, Stroke, Ui, pos2};
use gilk_engine::InstrumentId;
use gilk_engine::cfg::BlockIndex;
use gilk_samples::metadata::InstrumentInfo;

use super::input;
use super::losses;
use super::notes;
use super::order::Stack;
use super::range_stats;
use super::rows::{NAMES, lane, name, now_line, ruler, scroll_bar};
use super::scale::{Scale, length, moment};
use super::stack::{self, LaneRow};
use super::state::Timeline;
use super::{Record, hover, totals};
use crate::command::Command;
use crate::document::Note;
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// Width of the totals to the right of the lanes.
const TOTALS: f32 = 380.0;
/// Height of the ruler.
const RULER: f32 = 24.0;
/// Minimum and maximum height of a lane.
const LANE: (f32, f32) = (36.0, 64.0);

/// Draws the pane and handles its input.
pub fn show(
    ui: &mut Ui,
    timeline: &mut Timeline,
    notes: &[Note],
    here: Option<(&str, BlockIndex)>,
    commands: &mut Vec<Command>,
) {
    let tokens = Tokens::of(ui);
    timeline.follow_newest();
    let Some(record) = timeline.record.take() else {
        widgets::empty(
            ui,
            "No samples yet",
            "Run the session or open a recording to see a lane per instrument.",
        );
        return;
    };
    // All lanes show the same state; samples that arrive are appended after the frame.
    let index = record.index.clone();
    let _still = index.look();
    let mut rect = ui.available_rect_before_wrap();
    // The lanes keep their width during a drag, so that nothing moves under the pointer.
    if let Some(span) = timeline.span().filter(|_| !timeline.ranging)
        && rect.width() > NAMES + 2.0 * range_stats::WIDTH
    {
        let numbers = Rect::from_min_max(
            pos2(rect.right() - range_stats::WIDTH, rect.top()),
            rect.max,
        );
        rect.max.x = numbers.left() - 1.0;
        let inside = egui::UiBuilder::new().max_rect(numbers).id_salt("between");
        ui.scope_builder(inside, |ui| range_stats::show(ui, timeline, &record, span));
    } else if !record.totals.is_empty()
        && !timeline.totals_hidden
        && rect.width() > NAMES + 2.0 * TOTALS
    {
        let totals_rect = Rect::from_min_max(pos2(rect.right() - TOTALS, rect.top()), rect.max);
        rect.max.x = totals_rect.left() - 1.0;
        let inside = egui::UiBuilder::new()
            .max_rect(totals_rect)
            .id_salt("totals");
        timeline.totals_hidden = ui
            .scope_builder(inside, |ui| totals::show(ui, &record))
            .inner;
    }
    if timeline.stack == Stack::Thread && index.look().threads().is_none() {
        rect = stack::offer_recording_threads(ui, rect, commands);
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
        && let Some(first) = lanes.iter().position(|of| is_at(&record, of.info, here))
    {
        // The minimum scroll that makes the lane visible.
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
        if here.is_some_and(|here| is_at(&record, of.info, here)) {
            let names = Rect::from_min_max(pos2(rect.left(), row.top()), row.left_bottom());
            below.rect_filled(names, 0.0, tokens.accent_fill);
        }
        let heats = &mut timeline.heats;
        let hottest = lane(&below, &record, of, row, &scale, tokens, heats);
        losses::show(
            ui,
            &below,
            &record.losses,
            &record.metadata,
            &of,
            row,
            &scale,
        );
        name(ui, &below, &record, of, row, rect, hottest);
    }
    if timeline.heats.waits() {
        ui.ctx().request_repaint();
    }
    now_line(&below, &record, plot, &scale, tokens);
    notes::show(ui, timeline, notes, &painter, plot, &scale, commands);
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
            commands.extend(
                place(&record, info).map(|(name, block)| Command::OpenNamed(name, Some(block))),
            );
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

/// Returns the function and block of an instrument.
fn place(record: &Record, info: &InstrumentInfo) -> Option<(String, BlockIndex)> {
    let id = InstrumentId::unpack(info.id)?;
    let mut functions = record.metadata.functions.iter();
    let function = functions.find(|function| function.major == id.major)?;
    Some((function.name.clone(), BlockIndex(id.block)))
}

/// Returns whether a recording has an instrument at a block.
pub(crate) fn measured(record: &Record, here: (&str, BlockIndex)) -> bool {
    let mut lanes = record.lanes().iter();
    lanes.any(|info| is_at(record, info, here))
}

fn is_at(record: &Record, info: &InstrumentInfo, here: (&str, BlockIndex)) -> bool {
    place(record, info).is_some_and(|(name, block)| (name.as_str(), block) == here)
}

/// Draws the pane's header, next to its tab: the recording, and the range in view.
pub(crate) fn header(ui: &mut Ui, timeline: &Timeline, commands: &mut Vec<Command>) {
    let tokens = Tokens::of(ui);
    let Some(record) = &timeline.record else {
        return;
    };
    widgets::button(ui, "Fit", Command::FitTimeline, true, commands);
    if timeline.markers.iter().any(Option::is_some) {
        widgets::button(ui, "Clear A B", Command::ClearMarkers, true, commands);
    }
    ui.spacing_mut().item_spacing.x = 2.0;
    for (stack, label) in Stack::ALL.into_iter().rev() {
        let chosen = timeline.stack == stack;
        let response = ui.selectable_label(chosen, RichText::new(label).small());
        let name = format!("lanes by {label}");
        if widgets::chosen(response, Role::RadioButton, chosen, &name).clicked() {
            commands.push(Command::Stack(stack));
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
        widgets::button(ui, label, Command::FollowLive, true, commands);
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
    reason = "each describes the pointer's target"
)]
fn pointed(
    painter: &Painter,
    response: &egui::Response,
    record: &Record,
    of: Option<LaneRow<'_>>,
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
    let lost: Vec<String> = of.map_or_else(Vec::new, |of| {
        let here = |one: &&losses::LossStretch| {
            let reach = 4.0 / scale.density();
            (one.from - reach..=one.to + reach).contains(&at)
        };
        let found = record.losses.of_lane(&of).filter(here);
        found.map(|one| one.words(&record.metadata)).collect()
    });
    response.clone().on_hover_ui_at_pointer(|ui| {
        for line in lost {
            ui.label(RichText::new(line).color(tokens.warning));
        }
        match found {
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
        }
    });
}
