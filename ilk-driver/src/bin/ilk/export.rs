//! `ilk export`: a recording for other programs.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gilk_samples::export::{Format, export_to};
use gilk_samples::recording::Recording;
use ilk_driver::interrupt;

use crate::progress::Progress;

/// Write a recording's samples as text, in order of time.
#[derive(Args)]
pub(crate) struct Export {
    /// The recording.
    recording: PathBuf,
    /// What to write.
    #[arg(long)]
    to: To,
    /// The file to write.
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
}

impl Export {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let format = match self.to {
            To::Csv => Format::Csv,
            To::Plain => Format::Report,
            To::Jsonl => Format::JsonLines,
        };
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
