//! Tooltip of the timeline: the sample at the pointer, or a summary of samples that share a pixel.

use gilk_samples::Meaning;
use gilk_samples::index::{Owner, Part, Point};
use gilk_samples::metadata::{Clock, InstrumentInfo, Metadata};
use gilk_samples::record::ALL_CPUS;

use super::lanes::number;
use super::scale::{Scale, length, moment_on, tick};
use crate::widgets;

/// Distance in points within which a sample is at the pointer.
pub(super) const REACH: f64 = 4.0;

/// Describes the samples at the pointer's time `at`, one line each.
pub(crate) fn words(
    (owner, index): (Owner, Part<'_>),
    info: &InstrumentInfo,
    metadata: &Metadata,
    at: f64,
    scale: &Scale,
) -> Option<Vec<String>> {
    let clock = metadata.clock;
    let reach = REACH / scale.density();
    let (from, to) = (
        tick(clock, at - reach),
        tick(clock, at + reach).saturating_add(1),
    );
    if info.meaning == Meaning::Count {
        return count(index, info, clock, (at, scale));
    }
    if owner == Owner::Level {
        return level(index, info, clock, (at, scale));
    }
    let total = index.total(info.id, from, to);
    if info.meaning == Meaning::Duration {
        // The pointer may be anywhere in a slice, not only at its end.
        let longest = index.lane(info.id)?.total.max;
        let tsc = tick(clock, at);
        let slice = index
            .samples_in(
                info.id,
                tsc,
                tsc.saturating_add(longest).saturating_add(1),
                2000,
            )
            .into_iter()
            .find(|point| point.tsc.saturating_sub(point.value) <= tsc);
        if let Some(slice) = slice {
            return Some(one(info, metadata, slice, owner, scale));
        }
    }
    if total.count == 0 {
        return None;
    }
    if total.count > 64 {
        let mut lines = vec![format!("{} samples here", widgets::grouped(total.count))];
        if matches!(
            info.meaning,
            Meaning::Value | Meaning::Duration | Meaning::Level
        ) {
            lines.push(format!("minimum {}", value(info, clock, total.min)));
            lines.push(format!("maximum {}", value(info, clock, total.max)));
            if let Some(mean) = total.mean() {
                lines.push(format!("mean {}", value(info, clock, mean as u64)));
            }
        }
        lines.push(format!("around {}", moment_on(at, scale)));
        return Some(lines);
    }
    let middle = tick(clock, at);
    let nearest = index
        .samples_in(info.id, from, to, 64)
        .into_iter()
        .min_by_key(|point| point.tsc.abs_diff(middle))?;
    let mut lines = one(info, metadata, nearest, owner, scale);
    if total.count > 1 {
        lines.push(format!("and {} more within a few pixels", total.count - 1));
    }
    Some(lines)
}

pub(super) fn one(
    info: &InstrumentInfo,
    metadata: &Metadata,
    point: Point,
    owner: Owner,
    scale: &Scale,
) -> Vec<String> {
    let clock = metadata.clock;
    let at = moment_on(clock.seconds(point.tsc), scale);
    let mut lines = vec![format!("at {at}")];
    match info.meaning {
        Meaning::Event => {}
        _ => lines.push(value(info, clock, point.value)),
    }
    // Samples of a thread have the thread's index in place of the CPU.
    if point.cpu != ALL_CPUS && !matches!(owner, Owner::Thread(..)) {
        lines.push(metadata.cpu_name(point.cpu));
    }
    lines
}

fn count(
    index: Part<'_>,
    info: &InstrumentInfo,
    clock: Clock,
    (at, scale): (f64, &Scale),
) -> Option<Vec<String>> {
    let until = tick(clock, at).saturating_add(1);
    let lane = index.lane(info.id)?;
    if until <= lane.first {
        return None;
    }
    let total = index.total(info.id, 0, until).max;
    Some(vec![
        format!("{} hits", widgets::grouped(total)),
        format!("up to {}", moment_on(at, scale)),
    ])
}

/// Describes a level at a time, and since when it holds.
fn level(
    index: Part<'_>,
    info: &InstrumentInfo,
    clock: Clock,
    (at, scale): (f64, &Scale),
) -> Option<Vec<String>> {
    let held = index.last_before(info.id, tick(clock, at).saturating_add(1))?;
    let since = clock.seconds(held.tsc);
    if at > info.splash.max(since) {
        return None;
    }
    Some(vec![
        value(info, clock, held.value),
        format!("since {}", moment_on(since, scale)),
    ])
}

/// Formats a value with its unit.
pub(super) fn value(info: &InstrumentInfo, clock: Clock, value: u64) -> String {
    match info.meaning {
        Meaning::Duration => format!(
            "{} ({} ticks)",
            length(value as f64 / clock.hz.max(1) as f64),
            widgets::grouped(value)
        ),
        Meaning::Block => format!("block {value}"),
        _ if info.unit.is_empty() => format!("{} ({value:#x})", number(value)),
        _ => format!("{} {}", number(value), info.unit),
    }
}
