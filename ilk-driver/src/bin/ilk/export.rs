//! `ilk export`: a recording for other programs.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use gilk_samples::export::{Format, export_to};
use gilk_samples::recording::Recording;
use ilk_driver::interrupt;

use crate::progress::Progress;

/// Write a recording for other programs, in order of time.
#[derive(Args)]
pub(crate) struct Export {
    /// The recording.
    recording: PathBuf,
    /// What to write. Left out: what the end of the file's name says.
    #[arg(long)]
    to: Option<To>,
    /// The file to write; for ctf, the directory.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum To {
    /// Comma-separated, a line a sample.
    Csv,
    /// The plain file of GILK's report.
    Plain,
    /// A JSON object a line.
    Jsonl,
    /// Parquet, for DuckDB, Polars and Spark.
    Parquet,
    /// Perfetto's trace (.pftrace), for ui.perfetto.dev.
    Perfetto,
    /// Chrome's trace events in JSON.
    Chrome,
    /// The Common Trace Format 1.8, for babeltrace2 and Trace Compass: a directory.
    Ctf,
}

impl From<To> for Format {
    fn from(to: To) -> Self {
        match to {
            To::Csv => Self::Csv,
            To::Plain => Self::Report,
            To::Jsonl => Self::JsonLines,
            To::Parquet => Self::Parquet,
            To::Perfetto => Self::Perfetto,
            To::Chrome => Self::Chrome,
            To::Ctf => Self::Ctf,
        }
    }
}

impl Export {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let format = self.to.map(Format::from);
        let format = format.or_else(|| Format::of(&self.output)).with_context(|| {
            let endings = Format::ALL.map(Format::extension).join(", ");
            format!(
                "The name {} does not say what to write; say it with --to, or end it with one of \
                 {endings}.",
                self.output.display()
            )
        })?;
        interrupt::watch();
        let recording = Recording::open(&self.recording)?;
        let mut progress = Progress::new();
        let exported = export_to(&recording, format, &self.output, &mut |at| {
            progress.share(at.samples as f32 / at.of.max(1) as f32, "exporting");
            if interrupt::came() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        progress.clear();
        for damage in &exported.damaged {
            eprintln!("{damage}");
        }
        eprintln!("{} samples in {}.", exported.samples, self.output.display());
        Ok(())
    }
}
