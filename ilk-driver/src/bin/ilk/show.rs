//! `ilk show`: a recording in the terminal, or as a picture.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, ValueEnum};
use gilk_samples::chart::{Chart, svg, terminal, totals};
use gilk_samples::index::{By, Index};
use gilk_samples::joined::{self, Joined};
use gilk_samples::metadata::Metadata;
use gilk_samples::output::Contents;
use gilk_samples::recording::{Loss, Mark, Recording};
use gilk_samples::totals::Totals;

use crate::output::Force;
use crate::progress::{Progress, columns};
use crate::span::Span;
use crate::{join, pager, picture};
use ilk_driver::note;

/// Show a recording: its description, and a lane per instrument, or per CPU or thread of it. `ilk
/// stats` prints the numbers.
///
/// Several recordings, of several machines, are shown on one timeline.
#[derive(Args)]
pub(crate) struct Show {
    /// The recording, or recordings, or a folder of them.
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// Only this span, in seconds from the start: 1.5..2.
    #[arg(long, value_name = "FROM..TO")]
    span: Option<Span>,
    /// Only instruments whose label contains this.
    #[arg(long, value_name = "TEXT")]
    instrument: Option<String>,
    /// Split lanes by CPU, or by thread if running-thread was placed.
    #[arg(long, value_name = "WHAT")]
    by: Option<LaneKey>,
    /// Limit on the lanes of a picture.
    #[arg(long, default_value_t = 40)]
    lanes: usize,
    /// Write a picture to this file: PNG, or SVG by the extension.
    #[arg(long, alias = "svg", value_name = "FILE")]
    png: Option<PathBuf>,
    /// Show instruments without hits, too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    force: Force,
}

/// The key that lanes are split by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LaneKey {
    Cpu,
    Thread,
}

impl Show {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let selection = Selection {
            span: self.span,
            instrument: self.instrument.as_deref(),
            by: self.by.map(|by| match by {
                LaneKey::Cpu => By::Cpu,
                LaneKey::Thread => By::Thread,
            }),
            lanes: self.lanes,
            all: self.all,
        };
        let paths = files(&self.recordings)?;
        if let Some(png) = &self.png {
            let goals = self.force.goals();
            let mut goals = paths.iter().fold(goals, |goals, path| goals.reads(path));
            goals.goal(png, Contents::Other)?;
        }
        show(Shown::open(&paths)?, &selection, self.png.as_deref())
    }
}

/// Returns the recordings that the arguments name: those of a folder, or the files.
fn files(arguments: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    match arguments {
        [folder] if folder.is_dir() => Ok(joined::files(folder)?),
        files => Ok(files.to_vec()),
    }
}

/// The selected part of a recording.
struct Selection<'a> {
    span: Option<Span>,
    /// Part of a label.
    instrument: Option<&'a str>,
    by: Option<By>,
    /// Limit on the lanes of a picture.
    lanes: usize,
    /// Shows instruments without hits, too.
    all: bool,
}

/// Prints the chart of recordings, writes its picture if requested, and returns their metadata.
pub(crate) fn draw(
    paths: &[PathBuf],
    picture: Option<&Path>,
    all: bool,
) -> anyhow::Result<Metadata> {
    let selection = Selection {
        span: None,
        instrument: None,
        by: None,
        lanes: 40,
        all,
    };
    let mut shown = Shown::open(paths)?;
    // The command that ran the session prints the totals itself.
    shown.totals = Totals::default();
    let metadata = shown.metadata.clone();
    show(shown, &selection, picture)?;
    Ok(metadata)
}

/// The contents of a recording, or of several joined ones.
struct Shown {
    metadata: Metadata,
    index: Index,
    losses: Vec<Loss>,
    marks: Vec<Mark>,
    totals: Totals,
    title: String,
}

impl Shown {
    /// Reads recordings, with progress on standard error.
    fn open(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut progress = Progress::new();
        let share = |samples: u64, of: u64| samples as f32 / of.max(1) as f32;
        if let [path] = paths {
            let recording = Recording::open(path)?;
            recovered(&recording);
            let of = recording.samples();
            let read = Index::of(&recording, |samples| {
                progress.share(share(samples, of), "reading");
                ControlFlow::Continue(())
            });
            return Ok(Self {
                metadata: recording.measured()?,
                index: whole(read),
                losses: recording.losses()?,
                marks: recording.marks()?,
                totals: recording.totals().clone(),
                title: title(path, recording.metadata()),
            });
        }
        let joined = Joined::open(paths)?;
        joined.recordings().for_each(recovered);
        let of = joined.samples();
        let read = joined.index(|samples| {
            progress.share(share(samples, of), "reading");
            ControlFlow::Continue(())
        });
        progress.clear();
        join::print_clocks(joined.metadata());
        Ok(Self {
            metadata: joined.measured()?,
            index: whole(read),
            losses: joined.losses()?,
            marks: joined.marks()?,
            totals: joined.totals(),
            title: format!("{} machines", paths.len()),
        })
    }
}

/// Warns that a recording is incomplete.
fn recovered(recording: &Recording) {
    if let Some(why) = recording.recovered() {
        note!("{}: {why}", recording.path().display());
    }
}

/// Returns the index after printing the parts that could not be read.
fn whole((index, damaged): (Index, Vec<gilk_samples::Error>)) -> Index {
    for damage in &damaged {
        note!("{damage}");
    }
    index
}

fn show(shown: Shown, selection: &Selection<'_>, picture: Option<&Path>) -> anyhow::Result<()> {
    let Shown {
        mut metadata,
        index,
        losses,
        marks,
        mut totals,
        title,
    } = shown;
    if selection.by == Some(By::Thread) && index.threads().is_none() {
        bail!(
            "No instrument of this recording records the running thread. Place running-thread at the entry of finish_task_switch and record again."
        );
    }
    if let Some(wanted) = selection.instrument {
        metadata
            .instruments
            .retain(|instrument| instrument.label.contains(wanted));
        totals.retain(|instrument| instrument.contains(wanted));
    }
    let mut chart = Chart::new(&metadata, &index);
    chart.losses = &losses;
    chart.marks = &marks;
    chart.range = selection.span.map(|span| {
        let clock = &metadata.clock;
        let (first, last) = index.span().unwrap_or_default();
        span.ticks(clock, (first.min(clock.start), last.saturating_add(1)))
    });
    chart.title = title;
    chart.by = selection.by;
    // With a selection of instruments, the others are not unknown ones.
    chart.only_known = selection.instrument.is_some();
    chart.max_lanes = usize::MAX;
    chart.all = selection.all;
    let lanes = terminal(&chart, columns());
    pager::print(&format!(
        "{}\n{}",
        lanes.trim_end(),
        totals::text(&totals, &metadata, selection.all)
    ))?;
    let Some(to) = picture else {
        return Ok(());
    };
    chart.max_lanes = selection.lanes;
    chart.notes = totals::text(&totals, &metadata, selection.all);
    picture::write(to, svg(&chart))
}

fn title(path: &Path, metadata: &Metadata) -> String {
    let name = gilk_engine::Session::from_ron(&metadata.session)
        .map_or_else(|_| path.display().to_string(), |session| session.name);
    format!("{name} — Linux {}", metadata.kernel)
}
