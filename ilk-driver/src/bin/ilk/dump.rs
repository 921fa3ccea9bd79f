//! `ilk dump`: a running kernel as a file, for `--image` and for tests.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::target::{TargetArgs, read};

/// Save the running kernel's symbols, text and tables for --image.
#[derive(Args)]
pub(crate) struct Dump {
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
}

impl Dump {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut connected = self.target.connect()?;
        let parts = read(&mut connected.connection)?;
        let bytes = postcard::to_allocvec(&parts)?;
        std::fs::write(&self.output, &bytes).with_context(|| {
            format!(
                "{} cannot be written; choose another place",
                self.output.display()
            )
        })?;
        eprintln!(
            "Linux {}: {} bytes in {}.",
            parts.release,
            bytes.len(),
            self.output.display()
        );
        Ok(())
    }
}
