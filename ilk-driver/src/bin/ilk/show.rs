//! `ilk show`: a recording in the terminal, or as a picture.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gilk_samples::chart::{Chart, png, svg, terminal};
use gilk_samples::index::Index;
use gilk_samples::recording::Recording;

use crate::progress::columns;

/// Show a recording: what it is, and a lane an instrument.
#[derive(Args)]
pub(crate) struct Show {
    /// The recording.
    recording: PathBuf,
    /// Write the picture of it there.
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

impl Show {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        draw(&self.recording, self.png.as_deref())
    }
}

/// Prints the chart of a recording, and writes its picture if asked to.
pub(crate) fn draw(path: &Path, picture: Option<&Path>) -> anyhow::Result<()> {
    let recording = Recording::open(path)?;
    if let Some(why) = recording.recovered() {
        eprintln!("{}: {why}", path.display());
    }
    let (index, damaged) = Index::of(&recording, |_| {});
    for damage in &damaged {
        eprintln!("{damage}");
    }
    let (losses, marks) = (recording.losses()?, recording.marks()?);
    let metadata = recording.metadata();
    let mut chart = Chart::new(metadata, &index);
    chart.losses = &losses;
    chart.marks = &marks;
    chart.title = title(path, metadata);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", terminal(&chart, columns()).trim_end())?;
    if let Some(picture) = picture {
        let bytes = png(&svg(&chart), 1.0)?;
        std::fs::write(picture, bytes).with_context(|| {
            format!(
                "{} cannot be written; choose another place",
                picture.display()
            )
        })?;
    }
    Ok(())
}

fn title(path: &Path, metadata: &gilk_samples::metadata::Metadata) -> String {
    let name = gilk_engine::Session::from_ron(&metadata.session)
        .map_or_else(|_| path.display().to_string(), |session| session.name);
    format!("{name} — Linux {}", metadata.kernel)
}
