//! Samples as lines of text, without an allocation per sample.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use super::items::Item;
use super::number::{decimal, fraction, json};
use super::sink::Sink;
use super::tracks::plain_id;
use crate::Sample;
use crate::metadata::Metadata;
use crate::record::known_cpu;
use crate::recording::Recording;
use crate::totals::Totals;

/// Bytes per write.
const ENOUGH: usize = 1 << 15;

/// Syntax of the sample lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineFormat {
    Csv,
    Report,
    JsonLines,
}

/// Sink for lines of one format, buffered in memory.
pub(super) struct Lines<'a, W> {
    out: W,
    format: LineFormat,
    metadata: &'a Metadata,
    totals: &'a Totals,
    /// Text of an identifier in a line, quoted as the format requires.
    names: HashMap<u64, String>,
    bytes: Vec<u8>,
}

impl<'a, W: Write> Lines<'a, W> {
    pub(super) fn new(out: W, format: LineFormat, recording: &'a Recording) -> Self {
        let metadata = recording.metadata();
        let instruments = metadata.instruments.iter();
        let names = instruments.map(|instrument| {
            (
                instrument.id,
                name(format, instrument.id, &instrument.label),
            )
        });
        let mut new = Self {
            out,
            format,
            metadata,
            totals: recording.totals(),
            names: names.collect(),
            bytes: Vec::new(),
        };
        new.head();
        new
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// Writes the lines before the first sample.
    fn head(&mut self) {
        match self.format {
            LineFormat::Csv if self.metadata.texts.is_empty() => {
                self.text("seconds,tsc,cpu,instrument,id,value\n");
            }
            LineFormat::Csv => self.text("seconds,tsc,cpu,instrument,id,value,text\n"),
            LineFormat::Report => {
                let majors: BTreeSet<(u32, &str)> = self
                    .metadata
                    .functions
                    .iter()
                    .map(|function| (function.major, function.name.as_str()))
                    .collect();
                for (major, symbol) in majors {
                    self.number(u64::from(major));
                    self.text(" ");
                    self.text(symbol);
                    self.text("\n");
                }
                self.text("\n");
            }
            LineFormat::JsonLines => {
                // Maps of plain values always convert to JSON.
                let metadata =
                    serde_json::to_string(self.metadata).unwrap_or_else(|_| "null".to_owned());
                self.text("{\"gilk\":");
                self.text(&metadata);
                if !self.totals.is_empty() {
                    let totals = serde_json::to_string(self.totals);
                    self.text(",\"gilk.totals\":");
                    self.text(&totals.unwrap_or_else(|_| "null".to_owned()));
                }
                self.text("}\n");
            }
        }
    }

    /// Writes one sample, with its text if it has one.
    fn sample(&mut self, cpu: u16, sample: &Sample, text: Option<&str>) {
        match self.format {
            LineFormat::Csv => {
                self.seconds(sample.tsc);
                self.text(",");
                self.number(sample.tsc);
                self.text(",");
                if let Some(cpu) = known_cpu(cpu) {
                    self.number(u64::from(cpu));
                }
                self.text(",");
                self.name(sample.id);
                self.text(",");
                self.number(sample.id);
                self.text(",");
                self.number(sample.value);
                if !self.metadata.texts.is_empty() {
                    self.text(",");
                    self.text(&field(text.unwrap_or_default()));
                }
            }
            LineFormat::Report => {
                self.name(sample.id);
                self.text(" ");
                self.number(sample.value);
                self.text(" ");
                self.number(sample.tsc);
            }
            LineFormat::JsonLines => {
                self.text("{\"seconds\":");
                self.seconds(sample.tsc);
                self.text(",\"tsc\":");
                self.json_number(sample.tsc);
                self.text(",\"cpu\":");
                match known_cpu(cpu) {
                    Some(cpu) => self.number(u64::from(cpu)),
                    None => self.text("null"),
                }
                self.text(",\"instrument\":");
                self.name(sample.id);
                self.text(",\"id\":");
                self.json_number(sample.id);
                self.text(",\"value\":");
                self.json_number(sample.value);
                if let Some(text) = text {
                    self.text(",\"text\":");
                    self.text(&serde_json::Value::from(text).to_string());
                }
                self.text("}");
            }
        }
        self.text("\n");
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes the instrument's name; for an unknown one, a name made from its identifier.
    fn name(&mut self, id: u64) {
        let format = self.format;
        let name = self
            .names
            .entry(id)
            .or_insert_with(|| name(format, id, &plain_id(id)));
        self.bytes.extend_from_slice(name.as_bytes());
    }

    fn number(&mut self, number: u64) {
        decimal(&mut self.bytes, number, 1);
    }

    fn json_number(&mut self, number: u64) {
        json(&mut self.bytes, number);
    }

    /// Writes seconds from the start to the nanosecond, without the rounding of a float.
    fn seconds(&mut self, tsc: u64) {
        let nanoseconds = self.metadata.clock.nanoseconds(tsc);
        fraction(&mut self.bytes, nanoseconds, 9);
    }
}

impl<W: Write> Sink for Lines<'_, W> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Sample(cpu, sample) => self.sample(*cpu, sample, None),
            Item::Text(cpu, sample, text) => self.sample(*cpu, sample, Some(text)),
            Item::Loss(_) | Item::Mark(_) => {}
        }
        if self.bytes.len() >= ENOUGH {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.flush()
    }
}

/// Returns text as a field of comma-separated text (RFC 4180): in quotes where it would be split, with its own
/// quotes doubled.
#[must_use]
pub fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns the text of an instrument in a line.
fn name(format: LineFormat, id: u64, label: &str) -> String {
    match format {
        LineFormat::Csv => field(label).into_owned(),
        LineFormat::Report => plain_id(id),
        LineFormat::JsonLines => serde_json::Value::from(label).to_string(),
    }
}
