//! `ilk show`: a recording in the terminal, or as a picture.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gilk_samples::chart::{Chart, png, svg, terminal};
use gilk_samples::index::Index;
use gilk_samples::metadata::Metadata;
use gilk_samples::recording::Recording;

use crate::pager;
use crate::progress::{Progress, columns};
use crate::span::Span;

/// Show a recording: what it is, and a lane an instrument. `ilk stats` has the numbers.
#[derive(Args)]
pub(crate) struct Show {
    /// The recording.
    recording: PathBuf,
    /// Only this span, in seconds from the start: 1.5..2.
    #[arg(long, value_name = "FROM..TO")]
    span: Option<Span>,
    /// Only instruments whose label contains this.
    #[arg(long, value_name = "TEXT")]
    instrument: Option<String>,
    /// Lanes at most, in a picture.
    #[arg(long, default_value_t = 40)]
    lanes: usize,
    /// Write the picture of it there: PNG, or SVG if the name ends so.
    #[arg(long, alias = "svg", value_name = "FILE")]
    png: Option<PathBuf>,
}

impl Show {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let recording = Recording::open(&self.recording)?;
        let span = self.span.map(|span| {
            let clock = &recording.metadata().clock;
            let (first, last) = recording.span().unwrap_or_default();
            span.ticks(clock, (first.min(clock.start), last.saturating_add(1)))
        });
        let looked = Looked {
            span,
            instrument: self.instrument.as_deref(),
            lanes: self.lanes,
        };
        show(&recording, &looked, self.png.as_deref())
    }
}

/// What of a recording is looked at.
struct Looked<'a> {
    /// In TSC ticks.
    span: Option<(u64, u64)>,
    /// A part of the labels.
    instrument: Option<&'a str>,
    /// Lanes of a picture.
    lanes: usize,
}

/// Prints the chart of a recording, and writes its picture if asked to.
pub(crate) fn draw(path: &Path, picture: Option<&Path>) -> anyhow::Result<()> {
    let looked = Looked {
        span: None,
        instrument: None,
        lanes: 40,
    };
    show(&Recording::open(path)?, &looked, picture)
}

fn show(recording: &Recording, looked: &Looked<'_>, picture: Option<&Path>) -> anyhow::Result<()> {
    let path = recording.path();
    if let Some(why) = recording.recovered() {
        eprintln!("{}: {why}", path.display());
    }
    let mut metadata = recording.metadata().clone();
    if let Some(wanted) = looked.instrument {
        metadata
            .instruments
            .retain(|instrument| instrument.label.contains(wanted));
    }
    let mut progress = Progress::new();
    let of = recording.samples().max(1);
    let (index, damaged) = Index::of(recording, |samples| {
        progress.share(samples as f32 / of as f32, "reading");
    });
    progress.clear();
    for damage in &damaged {
        eprintln!("{damage}");
    }
    let (losses, marks) = (recording.losses()?, recording.marks()?);
    let mut chart = Chart::new(&metadata, &index);
    chart.losses = &losses;
    chart.marks = &marks;
    chart.range = looked.span;
    chart.title = title(path, &metadata);
    // With instruments picked, others are no unknown ones.
    chart.only_known = looked.instrument.is_some();
    chart.max_lanes = usize::MAX;
    pager::print(&format!("{}\n", terminal(&chart, columns()).trim_end()))?;
    if let Some(picture) = picture {
        chart.max_lanes = looked.lanes;
        let svg = svg(&chart);
        let is_svg = picture
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("svg"));
        let bytes = if is_svg {
            svg.into_bytes()
        } else {
            png(&svg, 1.0)?
        };
        std::fs::write(picture, bytes).with_context(|| {
            format!(
                "{} cannot be written; choose another place",
                picture.display()
            )
        })?;
    }
    Ok(())
}

fn title(path: &Path, metadata: &Metadata) -> String {
    let name = gilk_engine::Session::from_ron(&metadata.session)
        .map_or_else(|_| path.display().to_string(), |session| session.name);
    format!("{name} — Linux {}", metadata.kernel)
}
