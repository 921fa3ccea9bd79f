//! Export of recordings to the formats of other programs.
//!
//! Every format is written item by item in order of time over all CPUs, in memory that does not
//! grow with the recording. The recording itself is an Arrow file, so readers of Arrow need no
//! export. An export that is stopped is closed properly: everything written before can be read.

use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::Path;

use crate::clocks::Alignment;
use crate::recording::Recording;
use crate::{Error, Result};

mod calls;
mod chrome;
mod ctf;
mod flame;
mod folder;
mod items;
mod number;
mod parquet;
mod perfetto;
mod picture;
mod protobuf;
mod text;
mod tracks;

pub use folder::export_into;
use items::{Item, Items};
use text::{Lines, Style};

/// Samples between two calls of `progress`.
const PROGRESS_EVERY: u64 = 1 << 16;

/// Output format of an export. Its name ([`Display`](std::fmt::Display),
/// [`FromStr`](std::str::FromStr)) is that of `ilk export --to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated: `seconds,tsc,cpu,instrument,id,value`, numbers in decimal. Values that are
    /// kernel pointers need a reader configured for unsigned 64-bit numbers in that column.
    Csv,
    /// The plain file of GILK's report (3.11): a line for each major number with its kernel symbol,
    /// an empty line, then a line for each sample with identifier and value, and in addition to the
    /// report's format the time in ticks.
    Report,
    /// One JSON object per line: first the metadata, then the samples. Values above 2^53, which
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
    /// The timeline as a picture, in SVG.
    Svg,
    /// The timeline as a picture, in PNG.
    Png,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 11] = [
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
    ];

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

/// Progress of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Samples written.
    pub samples: u64,
    /// Samples in the recording.
    pub of: u64,
}

/// Result of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// Samples written.
    pub samples: u64,
    /// An error for each batch that could not be read and was left out.
    pub damaged: Vec<Error>,
}

/// Writer of one format.
trait Sink {
    /// Writes an item, whose time is not before that of the previous one.
    fn item(&mut self, item: &Item) -> io::Result<()>;
    /// Writes the end of the file.
    fn finish(&mut self) -> io::Result<()>;
}

/// Writes `recording` to a new file at `path`, or for [`Format::Ctf`] to files in a directory
/// there; replaces existing ones. `progress` is called at intervals and stops the export by
/// breaking.
///
/// # Errors
/// [`Error::Io`], for example when the disk is full; [`Error::Cancelled`] if `progress` breaks:
/// everything written before is intact.
pub fn export_to(
    recording: &Recording,
    format: Format,
    path: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Exported> {
    if matches!(format, Format::Svg | Format::Png) {
        return picture::export(recording, format == Format::Png, path, progress);
    }
    if matches!(format, Format::Folded | Format::Flame)
        && calls::traces(recording.metadata()).next().is_none()
    {
        let path = recording.path().to_path_buf();
        return Err(Error::NoCalls { path });
    }
    let alignment = Alignment::of(recording)?;
    let mut sink =
        sink(recording, alignment, format, path).map_err(|error| Error::io(path, error))?;
    pour(recording, sink.as_mut(), progress).map_err(|poured| poured.at(path))
}

/// Reasons why an export ended early.
enum Poured {
    Io(io::Error),
    Cancelled { samples: u64 },
}

/// Writes every item of a recording to a sink, and finishes it.
fn pour(
    recording: &Recording,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> std::result::Result<Exported, Poured> {
    let mut exported = Exported::default();
    let of = recording.samples();
    let mut go_on = ControlFlow::Continue(());
    for item in Items::of(recording) {
        let item = match item {
            Ok(item) => item,
            Err(error) => {
                exported.damaged.push(error);
                continue;
            }
        };
        sink.item(&item)?;
        if !matches!(item, Item::Sample(..)) {
            continue;
        }
        exported.samples += 1;
        let samples = exported.samples;
        if samples.is_multiple_of(PROGRESS_EVERY) {
            go_on = progress(Progress { samples, of });
        }
        if go_on.is_break() {
            break;
        }
    }
    sink.finish()?;
    let samples = exported.samples;
    if go_on.is_break() {
        return Err(Poured::Cancelled { samples });
    }
    // The last report: all samples are written, so the answer no longer matters.
    let _ = progress(Progress { samples, of });
    Ok(exported)
}

fn sink<'a>(
    recording: &'a Recording,
    alignment: Alignment,
    format: Format,
    path: &Path,
) -> io::Result<Box<dyn Sink + 'a>> {
    let metadata = recording.metadata();
    let file = || Ok::<_, io::Error>(BufWriter::with_capacity(1 << 16, File::create(path)?));
    let lines = |style| Ok::<_, io::Error>(Box::new(Lines::new(file()?, style, metadata)));
    let stacks = |style| Ok::<_, io::Error>(Box::new(calls::Stacks::new(file()?, style, metadata)));
    Ok(match format {
        Format::Csv => lines(Style::Csv)?,
        Format::Report => lines(Style::Report)?,
        Format::JsonLines => lines(Style::JsonLines)?,
        Format::Parquet => Box::new(parquet::Parquet::new(file()?, recording, alignment)?),
        Format::Perfetto => Box::new(perfetto::Perfetto::new(file()?, metadata)),
        Format::Chrome => Box::new(chrome::Chrome::new(file()?, metadata)),
        Format::Ctf => Box::new(ctf::Ctf::new(path, metadata)?),
        Format::Folded => stacks(calls::Style::Folded)?,
        Format::Flame => stacks(calls::Style::Flame)?,
        Format::Svg | Format::Png => return Err(io::ErrorKind::Unsupported.into()),
    })
}

#[cfg(test)]
mod tests;
