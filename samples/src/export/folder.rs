//! A folder of Parquet files, for recordings of many machines and of long runs.
//!
//! `machine=web1/day=2026-11-21/…parquet`: DuckDB, Polars and Spark read `machine` and `day` from
//! the names as columns, and skip folders that a query does not need.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::items::Item;
use super::parquet::Parquet;
use super::sink::{Exported, Poured, Progress, Sink, pour};
use crate::clocks::Alignment;
use crate::joined;
use crate::output::Output;
use crate::recording::Recording;
use crate::{Error, Result};

/// Rows per file: some 150 MB.
const ROWS: u64 = 1 << 24;
const DAY: u64 = 86_400 * 1_000_000_000;

/// Adds `recording` to the folder at `path`, which is created if it does not exist: a file per day
/// (of UTC, by the recording machine's clock), or several if there are many rows. A file gets its
/// name when it is complete, so that a query never reads part of one; the same recording written
/// again replaces its files.
///
/// # Errors
/// As for [`export_to`](super::export_to).
pub fn export_into(
    recording: &Recording,
    path: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Exported> {
    let alignment = Alignment::of(recording)?;
    let start = alignment.unix_ns(recording.metadata().clock.start);
    let mut folder = Folder {
        path: path.join(format!("machine={}", escaped(&joined::name(recording)))),
        recording,
        alignment,
        start,
        part: 0,
        open: None,
    };
    let exported = pour(recording, &mut folder, progress);
    exported.map_err(|poured| poured.at(path))
}

struct Folder<'a> {
    path: PathBuf,
    recording: &'a Recording,
    alignment: Alignment,
    start: u64,
    part: u32,
    open: Option<OpenFile>,
}

/// The current file.
struct OpenFile {
    file: Parquet<BufWriter<File>>,
    output: Output,
    day: u64,
    rows: u64,
}

impl Folder<'_> {
    fn begin(&mut self, day: u64) -> io::Result<OpenFile> {
        let (year, month, of_month) = date(day);
        let folder = self
            .path
            .join(format!("day={year:04}-{month:02}-{of_month:02}"));
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}-{}.parquet", self.start, self.part));
        self.part += 1;
        let output = Output::create(&path).map_err(io::Error::other)?;
        let file = output.file().map_err(io::Error::other)?;
        let file = BufWriter::with_capacity(1 << 16, file);
        Ok(OpenFile {
            file: Parquet::new(file, self.recording, self.alignment.clone())?,
            output,
            day,
            rows: 0,
        })
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(mut open) = self.open.take() {
            open.file.finish()?;
            open.output.finish().map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Sink for Folder<'_> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        let day = self.alignment.unix_ns(item.tsc()) / DAY;
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.day != day || open.rows >= ROWS)
        {
            self.end()?;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => self.begin(day)?,
        };
        let open = self.open.insert(open);
        open.rows += 1;
        open.file.item(item)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.end()
    }
}

/// Escapes a name for a path segment that every reader splits in the same way: characters other
/// than letters, digits and `.-_` as `%2F`, as Hive does.
fn escaped(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// Returns year, month and day of the month of a number of days after 1970-01-01. In years that
/// begin in March a leap day comes last.
fn date(day: u64) -> (u64, u64, u64) {
    let since = day + 719_468;
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_month)
}

impl From<io::Error> for Poured {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Poured {
    /// Adds the path that was written to.
    pub(super) fn at(self, path: &Path) -> Error {
        match self {
            Self::Io(error) => Error::io(path, error),
            Self::Cancelled { samples } => Error::Cancelled { samples },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        for (day, wanted) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_778, (2026, 11, 21)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(day), wanted, "{day}");
        }
    }

    #[test]
    fn names_are_escaped_for_paths() {
        assert_eq!(escaped("web-1.example_x"), "web-1.example_x");
        assert_eq!(escaped("a/b=c ü"), "a%2Fb%3Dc%20%C3%BC");
    }
}
