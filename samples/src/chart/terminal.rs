//! The lanes in a terminal: a row of block characters each, with count and rate.

use super::scale::shortened;
use super::{Chart, LaneView, Lanes, scale};
use crate::index::{Column, threads};
use crate::recording::Loss;
use crate::stats::stats;
use crate::{Meaning, level};

/// Eighths of a character's height.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Minimum width of a lane in characters; below it the numbers to its right are omitted.
const LEAST_LANE: usize = 36;

/// Draws the chart for a terminal of `columns` characters per line, at least 60.
///
/// To the right of each lane: its hits, their rate, and for measured values the median
/// and the 99th percentile. A character shows the number of events, or the value of totals and
/// other values. A dot is a time at which the instrument was not in place.
#[must_use]
pub fn terminal(chart: &Chart<'_>, columns: usize) -> String {
    let columns = columns.max(60);
    let Lanes {
        drawn: lanes,
        left_out,
    } = chart.lanes();
    let labels: Vec<String> = lanes
        .iter()
        .map(|lane| format!("{}{} {}", lane.owner, lane.name, lane.place))
        .collect();
    let counts: Vec<String> = lanes.iter().map(|lane| scale::grouped(lane.hits)).collect();
    let rates: Vec<String> = lanes.iter().map(|lane| lane.rate.to_string()).collect();
    let values: Vec<String> = lanes.iter().map(|lane| middle(chart, lane)).collect();
    let widest = |texts: &[String]| {
        texts
            .iter()
            .map(|text| text.chars().count())
            .max()
            .unwrap_or(0)
    };
    let (count_width, rate_width) = (widest(&counts), widest(&rates));
    let label_width = widest(&labels).min(columns * 2 / 5);
    let room = columns.saturating_sub(label_width + count_width + rate_width + 8);
    // A lane is more informative than a number: if both do not fit, the number is omitted.
    let value_width = Some(widest(&values) + 2)
        .filter(|width| room >= width + LEAST_LANE)
        .unwrap_or_default();
    let width = room.saturating_sub(value_width).max(10);
    let mut out = String::new();
    let numbers = counts.iter().zip(&rates).zip(&values);
    for ((lane, label), ((count, rate), value)) in lanes.iter().zip(&labels).zip(numbers) {
        let label = shortened(label, label_width);
        let row = row(chart, lane, width);
        let value = if value_width > 0 { value.as_str() } else { "" };
        let line = format!(
            "{label:label_width$}  │{row}│  {count:>count_width$}  {rate:>rate_width$}  {value}"
        );
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push_str(&axis(chart, label_width, width));
    if let Some(lost) = chart.lost() {
        out.push_str(&format!(
            "lost: {lost}\n{}",
            Loss::by_cpu(chart.losses, chart.metadata)
        ));
    }
    if !left_out.is_empty() {
        out.push_str(&left_out);
        out.push('\n');
    }
    out
}

/// Returns the median and the 99th percentile of a lane's values.
fn middle(chart: &Chart<'_>, lane: &LaneView<'_>) -> String {
    if lane.meaning == Meaning::Level {
        return on_average(chart, lane);
    }
    // A median of pointers or of thread numbers is meaningless.
    if !matches!(lane.meaning, Meaning::Duration | Meaning::Value)
        || lane.total.max >= 1 << 46
        || lane.unit == threads::UNIT
    {
        return String::new();
    }
    let (t0, t1) = chart.span();
    let Some(of) = stats(lane.part, lane.id, t0, t1) else {
        return String::new();
    };
    let words = |value| scale::value(value, lane.unit, chart.clock());
    format!("{}, 99 % {}", words(of.p50), words(of.p99))
}

/// Returns the average of a level over time.
fn on_average(chart: &Chart<'_>, lane: &LaneView<'_>) -> String {
    let mut known = chart.metadata.instruments.iter();
    let average = known
        .find(|info| info.id == lane.id)
        .and_then(|info| level::average(lane.part, chart.metadata, info, chart.span()));
    average.map_or_else(String::new, |average| {
        let words = scale::mean(average.mean, lane.unit, chart.clock());
        format!("{words} on average")
    })
}

/// Draws one lane.
fn row(chart: &Chart<'_>, lane: &LaneView<'_>, width: usize) -> String {
    let (t0, t1) = chart.span();
    let columns = lane.part.query(lane.id, t0, t1, width);
    let height = |column: &Column| match lane.meaning {
        Meaning::Event => column.count as f64,
        Meaning::Count | Meaning::Duration | Meaning::Block | Meaning::Level => column.max as f64,
        Meaning::Value => column.max.saturating_sub(lane.total.min) as f64,
    };
    let greatest = columns
        .iter()
        .filter(|column| column.count > 0)
        .map(height)
        .fold(0.0, f64::max);
    let clock = chart.clock();
    let (from, step) = (
        clock.seconds(t0),
        (clock.seconds(t1) - clock.seconds(t0)) / width as f64,
    );
    // Level at the end of a character.
    let held = |number: usize| {
        let held = lane.held_after((t0, t1), (number, width));
        held.map_or(0.0, |held| held as f64)
    };
    let mut total = match lane.meaning {
        Meaning::Level => lane
            .part
            .last_before(lane.id, t0)
            .map(|last| last.value as f64),
        _ => None,
    };
    let characters = columns.iter().enumerate().map(|(number, column)| {
        let level = |height: f64| {
            let share = if greatest > 0.0 {
                height / greatest
            } else {
                1.0
            };
            LEVELS
                .get((share * 8.0).ceil().clamp(1.0, 8.0) as usize - 1)
                .copied()
                .unwrap_or('█')
        };
        let (begin, end) = (
            from + number as f64 * step,
            from + (number + 1) as f64 * step,
        );
        let outside = lane
            .times
            .is_some_and(|(launch, splash)| end <= launch || begin >= splash);
        if column.count > 0 {
            total = Some(match lane.meaning {
                Meaning::Level => held(number),
                _ => height(column),
            });
            return level(height(column));
        }
        match total {
            _ if outside => '·',
            // A total or a level keeps its value until the next sample.
            Some(total) if matches!(lane.meaning, Meaning::Count | Meaning::Level) => level(total),
            _ => ' ',
        }
    });
    characters.collect()
}

/// Draws both ends of the axis, and its middle if it fits.
fn axis(chart: &Chart<'_>, label_width: usize, width: usize) -> String {
    let (t0, t1) = chart.span();
    let (from, to) = (chart.clock().seconds(t0), chart.clock().seconds(t1));
    let [left, middle, right] = [from, (from + to) / 2.0, to].map(scale::duration);
    let used = left.chars().count() + right.chars().count();
    let middle = if width > used + middle.chars().count() + 8 {
        middle
    } else {
        String::new()
    };
    let gap = width.saturating_sub(used + middle.chars().count());
    let (before, after) = (gap / 2, gap - gap / 2);
    format!(
        "{:label_width$}   {left}{:before$}{middle}{:after$}{right}\n",
        "", "", ""
    )
}
