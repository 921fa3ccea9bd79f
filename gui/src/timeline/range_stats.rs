//! Statistics between the markers: a line per instrument, and a histogram of the selected one.

use egui::accesskit::Role;
use egui::{Grid, Rect, RichText, ScrollArea, Sense, Ui, pos2, vec2};
use gilk_samples::Meaning;
use gilk_samples::chart::scale;
use gilk_samples::histogram::Histogram;
use gilk_samples::index::Owner;
use gilk_samples::level::{self, MOST as MOST_HELD};
use gilk_samples::metadata::InstrumentInfo;

use super::Record;
use super::lanes::number;
use super::scale::{length, tick};
use super::state::{CachedHistogram, Timeline};
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

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
        ScrollArea::vertical()
            .id_salt("between")
            .auto_shrink(false)
            .show(ui, |ui| {
                // Names use the width that the numbers leave.
                let names = (ui.available_width() - NUMBERS).max(60.0);
                Grid::new("between")
                    .num_columns(3)
                    .spacing([10.0, 2.0])
                    .show(ui, |ui| {
                        for words in ["", "samples", "per second"] {
                            widgets::caption(ui, words);
                        }
                        ui.end_row();
                        for (index, info) in record.lanes().iter().enumerate() {
                            let total = record.index.look().total(info.id, from, to);
                            if total.count == 0 {
                                continue;
                            }
                            let rate = total.count as f64 / (b - a).max(1e-9);
                            ui.horizontal(|ui| {
                                ui.set_width(names);
                                widgets::dot(ui, tokens.lane(index));
                                let name = RichText::new(&info.label).small().color(tokens.text);
                                ui.add(egui::Label::new(name).truncate())
                                    .on_hover_text(&info.label);
                            });
                            let words = format!(
                                "{}: {} between A and B",
                                info.label,
                                widgets::grouped(total.count)
                            );
                            let count = ui.label(
                                RichText::new(widgets::grouped(total.count))
                                    .font(code(text::SMALL)),
                            );
                            widgets::named(count, Role::Label, &words);
                            ui.label(
                                RichText::new(widgets::grouped(rate.round() as u64))
                                    .font(code(text::SMALL)),
                            );
                            ui.end_row();
                        }
                    });
            });
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
    let lanes = record.lanes().iter();
    for info in lanes.filter(|info| levels_index.head(info.id) == Some(info.id)) {
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
    let marked = lanes.iter().find(|info| Some(info.id) == timeline.chosen);
    let valued =
        |info: &&InstrumentInfo| matches!(info.meaning, Meaning::Duration | Meaning::Value);
    marked.filter(valued).or_else(|| lanes.iter().find(valued))
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
        let mut histogram = Histogram::new();
        let mut left = MOST;
        let index = record.index.look();
        index.visit(info.id, from, to, |point| {
            if left > 0 {
                left -= 1;
                histogram.add(point.value);
            }
        });
        timeline.histogram = Some(CachedHistogram { of, histogram });
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
    let p = |share| words(cached.histogram.quantile(share));
    let note = format!(
        "minimum {}, median {}, p99 {}, maximum {}",
        words(total.min),
        p(0.5),
        p(0.99),
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

/// Draws the bars of a histogram, on a logarithmic scale if the range of values is large.
fn bars(ui: &Ui, rect: Rect, histogram: &Histogram, least: u64, most: u64) {
    let tokens = Tokens::of(ui);
    let painter = ui.painter();
    painter.rect_filled(rect, 3.0, tokens.canvas);
    let far = most / least.max(1) > 50;
    let place = |value: f64| {
        let (low, high) = (least as f64, most as f64);
        if far {
            ((value.max(1.0).ln() - low.max(1.0).ln())
                / (high.max(1.0).ln() - low.max(1.0).ln()).max(1e-9)) as f32
        } else {
            ((value - low) / (high - low).max(1e-9)) as f32
        }
    };
    let slots = (rect.width() / 5.0).floor().max(1.0) as usize;
    let mut counts = vec![0u64; slots];
    for bucket in histogram.buckets() {
        let at = place((bucket.from as f64 + bucket.to as f64) / 2.0).clamp(0.0, 1.0);
        let slot = ((at * slots as f32) as usize).min(slots - 1);
        if let Some(count) = counts.get_mut(slot) {
            *count += bucket.count;
        }
    }
    let highest = counts.iter().copied().max().unwrap_or(1).max(1) as f32;
    for (slot, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (rect.height() - 6.0) * (count as f32 / highest).max(0.03);
        let left = rect.left() + slot as f32 * 5.0;
        let bar = Rect::from_min_max(
            pos2(left, rect.bottom() - height),
            pos2(left + 4.0, rect.bottom()),
        );
        painter.rect_filled(bar, 0.0, tokens.accent);
    }
}
