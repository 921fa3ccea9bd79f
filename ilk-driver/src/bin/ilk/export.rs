//! `ilk export`: a recording for other programs.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use gilk_samples::export::{Format, export_into, export_to};
use gilk_samples::recording::Recording;
use ilk_driver::interrupt;

use crate::progress::Progress;

/// Write a recording for other programs, in order of time.
#[derive(Args)]
pub(crate) struct Export {
    /// The recording; for a folder, any number of them.
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// What to write. Left out: what the end of the file's name says.
    #[arg(long)]
    to: Option<To>,
    /// The file to write; for ctf and folder, the directory.
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
    /// A folder of Parquet files by machine and day, to which recordings are added.
    Folder,
    /// Perfetto's trace (.pftrace), for ui.perfetto.dev.
    Perfetto,
    /// Chrome's trace events in JSON.
    Chrome,
    /// The Common Trace Format 1.8, for babeltrace2 and Trace Compass: a directory.
    Ctf,
    /// Stacks of call traces, a line a stack, for flamegraph.pl, inferno and speedscope.
    Folded,
    /// A flame graph of call traces, in SVG.
    Flame,
    /// The timeline as a picture, in SVG.
    Svg,
    /// The timeline as a picture, in PNG.
    Png,
}

impl To {
    /// `None` for a folder.
    fn format(self) -> Option<Format> {
        Some(match self {
            Self::Csv => Format::Csv,
            Self::Plain => Format::Report,
            Self::Jsonl => Format::JsonLines,
            Self::Parquet => Format::Parquet,
            Self::Folder => return None,
            Self::Perfetto => Format::Perfetto,
            Self::Chrome => Format::Chrome,
            Self::Ctf => Format::Ctf,
            Self::Folded => Format::Folded,
            Self::Flame => Format::Flame,
            Self::Svg => Format::Svg,
            Self::Png => Format::Png,
        })
    }
}

impl Export {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        interrupt::watch();
        let format = match self.to {
            Some(to) => to.format(),
            None => Some(self.said()?),
        };
        if format.is_some() && self.recordings.len() > 1 {
            bail!(
                "Only a folder takes several recordings (--to folder); make one of them first with \
                 `ilk join`."
            );
        }
        let mut samples = 0;
        for path in &self.recordings {
            let recording = Recording::open(path)?;
            if let Some(why) = recording.recovered() {
                eprintln!("{}: {why}", path.display());
            }
            let mut progress = Progress::new();
            let mut told = |at: gilk_samples::export::Progress| {
                progress.share(at.samples as f32 / at.of.max(1) as f32, "exporting");
                if interrupt::came() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let exported = match format {
                Some(format) => export_to(&recording, format, &self.output, &mut told),
                None => export_into(&recording, &self.output, &mut told),
            }?;
            progress.clear();
            for damage in &exported.damaged {
                eprintln!("{damage}");
            }
            samples += exported.samples;
        }
        eprintln!("{samples} samples in {}.", self.output.display());
        Ok(())
    }

    /// The format that the file's name says.
    fn said(&self) -> anyhow::Result<Format> {
        Format::of(&self.output).with_context(|| {
            let endings = Format::ALL.map(Format::extension).join(", ");
            format!(
                "The name {} does not say what to write; say it with --to, or end it with one of \
                 {endings}.",
                self.output.display()
            )
        })
    }
}
