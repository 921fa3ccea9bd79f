//! Import of other programs' recordings: the text of ftrace's `trace` and `trace_pipe`, of
//! `trace-cmd report`, and of `perf script`.
//!
//! All four write a line per event, with a CPU in brackets, a time in seconds, and the event's
//! name:
//!
//! ```text
//!           <idle>-0       [001] d.h2.   123.456789: sched_waking: comm=rcu_sched pid=15
//! Pulsar  1234 [003]  8123.000001:          1  syscalls:sys_enter_clone: flags: 0x11
//! ```
//!
//! An event becomes a sample of an instrument with its name. Times are in the target's clock, to
//! the
//! microsecond or nanosecond; with a known relation of that clock to the time-stamp counter, they
//! fit
//! the timeline of a GILK recording ([`Aligned`]).

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use crate::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata};
use crate::output;
use crate::recording::{Summary, Writer};
use crate::{Batch, Error, HookType, InstrumentId, Meaning, Result, Sample};

/// Samples of a CPU per batch.
const TOGETHER: usize = 1 << 12;

/// Magic numbers of the binary files of trace-cmd and perf, and the command that converts each to
/// text.
const OWN: [(&[u8], &str); 2] = [
    (b"\x17\x08\x44tracing", "trace-cmd report"),
    (b"PERFILE2", "perf script -i"),
];

/// Conversion of the text's seconds to ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aligned {
    /// The first event is second 0; a tick is a nanosecond.
    Alone,
    /// The text was recorded with `trace_clock` set to `x86-tsc`: its times are ticks. The clock is
    /// that of a recording of the same machine and boot.
    Tsc(Clock),
    /// The times are of a clock that showed `seconds` at second 0 of a recording with this clock.
    At {
        /// Clock of the recording.
        clock: Clock,
        /// Reading of the other clock at second 0.
        seconds: f64,
    },
}

/// Result of an import.
#[derive(Debug)]
pub struct Imported {
    /// The recording.
    pub summary: Summary,
    /// Number of lines that were neither events nor comments.
    pub skipped: u64,
    /// The first of them.
    pub first_skipped: Option<String>,
}

/// An event of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Event<'a> {
    cpu: u16,
    /// Digits before the point, and nanoseconds after it; a plain number of ticks has no point.
    whole: u64,
    nanoseconds: Option<u32>,
    name: &'a str,
}

/// Parses a line; `None` if it is not an event.
fn event(line: &str) -> Option<Event<'_>> {
    // The CPU is the first number in brackets: names of tasks may contain brackets.
    let mut rest = line;
    let (cpu, mut rest) = loop {
        let (_, bracketed) = rest.split_once('[')?;
        let (inside, after) = bracketed.split_once(']')?;
        match inside.trim().parse::<u16>() {
            Ok(cpu) if after.starts_with(' ') => break (cpu, after),
            _ => rest = bracketed,
        }
    };
    // Flags may follow, then the time with a colon after it.
    let (whole, nanoseconds) = loop {
        let word = rest.trim_start();
        let (word, after) = word.split_once(char::is_whitespace)?;
        rest = after;
        if let Some(time) = word.strip_suffix(':').and_then(time) {
            break time;
        }
    };
    // perf writes the count of a counter; an event's name has a letter.
    let name = rest.split_whitespace().find_map(|word| {
        let name = word.strip_suffix(':').unwrap_or(word);
        name.contains(char::is_alphabetic).then_some(name)
    })?;
    Some(Event {
        cpu,
        whole,
        nanoseconds,
        name,
    })
}

/// Parses `123.456789` or `123456789`.
fn time(word: &str) -> Option<(u64, Option<u32>)> {
    let Some((whole, fraction)) = word.split_once('.') else {
        return Some((word.parse().ok()?, None));
    };
    let is_number =
        !fraction.is_empty() && fraction.len() <= 9 && fraction.bytes().all(|b| b.is_ascii_digit());
    let digits = fraction.parse::<u32>().ok().filter(|_| is_number)?;
    let scale = 10u32.pow(9 - fraction.len() as u32);
    Some((whole.parse().ok()?, Some(digits * scale)))
}

/// Origin of the times of a text, once it is known.
struct Times {
    aligned: Aligned,
    first: Option<i128>,
}

impl Times {
    fn clock(&self) -> Clock {
        match self.aligned {
            Aligned::Alone => Clock {
                hz: 1_000_000_000,
                // A margin for events slightly before the first.
                start: 1 << 32,
                start_unix_ns: 0,
            },
            Aligned::Tsc(clock) | Aligned::At { clock, .. } => clock,
        }
    }

    /// Returns the tick of an event; `None` if it precedes all ticks.
    fn tsc(&mut self, event: &Event<'_>) -> Option<u64> {
        let clock = self.clock();
        if let Aligned::Tsc(_) = self.aligned {
            // A kernel writes such times without a point; perf writes them as seconds.
            let nanoseconds = event.nanoseconds.map(u64::from);
            return match nanoseconds {
                None => Some(event.whole),
                Some(fraction) => event
                    .whole
                    .checked_mul(1_000_000_000)?
                    .checked_add(fraction),
            };
        }
        let fraction = i128::from(event.nanoseconds.unwrap_or_default());
        let now = i128::from(event.whole) * 1_000_000_000 + fraction;
        let zero = match self.aligned {
            Aligned::At { seconds, .. } => (seconds * 1e9) as i128,
            _ => *self.first.get_or_insert(now),
        };
        let ticks = (now - zero) * i128::from(clock.hz) / 1_000_000_000;
        u64::try_from(i128::from(clock.start) + ticks).ok()
    }
}

/// Reads the events of `text`, called `name` in messages, and writes them as a recording, which
/// replaces `path` when it is whole. `open` opens the text, which is read twice.
///
/// # Errors
/// [`Error::Io`] if the text cannot be read or the recording not be written, [`Error::Import`] if
/// it contains no event, or more kinds of events than identifiers can distinguish.
pub fn import<R: BufRead>(
    mut open: impl FnMut() -> std::io::Result<R>,
    name: &Path,
    aligned: Aligned,
    path: &Path,
) -> Result<Imported> {
    let io = |error| Error::io(name, error);
    let refuse = |reason: String| Error::Import {
        path: name.to_path_buf(),
        reason,
    };
    let mut text = open().map_err(io)?;
    // The binary formats of trace-cmd and perf are not text.
    for (begin, program) in OWN {
        if text.fill_buf().map_err(io)?.starts_with(begin) {
            return Err(refuse(format!(
                "it is no text; make one of it with {program} FILE > trace.txt, and import that"
            )));
        }
    }
    // A recording begins with its instruments, so all names are collected first.
    let (mut ids, mut order) = (HashMap::new(), Vec::new());
    let (mut cpus, mut skipped, mut first_skipped) = (0, 0, None);
    each_line(
        text,
        |line| {
            match event(line) {
                Some(event) => {
                    cpus = cpus.max(u32::from(event.cpu) + 1);
                    if !ids.contains_key(event.name) {
                        let major = ids.len() as u32;
                        let id = InstrumentId::new(major, HookType::Pre, 0, 0);
                        let id = id.ok_or_else(|| {
                            refuse("it has more than a million sorts of events".to_owned())
                        })?;
                        ids.insert(event.name.to_owned(), id.pack());
                        order.push((event.name.to_owned(), id));
                    }
                }
                None if line.trim().is_empty() || line.starts_with('#') => {}
                None => {
                    skipped += 1;
                    first_skipped.get_or_insert_with(|| line.to_owned());
                }
            }
            Ok(())
        },
        name,
    )?;
    if order.is_empty() {
        return Err(refuse(
            "no line of it is an event with a CPU in brackets, a time and a name".to_owned(),
        ));
    }
    let mut times = Times {
        aligned,
        first: None,
    };
    let functions = order.iter().map(|(name, id)| FunctionInfo {
        major: id.major,
        name: name.clone(),
        address: 0,
        blocks: Vec::new(),
        edges: Vec::new(),
    });
    let instruments = order.iter().map(|(name, id)| InstrumentInfo {
        id: id.pack(),
        label: name.clone(),
        instrument: "imported".to_owned(),
        meaning: Meaning::Event,
        unit: String::new(),
        // In place forever: thirty years around the start.
        launch: -1e9,
        splash: 1e9,
        placed: None,
        delivers: Delivers::Samples,
    });
    let metadata = Metadata {
        kernel: format!("imported from {}", name.display()),
        cpus,
        clock: times.clock(),
        functions: functions.collect(),
        instruments: instruments.collect(),
        ..Metadata::default()
    };
    let summary = output::recording(path, |new| {
        let mut writer = Writer::create(new, &metadata)?;
        let mut waiting: HashMap<u16, Vec<Sample>> = HashMap::new();
        each_line(
            open().map_err(io)?,
            |line| {
                let parsed = event(line).and_then(|event| {
                    let id = *ids.get(event.name)?;
                    Some((
                        event.cpu,
                        Sample {
                            id,
                            value: 1,
                            tsc: times.tsc(&event)?,
                        },
                    ))
                });
                let Some((cpu, sample)) = parsed else {
                    return Ok(());
                };
                let samples = waiting.entry(cpu).or_default();
                samples.push(sample);
                if samples.len() >= TOGETHER {
                    let samples = std::mem::take(samples);
                    writer.write(&Batch { cpu, samples })?;
                }
                Ok(())
            },
            name,
        )?;
        for (cpu, samples) in waiting {
            writer.write(&Batch { cpu, samples })?;
        }
        writer.finish()
    })?;
    Ok(Imported {
        summary: Summary {
            path: path.to_path_buf(),
            ..summary
        },
        skipped,
        first_skipped,
    })
}

/// Calls `take` with each line. Invalid UTF-8 is replaced.
fn each_line(
    mut text: impl BufRead,
    mut take: impl FnMut(&str) -> Result<()>,
    name: &Path,
) -> Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        // Bounds the memory of a line without an end; its rest is read as another line.
        let mut part = std::io::Read::take(&mut text, 1 << 16);
        let read = part.read_until(b'\n', &mut line);
        if read.map_err(|error| Error::io(name, error))? == 0 {
            return Ok(());
        }
        take(String::from_utf8_lossy(&line).trim_end())?;
    }
}

#[cfg(test)]
mod tests;
