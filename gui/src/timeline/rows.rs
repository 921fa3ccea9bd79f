//! Draws the ruler and the rows below it: lanes with names, the current time, the scroll bar.

use egui::accesskit::Role;
use egui::{Id, Painter, Rect, Sense, Stroke, Ui, pos2, vec2};
use gilk_samples::metadata::{Delivers, InstrumentInfo, MachineInfo};

use super::heat::Heats;
use super::lanes::Lane;
use super::list;
use super::order::Axis;
use super::scale::{Scale, accuracy, moment, tick_label, ticks};
use super::stack::LaneRow;
use super::{Record, totals};
use crate::theme::{Tokens, code, prose, space, text};
use crate::{object_names, widgets};

/// Width of the lanes' names, in points.
pub(super) const NAMES: f32 = 270.0;
/// Width of the lanes' scales, in points.
pub(super) const GUTTER: f32 = 92.0;

pub(super) fn ruler(
    painter: &Painter,
    rect: Rect,
    plot: Rect,
    scale: &Scale,
    duration: f64,
    tokens: &Tokens,
) {
    let bar = Rect::from_min_max(rect.min, pos2(rect.right(), plot.top()));
    painter.rect_filled(bar, 0.0, tokens.panel);
    let (step, times) = ticks(scale, 96.0);
    let inside = painter.with_clip_rect(
        Rect::from_min_max(pos2(plot.left(), rect.top()), rect.max).intersect(painter.clip_rect()),
    );
    for time in times {
        let x = scale.x(time);
        inside.vline(x, plot.top()..=plot.bottom(), Stroke::new(1.0, tokens.grid));
        inside.vline(
            x,
            plot.top() - 5.0..=plot.top(),
            Stroke::new(1.0, tokens.outline),
        );
        let label = inside.layout_no_wrap(tick_label(time, step), prose(text::SMALL), tokens.weak);
        if x + 4.0 + label.size().x < plot.right() {
            inside.galley(
                pos2(x + 4.0, bar.center().y - label.size().y / 2.0),
                label,
                tokens.weak,
            );
        }
    }
    for edge in [0.0, duration] {
        inside.vline(
            scale.x(edge),
            plot.top()..=plot.bottom(),
            Stroke::new(1.0, tokens.outline),
        );
    }
    painter.hline(
        bar.x_range(),
        bar.bottom() - 0.5,
        Stroke::new(1.0, tokens.line),
    );
    for x in [plot.left() - 0.5, plot.right() + 0.5] {
        painter.vline(x, rect.y_range(), Stroke::new(1.0, tokens.line));
    }
}

pub(super) fn lane(
    painter: &Painter,
    record: &Record,
    of: LaneRow<'_>,
    row: Rect,
    scale: &Scale,
    (tokens, axis): (&Tokens, Axis),
    heats: &mut Heats,
) -> Option<u32> {
    let info = of.info;
    let gutter = Rect::from_min_max(row.right_top(), pos2(row.right() + GUTTER, row.bottom()));
    let (from, to) = (
        scale.x(info.launch).max(row.left()),
        scale.x(info.splash).min(row.right()),
    );
    let inside = painter.with_clip_rect(painter.clip_rect().intersect(row));
    if to > from {
        let window = Rect::from_min_max(pos2(from, row.top() + 2.0), pos2(to, row.bottom() - 2.0));
        inside.rect_filled(window, 2.0, tokens.window);
    }
    let index = record.index.look();
    let samples = Lane {
        painter: &inside,
        rect: row.shrink2(vec2(0.0, 4.0)),
        scale: *scale,
        info,
        index: of.owner.part(&index),
        owner: of.owner,
        clock: record.metadata.clock,
        until: record.now.unwrap_or(record.duration),
        color: tokens.instrument(&info.instrument),
        tokens,
        axis,
        gutter,
        margin: painter,
    };
    let hottest = match silent(record, &of) {
        Some(words) => {
            samples.text(&words);
            None
        }
        None => samples.draw(heats),
    };
    painter.hline(
        row.left() - NAMES..=gutter.right(),
        row.bottom() - 0.5,
        Stroke::new(1.0, tokens.line),
    );
    hottest
}

/// Draws the heading of a group. Returns whether it was clicked.
pub(super) fn heading(
    ui: &Ui,
    painter: &Painter,
    (title, lanes, hits, folded): (&str, usize, u64, bool),
    row: Rect,
) -> bool {
    let tokens = Tokens::of(ui);
    let area = row.intersect(painter.clip_rect());
    let response = ui.interact(
        area,
        Id::unique("lane group").with((title, row.top() < area.top())),
        Sense::click(),
    );
    let verb = if folded { "unfold" } else { "fold" };
    let name = format!("{verb} {title}: {}", widgets::counted(lanes, "lane"));
    let response = widgets::named(response, Role::Button, &name);
    let fill = if response.hovered() {
        tokens.hover
    } else {
        tokens.bar
    };
    painter.rect_filled(row, 0.0, fill);
    widgets::triangle(
        painter,
        pos2(row.left() + space::PANEL + 2.0, row.center().y),
        !folded,
        tokens.text,
    );
    let left = row.left() + space::PANEL + 14.0;
    let font = code(text::CODE);
    let hits = painter.layout_no_wrap(widgets::grouped(hits), font.clone(), tokens.text);
    let room = NAMES - space::PANEL - 14.0 - hits.size().x - 2.0 * space::SMALL;
    let words = object_names::laid_out(painter, title, font, tokens.strong, room);
    let at = pos2(left, row.center().y - words.size().y / 2.0);
    painter.galley(at, words, tokens.strong);
    let at = pos2(
        row.left() + NAMES - space::SMALL - hits.size().x,
        row.center().y - hits.size().y / 2.0,
    );
    painter.galley(at, hits, tokens.text);
    let lanes = painter.layout_no_wrap(
        widgets::counted(lanes, "lane"),
        prose(text::SMALL),
        tokens.weak,
    );
    let at = pos2(
        row.left() + NAMES + space::SMALL,
        row.center().y - lanes.size().y / 2.0,
    );
    painter.galley(at, lanes, tokens.weak);
    response.clicked()
}

/// A click on a lane's name.
pub(super) enum NameClick {
    /// Goes to the block.
    Go,
    /// Pins the lane, or releases it.
    Pin,
}

/// Draws a lane's name: the function first, and the instrument below it.
pub(super) fn name(
    ui: &Ui,
    painter: &Painter,
    record: &Record,
    of: LaneRow<'_>,
    row: Rect,
    (rect, pinned): (Rect, bool),
    hottest: Option<u32>,
) -> Option<NameClick> {
    let info = of.info;
    let tokens = Tokens::of(ui);
    let left = rect.left() + space::PANEL;
    let right = row.left() - space::SMALL;
    let (upper, lower) = (row.center().y - 8.0, row.center().y + 9.0);
    let color = tokens.instrument(&info.instrument);
    painter.circle_filled(pos2(left + 4.0, upper), 4.0, color);
    let (hits, silent) = (record.hits_of(info, of.owner), silent(record, &of));
    let number = match silent {
        Some(_) => String::new(),
        None => widgets::grouped(hits),
    };
    let number = painter.layout_no_wrap(number, code(text::CODE), tokens.strong);
    let at = pos2(right - number.size().x, upper - number.size().y / 2.0);
    painter.galley(at, number.clone(), tokens.strong);
    let room = right - number.size().x - left - 24.0;
    let function = list::subject(&record.metadata, info);
    let machine = machine(record, info);
    let named = machine.map_or(0, |machine| machine.name.len() + 2);
    let label = of.owner.label(info);
    let label = label.get(named..).unwrap_or(&label);
    let (process, label) = list::owner_of(label, &info.instrument);
    // Lanes of many processes differ in nothing else.
    let process = process.map(|process| {
        let words = process.strip_prefix("process ").unwrap_or(process);
        let font = prose(text::SMALL);
        widgets::truncated(painter, words.to_owned(), font, tokens.weak, room / 2.0)
    });
    let of_process = process
        .as_ref()
        .map_or(0.0, |process| process.size().x + space::SMALL);
    let font = prose(text::BODY);
    let left_room = room - of_process;
    let title = object_names::laid_out(painter, &function, font, tokens.strong, left_room);
    let at = pos2(left + 16.0, upper - title.size().y / 2.0);
    let end = at.x + title.size().x + space::SMALL;
    painter.galley(at, title, tokens.strong);
    if let Some(process) = process {
        let at = pos2(end, upper - process.size().y / 2.0);
        painter.galley(at, process, tokens.weak);
    }
    // The function is above.
    let words = list::place_of(label, &info.instrument, &function);
    let machine_name = machine.map_or_else(String::new, |machine| format!("{} · ", machine.name));
    // A pinned lane is outside of its group.
    let owner = if pinned || of.names_owner {
        of.before(record)
    } else {
        String::new()
    };
    let words = format!("{machine_name}{owner}{words}");
    let words = widgets::truncated(
        painter,
        words.trim().to_owned(),
        code(text::SMALL),
        tokens.weak,
        right - left - 34.0,
    );
    let at = pos2(left + 16.0, lower - words.size().y / 2.0);
    painter.galley(at, words, tokens.weak);
    let area = Rect::from_min_max(pos2(rect.left(), row.top()), pos2(row.left(), row.bottom()))
        .intersect(painter.clip_rect());
    let id = Id::unique("lane").with((info.id, of.owner));
    let response = ui.interact(area, id, Sense::click());
    let heat = hottest.map_or_else(String::new, |most| {
        format!(", heat map of up to {most} per cell")
    });
    let label = of.label(record);
    let response = widgets::named(
        response,
        Role::Label,
        &match silent {
            Some(words) => format!("lane {label}: {words}"),
            None => format!("lane {label}: {hits}{heat}"),
        },
    );
    let mut click = response.clicked().then_some(NameClick::Go);
    if pinned || response.contains_pointer() {
        let pin = Rect::from_center_size(pos2(right - 6.0, lower), vec2(18.0, 16.0));
        let pin = pin.intersect(painter.clip_rect());
        let pinned_at = ui.interact(pin, id.with("pin"), Sense::click());
        let verb = if pinned { "release" } else { "pin" };
        let pinned_at = widgets::named(pinned_at, Role::Button, &format!("{verb} {label}"));
        let ink = match (pinned, pinned_at.hovered()) {
            (_, true) => tokens.strong,
            (true, false) => tokens.accent,
            (false, false) => tokens.weak,
        };
        widgets::pin(painter, pin.center(), pinned, ink);
        let hint = if pinned { "Release" } else { "Keep at the top" };
        if pinned_at.on_hover_text(hint).clicked() {
            click = Some(NameClick::Pin);
        }
    }
    let words = format!(
        "{label}\nfrom {} to {}{heat}",
        moment(info.launch),
        moment(info.splash)
    );
    let exact = machine.map_or_else(String::new, |machine| {
        format!("\ntimes {}", accuracy(machine.error_ns))
    });
    response.on_hover_text(format!("{words}{exact}"));
    click
}

/// Returns the text in the lane of an instrument that delivers no samples.
fn silent(record: &Record, of: &LaneRow<'_>) -> Option<String> {
    let info = of.info;
    // Nearly all lanes deliver samples, and this runs every frame.
    if info.delivers.is_samples() {
        return None;
    }
    let placed = of.counted.zip(info.placed.as_ref());
    let places = placed.map_or(&[][..], |(counted, placed)| {
        counted.of_placement(placed.placement)
    });
    // On several machines each has placements of its own, and the totals are of all machines.
    let lane_totals = places
        .iter()
        .filter_map(|&place| record.totals.get(place))
        .filter(|total| total.instrument == info.instrument);
    let lane_totals: Vec<String> = lane_totals
        .filter(|_| record.metadata.machines.is_empty())
        .map(|total| totals::short(total, record.metadata.clock))
        .collect();
    let words = match info.delivers {
        Delivers::Samples | Delivers::Nothing => "no samples: supports another instrument",
        Delivers::Totals if !lane_totals.is_empty() => return Some(lane_totals.join("   ")),
        Delivers::Totals if record.now.is_some() => "aggregates only; shown when the run has ended",
        Delivers::Totals => "aggregates only, no samples",
    };
    Some(words.to_owned())
}

/// Returns the machine of a lane, in a recording of several machines.
fn machine<'a>(record: &'a Record, info: &InstrumentInfo) -> Option<&'a MachineInfo> {
    let mut machines = record.metadata.machines.iter();
    machines.find(|machine| {
        let rest = info.label.strip_prefix(&machine.name);
        rest.is_some_and(|rest| rest.starts_with(": "))
    })
}

pub(super) fn now_line(
    painter: &Painter,
    record: &Record,
    plot: Rect,
    scale: &Scale,
    tokens: &Tokens,
) {
    if let Some(now) = record.now {
        let x = scale.x(now);
        if plot.x_range().contains(x) {
            painter.vline(x, plot.y_range(), Stroke::new(1.5, tokens.good));
        }
    }
}

pub(super) fn scroll_bar(
    painter: &Painter,
    plot: Rect,
    scroll: f32,
    deepest: f32,
    tokens: &Tokens,
) {
    if deepest > 0.0 {
        let share = plot.height() / (plot.height() + deepest);
        let top = plot.top() + (plot.height() * (1.0 - share)) * (scroll / deepest);
        let bar = Rect::from_min_size(
            pos2(plot.right() + GUTTER - 5.0, top),
            vec2(4.0, plot.height() * share),
        );
        painter.rect_filled(bar, 2.0, tokens.outline);
    }
}
