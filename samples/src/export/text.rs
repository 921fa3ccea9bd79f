//! Samples as lines of text, without an allocation a sample.

use std::collections::{BTreeSet, HashMap};

use super::Format;
use crate::metadata::{Clock, Metadata};
use crate::{InstrumentId, Sample};

/// The greatest number that every JSON reader keeps as it is (RFC 8259, 6).
const JSON_EXACT: u64 = 1 << 53;

/// Lines of one format, in memory until they are taken out.
pub(super) struct Lines<'a> {
    format: Format,
    metadata: &'a Metadata,
    /// What stands for an identifier in a line, quoted as the format wants it.
    names: HashMap<u64, String>,
    bytes: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(format: Format, metadata: &'a Metadata) -> Self {
        let instruments = metadata.instruments.iter();
        let names = instruments.map(|instrument| {
            (
                instrument.id,
                name(format, instrument.id, &instrument.label),
            )
        });
        Self {
            format,
            metadata,
            names: names.collect(),
            bytes: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// What stands before the first sample.
    pub(super) fn head(&mut self) {
        match self.format {
            Format::Csv => self.text("seconds,tsc,cpu,instrument,id,value\n"),
            Format::Report => {
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
            Format::JsonLines => {
                // Maps of plain values: nothing in them can fail to be put into JSON.
                let metadata =
                    serde_json::to_string(self.metadata).unwrap_or_else(|_| "null".to_owned());
                self.text("{\"gilk\":");
                self.text(&metadata);
                self.text("}\n");
            }
        }
    }

    /// One sample.
    pub(super) fn sample(&mut self, cpu: u16, sample: &Sample) {
        match self.format {
            Format::Csv => {
                self.seconds(sample.tsc);
                self.text(",");
                self.number(sample.tsc);
                self.text(",");
                self.number(u64::from(cpu));
                self.text(",");
                self.name(sample.id);
                self.text(",");
                self.number(sample.id);
                self.text(",");
                self.number(sample.value);
            }
            Format::Report => {
                self.name(sample.id);
                self.text(" ");
                self.number(sample.value);
                self.text(" ");
                self.number(sample.tsc);
            }
            Format::JsonLines => {
                self.text("{\"seconds\":");
                self.seconds(sample.tsc);
                self.text(",\"tsc\":");
                self.json_number(sample.tsc);
                self.text(",\"cpu\":");
                self.number(u64::from(cpu));
                self.text(",\"instrument\":");
                self.name(sample.id);
                self.text(",\"id\":");
                self.json_number(sample.id);
                self.text(",\"value\":");
                self.json_number(sample.value);
                self.text("}");
            }
        }
        self.text("\n");
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// The instrument's name; for one that the metadata does not know, made from its identifier.
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
        if number < JSON_EXACT {
            self.number(number);
        } else {
            self.text(&format!("\"{number:#x}\""));
        }
    }

    /// Seconds from the start, to the nanosecond, without the rounding of a float.
    fn seconds(&mut self, tsc: u64) {
        let Clock { hz, start, .. } = self.metadata.clock;
        let ticks = tsc.wrapping_sub(start).cast_signed();
        if hz == 0 {
            return self.text("0.000000000");
        }
        let (before, ticks) = (ticks < 0, ticks.unsigned_abs());
        let (whole, rest) = (ticks / hz, ticks % hz);
        let nanoseconds = match rest.checked_mul(1_000_000_000) {
            Some(product) => product / hz,
            // A clock above 18 GHz: not seen yet.
            None => (u128::from(rest) * 1_000_000_000 / u128::from(hz)) as u64,
        };
        if before && (whole, nanoseconds) != (0, 0) {
            self.text("-");
        }
        self.number(whole);
        self.text(".");
        decimal(&mut self.bytes, nanoseconds, 9);
    }
}

/// The identifier as a person reads it: `7.pre.0.0`, or as a number if it is none.
fn plain_id(id: u64) -> String {
    InstrumentId::unpack(id).map_or_else(|| id.to_string(), |id| id.to_string())
}

/// What stands for an instrument in a line.
fn name(format: Format, id: u64, label: &str) -> String {
    match format {
        // RFC 4180: quotes where a field would be taken apart, and doubled inside them.
        Format::Csv if label.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", label.replace('"', "\"\""))
        }
        Format::Csv => label.to_owned(),
        Format::Report => plain_id(id),
        Format::JsonLines => serde_json::Value::from(label).to_string(),
    }
}

/// Appends `number` in decimal, with zeroes in front up to `width` digits.
fn decimal(bytes: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut used = 0;
    // Two digits a division.
    for pair in digits.as_chunks_mut::<2>().0.iter_mut().rev() {
        let two = (number % 100) as u8;
        number /= 100;
        *pair = [b'0' + two / 10, b'0' + two % 10];
        used += if number == 0 && two < 10 { 1 } else { 2 };
        if number == 0 {
            break;
        }
    }
    let used = used.max(width).min(digits.len());
    bytes.extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decimal_is_what_format_writes(number: u64, small in 0u64..1000, width in 1usize..10) {
            for number in [number, small] {
                let mut bytes = Vec::new();
                decimal(&mut bytes, number, width);
                prop_assert_eq!(String::from_utf8(bytes).unwrap(), format!("{number:0width$}"));
            }
        }
    }
}
