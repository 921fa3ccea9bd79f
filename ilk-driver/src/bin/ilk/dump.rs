//! `ilk dump`: a running kernel as a file, for `--image` and for tests.

use std::path::PathBuf;

use clap::Args;
use gilk_samples::chart::scale;
use gilk_samples::output::Contents;
use ilk_driver::note;
use ilk_driver::saved::save;

use crate::output::Force;
use crate::target::{TargetArgs, read};

/// Save the running kernel's symbols, text and tables for --image.
#[derive(Args)]
pub(crate) struct Dump {
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    target: TargetArgs,
}

impl Dump {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        self.force.goals().goal(&self.output, Contents::Other)?;
        let mut connected = self.target.look()?;
        let (parts, modules) = read(&mut connected.connection)?;
        save(&parts, &modules, &self.output)?;
        let bytes = std::fs::metadata(&self.output)?.len();
        note!(
            "Linux {}: {} bytes in {}.",
            parts.release,
            scale::grouped(bytes),
            self.output.display()
        );
        Ok(())
    }
}
