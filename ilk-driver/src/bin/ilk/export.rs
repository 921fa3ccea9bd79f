//! `ilk export`: exports recordings to the formats of other programs.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gilk_samples::chart::scale;
use gilk_samples::export::{Format, export_into, export_to};
use gilk_samples::output::Contents;
use gilk_samples::recording::Recording;
use ilk_driver::interrupt;
use ilk_driver::note;

use crate::output::Force;
use crate::progress::Progress;

/// Export a recording to the format of another program, in order of time.
#[derive(Args)]
pub(crate) struct Export {
    /// The recording; for a folder, any number of recordings.
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// The format. Without it, the extension of the output selects one.
    #[arg(long, value_parser = destinations())]
    to: Option<To>,
    /// The output file; for ctf and folder, the directory.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    force: Force,
}

/// A destination of `--to`.
#[derive(Clone, Copy)]
enum To {
    /// A file of this format.
    File(Format),
    /// A folder of Parquet files.
    Folder,
}

/// Name of [`To::Folder`].
const FOLDER: &str = "folder";

/// Returns the parser of `--to`, which lists the formats in the help.
fn destinations() -> impl TypedValueParser<Value = To> {
    let formats = Format::ALL.map(|format| PossibleValue::new(format.name()).help(format.about()));
    let folder = PossibleValue::new(FOLDER)
        .help("A folder of Parquet files by machine and day, to which recordings are added");
    let values: Vec<PossibleValue> = formats.into_iter().chain([folder]).collect();
    PossibleValuesParser::new(values).try_map(|name| match name.as_str() {
        FOLDER => Ok(To::Folder),
        name => name.parse().map(To::File),
    })
}

impl Export {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        interrupt::watch();
        let format = match self.to {
            Some(To::File(format)) => Some(format),
            Some(To::Folder) => None,
            None => Some(self.format_of_output()?),
        };
        if format.is_some() && self.recordings.len() > 1 {
            bail!(
                "Only a folder accepts several recordings (--to folder); combine them first with \
                 `ilk join`."
            );
        }
        let goals = self.force.goals();
        let recordings = self.recordings.iter();
        let mut goals = recordings.fold(goals, |goals, path| goals.reads(path));
        let contents = match format {
            Some(_) => Contents::Other,
            None => Contents::Folder,
        };
        goals.goal(&self.output, contents)?;
        let mut samples: u64 = 0;
        for path in &self.recordings {
            let recording = Recording::open(path)?;
            if let Some(recovered) = recording.recovered() {
                note!("{}: {recovered}", path.display());
            }
            let mut progress = Progress::new();
            let mut report = |at: gilk_samples::export::Progress| {
                progress.share(at.samples as f32 / at.of.max(1) as f32, "exporting");
                if interrupt::arrived() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let exported = match format {
                Some(format) => export_to(&recording, format, &self.output, &mut report),
                None => export_into(&recording, &self.output, &mut report),
            }?;
            progress.clear();
            for damage in &exported.damaged {
                note!("{damage}");
            }
            if let Some(remark) = &exported.remark {
                note!("{remark}");
            }
            samples += exported.samples;
        }
        match format {
            Some(Format::Totals) => note!("They are in {}.", self.output.display()),
            // Those of samples, and keys of totals.
            Some(Format::Folded | Format::Flame) => {
                note!("The stacks are in {}.", self.output.display());
            }
            // Samples, and readings of counters.
            _ => note!(
                "{} in {}.",
                scale::counted(samples, "record"),
                self.output.display()
            ),
        }
        Ok(())
    }

    /// Returns the format that the output's extension selects.
    fn format_of_output(&self) -> anyhow::Result<Format> {
        Format::of(&self.output).with_context(|| {
            let extensions = Format::ALL.map(Format::extension).join(", ");
            format!(
                "The name {} selects no format; choose one with --to, or end the name with one of \
                 {extensions}.",
                self.output.display()
            )
        })
    }
}
