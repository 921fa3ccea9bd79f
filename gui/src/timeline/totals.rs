//! Totals of the aggregates, up to now or at the end of a run: numbers, means, histograms, frequent values.

use std::collections::BTreeMap;

use egui::accesskit::Role;
use egui::{Align, Grid, Layout, RichText, ScrollArea, Ui};
use gilk_engine::{Addr, Image};
use gilk_instruments::program::{Bucket, Summary};
use gilk_samples::cache_numbers::CacheNumbers;
use gilk_samples::chart::totals::{cache_lines, cost};
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::Clock;
use ilk_driver::client::AggregateSummary;

use super::count_bars::bars;
use super::paths::CountedTotals;
use super::scale::length;
use super::{Record, paths};
use crate::theme::{Tokens, code, space, text};
use crate::widgets;

/// The unit of durations.
const TICKS: &str = "ticks";

/// Names of values that are addresses of the kernel: `vfs_read+0x1c`.
pub(crate) type Symbols = BTreeMap<i128, String>;

/// Returns the names of all values of totals that are addresses in functions of the kernel, and the functions of those
/// that are stacks.
pub(crate) fn symbols(totals: &[AggregateSummary], stacks: &KeptStacks, image: &Image) -> Symbols {
    let values = totals.iter().flat_map(AggregateSummary::numbers);
    let named = values.filter_map(|value| {
        let at = Addr(u64::try_from(value).ok()?);
        Some((value, image.named(at).or_else(|| stacks.line(value))?))
    });
    named.collect()
}

/// Draws the totals. Returns whether they were closed.
pub(super) fn show(
    ui: &mut Ui,
    record: &Record,
    counted: Option<&CountedTotals>,
    symbols: &Symbols,
) -> bool {
    let tokens = Tokens::of(ui);
    let mut hidden = false;
    widgets::inset(ui, |ui| {
        ui.horizontal(|ui| {
            let title = match record.now {
                Some(_) => "Totals up to now",
                None => "Totals at the end of the run",
            };
            ui.label(RichText::new(title).color(tokens.strong));
            hidden = widgets::cross(ui, "Hide totals").clicked();
        });
        ScrollArea::vertical()
            .id_salt("totals")
            .auto_shrink(false)
            .show(ui, |ui| {
                for line in record.cost.iter().flat_map(cost) {
                    ui.label(RichText::new(line).small().color(tokens.weak));
                    ui.add_space(space::TIGHT);
                }
                if let Some(numbers) = &record.cache {
                    cache(ui, numbers);
                    ui.add_space(space::SMALL);
                }
                let paths = counted.map_or(&[][..], |counted| &counted.paths);
                for of in paths {
                    ui.push_id(&of.function, |ui| paths::show(ui, of));
                    ui.add_space(space::SMALL);
                }
                let unlisted = counted.map_or(0, |counted| counted.unlisted);
                if unlisted > 0 {
                    let words = format!(
                        "{} have fewer values and are not listed; exports have all.",
                        widgets::counted(unlisted, "total")
                    );
                    ui.label(RichText::new(words).small().color(tokens.weak));
                    ui.add_space(space::SMALL);
                }
                let listed = counted.map_or(&[][..], |counted| &counted.listed);
                for &place in listed {
                    let Some(total) = record.totals.get(place) else {
                        continue;
                    };
                    let units = counted.and_then(|counted| counted.units.get(place));
                    let keys = units.map_or(total.unit.as_str(), String::as_str);
                    let clock = record.metadata.clock;
                    ui.push_id(place, |ui| one(ui, total, keys, clock, symbols));
                    ui.add_space(space::SMALL);
                }
            });
    });
    hidden
}

/// Draws the numbers of a code cache, one in a row.
fn cache(ui: &mut Ui, numbers: &CacheNumbers) {
    let tokens = Tokens::of(ui);
    ui.label(RichText::new("Code cache").small().color(tokens.weak));
    let grid = Grid::new("code cache").num_columns(2);
    grid.spacing([space::SMALL, space::HAIR]).show(ui, |ui| {
        for (value, words) in cache_lines(numbers) {
            let name = format!("Code cache: {value} {words}");
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let shown = ui.label(RichText::new(value).font(code(text::BODY)));
                widgets::named(shown, Role::Label, &name);
            });
            ui.label(RichText::new(words).color(tokens.text));
            ui.end_row();
        }
    });
}

/// Formats a number with its unit; ticks as a duration.
fn number(value: i128, unit: &str, clock: Clock) -> String {
    let plain = match u64::try_from(value.unsigned_abs()) {
        Ok(size) if value < 0 => format!("-{}", widgets::grouped(size)),
        Ok(size) => widgets::grouped(size),
        Err(_) => value.to_string(),
    };
    match unit {
        "" => plain,
        TICKS => length(value as f64 / clock.hz.max(1) as f64),
        unit => format!("{plain} {unit}"),
    }
}

/// Formats the range of a bucket.
fn between(bucket: &Bucket, unit: &str, clock: Clock) -> String {
    let number = |value| number(value, unit, clock);
    match (bucket.from, bucket.to) {
        (Some(from), Some(to)) if from == to => number(from),
        (Some(from), Some(to)) => format!("{} to {}", number(from), number(to)),
        (Some(from), None) => format!("from {}", number(from)),
        (None, Some(to)) => format!("up to {}", number(to)),
        (None, None) => "all".to_owned(),
    }
}

/// Formats a total in a few words: a number, or the number of values.
pub(super) fn short(total: &AggregateSummary, clock: Clock) -> String {
    let unit = total.unit.as_str();
    let many = |count: u64| format!("{} values", widgets::grouped(count));
    let words = match &total.value {
        Summary::Number(value) => number(*value, unit, clock),
        Summary::Mean(mean) if unit == TICKS => length(mean / clock.hz.max(1) as f64),
        Summary::Mean(mean) => format!("{mean:.1} {unit}").trim_end().to_owned(),
        Summary::Nothing => "nothing".to_owned(),
        Summary::Buckets(buckets) => many(buckets.iter().map(|bucket| bucket.count).sum()),
        value @ Summary::Map(..) => many(value.hits()),
        Summary::Values(values, others) => many(
            values
                .iter()
                .map(|(_, count)| *count)
                .sum::<u64>()
                .saturating_add(*others),
        ),
    };
    format!("@{}: {words}", total.name)
}

/// Draws a total; `keys` is the unit of the values that it counts.
fn one(ui: &mut Ui, total: &AggregateSummary, keys: &str, clock: Clock, symbols: &Symbols) {
    let tokens = Tokens::of(ui);
    let unit = total.unit.as_str();
    let name = format!("@{} of {}", total.name, total.instrument);
    ui.label(RichText::new(&name).small().color(tokens.weak));
    let show = |ui: &mut Ui, words: String| {
        let shown = ui.label(RichText::new(&words).font(code(text::HEADING)));
        widgets::named(shown, Role::Label, &format!("{name}: {words}"));
    };
    match &total.value {
        Summary::Number(value) => show(ui, number(*value, unit, clock)),
        Summary::Mean(mean) => show(ui, mean_of(*mean, unit, clock)),
        Summary::Nothing => show(ui, "no values".to_owned()),
        Summary::Buckets(buckets) => bars(ui, &name, &counted(buckets, keys, clock)),
        Summary::Map(rows, others) => {
            let key = |value| {
                symbols
                    .get(&value)
                    .cloned()
                    .unwrap_or_else(|| number(value, "", clock))
            };
            let mut numbers = Vec::new();
            for row in rows {
                let label = row.key_by(key);
                match &row.value {
                    Summary::Buckets(buckets) => {
                        let name = format!("{name}: {label}");
                        ui.label(RichText::new(&label).small().color(tokens.weak));
                        bars(ui, &name, &counted(buckets, keys, clock));
                    }
                    Summary::Number(value) => match u64::try_from(*value) {
                        Ok(count) if unit.is_empty() => numbers.push((label, count)),
                        _ => show(ui, format!("{label}: {}", number(*value, unit, clock))),
                    },
                    Summary::Mean(mean) => {
                        show(ui, format!("{label}: {}", mean_of(*mean, unit, clock)));
                    }
                    other => show(ui, format!("{label}: {}", other.hits())),
                }
            }
            numbers.extend((*others > 0).then(|| ("values of other keys".to_owned(), *others)));
            if !numbers.is_empty() || rows.is_empty() {
                bars(ui, &name, &numbers);
            }
        }
        Summary::Values(values, others) => {
            let rows = values.iter().map(|&(value, count)| {
                let symbol = symbols.get(&value).cloned();
                (symbol.unwrap_or_else(|| number(value, keys, clock)), count)
            });
            let others = (*others > 0).then(|| ("other values".to_owned(), *others));
            bars(ui, &name, &rows.chain(others).collect::<Vec<_>>());
        }
    }
}

/// Formats a mean with its unit; ticks as a duration.
fn mean_of(mean: f64, unit: &str, clock: Clock) -> String {
    if unit == TICKS {
        length(mean / clock.hz.max(1) as f64)
    } else {
        format!("{mean:.1} {unit}").trim_end().to_owned()
    }
}

/// Returns the ranges and counts of a histogram's buckets, from the first one with values to the last.
fn counted(buckets: &[Bucket], unit: &str, clock: Clock) -> Vec<(String, u64)> {
    let is_empty = |bucket: &&Bucket| bucket.count == 0;
    let from = buckets.iter().take_while(is_empty).count();
    let after = buckets.iter().rev().take_while(is_empty).count();
    let shown = buckets.len().saturating_sub(from + after);
    let rows = buckets.iter().skip(from).take(shown);
    let rows = rows.map(|bucket| (between(bucket, unit, clock), bucket.count));
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_formatted_in_their_unit() {
        let clock = Clock {
            hz: 1_000_000_000,
            start: 0,
            start_unix_ns: 0,
        };
        let bucket = |from, to| Bucket { from, to, count: 1 };
        let formatted = |from, to, unit| between(&bucket(from, to), unit, clock);
        assert_eq!(
            formatted(Some(1024), Some(2047), TICKS),
            "1.02 µs to 2.05 µs"
        );
        assert_eq!(formatted(Some(1024), Some(2047), ""), "1,024 to 2,047");
        assert_eq!(formatted(Some(-4), Some(-4), "hits"), "-4 hits");
        assert_eq!(formatted(Some(16_385), None, ""), "from 16,385");
        assert_eq!(formatted(None, Some(-1), ""), "up to -1");
    }
}
