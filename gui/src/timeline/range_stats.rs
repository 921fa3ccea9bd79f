//! Statistics between the markers: a line per instrument, and a histogram of the selected one.

use std::sync::Arc;

use egui::accesskit::Role;
use egui::{RichText, ScrollArea, Sense, Ui, vec2};
use gilk_samples::Meaning;
use gilk_samples::chart::scale;
use gilk_samples::index::Owner;
use gilk_samples::level::{self, MOST as MOST_HELD};
use gilk_samples::metadata::InstrumentInfo;
use gilk_samples::statistics::is_quantity;

use super::Record;
use super::histogram::bars;
use super::lanes::number;
use super::list::{place_of, subject};
use super::scale::{length, tick};
use super::state::{CachedHistogram, LaneHits, Timeline};
use crate::statistics::rows::hits;
use crate::statistics::values::Values;
use crate::theme::{Tokens, code, prose, space, text};
use crate::{object_names, widgets};

/// Width of the statistics panel.
pub(super) const WIDTH: f32 = 300.0;
/// Maximum number of samples in a histogram; with more, only the first are counted, and a note says
/// so.
const MOST: u64 = 4_000_000;

/// Width in points of the two columns of numbers.
const NUMBERS: f32 = 120.0;

/// Draws the statistics.
pub(super) fn show(ui: &mut Ui, timeline: &mut Timeline, record: &Record, (a, b): (f64, f64)) {
    let tokens = Tokens::of(ui);
    let clock = record.metadata.clock;
    let (from, to) = (tick(clock, a), tick(clock, b).max(tick(clock, a) + 1));
    widgets::inset(ui, |ui| {
        ui.label(RichText::new(format!("A to B: {}", length(b - a))).color(tokens.strong));
        levels(ui, timeline, record, (from, to));
        if let Some(info) = chosen(timeline, record) {
            histogram(ui, timeline, record, info, (from, to));
        }
        counts(ui, timeline, record, (from, to));
    });
}

/// Draws a line per lane with samples between two ticks, most samples first.
fn counts(ui: &mut Ui, timeline: &mut Timeline, record: &Record, (from, to): (u64, u64)) {
    let tokens = Tokens::of(ui);
    let key = (timeline.opened(), from, to);
    let (metadata, index) = (Arc::clone(&record.metadata), record.index.clone());
    let (of, ctx) = (record.live_recording(), ui.ctx());
    timeline.between.request(key, of, ctx, move || {
        let (index, clock) = (index.look(), metadata.clock);
        let lanes = metadata.instruments.iter().enumerate();
        let counted = lanes.map(|(lane, info)| {
            let (hits, rate) = hits(info, &index, (from, to), clock);
            LaneHits { lane, hits, rate }
        });
        let mut counted: Vec<_> = counted.filter(|one| one.hits > 0).collect();
        counted.sort_by_key(|one| std::cmp::Reverse(one.hits));
        Arc::new(counted)
    });
    // Those of another range stay until these are computed; those of another recording do not.
    let last = timeline.between.last();
    let last = last.filter(|((opened, ..), _)| *opened == key.0);
    let lanes = last.map_or_else(Arc::default, |(_, lanes)| Arc::clone(lanes));
    // Names use the width that the numbers leave.
    let names = (ui.available_width() - NUMBERS).max(60.0);
    let number = |ui: &mut Ui, words: String| {
        let size = vec2(NUMBERS / 2.0 - space::SMALL, space::ROW);
        let label = egui::Label::new(RichText::new(words).font(code(text::SMALL)));
        let right = egui::Layout::right_to_left(egui::Align::Center);
        ui.allocate_ui_with_layout(size, right, |ui| ui.add(label))
            .inner
    };
    ui.horizontal(|ui| {
        ui.allocate_space(vec2(names, 1.0));
        for words in ["hits", "rate"] {
            let size = vec2(NUMBERS / 2.0 - space::SMALL, space::ROW);
            let right = egui::Layout::right_to_left(egui::Align::Center);
            ui.allocate_ui_with_layout(size, right, |ui| widgets::caption(ui, words));
        }
    });
    ui.spacing_mut().item_spacing.y = 0.0;
    ScrollArea::vertical()
        .id_salt("between")
        .auto_shrink(false)
        .show_rows(ui, space::ROW, lanes.len(), |ui, range| {
            for one in lanes.get(range).unwrap_or_default() {
                let Some(info) = record.lanes().get(one.lane) else {
                    continue;
                };
                ui.horizontal(|ui| {
                    ui.set_height(space::ROW);
                    ui.horizontal(|ui| {
                        ui.set_width(names);
                        widgets::dot(ui, tokens.instrument(&info.instrument));
                        // The function first, since labels begin alike and are cut at their ends.
                        let function = subject(&record.metadata, info);
                        let font = prose(text::SMALL);
                        let room = 0.6 * ui.available_width();
                        let shown = object_names::fitting(ui.painter(), &function, &font, room);
                        let name = format!(
                            "{shown}  {}",
                            place_of(&info.label, &info.instrument, &function)
                        );
                        let name = RichText::new(name).small().color(tokens.text);
                        ui.add(egui::Label::new(name).truncate())
                            .on_hover_text(&info.label);
                    });
                    let grouped = widgets::grouped(one.hits);
                    let shown = number(ui, grouped.clone());
                    let words = format!("{}: {grouped} between A and B", info.label);
                    widgets::named(shown, Role::Label, &words);
                    number(ui, scale::rate(one.rate));
                });
            }
        });
}

/// Draws the average over time of each level.
fn levels(ui: &mut Ui, timeline: &mut Timeline, record: &Record, (from, to): (u64, u64)) {
    let tokens = Tokens::of(ui);
    let clock = record.metadata.clock;
    // Levels after the current time, or after the end of a stopped session, are unknown.
    let until = tick(clock, record.now.unwrap_or(record.duration));
    let to = to.min(until.saturating_add(1));
    let index = record.index.look();
    let Some(levels_index) = index.levels() else {
        return;
    };
    let part = Owner::Level.part(&index);
    let mut cached = Vec::new();
    let levels = timeline.facts.levels.iter();
    let levels = levels.filter_map(|&place| record.lanes().get(place));
    for info in levels.filter(|info| levels_index.head(info.id) == Some(info.id)) {
        let of = (info.id, from, to, part.total(info.id, 0, to).count);
        let levels_index = timeline
            .averages
            .iter()
            .find(|levels_index| levels_index.0 == of);
        let average = match levels_index {
            Some((_, average)) => *average,
            None => level::average(part, &record.metadata, info, (from, to)),
        };
        cached.push((of, average));
        let too_many = part.is_coarse(info.id) || part.total(info.id, from, to).count > MOST_HELD;
        let words = match average {
            Some(average) => format!(
                "{} on average over time, known for {}",
                scale::mean(average.mean, &info.unit, &clock),
                length(average.covered as f64 / clock.hz.max(1) as f64)
            ),
            None if too_many => "too many samples for an average here; use `ilk stats`".to_owned(),
            None => continue,
        };
        let note = format!("{}: {words}", info.whole());
        let label = ui.label(RichText::new(&note).small().color(tokens.text));
        widgets::named(label, Role::Label, &note);
    }
    timeline.averages = cached;
}

/// Returns the lane of the histogram: the selected one, or the first with values.
fn chosen<'a>(timeline: &Timeline, record: &'a Record) -> Option<&'a InstrumentInfo> {
    let lanes = record.lanes();
    let facts = &timeline.facts;
    let marked = timeline.chosen.and_then(|id| lanes.get(facts.place(id)?));
    let valued = |info: &&InstrumentInfo| {
        matches!(info.meaning, Meaning::Duration | Meaning::Value)
            && is_quantity(&record.metadata, info)
    };
    let first = || lanes.get(facts.first_valued?);
    marked.filter(valued).or_else(first)
}

fn histogram(
    ui: &mut Ui,
    timeline: &mut Timeline,
    record: &Record,
    info: &InstrumentInfo,
    (from, to): (u64, u64),
) {
    let tokens = Tokens::of(ui);
    let total = record.index.look().total(info.id, from, to);
    if total.count == 0 {
        return;
    }
    let of = (info.id, from, to, total.count);
    if timeline
        .histogram
        .as_ref()
        .is_none_or(|cached| cached.of != of)
    {
        let mut values = Values::default();
        let mut left = MOST;
        let index = record.index.look();
        index.visit(info.id, from, to, |point| {
            if left > 0 {
                left -= 1;
                values.add(point.value);
            }
        });
        let percentiles = values.percentiles([0.5, 0.99]);
        let histogram = values.histogram;
        timeline.histogram = Some(CachedHistogram {
            of,
            histogram,
            percentiles,
        });
    }
    let Some(cached) = &timeline.histogram else {
        return;
    };
    let hz = record.metadata.clock.hz.max(1) as f64;
    let words = |value: u64| match info.meaning {
        Meaning::Duration => length(value as f64 / hz),
        _ => number(value),
    };
    ui.label(RichText::new(&info.label).small().color(tokens.weak));
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 66.0), Sense::hover());
    bars(ui, rect, &cached.histogram, total.min, total.max);
    let [median, p99] = cached.percentiles;
    let note = format!(
        "minimum {}, median {}, p99 {}, maximum {}",
        words(total.min),
        words(median),
        words(p99),
        words(total.max)
    );
    let label = ui.label(RichText::new(&note).small().color(tokens.text));
    widgets::named(label, Role::Label, &note);
    if total.count > MOST {
        let note = format!(
            "of the first {} of {}",
            widgets::grouped(MOST),
            widgets::grouped(total.count)
        );
        ui.label(RichText::new(note).small().color(tokens.warning));
    }
    ui.add_space(space::TIGHT);
}
