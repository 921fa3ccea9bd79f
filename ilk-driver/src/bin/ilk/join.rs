//! `ilk join`: recordings of several machines as one.

use std::path::PathBuf;

use clap::Args;
use gilk_samples::chart::scale;
use gilk_samples::joined::Joined;
use gilk_samples::metadata::Metadata;
use gilk_samples::output::Contents;

use crate::output::Force;
use crate::progress::Progress;
use ilk_driver::note;

/// Join recordings of several machines into one, on one timeline.
///
/// Times are converted to nanoseconds of the recording machine's clock, and so are values in ticks.
#[derive(Args)]
pub(crate) struct Join {
    /// The recordings to join.
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// The recording to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    force: Force,
}

impl Join {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let goals = self.force.goals();
        let recordings = self.recordings.iter();
        let mut goals = recordings.fold(goals, |goals, path| goals.reads(path));
        goals.goal(&self.output, Contents::Recording)?;
        let joined = Joined::open(&self.recordings)?;
        let mut progress = Progress::new();
        let of = joined.samples().max(1);
        let summary = joined.write(&self.output, |samples| {
            progress.share(samples as f32 / of as f32, "joining");
        })?;
        progress.clear();
        print_clocks(joined.metadata());
        note!(
            "{} in {}.",
            scale::counted(summary.samples, "record"),
            self.output.display()
        );
        Ok(())
    }
}

/// Prints the relation of the machines' clocks.
pub(crate) fn print_clocks(metadata: &Metadata) {
    let first = metadata.clock.start_unix_ns;
    for machine in &metadata.machines {
        let later = machine.start_unix_ns.saturating_sub(first) as f64 / 1e9;
        let exact = match machine.error_ns {
            Some(error) => format!(
                "times are accurate to ±{}",
                scale::duration(error as f64 / 1e9)
            ),
            None => "times are by its own clock, with unknown accuracy".to_owned(),
        };
        note!(
            "{}: Linux {}, second 0 {} after the first; {exact}.",
            machine.name,
            machine.kernel,
            scale::duration(later)
        );
    }
}
