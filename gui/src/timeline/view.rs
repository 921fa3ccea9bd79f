//! The timeline pane: ruler, lanes, zoom, pan and hover.

use egui::accesskit::Role;
use egui::{Align2, Id, Painter, Rangef, Rect, RichText, Sense, Stroke, TextEdit, Ui, pos2, vec2};
use gilk_engine::InstrumentId;
use gilk_engine::cfg::BlockIndex;
use gilk_samples::metadata::InstrumentInfo;

use super::find;
use super::flow;
use super::input;
use super::list::{self, HEADING, LaneList, ListRow};
use super::losses;
use super::notes;
use super::order::{Axis, LaneSort, Stack};
use super::range_stats;
use super::rows::{GUTTER, NAMES, NameClick, heading, lane, name, now_line, ruler, scroll_bar};
use super::scale::{Scale, length, moment_on};
use super::stack::{self, LaneRow};
use super::state::Timeline;
use super::{Record, hover, totals};
use crate::command::Command;
use crate::document::Note;
use crate::theme::{Tokens, code, prose, space, text};
use crate::widgets;

/// Width of the totals to the right of the lanes.
const TOTALS: f32 = 380.0;
/// Minimum width of the header for the choice of groups; the menu of lanes has it in any case.
const GROUPS: f32 = 430.0;
/// Width of the group that the header has only if it is chosen.
const PROCESS: f32 = 60.0;
/// Height of the ruler.
const RULER: f32 = 28.0;
/// Maximum number of losses in a tooltip.
const MAX_LOSSES: usize = 6;
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
    timeline.count_hits(ui.ctx());
    timeline.list_rows(ui.ctx());
    let Some(record) = timeline.record.take() else {
        let words = "Run the session or open a recording to see a lane per instrument.";
        let open = (Command::OpenRecording, true);
        widgets::empty_with(ui, ("No samples yet", words), open, commands);
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
    } else if (!record.totals.is_empty() || record.cost.is_some() || record.cache.is_some())
        && !timeline.totals_hidden
        && (rect.width() > NAMES + 2.0 * TOTALS || timeline.has_only_totals())
    {
        let totals_rect = Rect::from_min_max(pos2(rect.right() - TOTALS, rect.top()), rect.max);
        rect.max.x = totals_rect.left() - 1.0;
        let inside = egui::UiBuilder::new()
            .max_rect(totals_rect)
            .id_salt("totals");
        let counted = timeline.counted.last().cloned();
        let symbols = &timeline.symbols;
        timeline.totals_hidden = ui
            .scope_builder(inside, |ui| {
                totals::show(ui, &record, counted.as_deref(), symbols)
            })
            .inner;
    }
    if timeline.view.stack.is_of_threads() && index.look().threads().is_none() {
        rect = stack::offer_recording_threads(ui, rect, commands);
    }
    rect = find::show(ui, timeline, rect, commands);
    ui.painter().rect_filled(rect, 0.0, tokens.canvas);
    let plot = Rect::from_min_max(
        pos2(rect.left() + NAMES, rect.top() + RULER),
        pos2(rect.right() - GUTTER, rect.bottom()),
    );
    let response = ui.interact(rect, Id::unique("timeline"), Sense::click_and_drag());
    let response = widgets::named(response, Role::Canvas, "Timeline");
    let list = timeline.rows().cloned().unwrap_or_default();
    find::step(timeline, &record, &list);
    let (headings, lanes) = list.counts();
    let free = plot.height() - headings as f32 * HEADING;
    let height = (free / lanes.max(1) as f32).clamp(LANE.0, LANE.1);
    // Pinned lanes do not scroll; lanes below keep at least half of the pane.
    let most_pinned = (plot.height() / 2.0 / height) as usize;
    let pinned = list.pinned.min(most_pinned);
    let still = list.top(pinned, height);
    let moving = plot.with_min_y(plot.top() + still);
    let deepest = (list.top(list.len(), height) - still - moving.height()).max(0.0);
    input::take(ui, timeline, &record, plot, &response);
    let at_block = |index: usize| {
        let info = record.lanes().get(index);
        here.is_some_and(|here| info.is_some_and(|info| list::is_at(&record.metadata, info, here)))
    };
    let is_chosen = |index: usize| {
        let info = record.lanes().get(index);
        info.is_some_and(|info| Some(info.id) == timeline.chosen)
    };
    let to_block = std::mem::take(&mut timeline.reveal);
    let to_chosen = std::mem::take(&mut timeline.reveal_chosen);
    let wanted = match (to_chosen, to_block) {
        (true, _) => list.position(|index, _| is_chosen(index)),
        (false, true) => list.position(|index, _| at_block(index)),
        (false, false) => None,
    };
    if let Some(first) = wanted.filter(|first| *first >= pinned) {
        // The minimum scroll that makes the lane visible.
        let top = list.top(first, height) - still;
        let least = top + height - moving.height();
        timeline.scroll = timeline.scroll.clamp(least.min(top), top);
    }
    timeline.scroll = timeline.scroll.clamp(0.0, deepest);
    let (scrolled, clip) = (timeline.scroll, ui.clip_rect());

    let scale = Scale {
        range: timeline.range,
        x: Rangef::new(plot.left(), plot.right()),
    };
    let painter = ui.painter().with_clip_rect(rect.intersect(clip));
    let row_at = |place: usize| {
        let scroll = if place < pinned { 0.0 } else { scrolled };
        let top = plot.top() + list.top(place, height) - scroll;
        let next = plot.top() + list.top(place + 1, height) - scroll;
        Rect::from_min_max(pos2(plot.left(), top), pos2(plot.right(), next))
    };
    let place_at = |y: f32| {
        let within = y - plot.top();
        let scroll = if within < still { 0.0 } else { scrolled };
        list.at(within + scroll, height)
    };
    let counted = timeline.counted.last().cloned();
    let names_owner = timeline.view.stack == Stack::Process;
    let lane_at = |place: usize| match list.row(place) {
        Some(&ListRow::Lane(index, owner)) => {
            let info = record.lanes().get(index)?;
            let counted = counted.as_deref();
            Some(LaneRow {
                index,
                info,
                owner,
                names_owner,
                counted,
            })
        }
        _ => None,
    };
    ruler(&painter, rect, plot, &scale, record.duration, tokens);
    let area = |part: Rect| {
        let all = Rect::from_x_y_ranges(rect.x_range(), part.y_range());
        painter.with_clip_rect(all.intersect(clip))
    };
    let (upper, lower) = (area(plot.with_max_y(moving.top())), area(moving));
    timeline.heats.begin();
    let mut clicked = None;
    let mut folded = None;
    let mut drawn = Vec::new();
    let last = place_at(plot.bottom());
    let first = place_at(moving.top() + 0.5).max(pinned);
    for place in (0..pinned).chain(first..=last.max(first)) {
        let below = if place < pinned { &upper } else { &lower };
        let row = row_at(place);
        if let Some(ListRow::Group {
            title,
            lanes,
            hits,
            folded: is_folded,
        }) = list.row(place)
        {
            let heading_at = Rect::from_x_y_ranges(rect.x_range(), row.y_range());
            let words = (title.as_str(), *lanes, *hits, *is_folded);
            if heading(ui, below, words, heading_at) {
                folded = Some(title.clone());
            }
            continue;
        }
        let Some(of) = lane_at(place) else { continue };
        let names = Rect::from_min_max(pos2(rect.left(), row.top()), row.left_bottom());
        if at_block(of.index) {
            below.rect_filled(names, 0.0, tokens.accent_fill);
        }
        if timeline.chosen == Some(of.info.id) {
            below.rect_filled(names.with_max_x(names.left() + 3.0), 0.0, tokens.accent);
        }
        let heats = &mut timeline.heats;
        let look = (tokens, timeline.view.axis);
        let hottest = lane(below, &record, of, row, &scale, look, heats);
        losses::show(
            ui,
            &below.with_clip_rect(below.clip_rect().intersect(plot)),
            &record.losses,
            &record.metadata,
            &of,
            row,
            &scale,
        );
        if let Some(found) = &timeline.found
            && (of.index, of.owner) == (found.lane, found.owner)
        {
            let at = record.metadata.clock.seconds(found.point.tsc);
            find::mark(ui, below, row, scale.x(at));
        }
        drawn.push((of, row));
        let is_pinned = timeline.view.pinned.contains(&(of.info.id, of.owner));
        let click = name(ui, below, &record, of, row, (rect, is_pinned), hottest);
        clicked = clicked.or(click.map(|click| (of, click)));
    }
    if pinned > 0 {
        let line = Stroke::new(1.5, tokens.outline);
        painter.hline(rect.x_range(), moving.top(), line);
    }
    if timeline.heats.waits() {
        ui.ctx().request_repaint();
    }
    if let Some(found) = &timeline.found {
        let look = index.look();
        let of = (&*look, record.metadata.clock);
        flow::show(ui, &area(plot), of, found, &drawn, &scale);
    }
    now_line(&area(plot), &record, plot, &scale, tokens);
    let notes = (notes, record.run());
    notes::show(ui, timeline, notes, &painter, plot, &scale, commands);
    scroll_bar(&painter, moving, timeline.scroll, deepest, tokens);
    let corner = Rect::from_min_max(rect.min, pos2(plot.left(), plot.top()));
    filter(ui, timeline, &list, corner);
    let empty = match list.all {
        0 if record.totals.is_empty() => None,
        0 => Some("This run has totals and no samples.".to_owned()),
        all if list.shown == 0 => Some(format!(
            "No lane to show: {} hidden by the filter or without samples.",
            widgets::counted(all, "lane")
        )),
        _ => None,
    };
    if let Some(words) = empty {
        painter.text(
            plot.center(),
            Align2::CENTER_CENTER,
            words,
            prose(text::BODY),
            tokens.weak,
        );
    }
    timeline.pointer = None;
    if response.clicked()
        && let Some(at) = response
            .interact_pointer_pos()
            .filter(|at| at.y > plot.top())
    {
        clicked = clicked.or(lane_at(place_at(at.y)).map(|of| (of, NameClick::Go)));
    }
    match clicked {
        Some((of, NameClick::Go)) => {
            timeline.chosen = Some(of.info.id);
            commands.extend(
                place(&record, of.info).map(|(name, block)| Command::OpenNamed(name, Some(block))),
            );
        }
        Some((of, NameClick::Pin)) => timeline.view.pin((of.info.id, of.owner)),
        None => {}
    }
    if let Some(title) = folded {
        timeline.view.fold(&title);
    }
    if let Some(pointer) = response
        .hover_pos()
        .filter(|pointer| plot.contains(*pointer))
    {
        timeline.pointer = Some(scale.seconds(pointer.x));
        let of = lane_at(place_at(pointer.y));
        pointed(
            &area(plot),
            &response,
            &record,
            of,
            pointer,
            plot,
            &scale,
            tokens,
        );
    }
    timeline.record = Some(record);
}

/// Draws the filter of lanes, above their names.
fn filter(ui: &mut Ui, timeline: &mut Timeline, list: &LaneList, corner: Rect) {
    let tokens = Tokens::of(ui);
    let hidden = list.shown < list.all;
    let words = if hidden {
        let shown = widgets::grouped(list.shown as u64);
        format!("{shown} of {}", widgets::counted(list.all, "lane"))
    } else {
        widgets::counted(list.all, "lane")
    };
    let area = corner.shrink2(vec2(space::SMALL, 1.0));
    let count = ui
        .painter()
        .layout_no_wrap(words.clone(), prose(text::SMALL), tokens.weak);
    let at = pos2(
        area.right() - count.size().x,
        area.center().y - count.size().y / 2.0,
    );
    let field = area.with_max_x((at.x - space::SMALL).max(area.left() + 40.0));
    let counted = Rect::from_min_max(pos2(at.x, area.top()), area.max);
    let counted = ui.interact(counted, Id::unique("lanes shown"), Sense::hover());
    widgets::named(counted, Role::Label, &format!("shown: {words}"));
    ui.painter().galley(at, count, tokens.weak);
    let mut letters = timeline.view.filter.clone();
    let edit = TextEdit::singleline(&mut letters)
        .id(Id::unique("lane filter"))
        .font(prose(text::SMALL))
        .hint_text("Filter lanes")
        .align(Align2::LEFT_CENTER)
        .margin(space::margins(space::SNUG, space::HAIR));
    let response = widgets::named(ui.put(field, edit), Role::TextInput, "Filter lanes");
    if response.changed() {
        timeline.view.change(|view| view.filter = letters);
    }
}

/// Returns the function and block of an instrument.
fn place(record: &Record, info: &InstrumentInfo) -> Option<(String, BlockIndex)> {
    let id = InstrumentId::unpack(info.id)?;
    let function = list::function(&record.metadata, id.major)?;
    Some((function.to_owned(), BlockIndex(id.block)))
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
    options(ui, timeline, commands);
    let is_by_process = timeline.view.stack == Stack::Process;
    let needed = GROUPS + if is_by_process { PROCESS } else { 0.0 };
    if ui.available_width() > needed {
        ui.spacing_mut().item_spacing.x = space::HAIR;
        for (stack, label) in Stack::ALL.into_iter().rev() {
            let chosen = timeline.view.stack == stack;
            if stack == Stack::Process && !chosen {
                // The menu of lanes has it.
                continue;
            }
            let response = ui.selectable_label(chosen, RichText::new(label).small());
            let name = format!("lanes by {label}");
            if widgets::chosen(response, Role::RadioButton, chosen, &name).clicked() {
                commands.push(Command::Stack(stack));
            }
        }
        ui.add_space(space::TIGHT);
        widgets::caption(ui, "lanes by");
    }
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

/// Draws the menu of the lanes' order and axis.
fn options(ui: &mut Ui, timeline: &Timeline, commands: &mut Vec<Command>) {
    let menu = ui.menu_button("Lanes…", |ui| {
        let mut entry = |ui: &mut Ui, command: Command, ticked: bool| {
            if widgets::menu_entry(ui, &command, Some(ticked)).clicked() {
                commands.push(command);
                ui.close();
            }
        };
        for (stack, _) in Stack::ALL {
            let ticked = timeline.view.stack == stack;
            entry(ui, Command::Stack(stack), ticked);
        }
        ui.separator();
        for sort in LaneSort::ALL {
            let ticked = timeline.view.sort == sort;
            entry(ui, Command::SortLanes(sort), ticked);
        }
        ui.separator();
        for axis in Axis::ALL {
            entry(ui, Command::LaneAxis(axis), timeline.view.axis == axis);
        }
        ui.separator();
        entry(ui, Command::HideEmptyLanes, timeline.view.hide_empty);
        let pinned = timeline.chosen.is_some_and(|id| {
            let mut lanes = timeline.view.pinned.iter();
            lanes.any(|(lane, _)| *lane == id)
        });
        ui.add_enabled_ui(timeline.chosen.is_some(), |ui| {
            entry(ui, Command::PinLane, pinned);
        });
    });
    widgets::named(
        menu.response,
        Role::Button,
        "Groups, order and axis of lanes",
    );
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
            (record, &index),
            at,
            scale,
        )?;
        Some((of, words))
    });
    let lost: Vec<String> = of.map_or_else(Vec::new, |of| {
        let reach = hover::REACH / scale.density();
        let found = record.losses.of_lane(&of, (at - reach, at + reach));
        let found = found.take(MAX_LOSSES);
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
                    RichText::new(moment_on(at, scale))
                        .font(code(text::CODE))
                        .color(tokens.weak),
                );
            }
        }
    });
}
