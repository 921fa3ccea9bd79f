//! `ilk import`: recordings of other tools, converted.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use gilk_samples::chart::scale;
use gilk_samples::import::{Aligned, import};
use gilk_samples::input;
use gilk_samples::output::Contents;
use gilk_samples::recording::Recording;

use crate::output::Force;
use ilk_driver::note;

/// Import the text of ftrace (`trace`, `trace_pipe`, `trace-cmd report`) or of `perf script`.
///
/// With --beside, times are converted to the timeline of a recording of the same machine and boot.
/// A trace taken with `echo x86-tsc > trace_clock` is best: it only needs --tsc. Otherwise state
/// with --at the other clock's time at the recording's second 0.
#[derive(Args)]
pub(crate) struct Import {
    /// The text file.
    text: PathBuf,
    /// The recording to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// A recording of GILK's that provides the clock.
    #[arg(long, value_name = "RECORDING")]
    beside: Option<PathBuf>,
    /// The text's times are readings of the time-stamp counter.
    #[arg(long, requires = "beside", conflicts_with = "at")]
    tsc: bool,
    /// The time of the text's clock at second 0 of the other recording, in seconds.
    #[arg(long, value_name = "SECONDS", requires = "beside")]
    at: Option<f64>,
    #[command(flatten)]
    force: Force,
}

impl Import {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut goals = self.force.goals().reads(&self.text);
        if let Some(beside) = &self.beside {
            goals = goals.reads(beside);
        }
        goals.goal(&self.output, Contents::Recording)?;
        let clock = match &self.beside {
            Some(path) => Some(Recording::open(path)?.metadata().clock),
            None => None,
        };
        let aligned = match (clock, self.tsc, self.at) {
            (Some(clock), true, _) => Aligned::Tsc(clock),
            (Some(clock), false, Some(seconds)) => Aligned::At { clock, seconds },
            (Some(_), false, None) => anyhow::bail!(
                "The relation of the two clocks is unknown; pass --tsc or --at SECONDS."
            ),
            (None, ..) => Aligned::Alone,
        };
        // It is read twice, which a pipe cannot be.
        input::check(&self.text)?;
        ensure!(
            self.text.is_file(),
            "{} is not a regular file; save the text in one.",
            self.text.display()
        );
        let open = || File::open(&self.text).map(BufReader::new);
        let done = import(open, &self.text, aligned, &self.output)?;
        if let Some(first) = &done.first_skipped {
            note!(
                "Left out, since they are no events: {}, the first: {first}",
                scale::counted(done.skipped, "line")
            );
        }
        note!(
            "{} in {}.",
            scale::counted(done.summary.samples, "event"),
            self.output.display()
        );
        Ok(())
    }
}
