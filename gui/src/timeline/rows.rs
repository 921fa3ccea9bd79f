//! Draws the ruler and the rows below it: lanes with names, the current time, the scroll bar.

use egui::accesskit::Role;
use egui::{Id, Painter, Rect, Sense, Stroke, Ui, pos2, vec2};
use gilk_samples::metadata::{Delivers, InstrumentInfo, MachineInfo};
use ilk_driver::client::AggregateSummary;

use super::heat::Heats;
use super::lanes::Lane;
use super::scale::{Scale, accuracy, moment, tick_label, ticks};
use super::stack::LaneRow;
use super::{Record, totals};
use crate::theme::{Tokens, code, prose, space, text};
use crate::widgets;

/// Width of the lanes' names, in points.
pub(super) const NAMES: f32 = 270.0;

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
    painter.vline(
        plot.left() - 0.5,
        rect.y_range(),
        Stroke::new(1.0, tokens.line),
    );
}

pub(super) fn lane(
    painter: &Painter,
    record: &Record,
    of: LaneRow<'_>,
    row: Rect,
    scale: &Scale,
    tokens: &Tokens,
    heats: &mut Heats,
) -> Option<u32> {
    let info = of.info;
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
        color: tokens.lane(of.index),
        tokens,
    };
    let hottest = match silent(record, info) {
        Some(words) => {
            samples.text(&words);
            None
        }
        None => samples.draw(heats),
    };
    painter.hline(
        row.left() - NAMES..=row.right(),
        row.bottom() - 0.5,
        Stroke::new(1.0, tokens.line),
    );
    hottest
}

pub(super) fn name(
    ui: &Ui,
    painter: &Painter,
    record: &Record,
    of: LaneRow<'_>,
    row: Rect,
    rect: Rect,
    hottest: Option<u32>,
) {
    let info = of.info;
    let tokens = Tokens::of(ui);
    let left = rect.left() + space::PANEL;
    let right = row.left() - space::SMALL;
    painter.circle_filled(
        pos2(left + 4.0, row.center().y - 8.0),
        4.0,
        tokens.lane(of.index),
    );
    let (hits, silent) = (record.hits_of(info, of.owner), silent(record, info));
    let number = match silent {
        Some(_) => String::new(),
        None => widgets::grouped(hits),
    };
    let number = painter.layout_no_wrap(number, code(text::CODE), tokens.strong);
    painter.galley(
        pos2(
            right - number.size().x,
            row.center().y - 8.0 - number.size().y / 2.0,
        ),
        number.clone(),
        tokens.strong,
    );
    let room = right - number.size().x - left - 24.0;
    let title = widgets::truncated(
        painter,
        info.instrument.clone(),
        prose(text::BODY),
        tokens.strong,
        room,
    );
    painter.galley(
        pos2(left + 16.0, row.center().y - 8.0 - title.size().y / 2.0),
        title,
        tokens.strong,
    );
    let machine = machine(record, info);
    let named = machine.map_or(0, |machine| machine.name.len() + 2);
    let label = of.owner.label(info);
    let label = label.get(named..).unwrap_or(&label);
    let place = label.strip_prefix(&info.instrument).unwrap_or(label).trim();
    let owner = machine.map_or_else(String::new, |machine| format!("{} · ", machine.name));
    let place = format!("{owner}{}{place}", of.before(record));
    let place = widgets::truncated(
        painter,
        place,
        code(text::SMALL - 0.5),
        tokens.weak,
        right - left - 16.0,
    );
    painter.galley(
        pos2(left + 16.0, row.center().y + 9.0 - place.size().y / 2.0),
        place,
        tokens.weak,
    );
    let area = Rect::from_min_max(pos2(rect.left(), row.top()), pos2(row.left(), row.bottom()))
        .intersect(painter.clip_rect());
    let response = ui.interact(
        area,
        Id::unique("lane").with((info.id, of.owner)),
        Sense::hover(),
    );
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
    let words = format!(
        "{label}\nfrom {} to {}{heat}",
        moment(info.launch),
        moment(info.splash)
    );
    let exact = machine.map_or_else(String::new, |machine| {
        format!("\ntimes {}", accuracy(machine.error_ns))
    });
    response.on_hover_text(format!("{words}{exact}"));
}

/// Returns the text in the lane of an instrument that delivers no samples.
fn silent(record: &Record, info: &InstrumentInfo) -> Option<String> {
    // Nearly all lanes deliver samples, and this runs every frame.
    if info.delivers.is_samples() {
        return None;
    }
    let placed = info.placed.as_ref();
    let of_placement = |total: &&AggregateSummary| {
        placed.is_some_and(|placed| placed.placement as usize == total.placement)
            && total.instrument == info.instrument
    };
    // On several machines each has placements of its own, and the totals are of all machines.
    let own = record.totals.iter().filter(of_placement);
    let own: Vec<String> = own
        .filter(|_| record.metadata.machines.is_empty())
        .map(|total| totals::short(total, record.metadata.clock))
        .collect();
    let words = match info.delivers {
        Delivers::Samples | Delivers::Nothing => "no samples: supports another instrument",
        Delivers::Totals if !own.is_empty() => return Some(own.join("   ")),
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
            pos2(plot.right() - 6.0, top),
            vec2(4.0, plot.height() * share),
        );
        painter.rect_filled(bar, 2.0, tokens.outline);
    }
}
