//! Totals as comma-separated text (RFC 4180), for spreadsheets and data frames: a line per number, mean, bucket,
//! value or key.

use std::fmt::Write as _;
use std::path::Path;

use super::sink::Exported;
use super::text::field;
use crate::Result;
use crate::chart::scale;
use crate::metadata::Metadata;
use crate::output;
use crate::recording::Recording;
use crate::totals::{Counted, KeyPart, Total, TotalValue, Totals};

/// Columns: the placement by its index in the session and as text, its instrument, the aggregate and the unit of its
/// values; the kind of the line; one or two parts of a key, with the names of those that are addresses, and the functions of
/// those that are stacks; the bounds of
/// a bucket, empty if unbounded; and the number.
const HEAD: &str =
    "placement,place,instrument,aggregate,unit,kind,key1,name1,key2,name2,from,to,value\n";

/// Writes the totals of a recording.
///
/// # Errors
/// As for [`export_to`](super::export_to).
pub(super) fn export(recording: &Recording, path: &Path) -> Result<Exported> {
    let mut lines = TotalLines {
        metadata: recording.metadata(),
        totals: recording.totals(),
        out: HEAD.to_owned(),
    };
    lines.all();
    output::write(path, lines.out.as_bytes())?;
    let count = lines.out.lines().count() - 1;
    Ok(Exported {
        remark: Some(format!(
            "{} of totals. Samples are in the other formats.",
            scale::counted(count as u64, "line")
        )),
        ..Exported::default()
    })
}

struct TotalLines<'a> {
    metadata: &'a Metadata,
    totals: &'a Totals,
    out: String,
}

impl TotalLines<'_> {
    fn all(&mut self) {
        let totals = self.totals;
        for total in &totals.added_up {
            self.total(total, &[], &total.value);
        }
        for (counts, kind) in [
            (&totals.failed_reads, "failed reads"),
            (&totals.no_room, "lost values"),
        ] {
            for Counted {
                placement,
                instrument,
                count,
            } in counts
            {
                let place = self.place(*placement, instrument);
                // Writing to a String cannot fail.
                let _infallible = writeln!(
                    self.out,
                    "{placement},{place},{},,,{kind},,,,,,,{count}",
                    field(instrument)
                );
            }
        }
    }

    fn place(&self, placement: usize, instrument: &str) -> String {
        let place = self.metadata.placement(placement);
        field(&place.unwrap_or_else(|| instrument.to_owned())).into_owned()
    }

    /// Writes the lines of a value of a key, or of an aggregate without keys.
    fn total(&mut self, total: &Total, key: &[KeyPart], value: &TotalValue) {
        match value {
            TotalValue::Number(number) => {
                self.line(total, "number", key, [None; 2], &number.to_string());
            }
            TotalValue::Mean(mean) => self.line(total, "mean", key, [None; 2], &mean.to_string()),
            TotalValue::Nothing => self.line(total, "nothing", key, [None; 2], ""),
            TotalValue::Buckets(buckets) => {
                for bucket in buckets {
                    let bounds = [bucket.from, bucket.to];
                    self.line(total, "bucket", key, bounds, &bucket.count.to_string());
                }
            }
            TotalValue::Values(values, others) => {
                for (value, count) in values {
                    let key = [KeyPart::Number(*value)];
                    self.line(total, "count", &key, [None; 2], &count.to_string());
                }
                self.line(total, "others", &[], [None; 2], &others.to_string());
            }
            TotalValue::Map(rows, others) => {
                for row in rows {
                    self.total(total, &row.key, &row.value);
                }
                self.line(total, "others", &[], [None; 2], &others.to_string());
            }
        }
    }

    fn line(
        &mut self,
        total: &Total,
        kind: &str,
        key: &[KeyPart],
        bounds: [Option<i128>; 2],
        value: &str,
    ) {
        let place = self.place(total.placement, &total.instrument);
        let texts = [&total.instrument, &total.name, &total.unit].map(|text| field(text));
        let [instrument, name, unit] = texts;
        // Writing to a String cannot fail.
        let _infallible = write!(
            self.out,
            "{},{place},{instrument},{name},{unit},{kind}",
            total.placement
        );
        for place in 0..2 {
            let (key, name) = match key.get(place) {
                Some(KeyPart::Number(number)) => {
                    let address = u64::try_from(*number).ok();
                    let name = address.and_then(|at| self.totals.symbols.get(&at).cloned());
                    let name = name.or_else(|| self.totals.stacks.line(*number));
                    (number.to_string(), name.unwrap_or_default())
                }
                Some(KeyPart::Text(text)) => (text.clone(), String::new()),
                None => (String::new(), String::new()),
            };
            let _infallible = write!(self.out, ",{},{}", field(&key), field(&name));
        }
        for bound in bounds {
            let bound = bound.map_or(String::new(), |bound| bound.to_string());
            let _infallible = write!(self.out, ",{bound}");
        }
        let _infallible = writeln!(self.out, ",{value}");
    }
}
