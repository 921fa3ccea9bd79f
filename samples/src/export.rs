//! Recordings for programs that read text.
//!
//! Every format is written sample by sample in order of time over all CPUs, in memory that does
//! not grow with the recording. The recording itself is an Arrow file: what reads Arrow needs none
//! of this.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use crate::recording::Recording;
use crate::{Error, Result};

mod text;

use text::Lines;

/// How often `progress` is asked, in samples.
const PROGRESS_EVERY: u64 = 1 << 16;

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated: `seconds,tsc,cpu,instrument,id,value`, numbers in decimal. Values that are
    /// kernel pointers need a reader told that the column is of unsigned 64-bit numbers.
    Csv,
    /// The plain file of GILK's report (3.11): a line for each major number with its kernel symbol,
    /// an empty line, then a line for each sample with identifier and value, and the time in ticks,
    /// which the report's samples did not have.
    Report,
    /// One JSON object a line: first what the recording is, then the samples. Values above 2^53,
    /// which many readers would round, are strings in hexadecimal.
    JsonLines,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Csv, Self::Report, Self::JsonLines];

    /// The usual end of a file's name: `csv`.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Report => "txt",
            Self::JsonLines => "jsonl",
        }
    }

    /// The format that the end of a file's name asks for.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        Self::ALL
            .into_iter()
            .find(|format| format.extension().eq_ignore_ascii_case(extension))
    }
}

/// How far an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Samples written.
    pub samples: u64,
    /// Samples in the recording.
    pub of: u64,
}

/// What was written.
#[derive(Debug, Default)]
pub struct Exported {
    /// Samples written.
    pub samples: u64,
    /// One for each batch that could not be read and was left out.
    pub damaged: Vec<Error>,
}

/// Writes `recording` to a new file at `path`; replaces a file that is there. `progress` is asked now
/// and then whether to go on.
///
/// # Errors
/// [`Error::Io`], for example when the disk is full; [`Error::Cancelled`] if `progress` breaks.
pub fn export_to(
    recording: &Recording,
    format: Format,
    path: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Exported> {
    let file = File::create(path).map_err(|error| Error::io(path, error))?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    export(recording, format, &mut out, path, progress)
}

/// Writes `recording` to `out`, which error messages call `name`, and flushes it.
///
/// # Errors
/// As [`export_to`].
pub fn export(
    recording: &Recording,
    format: Format,
    out: &mut dyn Write,
    name: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Exported> {
    let io = |error| Error::io(name, error);
    let mut lines = Lines::new(format, recording.metadata());
    let mut exported = Exported::default();
    let of = recording.samples();
    lines.head();
    for sample in recording.merged() {
        let (cpu, sample) = match sample {
            Ok(sample) => sample,
            Err(error) => {
                exported.damaged.push(error);
                continue;
            }
        };
        lines.sample(cpu, &sample);
        exported.samples += 1;
        if lines.bytes().len() >= 1 << 15 {
            out.write_all(lines.bytes()).map_err(io)?;
            lines.clear();
        }
        if exported.samples.is_multiple_of(PROGRESS_EVERY)
            && progress(Progress {
                samples: exported.samples,
                of,
            })
            .is_break()
        {
            out.write_all(lines.bytes())
                .and_then(|()| out.flush())
                .map_err(io)?;
            return Err(Error::Cancelled {
                samples: exported.samples,
            });
        }
    }
    out.write_all(lines.bytes())
        .and_then(|()| out.flush())
        .map_err(io)?;
    // Whether to go on is no longer a question.
    let _ = progress(Progress {
        samples: exported.samples,
        of,
    });
    Ok(exported)
}

#[cfg(test)]
mod tests;
