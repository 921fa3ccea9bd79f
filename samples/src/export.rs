//! Export of recordings to the formats of other programs.
//!
//! Every format is written item by item in order of time over all CPUs, in memory that does not
//! grow with the recording. The recording itself is an Arrow file, so readers of Arrow need no
//! export. An export that is stopped or fails leaves its goal as it was.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;

use crate::calls;
use crate::clocks::Alignment;
use crate::output::{self, Output};
use crate::recording::Recording;
use crate::{Error, Result};

mod chrome;
mod counted;
mod ctf;
mod flame;
mod folder;
mod items;
mod number;
mod parquet;
mod perfetto;
mod picture;
mod protobuf;
mod sink;
mod stacks;
mod text;
mod totals;
mod tracks;

pub use flame::flame_graph;
pub use folder::export_into;
pub use sink::{Exported, Progress};
use sink::{Poured, Sink, pour};
use stacks::{StackFormat, Stacks};
pub use text::field;
use text::{LineFormat, Lines};

/// Output format of an export. Its name ([`Display`](std::fmt::Display),
/// [`FromStr`]) is that of `ilk export --to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated: `seconds,tsc,cpu,instrument,id,value`, numbers in decimal. Values that are
    /// kernel pointers need a reader configured for unsigned 64-bit numbers in that column.
    Csv,
    /// The plain file of GILK's report (3.11): a line for each major number with its kernel symbol,
    /// an empty line, then a line for each sample with identifier and value, and in addition to the
    /// report's format the time in ticks.
    Report,
    /// One JSON object per line: first the metadata and the totals, then the samples. Values above 2^53, which
    /// many readers would round, are strings in hexadecimal.
    JsonLines,
    /// [Parquet](https://parquet.apache.org/): the recording's columns, `utc` (a timestamp) and
    /// `instrument` (the label). Losses and marks are rows with a `kind` above 0, as in the
    /// recording.
    Parquet,
    /// Perfetto's protocol buffers: a track per instrument and CPU.
    Perfetto,
    /// Chrome's trace events in JSON, with the same tracks. Values above 2^53 are strings in
    /// hexadecimal.
    Chrome,
    /// The Common Trace Format 1.8: a directory with a stream per CPU.
    Ctf,
    /// Folded stacks of call traces: a line per stack, with the nanoseconds in its last function,
    /// for flamegraph.pl, inferno and speedscope.
    Folded,
    /// Stacks of call traces as a flame graph, in SVG.
    Flame,
    /// The timeline as a picture, with the totals below it, in SVG.
    Svg,
    /// The timeline as a picture, with the totals below it, in PNG.
    Png,
    /// The totals as comma-separated text: a line per number, key, value or bucket.
    Totals,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 12] = [
        Self::Csv,
        Self::Report,
        Self::JsonLines,
        Self::Parquet,
        Self::Perfetto,
        Self::Chrome,
        Self::Ctf,
        Self::Folded,
        Self::Flame,
        Self::Svg,
        Self::Png,
        Self::Totals,
    ];

    /// Returns the format's name: `csv`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Report => "plain",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
            Self::Perfetto => "perfetto",
            Self::Chrome => "chrome",
            Self::Ctf => "ctf",
            Self::Folded => "folded",
            Self::Flame => "flame",
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Totals => "totals",
        }
    }

    /// Returns a description for a list of formats.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Csv => "Comma-separated, a line per sample",
            Self::Report => "The plain file of GILK's report",
            Self::JsonLines => "A JSON object per line",
            Self::Parquet => "Parquet, for DuckDB, Polars and Spark",
            Self::Perfetto => "Perfetto's trace (.pftrace), for ui.perfetto.dev",
            Self::Chrome => "Chrome's trace events in JSON",
            Self::Ctf => {
                "The Common Trace Format 1.8, for babeltrace2 and Trace Compass: a directory"
            }
            Self::Folded => {
                "Stacks of call traces, a line per stack, for flamegraph.pl, inferno and speedscope"
            }
            Self::Flame => "A flame graph of call traces, in SVG",
            Self::Svg => "The timeline as a picture, in SVG",
            Self::Png => "The timeline as a picture, in PNG",
            Self::Totals => {
                "Aggregates and maps with their keys, comma-separated, a line per number"
            }
        }
    }

    /// Returns the usual file extension: `csv`.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Report => "txt",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
            Self::Perfetto => "pftrace",
            Self::Chrome => "json",
            Self::Ctf => "ctf",
            Self::Folded => "folded",
            Self::Flame => "flame.svg",
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Totals => "totals.csv",
        }
    }

    /// Returns the format whose extension a file's name has.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let ends = |format: &Self| {
            let rest = name.strip_suffix(format.extension());
            rest.is_some_and(|rest| rest.ends_with('.'))
        };
        let mut fitting: Vec<Self> = Self::ALL.into_iter().filter(ends).collect();
        // The longest extension wins: `x.flame.svg` is a flame graph.
        fitting.sort_by_key(|format| format.extension().len());
        fitting.pop()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    /// Parses a [`name`](Self::name).
    ///
    /// # Errors
    /// [`Error::NoFormat`] if no format has this name.
    fn from_str(name: &str) -> Result<Self> {
        let mut formats = Self::ALL.into_iter();
        formats
            .find(|format| format.name() == name)
            .ok_or_else(|| Error::NoFormat {
                name: name.to_owned(),
                names: Self::ALL.map(Self::name).join(", "),
            })
    }
}

/// Writes `recording` to the file at `path`, or for [`Format::Ctf`] to a directory there, which it
/// replaces when the export is whole. `progress` is called at intervals and stops the export by
/// breaking.
///
/// # Errors
/// [`Error::Io`], for example when the disk is full; [`Error::Cancelled`] if `progress` breaks;
/// [`Error::Occupied`] if the directory is no trace: `path` is then as it was before.
///
/// # Examples
/// ```
/// use std::ops::ControlFlow;
///
/// use gilk_samples::export::{Format, export_to};
/// use gilk_samples::metadata::Metadata;
/// use gilk_samples::recording::{Recording, Writer};
/// use gilk_samples::{Batch, Sample};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("run.arrow");
/// let mut writer = Writer::create(&path, &Metadata::default())?;
/// let samples = vec![Sample { id: 1, value: 7, tsc: 100 }];
/// writer.write(&Batch { cpu: 0, samples })?;
/// writer.finish()?;
///
/// let csv = path.with_extension("csv");
/// let recording = Recording::open(&path)?;
/// let exported = export_to(&recording, Format::Csv, &csv, &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!(exported.samples, 1);
/// assert_eq!(std::fs::read_to_string(&csv)?.lines().count(), 2);
/// # Ok(())
/// # }
/// ```
pub fn export_to(
    recording: &Recording,
    format: Format,
    path: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Exported> {
    if matches!(format, Format::Svg | Format::Png) {
        return picture::export(recording, format == Format::Png, path, progress);
    }
    if format == Format::Totals {
        return totals::export(recording, path);
    }
    let stacks = match format {
        Format::Folded => Some(StackFormat::Folded),
        Format::Flame => Some(StackFormat::Flame),
        _ => None,
    };
    if let Some(stacks) = stacks
        && !calls::is_traced(recording.metadata())
    {
        if counted::are_counted(recording.totals()) {
            return counted::export(recording, stacks, path);
        }
        let path = recording.path().to_path_buf();
        return Err(Error::NoCalls { path });
    }
    if format == Format::Ctf {
        ctf::may_be_replaced(path)?;
        return output::folder_of(path, |new| {
            let mut trace = ctf::Ctf::new(new, recording.metadata());
            pour(recording, &mut trace, progress).map_err(|poured| poured.at(path))
        });
    }
    let output = Output::create(path)?;
    let mut exported = sink(recording, format, output.file()?)
        .map_err(Poured::Io)
        .and_then(|mut sink| pour(recording, sink.as_mut(), progress))
        .map_err(|poured| poured.at(path))?;
    output.finish()?;
    if stacks.is_some() && counted::are_counted(recording.totals()) {
        let also = "Totals by stack are not among the calls; a recording without call-trace has them exported.";
        let remark = exported.remark.take();
        exported.remark =
            Some(remark.map_or_else(|| also.to_owned(), |known| format!("{known} {also}")));
    }
    Ok(exported)
}

fn sink<'a>(
    recording: &'a Recording,
    format: Format,
    file: File,
) -> io::Result<Box<dyn Sink + 'a>> {
    let metadata = recording.metadata();
    let file = BufWriter::with_capacity(1 << 16, file);
    Ok(match format {
        Format::Csv => Box::new(Lines::new(file, LineFormat::Csv, recording)),
        Format::Report => Box::new(Lines::new(file, LineFormat::Report, recording)),
        Format::JsonLines => Box::new(Lines::new(file, LineFormat::JsonLines, recording)),
        Format::Parquet => {
            let alignment = Alignment::of(recording).map_err(io::Error::other)?;
            Box::new(parquet::Parquet::new(file, recording, alignment)?)
        }
        Format::Perfetto => Box::new(perfetto::Perfetto::new(file, metadata)),
        Format::Chrome => Box::new(chrome::Chrome::new(file, metadata)),
        Format::Folded => Box::new(Stacks::new(file, StackFormat::Folded, metadata)),
        Format::Flame => Box::new(Stacks::new(file, StackFormat::Flame, metadata)),
        Format::Ctf | Format::Svg | Format::Png | Format::Totals => {
            return Err(io::ErrorKind::Unsupported.into());
        }
    })
}

#[cfg(test)]
mod tests;
