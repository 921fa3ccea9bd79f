//! `ilk join`: recordings of several machines as one.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use gilk_samples::chart::scale;
use gilk_samples::joined::Joined;
use gilk_samples::metadata::Metadata;

use crate::progress::Progress;

/// Join recordings of several machines into one, on one timeline.
///
/// Times become nanoseconds by the clock of whoever recorded, and so do values that are ticks.
#[derive(Args)]
pub(crate) struct Join {
    /// The recordings.
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// The recording to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Join {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let same = |path: &PathBuf| path.canonicalize().ok() == self.output.canonicalize().ok();
        if self.output.exists() && self.recordings.iter().any(same) {
            bail!(
                "{} is one of those to be joined; write to another file.",
                self.output.display()
            );
        }
        let joined = Joined::open(&self.recordings)?;
        let mut progress = Progress::new();
        let of = joined.samples().max(1);
        let summary = joined.write(&self.output, |samples| {
            progress.share(samples as f32 / of as f32, "joining");
        })?;
        progress.clear();
        print_clocks(joined.metadata());
        eprintln!(
            "{} samples in {}.",
            scale::grouped(summary.samples),
            self.output.display()
        );
        Ok(())
    }
}

/// Says how the machines' clocks stand to each other.
pub(crate) fn print_clocks(metadata: &Metadata) {
    let first = metadata.clock.start_unix_ns;
    for machine in &metadata.machines {
        let later = machine.start_unix_ns.saturating_sub(first) as f64 / 1e9;
        let exact = match machine.error_ns {
            Some(error) => format!(
                "times are right to ±{}",
                scale::duration(error as f64 / 1e9)
            ),
            None => "times are by its own clock, and nobody knows how right that is".to_owned(),
        };
        eprintln!(
            "{}: Linux {}, second 0 {} after the first; {exact}.",
            machine.name,
            machine.kernel,
            scale::duration(later)
        );
    }
}
