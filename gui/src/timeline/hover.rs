//! Tooltip of the timeline: the sample at the pointer, or a summary of samples that share a pixel.

use gilk_samples::Meaning;
use gilk_samples::Sample;
use gilk_samples::index::{Index, Owner, Part, Point};
use gilk_samples::metadata::{Clock, InstrumentInfo};
use gilk_samples::record::ALL_CPUS;

use super::Record;
use super::lanes::number;
use super::scale::{Scale, length, moment_on, tick};
use crate::widgets;

/// Distance in points within which a sample is at the pointer.
pub(super) const REACH: f64 = 4.0;

/// Describes the samples at the pointer's time `at`, one line each.
pub(crate) fn words(
    (owner, index): (Owner, Part<'_>),
    info: &InstrumentInfo,
    recorded: (&Record, &Index),
    at: f64,
    scale: &Scale,
) -> Option<Vec<String>> {
    let clock = recorded.0.metadata.clock;
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
            return Some(one(info, recorded, slice, owner, scale));
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
    let mut lines = one(info, recorded, nearest, owner, scale);
    if total.count > 1 {
        lines.push(format!("and {} more within a few pixels", total.count - 1));
    }
    Some(lines)
}

pub(super) fn one(
    info: &InstrumentInfo,
    (record, index): (&Record, &Index),
    point: Point,
    owner: Owner,
    scale: &Scale,
) -> Vec<String> {
    let metadata = &record.metadata;
    let clock = metadata.clock;
    let at = moment_on(clock.seconds(point.tsc), scale);
    let mut lines = vec![format!("at {at}")];
    match (text(record, index, info, point), info.meaning) {
        (Some(text), _) => lines.push(text),
        (None, Meaning::Event) => {}
        (None, _) => lines.push(value(info, clock, point.value)),
    }
    // Samples of a thread have the thread's index in place of the CPU.
    if point.cpu != ALL_CPUS && !matches!(owner, Owner::Thread(..)) {
        lines.push(metadata.cpu_name(point.cpu));
    }
    lines
}

/// Returns the text of a sample that is text, as the terminal prints it: a line, a name, or a stack.
fn text(record: &Record, index: &Index, info: &InstrumentInfo, point: Point) -> Option<String> {
    let texts = &record.metadata.texts;
    let sample = Sample {
        id: info.id,
        value: point.value,
        tsc: point.tsc,
    };
    let words = index.words(&sample, texts.words(&sample))?;
    let text = texts.text(&sample, &words, &record.named)?;
    Some(text.trim_end().to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use gilk_engine::{HookType, InstrumentId};
    use gilk_samples::Batch;
    use gilk_samples::metadata::Metadata;
    use gilk_samples::texts::{Argument, Form, PrintedLine, PrintedPart, Texts, ValueNames};

    fn instrument(number: u8, meaning: Meaning) -> InstrumentInfo {
        InstrumentInfo {
            id: InstrumentId::new(0, HookType::Pre, 0, number)
                .unwrap()
                .pack(),
            meaning,
            ..fixture::instrument()
        }
    }

    #[test]
    fn samples_that_are_text_are_shown_as_text() {
        let all = [
            instrument(0, Meaning::Event),
            instrument(1, Meaning::Value),
            instrument(2, Meaning::Value),
        ];
        let argument = |form| PrintedPart::Argument(Argument::plain(form));
        let line = PrintedLine(vec![
            argument(Form::Text),
            PrintedPart::Text(" from ".into()),
            argument(Form::Stack),
            PrintedPart::Text("\n".into()),
        ]);
        let mut metadata = Metadata {
            clock: Clock {
                hz: 1000,
                start: 0,
                start_unix_ns: 0,
            },
            instruments: all.to_vec(),
            ..Metadata::default()
        };
        let names = ValueNames::new([("TASK_BUSY", 7)].into_iter());
        metadata.texts.insert(all[0].id, Texts::Lines(vec![line]));
        metadata.texts.insert(all[1].id, Texts::Names(names));
        let mut record = Record::live("a.arrow".into(), metadata, 1.0);
        let frames = ["inner+0x9 (a.out)", "main+0x1 (a.out)"];
        let frames = frames.map(str::to_owned).to_vec();
        record.named.stacks.frames.insert(9, frames);
        let sample = |id, value, tsc| Sample { id, value, tsc };
        let word = |value| sample(all[0].id, value, 10).as_word();
        let passwd = u64::from_le_bytes(*b"passwd\0\0");
        record.append(&Batch {
            cpu: 0,
            samples: vec![
                sample(all[0].id, 0, 10),
                word(passwd),
                word(0),
                word(9),
                sample(all[1].id, 7, 20),
                sample(all[2].id, 7, 30),
            ],
        });
        let scale = Scale {
            range: super::super::Range {
                start: 0.0,
                end: 1.0,
            },
            x: egui::Rangef::new(0.0, 1000.0),
        };
        let expected = ["passwd from main;inner", "TASK_BUSY", "7 (0x7)"];
        let index = record.index.look();
        for ((info, expected), at) in all.iter().zip(expected).zip([0.01, 0.02, 0.03]) {
            let part = (Owner::All, Owner::All.part(&index));
            let lines = words(part, info, (&record, &index), at, &scale).unwrap();
            assert!(lines.contains(&expected.to_owned()), "{lines:?}");
        }
    }
}
