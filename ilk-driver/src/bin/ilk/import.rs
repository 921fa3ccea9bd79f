//! `ilk import`: what others have recorded, as a recording.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::Args;
use gilk_samples::chart::scale;
use gilk_samples::import::{Aligned, import};
use gilk_samples::recording::Recording;

/// Import the text of ftrace (`trace`, `trace_pipe`, `trace-cmd report`) or of `perf script`.
///
/// With --beside, times are put on the timeline of a recording of the same machine and boot. Best is a
/// trace taken with `echo x86-tsc > trace_clock`: --tsc then needs no more.
/// Otherwise say with --at what the other clock showed at the recording's second 0.
#[derive(Args)]
pub(crate) struct Import {
    /// The text.
    text: PathBuf,
    /// The recording to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// A recording of GILK's, whose clock is taken.
    #[arg(long, value_name = "RECORDING")]
    beside: Option<PathBuf>,
    /// The text's times are those of the time-stamp counter.
    #[arg(long, requires = "beside", conflicts_with = "at")]
    tsc: bool,
    /// What the text's clock showed at second 0 of the other recording, in seconds.
    #[arg(long, value_name = "SECONDS", requires = "beside")]
    at: Option<f64>,
}

impl Import {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let clock = match &self.beside {
            Some(path) => Some(Recording::open(path)?.metadata().clock),
            None => None,
        };
        let aligned = match (clock, self.tsc, self.at) {
            (Some(clock), true, _) => Aligned::Tsc(clock),
            (Some(clock), false, Some(seconds)) => Aligned::At { clock, seconds },
            (Some(_), false, None) => anyhow::bail!(
                "How the two clocks stand to each other is not known; say --tsc or --at SECONDS."
            ),
            (None, ..) => Aligned::Alone,
        };
        let open = || File::open(&self.text).map(BufReader::new);
        let done = import(open, &self.text, aligned, &self.output)?;
        if let Some(first) = &done.first_skipped {
            eprintln!(
                "{} lines were no events and were left out, the first: {first}",
                done.skipped
            );
        }
        eprintln!(
            "{} events in {}.",
            scale::grouped(done.summary.samples),
            self.output.display()
        );
        Ok(())
    }
}
